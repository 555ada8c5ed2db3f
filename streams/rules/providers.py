"""A provider's events in our words: who, what, when; no text of theirs and no address is kept.

What a shape says as data (`shapes`) is done here, once for all of them. A bad item spoils no other one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streams.model.observed import Downstream, Engagement, ProviderEvent
from streams.rules.redaction import redact
from streams.rules.shapes import Meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.rules.shapes import Path, Places, Recipients, Shape

EVENTS_MAX: Final = 1_000
"""Of one body, recipients counted one by one; what goes beyond is counted as unread."""

MESSAGE_ID_CHARS_MAX: Final = 128
"""As much as is kept of an answer's message id (D-071)."""

_CODE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_KIND: Final = re.compile(r"[a-z0-9_.:/ -]{1,64}")
_WEBHOOK_ID: Final = re.compile(r"(dlv_[0-9a-f]{32})-([1-9][0-9]{0,8})")
_LATEST_MS: Final = 4_102_444_800_000  # the year 2100
_MILLIS_FROM: Final = 100_000_000_000
"""A number from here on is milliseconds: as seconds it would be the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event, and what names its delivery.

    Attributes:
        message_id: The provider's id of the message, empty where it gives none.
        delivery_id: Of our own `webhook-id` that came back with it, empty where none did.
        generation: Likewise; 0 where none did.
    """

    event: ProviderEvent
    message_id: str = ""
    delivery_id: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a body held.

    Attributes:
        told: Its events, one for each recipient concerned.
        unread: Items that are no events of this shape.
    """

    told: tuple[Told, ...] = ()
    unread: int = 0


def read_events(shape: Shape, provider: str, body: object, *, observed_ms: int = 0) -> Reading:
    """Read a provider's body. Total: whatever it holds, it is read or counted as unread.

    Args:
        provider: Configured name: part of each event's identity.
        body: JSON as Python has it, or a form's fields.
        observed_ms: When it was taken, epoch milliseconds.
    """
    told: list[Told] = []
    unread = 0
    for item in _items(shape, body):
        found = list(_read(shape, provider, item, observed_ms)) if isinstance(item, dict) else []
        room = EVENTS_MAX - len(told)
        told += found[:room]
        unread += max(0, len(found) - room) if found else 1
    return Reading(told=tuple(told), unread=unread)


def _items(shape: Shape, body: object) -> list[Any]:
    """The single events of a body."""
    if shape.opened and isinstance(text := _first(body, (shape.opened,)), str):
        try:
            body = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return [None]
    found = _first(body, (shape.each,)) if shape.each else body
    if found is None:
        found = body
    return found if isinstance(found, list) else [found]


def _read(shape: Shape, provider: str, item: dict[str, Any], at_ms: int) -> Iterator[Told]:
    """One event, once for each recipient that it is about."""
    words = [_text(_first(item, places)).lower() for places in shape.kind]
    kind = ".".join(word for word in words if word)
    if not kind:
        return
    meaning = _meaning(shape, kind)
    message_id = _message_id(shape, item)
    ours = _WEBHOOK_ID.fullmatch(_text(_first(item, shape.webhook_id)))
    happened_ms = _millis(_first(item, shape.at))
    fields = {
        "event_id": _text(_first(item, shape.event_id)),
        "message_id": message_id,
        "webhook_id": ours.group() if ours else "",
        "at": str(happened_ms or ""),
    }
    for address, code in _recipients(shape, item):
        own = fields | {"subject": address.strip().lower()}
        yield Told(
            event=_event(
                meaning,
                event_id=_identity(shape, provider, kind, own, item),
                provider=provider,
                provider_event_id=redact(own["event_id"], 128) if own["event_id"] else "",
                kind=kind if _KIND.fullmatch(kind) else "other",
                subject=_subject(provider, message_id or own["webhook_id"], own["subject"]),
                provider_code=code if _CODE.fullmatch(code) else "",
                provider_ms=happened_ms,
                observed_ms=at_ms,
            ),
            message_id=message_id if len(message_id) <= MESSAGE_ID_CHARS_MAX else "",
            delivery_id=ours.group(1) if ours else "",
            generation=int(ours.group(2)) if ours else 0,
        )


def _event(meaning: Meaning, **fields: Any) -> ProviderEvent:
    return ProviderEvent(
        state=meaning.state,
        engagement=meaning.engagement,
        about=meaning.about,
        summary=_summary(meaning, fields),
        **fields,
    )


def _summary(meaning: Meaning, fields: dict[str, Any]) -> str:
    """One line for a person, made of words and codes that were checked: nothing to redact."""
    said = [word for word in (meaning.state, meaning.engagement) if word not in _SILENT]
    line = f"{' and '.join(said) or 'noted'} ({fields['kind']})"
    if fields["provider_code"]:
        line += f", code {fields['provider_code']}"
    return line + (f"; about the {meaning.about}" if meaning.about else "")


_SILENT: Final = frozenset({Downstream.UNKNOWN, Engagement.NONE})


def _meaning(shape: Shape, kind: str) -> Meaning:
    """By the whole word, else by what stands before its last dot, and so on; else it says nothing."""
    while kind:
        if kind in shape.meanings:
            return shape.meanings[kind]
        kind = kind.rpartition(".")[0]
    return Meaning()


def _recipients(shape: Shape, item: dict[str, Any]) -> list[tuple[str, str]]:
    """Address and code of each recipient that the event is about; one without where it names none."""
    code = _text(_first(item, shape.code))
    for place in shape.recipients:
        listed = _first(item, (place.at,))
        if listed is None:
            continue
        found = [
            _recipient(place, each) for each in (listed if isinstance(listed, list) else [listed])
        ]
        named = {address: own or code for address, own in found if address}
        if named:
            return list(named.items())
    return [("", code)]


def _recipient(place: Recipients, item: object) -> tuple[str, str]:
    address = _first(item, (place.name,)) if place.name else item
    return _text(address), _text(_first(item, (place.code,))) if place.code else ""


def _message_id(shape: Shape, item: dict[str, Any]) -> str:
    message_id = _text(_first(item, shape.message_id)).strip("<>")
    return message_id.partition(shape.message_id_ends)[0] if shape.message_id_ends else message_id


def _identity(
    shape: Shape, provider: str, kind: str, fields: dict[str, str], item: dict[str, Any]
) -> str:
    """The canonical identity (D-055): the fields that the shape names; failing those, the item whole."""
    for row in shape.identity:
        values = [fields[name] for name in row]
        if all(values):
            return "evt_" + _digest([provider, kind, *row, *values])[:32]
    return "evt_" + _digest([provider, kind, _canonical(item)])[:32]


def _canonical(item: dict[str, Any]) -> str:
    return msgspec.json.encode(item, order="deterministic").decode()


def _subject(provider: str, message: str, address: str) -> str:
    """Stands for an address within one message: tells its recipients apart, and joins no two messages."""
    return _digest([provider, message, address])[:12] if address else ""


def _digest(parts: Iterable[str]) -> str:
    framed = b"".join(
        len(raw).to_bytes(4, "big") + raw
        for raw in (part.encode(errors="replace") for part in parts)
    )
    return sha256(framed).hexdigest()


def _first(value: object, places: Places) -> Any:
    """What lies at the first place that holds anything; None where none does."""
    for place in places:
        found = _follow(value, place)
        if found is not None and found != "":
            return found
    return None


def _follow(value: object, path: Path) -> object:
    for depth, name in enumerate(path):
        if name == "*":
            items = value if isinstance(value, list) else []
            found = (_follow(item, path[depth + 1 :]) for item in items)
            return next((each for each in found if each is not None), None)
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _text(value: object) -> str:
    """A scalar as text; empty for all that is none."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _millis(value: object) -> int:
    """A provider's time as epoch milliseconds; 0 for what is none.

    Read are seconds, with fractions or not, milliseconds, and ISO 8601. Fractions are kept: they order
    the events of one second (H06).
    """
    if isinstance(value, str):
        value = _number(value) if _number(value) is not None else _iso(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    if not 0 < value < _LATEST_MS:
        return 0
    return int(value) if value >= _MILLIS_FROM else int(round(value * 1_000, 3))


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,13}(\.[0-9]{1,9})?", text) else None


def _iso(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text[:40])
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
