"""The commands of `outbox`: one module a subject, each adding its own with `register`."""
