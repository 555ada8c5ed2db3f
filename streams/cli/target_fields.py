"""What `--set name=value` may say of a target, and a target as operators may see it.

Reads text only: what a target may be is judged in one place, `rules.targets`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from streams.errors import TargetError
from streams.model.target import TargetRecord, TargetState
from streams.rules.redaction import mask
from streams.rules.targets import OVERRIDABLE, is_parked

_BOOLEANS: Final = {"true": True, "false": False}

_TEXTS: Final = frozenset(
    {"message_id_from", "signing", "key_id", "tls_cert_file", "tls_key_file", "tls_ca_file"}
)
_FLAGS: Final = frozenset({"enabled", "http2"})
_NAMES: Final = sorted(
    {"header.NAME", "verdict.STATUS", "retryable", "rate_per_s", "secret_refs"} | _TEXTS | _FLAGS
)


def with_settings(record: TargetRecord, pairs: Sequence[str]) -> TargetRecord:
    """Apply `--set name=value`, in order; an empty value takes back what an earlier put said.

    Raises:
        TargetError: there is no such name, or the value is not of its kind.
    """
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise TargetError(f"--set {name}: must be name=value")
        changes = _changes(record, name.strip(), value.strip())
        record = replace(record, **changes)
    return record


def _changes(record: TargetRecord, name: str, value: str) -> dict[str, Any]:
    """The fields that one `--set` changes."""
    kind, dot, key = name.partition(".")
    if name in OVERRIDABLE:
        overrides = _changed(record.policy_overrides, name, value, lambda: _integer(name, value))
        return {"policy_overrides": overrides}
    if dot and kind == "verdict":
        status = _integer(name, key)
        return {"verdicts": _changed(record.verdicts, status, value, lambda: value)}
    if dot and kind == "header":
        return {"headers": _changed(record.headers, key.lower(), value, lambda: value)}
    if name in _TEXTS:
        return {name: value}
    if name in _FLAGS:
        return {name: _boolean(name, value)}
    match name:
        case "retryable":
            return {name: _statuses(value)}
        case "rate_per_s":
            return {name: _rate(value)}
        case "secret_refs":
            return {name: tuple(filter(None, value.split(",")))}
        case _:
            raise TargetError(
                f"--set {name}: must be {', '.join(_NAMES)},"
                f" or a policy's {', '.join(sorted(OVERRIDABLE))}"
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
    if not all(re.fullmatch(r"[0-9]{3}", part) for part in found):
        raise TargetError("--set retryable: must be statuses such as 408,429, or none")
    return tuple(sorted({int(part) for part in found}))


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
    is_disabled = state is not None and is_parked(
        enabled=True,
        updated_ms=record.updated_ms,
        disabled=state.disabled,
        disabled_ms=state.at_ms,
    )
    shown["disabled"] = state.code if state is not None and is_disabled else None
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
    for name in ("rate_per_s", "secret_refs", "http2", *sorted(_TEXTS), "disabled"):
        if facts[name]:
            shown[name] = _text(facts[name])
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
