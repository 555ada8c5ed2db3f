"""Every variable: its name, kind, default and meaning."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, PrivateAttr, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from streams.errors import SettingsError
from streams.model.policy import MARGIN_MS, Policy
from streams.settings.kinds import (
    Address,
    Brokers,
    ExistingFile,
    HttpUrl,
    KeyId,
    LegalName,
    Networks,
    SecretReference,
    Token,
    Tokens,
    parse_tokens,
)

PREFIX: Final = "OUTBOX_"
DAY_MS: Final = 24 * 60 * 60 * 1_000

DRAIN_MARGIN_MS: Final = 2_000
"""What a clean stop grants beyond the longest call, to write the last reports."""

Source = Literal["default", "environment", "env-file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of `outbox settings`. `value` of a secret is `****`, or empty where it is not set."""

    name: str
    value: str
    source: Source
    meaning: str


class PolicyVariables(BaseSettings):
    """The overrides of one policy; what is None stays as the policy has it."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True, frozen=True)

    max_attempts: int | None = Field(None, ge=1, description="claims in one budget")
    first_delay_ms: int | None = Field(None, ge=1, description="delay before the second attempt")
    max_delay_ms: int | None = Field(None, ge=1, description="ceiling of the doubling delay")
    max_elapsed_ms: int | None = Field(
        None, ge=1, description="no retry starts later than this after the first claim"
    )
    timeout_ms: int | None = Field(None, ge=1, description="deadline of the whole call")
    lease_ms: int | None = Field(None, ge=MARGIN_MS + 1, description="how long a claim stands")
    max_age_ms: int | None = Field(None, ge=1, description="unsettled at this age: dead-lettered")
    jitter_ms: int | None = Field(None, ge=0, description="upper bound of what is added to a delay")
    max_connections: int | None = Field(None, ge=1, description="to one target, per worker")
    max_idle: int | None = Field(None, ge=0, description="idle connections kept to one target")


class Settings(BaseSettings):
    """The whole configuration, valid as a whole. Built by `load` only."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", env_ignore_empty=True, frozen=True
    )

    brokers: Brokers = Field("127.0.0.1:9092", description="Kafka: HOST:PORT[,...]")
    prefix: LegalName = Field("", description="before every topic name, group and transactional id")
    partitions: int = Field(
        64, ge=1, le=10_000, description="of every partitioned topic; never changes"
    )
    replication: int = Field(3, ge=1, le=100, description="copies of every topic")
    min_insync_replicas: int = Field(
        1, ge=1, description="copies that must have a record before it counts; default: 2 of 3"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how the brokers are talked to"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="how the user is proved"
    )
    sasl_username: str = Field("", description="user of a SASL_... protocol")
    sasl_password: SecretStr = Field(SecretStr(""), description="password of a SASL_... protocol")
    tls_ca_file: ExistingFile | None = Field(
        None, description="PEM of the brokers' authority; else the system's"
    )
    tls_cert_file: ExistingFile | None = Field(None, description="PEM of this client's certificate")
    tls_key_file: ExistingFile | None = Field(None, description="PEM of this client's key")
    tls_key_password: SecretStr = Field(SecretStr(""), description="of that key")
    schema_registry_url: HttpUrl | None = Field(
        None, repr=False, description="of registry-framed Avro; empty: none needed"
    )

    data_dir: Path = Field(Path(".local/outbox"), description="what can be rebuilt from Kafka")
    worker_id: LegalName = Field(
        default_factory=socket.gethostname,
        description="stable name of this worker, a static member",
    )
    drain_ms: int = Field(
        0,
        ge=0,
        description="wait for calls in flight at a stop; default: the longest timeout_ms + 2000",
    )
    session_timeout_ms: int = Field(
        12_000,
        ge=1_000,
        le=1_800_000,
        description="silence after which the group gives a worker up",
    )
    leave_on_stop: bool = Field(
        True,
        description="leave the group on a clean stop; false: a rolling restart keeps membership",
    )
    stall_ms: int = Field(
        60_000,
        ge=1_000,
        description="a partition that stands still for so long, waiting for nobody, ends the worker",
    )
    max_in_flight: int = Field(
        512, ge=1, description="deliveries under way at once per worker, each until it is reported"
    )
    max_held_bytes: int = Field(
        32 * 1024**2, ge=1, description="waiting retries held in memory per worker"
    )
    max_activity_bytes: int = Field(
        256 * 1024, ge=1, le=1024**2, description="largest activity that is read"
    )
    max_activity_depth: int = Field(32, ge=1, le=512, description="deepest JSON that is read")
    dedupe_window_ms: int = Field(
        7 * DAY_MS, ge=1, description="how long an activity is known after its last settlement"
    )
    allow_networks: Networks = Field(
        (), description="private networks that may be called, as CIDRs"
    )

    activitypub_key_id: KeyId = Field(
        "", description="id of the key that requests to inbox URLs are signed with; empty: unsigned"
    )
    activitypub_key: SecretReference = Field(
        "", description="where that private key (PEM) is found: env:NAME or file:/path"
    )
    activitypub_signing: Literal["rfc9421", "rfc9421-pss", "cavage"] = Field(
        "rfc9421", description="how they are signed; cavage: for servers of today"
    )

    health_address: Address = Field(
        "127.0.0.1:8081", description="/healthz, /readyz, /metrics of the worker"
    )
    api_address: Address = Field("127.0.0.1:8080", description="where the operator API listens")
    api_metrics_address: Address | None = Field(
        None, description="/healthz, /readyz, /metrics of the API, without a token; empty: nowhere"
    )
    api_tokens: Tokens = Field(SecretStr(""), description="who may ask the API, as JSON")
    api_token: SecretStr = Field(
        SecretStr(""), description="the bearer token of `outbox show` and `outbox redrive`"
    )
    api_tls_cert_file: ExistingFile | None = Field(
        None, description="PEM of the API's certificate; empty: it speaks HTTP"
    )
    api_tls_key_file: ExistingFile | None = Field(None, description="PEM of that certificate's key")
    api_jwks_url: HttpUrl | None = Field(
        None, description="keys that sign the API's bearer tokens, in place of a list"
    )
    api_jwks_issuer: str = Field("", description="the `iss` that such a token must have")
    api_jwks_audience: str = Field("", description="the `aud` that such a token must have")
    api_providers: str = Field(
        "", description="whose provider events are taken, as JSON (docs/providers.md)"
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="for people or for machines"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="least severe line shown"
    )
    log_sent_every: int = Field(
        1,
        ge=0,
        description="of the attempts that were sent, each so manieth has a line of its own; 0: none has",
    )

    _policies: dict[str, Policy] = PrivateAttr(default_factory=dict)
    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)
    _unknown: tuple[str, ...] = PrivateAttr(default=())

    @property
    def policies(self) -> dict[str, Policy]:
        """The named policies, overrides applied: `activity` and `notification`."""
        return dict(self._policies)

    @property
    def unknown(self) -> tuple[str, ...]:
        """A line for each `OUTBOX_` variable of the environment that names no setting."""
        return self._unknown

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The bearer tokens of the API."""
        return parse_tokens(self.api_tokens)

    def is_given(self, name: str) -> bool:
        """Whether the variable `name` (in full) was set, and not left at its default."""
        return name in self._sources

    def kafka_options(self) -> dict[str, Any]:
        """How every aiokafka client of ours reaches the brokers. Holds a password: never log it."""
        options: dict[str, Any] = {
            "bootstrap_servers": [part.strip() for part in self.brokers.split(",")],
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = _tls(self)
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.sasl_password.get_secret_value()
        return options

    def describe(self) -> list[Setting]:
        """Every setting with its value, where it comes from and what it means; secrets masked."""
        rows = [
            self._row(PREFIX + field.upper(), getattr(self, field), info.description)
            for field, info in type(self).model_fields.items()
        ]
        for policy in self._policies.values():
            for field, info in PolicyVariables.model_fields.items():
                name = f"{policy_prefix(policy)}{field.upper()}"
                rows.append(self._row(name, getattr(policy, field), info.description))
        return rows

    def completed(
        self, policies: dict[str, Policy], sources: dict[str, Source], *, unknown: tuple[str, ...]
    ) -> Settings:
        """These variables with what stands beside them; for `load`."""
        longest_ms = max(policy.timeout_ms for policy in policies.values())
        derived = {
            "drain_ms": longest_ms + DRAIN_MARGIN_MS,
            "min_insync_replicas": 2 if self.replication >= 3 else 1,
        }
        given = self.model_fields_set
        whole = self.model_copy(update={k: v for k, v in derived.items() if k not in given})
        whole.__pydantic_private__ = {
            "_policies": policies,
            "_sources": sources,
            "_unknown": unknown,
        }
        return whole

    def _row(self, name: str, value: object, meaning: str | None) -> Setting:
        return Setting(
            name=name,
            value=_shown(value),
            source=self._sources.get(name, "default"),
            meaning=meaning or "",
        )


def policy_prefix(policy: Policy) -> str:
    """How the names of one policy's variables begin."""
    return f"{PREFIX}POLICY_{policy.name.upper()}_"


def _tls(settings: Settings) -> ssl.SSLContext:
    """The TLS context of the brokers' connections."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_cert_file:
            password = settings.tls_key_password.get_secret_value()
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, lambda: password)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"OUTBOX_TLS_...: the files do not give a TLS context: {error.strerror or error}"
        ) from error
    return context


def _shown(value: object) -> str:
    """A value as people may see it."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case SecretStr():
            return "****" if value.get_secret_value() else ""
        case tuple():
            return ",".join(map(str, value))
        case str() if "@" in value:
            return re.sub(r"(?<=//)[^/]*@", "****@", value)
        case _:
            return str(value)
