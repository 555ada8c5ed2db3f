"""From what operators and producers wrote of a target to the target that is called, or why none is.

The one place of these rules: `outbox targets` and the worker hold a definition to the same ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from streams.errors import TargetError
from streams.model.policy import Policy
from streams.model.target import MESSAGE_SCHEMES, NAME_PATTERN, Signing, Target, TargetRecord, Tls
from streams.rules.addresses import IpNetwork, admit_url
from streams.rules.secret_names import is_secret_name
from streams.rules.verdict import OVERRIDES

OVERRIDABLE: Final = frozenset(f.name for f in fields(Policy) if f.name != "name")
"""Fields of a policy that a target may override (C-02)."""

RESERVED_HEADERS: Final = frozenset(
    # What the transport writes.
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
    # What every request carries (interface.md §4), and the mark of `outbox targets test`.
    | {"content-type", "user-agent", "idempotency-key", "outbox-attempt", "outbox-test"}
    # What signatures write.
    | {"signature", "signature-input", "content-digest", "digest", "date"}
    # What ends or changes the connection (RFC 9110 §7.6.1).
    | {"te", "trailer", "upgrade", "expect", "keep-alive", "proxy-connection"}
)
"""Headers that a target may not set, beside all of `webhook-…`: twice, they contradict each other."""

SECRET_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:/[ -~]{1,1023}")
"""Where a secret is found: a variable or a file of the worker. Never the secret itself (D-042)."""

KEY_ID: Final = re.compile(r"(?:(?![\"\\])[!-~]){1,512}")
"""Id of a message key; mostly a URL. Stands between quotes in headers, so it holds none."""

HEADERS_MAX: Final = 32
RATE_MAX: Final = 1_000_000.0
RATE_MIN: Final = 0.001

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
_MESSAGE_ID_FROM: Final = re.compile(r"header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}|json:/[ -~]{0,255}")
_PATH: Final = re.compile(r"/[ -~]{1,1023}")


def inbox_target(url: str, tenant: str, policies: Mapping[str, Policy]) -> Target:
    """An activity's inbox URL as a target: the `activity` policy, idempotent (C-03)."""
    return Target(key=url, tenant=tenant, url=url, idempotent=True, policy=policies["activity"])


def registered_target(
    record: TargetRecord, policies: Mapping[str, Policy], allowed: Sequence[IpNetwork]
) -> Target:
    """A registered target, held to every rule that can be checked without touching the world.

    Args:
        record: As it was put.
        policies: The named policies.
        allowed: Networks that may be called although they are not public (C-10).

    Raises:
        TargetError: naming the rule broken, and no value that could be a secret.
    """
    _check_names(record)
    admit_url(record.url, allowed)
    signing = _signing_of(record)
    return Target(
        key=record.name,
        tenant=record.tenant,
        url=record.url,
        idempotent=record.idempotent,
        policy=_policy_of(record, policies),
        verdicts=_checked_verdicts(record.verdicts),
        retryable=_checked_statuses(record.retryable),
        headers=_written_headers(record.headers),
        signing=signing,
        secret_refs=record.secret_refs,
        key_id=record.key_id,
        rate_per_s=_checked_rate(record.rate_per_s),
        message_id_from=_checked_message_id(record.message_id_from),
        tls=_tls_of(record),
        http2=record.http2,
        enabled=record.enabled,
    )


def overridden(policy: Policy, overrides: Mapping[str, int]) -> Policy:
    """A policy with some fields replaced, checked as a whole.

    Raises:
        TargetError: an unknown field, or a rule of `Policy` broken.
    """
    if not overrides:
        return policy
    for name in overrides:
        if name not in OVERRIDABLE:
            raise TargetError(
                f"policy field {name!r}: must be one of {', '.join(sorted(OVERRIDABLE))}"
            )
    try:
        return replace(policy, name=policy.name, **overrides)
    except ValueError as error:
        raise TargetError(str(error)) from None


def is_parked(*, enabled: bool, updated_ms: int, disabled: bool, disabled_ms: int) -> bool:
    """Whether a target's deliveries are parked: its operator says so, or we left it for a 410.

    An operator's record wins over our own older one: whoever puts a target anew has seen to it.

    Args:
        enabled: As the operator last put it.
        updated_ms: When that was, epoch milliseconds.
        disabled: As we ourselves know it.
        disabled_ms: When that was.
    """
    return not enabled or (disabled and disabled_ms > updated_ms)


