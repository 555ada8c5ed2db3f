"""Pages of deliveries and of dead letters, by keyset: a page costs what it shows, however far in it lies."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streams.api.database import BY_LETTER_TIME, DELIVERY
from streams.api.kept_rows import (
    BY_STATUS,
    BY_TARGET,
    HASH_BYTES,
    PLACE_BYTES,
    status_byte,
    tenant_hash,
)
from streams.api.problems import Problem
from streams.api.shapes import SeenDelivery, SeenLetter, Status, activity_key, short_hash
from streams.api.view import View

Row = TypeVar("Row")

LIMIT_MAX: Final = 200
OFFSET_MAX: Final = 100_000
SCANNED_MAX: Final = 5_000
"""Rows looked at for one page; where filters leave few of them, the page is short and has a cursor."""

CURSOR_PATTERN: Final = "^([0-9a-f]{2}){1,160}$"
_CURSOR: Final = re.compile(CURSOR_PATTERN.strip("^$"))

_CHUNK_LEAST: Final = 20
"""Rows read at once at least: where filters leave few of them, many are looked at."""
_TIME_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which deliveries of a tenant are wanted."""

    tenant: str
    activity_id: str | None = None
    status: Status | None = None
    target: str | None = None
    limit: int = 50
    cursor: str | None = None

    def matches(self, seen: SeenDelivery) -> bool:
        """Whether a delivery is wanted; the tenant is compared for every row shown, whatever the index."""
        return (
            seen.tenant == self.tenant
            and self.status in (None, seen.status)
            and self.activity_id in (None, seen.activity_id)
            and (self.target is None or seen.target_hash == short_hash(self.target.encode(), 8))
        )


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows, and where the next ones begin; None at the end."""

    rows: list[Row]
    next_cursor: str | None


def deliveries(view: View, asked: Asked) -> Page[SeenDelivery]:
    """The deliveries asked for, the newest first; those of one activity in no order of time.

    Raises:
        Problem: 400, a cursor that is none of ours.
    """
    prefixes = _indexes(asked)
    of_activity = prefixes[0][1:] if asked.activity_id is not None else b""

    def read(rests: list[bytes]) -> list[SeenDelivery | None]:
        found = view.db.deliveries([(of_activity + rest)[-PLACE_BYTES:] for rest in rests])
        return [seen if seen is not None and asked.matches(seen) else None for seen in found]

    return _page(view, prefixes, asked.cursor, asked.limit, read=read)


def _indexes(asked: Asked) -> list[bytes]:
    """The narrowest indexes that together hold all that is wanted, and are in one order."""
    tenant = tenant_hash(asked.tenant)
    if asked.activity_id is not None:
        return [DELIVERY + short_hash(activity_key(asked.tenant, asked.activity_id), HASH_BYTES)]
    if asked.target is not None:
        return [BY_TARGET + tenant + short_hash(asked.target.encode(), 8)]
    statuses = list(Status) if asked.status is None else [asked.status]
    return [BY_STATUS + tenant + status_byte(status) for status in statuses]


def letters(
    view: View, tenant: str, *, is_open: bool | None, limit: int, offset: int, cursor: str | None
) -> Page[SeenLetter]:
    """A tenant's dead letters, the newest first; `is_open` None: the resolved ones too.

    Raises:
        Problem: 400, a cursor that is none of ours.
    """
    prefix = BY_LETTER_TIME + tenant_hash(tenant)
    skipped = 0

    def read(rests: list[bytes]) -> list[SeenLetter | None]:
        nonlocal skipped
        ids = [rest[_TIME_BYTES:].decode() for rest in rests]
        rows: list[SeenLetter | None] = []
        for letter in view.db.letters(ids):
            wanted = letter is not None and letter.tenant == tenant
            if letter is not None and wanted and is_open is not None:
                wanted = view.is_open(letter) is is_open
            if wanted and skipped < offset:
                skipped += 1
                wanted = False
            rows.append(letter if wanted else None)
        return rows

    return _page(view, [prefix], cursor, limit, read=read, scanned_max=SCANNED_MAX + offset)


def _page(
    view: View,
    prefixes: Sequence[bytes],
    cursor: str | None,
    limit: int,
    *,
    read: Callable[[list[bytes]], list[Row | None]],
    scanned_max: int = SCANNED_MAX,
) -> Page[Row]:
    """Up to `limit` rows of the keys under `prefixes` that `read` wants; it gets what follows these."""
    after = b"" if cursor is None else _read_cursor(cursor) + b"\x00"
    rows: list[Row] = []
    scanned = 0
    rests = heapq.merge(*(_rests(view, prefix, after) for prefix in prefixes))
    while chunk := list(itertools.islice(rests, max(limit, _CHUNK_LEAST) + 1)):
        found = read(chunk)
        for at, row in enumerate(found):
            scanned += 1
            if row is not None:
                rows.append(row)
            if len(rows) == limit or scanned >= scanned_max:
                is_more = at + 1 < len(chunk) or next(rests, None) is not None
                return Page(rows, chunk[at].hex() if is_more else None)
    return Page(rows, None)


def _rests(view: View, prefix: bytes, after: bytes) -> Iterator[bytes]:
    size = len(prefix)
    return (key[size:] for key in view.db.scan(prefix, prefix + after))


def _read_cursor(text: str) -> bytes:
    if not _CURSOR.fullmatch(text):
        raise Problem(400, "cursor_invalid", "cursor must be the next_cursor of an earlier page.")
    return bytes.fromhex(text)
