"""What `--set name=value` may say of a target, and a target as operators may see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from streams.edge.http.call import wanted
from streams.errors import TargetError
from streams.model.policy import Policy
from streams.model.target import NAME_PATTERN, Target
from streams.rules.addresses import IpNetwork, admit_url
from streams.rules.redaction import mask
from streams.rules.secret_names import is_secret_name
from streams.rules.targets import OVERRIDABLE, registered_target
from streams.wire.targets import TargetRecord, TargetState

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
_OURS: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection"}
    | {"accept-encoding", "user-agent", "idempotency-key", "outbox-attempt", "outbox-test"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)
"""Headers that the request has anyway (interface.md §4): twice, they would contradict each other."""

_BOOLEANS: Final = {"true": True, "false": False}


def with_settings(record: TargetRecord, pairs: Sequence[str]) -> TargetRecord:
    """Apply `--set name=value`, in order; an empty value takes back what an earlier put said.

    Raises:
        TargetError: naming the rule broken.
    """
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise TargetError(f"--set {name}: must be name=value")
        record = _with(record, name.strip(), value.strip())
    return record


def _with(record: TargetRecord, name: str, value: str) -> TargetRecord:
    kind, dot, key = name.partition(".")
    if name in OVERRIDABLE:
        overrides = _changed(record.policy_overrides, name, value, lambda: _integer(name, value))
        return replace(record, policy_overrides=overrides)
    if dot and kind == "verdict":
        verdicts = _changed(record.verdicts, _integer(name, key), value, lambda: value)
        return replace(record, verdicts=verdicts)
    if dot and kind == "header":
        headers = _changed(record.headers, key.lower(), value, lambda: _header(key, value))
        return replace(record, headers=headers)
    match name:
        case "retryable":
            return replace(record, retryable=_statuses(value))
        case "enabled":
            return replace(record, enabled=_boolean(name, value))
        case "rate_per_s":
            return replace(record, rate_per_s=_rate(value))
        case "message_id_from":
            wanted(value or None)
            return replace(record, message_id_from=value)
        case _:
            raise TargetError(
                f"--set {name}: must be enabled, header.NAME, message_id_from, rate_per_s,"
                f" retryable, verdict.STATUS, or a policy's {', '.join(sorted(OVERRIDABLE))}"
            )


def _changed(
    known: Mapping[Any, Any], key: object, value: str, read: Callable[[], object]
) -> dict[Any, Any]:
    """The entries with one more, or one less where the value is empty."""
    rest = {each: known[each] for each in known if each != key}
    return {**rest, key: read()} if value else rest


def _integer(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", value):
        raise TargetError(f"--set {name}: must be a whole number, not negative")
    return int(value)


def _boolean(name: str, value: str) -> bool:
    if value not in _BOOLEANS:
        raise TargetError(f"--set {name}: must be true or false")
    return _BOOLEANS[value]


def _rate(value: str) -> float:
    if value and not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,6})?", value):
        raise TargetError("--set rate_per_s: must be a number of calls per second, 0 for no limit")
    return float(value or 0)


def _statuses(value: str) -> tuple[int, ...] | None:
    """`408,429`; `none` for no 4xx at all (O-027), empty for the table's own."""
    if value in ("", "none"):
        return () if value else None
    found = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"4[0-9]{2}", part) for part in found):
        raise TargetError(
            "--set retryable: must be statuses of 400 to 499 such as 408,429, or none"
        )
    return tuple(sorted({int(part) for part in found}))


def _header(name: str, value: str) -> str:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise TargetError(
            "--set header.NAME: name and value must be those of an HTTP header in ASCII"
        )
    if name.lower() in _OURS:
        raise TargetError(f"--set header.{name}: is written by the worker itself")
    if is_secret_name(name):
        # The registry is read by many; a credential in it would be in every one's backups (D-042).
        raise TargetError(f"--set header.{name}: a credential must not stand in the registry")
    return value


def admitted(
    record: TargetRecord, policies: Mapping[str, Policy], allowed: Sequence[IpNetwork]
) -> Target:
    """Hold a record to the rules that a worker holds it to, so that what is put is called.

    Raises:
        TargetError: naming the rule broken.
    """
    if not NAME_PATTERN.fullmatch(record.tenant):
        raise TargetError("tenant: must be 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    admit_url(record.url, allowed)
    return registered_target(
        name=record.name,
        tenant=record.tenant,
        url=record.url,
        idempotent=record.idempotent,
        policy=record.policy,
        policy_overrides=record.policy_overrides,
        policies=policies,
        verdicts=record.verdicts,
        retryable=None if record.retryable is None else frozenset(record.retryable),
        enabled=record.enabled,
    )


def facts_of(record: TargetRecord, state: TargetState | None = None) -> dict[str, Any]:
    """A target's fields; what looks like a secret in its URL or headers is masked (D-044).

    `disabled` is the code for which we ourselves left it alone (410), None where we did not.
    """
    facts = asdict(record)
    facts["verdicts"] = {str(status): verdict for status, verdict in record.verdicts.items()}
    shown = mask(facts)
    assert isinstance(shown, dict), "a masked object is an object"
    # References name secrets and are none themselves (D-042).
    shown["secret_refs"] = list(record.secret_refs)
    shown["disabled"] = state.code if state is not None and state.disabled else None
    return dict(shown)


def line_of(facts: Mapping[str, Any]) -> str:
    """One line about a target: who, where, and what differs from its policy."""
    shown = {
        "url": facts["url"],
        "idempotent": _text(facts["idempotent"]),
        "policy": facts["policy"],
        **facts["policy_overrides"],
        **{f"verdict.{status}": verdict for status, verdict in facts["verdicts"].items()},
        **{f"header.{name}": repr(value) for name, value in facts["headers"].items()},
    }
    if facts["retryable"] is not None:
        shown["retryable"] = ",".join(map(str, facts["retryable"])) or "none"
    for name in ("rate_per_s", "message_id_from", "disabled"):
        if facts[name]:
            shown[name] = facts[name]
    if not facts["enabled"]:
        shown["enabled"] = "false"
    told = " ".join(f"{name}={value}" for name, value in shown.items())
    return f"{facts['tenant']}/{facts['name']} {told}"


def lines_of(facts: Mapping[str, Any]) -> list[str]:
    """Every field in a line of its own."""
    return [f"{name}={_text(value)}" for name, value in facts.items()]


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case dict():
            return " ".join(f"{name}:{each}" for name, each in value.items())
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