def _check_names(record: TargetRecord) -> None:
    for field in ("tenant", "name"):
        if not NAME_PATTERN.fullmatch(getattr(record, field)):
            raise TargetError(
                f"{field}: must be 1 to 64 letters, digits, dots, underscores and dashes, and start "
                "with a letter or digit"
            )


def _policy_of(record: TargetRecord, policies: Mapping[str, Policy]) -> Policy:
    if record.policy not in policies:
        raise TargetError(f"policy: must be one of {', '.join(sorted(policies))}")
    return overridden(policies[record.policy], record.policy_overrides)


def _checked_verdicts(verdicts: dict[int, str]) -> dict[int, str]:
    for status, verdict in verdicts.items():
        if not 100 <= status <= 599 or verdict not in OVERRIDES:
            raise TargetError(
                f"verdicts: must map a status of 100 to 599 to one of {', '.join(sorted(OVERRIDES))}"
            )
    return verdicts


def _checked_statuses(retryable: tuple[int, ...] | None) -> frozenset[int] | None:
    if retryable is None:
        return None
    if not all(400 <= status <= 499 for status in retryable):
        raise TargetError("retryable: must be statuses of 400 to 499, or none of them (O-027)")
    return frozenset(retryable)


def _written_headers(headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    if len(headers) > HEADERS_MAX:
        raise TargetError(f"headers: must be at most {HEADERS_MAX}")
    return tuple(checked_header(name, value) for name, value in headers.items())


def checked_header(name: str, value: str) -> tuple[bytes, bytes]:
    """One header as it is written.

    Raises:
        TargetError: it is none, is written by the worker itself, or would hold a credential.
    """
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise TargetError("headers: name and value must be those of an HTTP header in ASCII")
    lower = name.lower()
    if lower in RESERVED_HEADERS or lower.startswith("webhook-"):
        raise TargetError(f"headers: {lower} is written by the worker itself")
    if is_secret_name(name):
        # The registry is read by many; a credential in it would be in every one's backups (D-042).
        raise TargetError(f"headers: {lower}: a credential must not stand in the registry")
    return lower.encode("ascii"), value.encode("ascii")


def _signing_of(record: TargetRecord) -> Signing:
    try:
        signing = Signing(record.signing)
    except ValueError:
        raise TargetError(
            f"signing: must be one of {', '.join(s for s in Signing if s)}, or empty"
        ) from None
    for reference in record.secret_refs:
        if not SECRET_REFERENCE.fullmatch(reference):
            raise TargetError(
                "secret_refs: must name where a secret is found: env:NAME or file:/absolute/path"
            )
    if signing is not Signing.NONE and not record.secret_refs:
        raise TargetError(f"secret_refs: {signing} needs one to sign with")
    if signing in MESSAGE_SCHEMES:
        if len(record.secret_refs) != 1:
            raise TargetError(f"secret_refs: {signing} takes one key; rotate by a new key_id")
        if not KEY_ID.fullmatch(record.key_id):
            raise TargetError(f"key_id: {signing} needs one, in ASCII without spaces and quotes")
    return signing


def _checked_rate(rate_per_s: float) -> float:
    if rate_per_s and not (math.isfinite(rate_per_s) and RATE_MIN <= rate_per_s <= RATE_MAX):
        raise TargetError(
            f"rate_per_s: must be calls per second from {RATE_MIN} to {RATE_MAX:.0f}, 0 for no limit"
        )
    return rate_per_s


def _checked_message_id(message_id_from: str) -> str | None:
    if not message_id_from:
        return None
    if not _MESSAGE_ID_FROM.fullmatch(message_id_from):
        raise TargetError("message_id_from: must be header:NAME or json:/pointer")
    return message_id_from


def _tls_of(record: TargetRecord) -> Tls:
    tls = Tls(
        cert_file=record.tls_cert_file,
        key_file=record.tls_key_file,
        ca_file=record.tls_ca_file,
    )
    for path in (tls.cert_file, tls.key_file, tls.ca_file):
        if path and not _PATH.fullmatch(path):
            raise TargetError("tls_cert_file, tls_key_file, tls_ca_file: must be absolute paths")
    if bool(tls.cert_file) != bool(tls.key_file):
        raise TargetError("tls_cert_file and tls_key_file: must be given together")
    if tls != Tls() and not record.url.lower().startswith("https:"):
        raise TargetError("tls_cert_file, tls_key_file, tls_ca_file: need an https URL")
    return tls
