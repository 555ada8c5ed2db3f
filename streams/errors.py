"""The errors this package raises on purpose.

Expected outcomes of the world (a 503, a timeout) are values, never exceptions; what stands here is
bad input, a bad environment, or a reason for the process to end.
"""


class StreamsError(Exception):
    """Base of every error this package raises on purpose."""


class SettingsError(StreamsError):
    """The environment does not describe a runnable service."""


class SchemaError(StreamsError):
    """Bytes do not follow the schema that they claim, or a schema breaks compatibility."""


class RecordError(StreamsError):
    """A record cannot be read as what its topic promises.

    Attributes:
        code: Stable code of the rule broken (`docs/codes.md`), for dead letters and metrics.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TargetError(StreamsError):
    """A target's definition breaks a rule (URL, policy, name)."""


class TopicsError(StreamsError):
    """The topics on the cluster are not those that this version needs."""


class LocalKafkaError(StreamsError):
    """The local Kafka could not be started, stopped or found."""


class FatalError(StreamsError):
    """The worker can no longer make progress safely; the process ends and redelivery does the rest."""
