"""Keys and headers of our records (ledger.md, "Records"; interface.md §3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from streams.errors import RecordError
from streams.model.ledger import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Headers: TypeAlias = "Sequence[tuple[str, bytes]]"
"""As aiokafka types them. It hands a header that another client wrote without a value out as None."""

TOKEN_BYTES: Final = 16
CARRIED_HEADERS: Final = 32
"""Of a producer's headers, so many are carried on from hop to hop at most …"""
CARRIED_BYTES: Final = 8_192
"""… and so many bytes of names and values: a record must fit into its own retry (E04, E08)."""

DUE: Final = "due"
DELIVERY: Final = "delivery"
TARGET: Final = "target"
ATTEMPT: Final = "attempt"
FENCE: Final = "fence"
PARKED: Final = "parked"
BUDGET: Final = "budget"
LEDGER_OFFSET: Final = "ledger-offset"

_ITEM: Final = (DELIVERY, TARGET, ATTEMPT, FENCE)
_OURS: Final = frozenset({DUE, DELIVERY, TARGET, ATTEMPT, FENCE, PARKED, BUDGET, LEDGER_OFFSET})
_KINDS: Final = {kind.value.encode(): kind for kind in Kind}
WITH_EPOCH: Final = frozenset(kind.value.encode() for kind in Kind if kind is not Kind.OWNER)
"""Kinds that carry an epoch, as bytes."""
_KIND_HEADERS: Final = {kind: ("k", kind.value.encode()) for kind in Kind}
_OWNER: Final = Kind.OWNER
_NUMBER_BYTES: Final = 19
"""Digits of the largest 64-bit number."""


