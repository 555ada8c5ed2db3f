"""One place to tell an activity to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from streams.model.policy import Policy
from streams.model.words import Word

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A registered target's name. Has no `:` or `/`, so it never collides with an inbox URL."""


class Signing(Word):
    """How requests to a target are signed (C-09)."""

    NONE = ""
    """Not at all; with secrets, by Standard Webhooks, each secret as its prefix says."""
    WEBHOOKS_HMAC = "standard-webhooks-hmac"
    WEBHOOKS_ED25519 = "standard-webhooks-ed25519"
    RFC9421 = "rfc9421"
    """HTTP Message Signatures; an RSA key signs by PKCS #1 v1.5."""
    RFC9421_PSS = "rfc9421-pss"
    """As above; an RSA key signs by RSASSA-PSS."""
    CAVAGE = "cavage"


MESSAGE_SCHEMES: Final = frozenset({Signing.RFC9421, Signing.RFC9421_PSS, Signing.CAVAGE})
"""Schemes that sign with one private key, under a key id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A target's own TLS files, in PEM; an empty path is none.

    Attributes:
        cert_file: Our certificate, intermediates after it; `key_file` is its key.
        ca_file: The authority that the target's certificate must come from, in place of the system's.
    """

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where and how one delivery is called.

    Attributes:
        key: What names it in the ledger, records and metrics: the registered name, or the inbox URL.
        tenant: Whose it is.
        url: Absolute `http` or `https` URL, already validated.
        idempotent: It recognises a repeated id, so a call of unknown effect may be repeated (C-03).
        policy: Its bounds, overrides applied.
        verdicts: Overrides of the verdict table per status (C-04); values of `model.verdict.Verdict`.
        retryable: Which 4xx are tried again, in place of 408, 425 and 429; empty is the strict rule
            of O-027 (no 4xx is), None leaves the table as it is. `verdicts` win over it.
        headers: Further request headers, names in lower case, as they are written.
        signing: How requests are signed.
        secret_refs: Where the secrets are found, newest first; never the secrets (D-042).
        key_id: Under which receivers find the public key of an HTTP message signature.
        rate_per_s: Calls per second and worker; 0 is no limit.
        message_id_from: Where an answer holds the provider's message id (D-071); None for nowhere.
        tls: Its own TLS files.
        http2: Called over HTTP/2 where it speaks that.
        enabled: False: its deliveries are parked.
    """

    key: str
    tenant: str
    url: str
    idempotent: bool
    policy: Policy
    verdicts: dict[int, str] = field(default_factory=dict)
    retryable: frozenset[int] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    signing: Signing = Signing.NONE
    secret_refs: tuple[str, ...] = ()
    key_id: str = ""
    rate_per_s: float = 0.0
    message_id_from: str | None = None
    tls: Tls = field(default_factory=Tls)
    http2: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """A registered target (value of `outbox.targets`, key `tenant/name`). Not yet validated.

    Attributes:
        policy: Name of the policy; `policy_overrides` are its fields that differ.
        verdicts: Status -> verdict, overriding the table (C-04).
        retryable: The statuses that may be retried: None is the table's, an empty one the strict
            rule of O-027.
        headers: Further request headers. No credentials: `secret_refs` names those (D-042).
        secret_refs: Where the signing secrets are found, `env:NAME` or `file:/path`, newest first;
            several at once while rotating (C-09).
        signing: Signature scheme (`model.target.Signing`), empty for none.
        key_id: Id of the key of an HTTP message signature.
        rate_per_s: Calls per second and worker; 0 is no limit.
        message_id_from: Header name or JSON pointer of the provider message id (D-071), or empty.
        http2: Called over HTTP/2 where it speaks that.
        tls_cert_file, tls_key_file: PEM files, on the worker, of a client certificate.
        tls_ca_file: PEM file of the authority of the target's own certificate.
        enabled: False: its deliveries are parked.
        updated_ms: When it was put; wins over an older state of ours.
    """

    name: str
    tenant: str
    url: str
    idempotent: bool = False
    policy: str = "notification"
    policy_overrides: dict[str, int] = field(default_factory=dict)
    verdicts: dict[int, str] = field(default_factory=dict)
    retryable: tuple[int, ...] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    secret_refs: tuple[str, ...] = ()
    signing: str = ""
    rate_per_s: float = 0.0
    message_id_from: str = ""
    http2: bool = False
    enabled: bool = True
    updated_ms: int = 0
    key_id: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What we ourselves know of a target (key `tenant/name/state`): a 410 disables it (spec §3)."""

    disabled: bool
    code: str
    at_ms: int