class LedgerHeaders(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a ledger record says of itself.

    Attributes:
        kind: What it is.
        epoch: Its writer's epoch; None on OWNER, whose own offset becomes the epoch (rule 1).
        token: 16 bytes: the owner's on OWNER, the claim's on CLAIM and REPORT, else random.
    """

    kind: Kind
    epoch: int | None
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryItem:
    """One delivery that a retry record carries.

    Attributes:
        delivery_id: Its public id.
        target: Its target's key.
        attempt: Claims so far.
        fence: Of its row when the retry was written; -1 before the first claim (rule 8).
        parked_ms: How long it was parked before, since its row was last written (C-17).
        parked_since_ms: Since when it is parked, epoch milliseconds; 0 where it is not.
        budget: Of its row, where the fence cannot tell one budget from the next: before the first claim.
            None where the fence says it, or the record is of a version that did not say it.
    """

    delivery_id: str
    target: str
    attempt: int
    fence: int
    parked_ms: int = 0
    parked_since_ms: int = 0
    budget: int | None = None


def ledger_headers(kind: Kind, epoch: int | None, token: bytes) -> list[tuple[str, bytes]]:
    """The headers of a ledger record: `k`, `e` (absent on OWNER), `t`."""
    assert len(token) == TOKEN_BYTES, "a ledger token has 16 bytes"
    assert (epoch is None) == (kind is _OWNER), "every record but OWNER carries an epoch"
    if epoch is None:
        return [_KIND_HEADERS[kind], ("t", token)]
    return [_KIND_HEADERS[kind], ("e", b"%d" % epoch), ("t", token)]


def read_ledger_headers(headers: Headers) -> LedgerHeaders:
    """Read a ledger record's headers.

    Raises:
        RecordError: `ledger_headers_invalid`: nobody but us writes there.
    """
    if len(headers) == 3:
        # As we write them, in this order: 0.9 µs instead of 1.9, for every record of a restore.
        (k, kind_raw), (e, epoch_raw), (t, token_raw) = headers
        if (
            (k, e, t) == ("k", "e", "t")
            and kind_raw in WITH_EPOCH
            and epoch_raw
            and epoch_raw.isdigit()
            and token_raw
            and len(token_raw) == TOKEN_BYTES
        ):
            return LedgerHeaders(kind=_KINDS[kind_raw], epoch=int(epoch_raw), token=token_raw)
    found = dict(headers)
    kind = _KINDS.get(found.get("k", b""))
    epoch = _number(found["e"]) if "e" in found else None
    token = found.get("t") or b""
    if kind is None or len(token) != TOKEN_BYTES or (epoch is None) != (kind is Kind.OWNER):
        raise RecordError(
            "ledger_headers_invalid",
            "a ledger record needs a known kind `k`, an epoch `e` unless it is OWNER, and a token "
            "`t` of 16 bytes",
        )
    return LedgerHeaders(kind=kind, epoch=epoch, token=token)


def retry_headers(
    due_ms: int, items: Iterable[RetryItem], extra: Iterable[tuple[str, bytes]] = ()
) -> list[tuple[str, bytes]]:
    """The headers of a waiting retry: `due`, and for each delivery four, in this order.

    A delivery that is or was parked has another, `parked`: how long before, a comma, since when. One
    that was never claimed has `budget`: which of the times between two redrives it belongs to.

    Args:
        due_ms: When it may start, epoch milliseconds.
        items: The deliveries that it carries.
        extra: What else goes along: `carried_headers`.
    """
    headers = [(DUE, b"%d" % due_ms)]
    for item in items:
        headers += (
            (DELIVERY, item.delivery_id.encode()),
            (TARGET, item.target.encode()),
            (ATTEMPT, b"%d" % item.attempt),
            (FENCE, b"%d" % item.fence),
        )
        if item.parked_ms or item.parked_since_ms:
            headers.append((PARKED, b"%d,%d" % (item.parked_ms, item.parked_since_ms)))
        if item.budget is not None:
            headers.append((BUDGET, b"%d" % item.budget))
    headers += extra
    return headers


def read_retry_headers(headers: Headers) -> tuple[int, tuple[RetryItem, ...]]:
    """When a retry is due (epoch milliseconds) and which deliveries it carries.

    Raises:
        RecordError: `retry_headers_invalid`, naming what is missing or malformed.
    """
    due_ms: int | None = None
    mine: list[tuple[str, bytes]] = []
    more: list[tuple[int, str, bytes]] = []
    for name, value in headers:
        if name == DUE:
            if due_ms is not None:
                raise _invalid("must have one due")
            due_ms = _number(value)
        elif name in _ITEM:
            mine.append((name, value or b""))
        elif name in _MORE and mine:
            more.append((len(mine) // len(_ITEM) - 1, name, value or b""))
    if due_ms is None or due_ms < 0:
        raise _invalid("must have a due in epoch milliseconds")
    if not mine or [name for name, _ in mine] != [*_ITEM] * (len(mine) // len(_ITEM)):
        raise _invalid("must have delivery, target, attempt and fence, in this order, for each")
    values = [value for _, value in mine]
    columns = (values[at :: len(_ITEM)] for at in range(len(_ITEM)))
    items = list(map(_item, *columns))
    for at, name, value in more:
        items[at] = _MORE[name](items[at], value)
    return due_ms, tuple(items)


def _item(delivery: bytes, target: bytes, attempt: bytes, fence: bytes) -> RetryItem:
    claims, offset = _number(attempt), _number(fence)
    if claims is None or claims < 0 or offset is None or offset < -1:
        raise _invalid("must count attempts from 0 and have an offset, or -1, as fence")
    try:
        return RetryItem(
            delivery_id=delivery.decode(), target=target.decode(), attempt=claims, fence=offset
        )
    except UnicodeDecodeError:
        raise _invalid("must name delivery and target in UTF-8") from None


def _parked(item: RetryItem, times: bytes) -> RetryItem:
    before, _, since = times.partition(b",")
    before_ms, since_ms = _number(before), _number(since)
    if before_ms is None or before_ms < 0 or since_ms is None or since_ms < 0:
        raise _invalid("must say in parked how long, and since when, in milliseconds")
    return replace(item, parked_ms=before_ms, parked_since_ms=since_ms)


def _budgeted(item: RetryItem, text: bytes) -> RetryItem:
    budget = _number(text)
    if budget is None or budget < 1:
        raise _invalid("must count budgets from 1")
    return replace(item, budget=budget)


_MORE: Final = {PARKED: _parked, BUDGET: _budgeted}
"""What a delivery may have beyond the four, and how it is read."""


def carried_headers(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes], ...]:
    """A producer's headers that go along with a retry: none of our names, and no more than fit.

    The bound holds for the whole: what exceeds it is left out from there on, so that each hop
    carries the same. A header without a value is left out.
    """
    carried: list[tuple[str, bytes]] = []
    room = CARRIED_BYTES
    for name, value in headers:
        if value is None or name in _OURS:
            continue
        room -= len(name.encode()) + len(value)
        if room < 0 or len(carried) == CARRIED_HEADERS:
            break
        carried.append((name, value))
    return tuple(carried)


def ledger_offset_header(offset: int) -> tuple[str, bytes]:
    """Says which state of the ledger a dead letter shows (interface.md §3)."""
    return LEDGER_OFFSET, b"%d" % offset


def read_ledger_offset(headers: Headers) -> int | None:
    """Which state of the ledger a dead letter shows; None where nothing legible says so."""
    return next((_number(value) for name, value in headers if name == LEDGER_OFFSET), None)


def position_of(topic: str, partition: int, offset: int) -> str:
    """What names a record that cannot be read; in UTF-8, its key in dead letters and quarantine."""
    return f"{topic}/{partition}/{offset}"


def _number(text: bytes | None) -> int | None:
    """A decimal in ASCII, as we write it; None for the rest (`int` takes spaces, `_` and `+`)."""
    if text is None:  # a header may have no value
        return None
    digits = text.removeprefix(b"-")
    return int(text) if digits.isdigit() and len(digits) <= _NUMBER_BYTES else None


def _invalid(rule: str) -> RecordError:
    return RecordError("retry_headers_invalid", f"a retry {rule}")
