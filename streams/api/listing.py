"""Pages of deliveries and of dead letters, by keyset: a page costs what it shows, however far in it lies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streams.api.database import (
    BY_LETTER_TIME,
    BY_STATUS,
    BY_TARGET,
    BY_TIME,
    HASH_BYTES,
    OF_ACTIVITY,
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

_CHUNK: Final = 100
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
    prefix = _index(asked)

    def read(keys: list[bytes]) -> list[SeenDelivery | None]:
        found = view.db.deliveries([key[-HASH_BYTES:] for key in keys])
        return [seen if seen is not None and asked.matches(seen) else None for seen in found]

    return _page(view, prefix, asked.cursor, asked.limit, read=read)


def _index(asked: Asked) -> bytes:
    """The narrowest index that holds all that is wanted."""
    tenant = tenant_hash(asked.tenant)
    if asked.activity_id is not None:
        return OF_ACTIVITY + short_hash(activity_key(asked.tenant, asked.activity_id), HASH_BYTES)
    if asked.target is not None:
        return BY_TARGET + tenant + short_hash(asked.target.encode(), 8)
    if asked.status is not None:
        return BY_STATUS + tenant + status_byte(asked.status)
    return BY_TIME + tenant


def letters(
    view: View, tenant: str, *, is_open: bool | None, limit: int, offset: int, cursor: str | None
) -> Page[SeenLetter]:
    """A tenant's dead letters, the newest first; `is_open` None: the resolved ones too.

    Raises:
        Problem: 400, a cursor that is none of ours.
    """
    prefix = BY_LETTER_TIME + tenant_hash(tenant)
    skipped = 0

    def read(keys: list[bytes]) -> list[SeenLetter | None]:
        nonlocal skipped
        ids = [key[len(prefix) + _TIME_BYTES :].decode() for key in keys]
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

    return _page(view, prefix, cursor, limit, read=read, scanned_max=SCANNED_MAX + offset)


def _page(
    view: View,
    prefix: bytes,
    cursor: str | None,
    limit: int,
    *,
    read: Callable[[list[bytes]], list[Row | None]],
    scanned_max: int = SCANNED_MAX,
) -> Page[Row]:
    """Up to `limit` rows of the keys under `prefix` that `read` wants."""
    start = prefix if cursor is None else prefix + _read_cursor(cursor) + b"\x00"
    rows: list[Row] = []
    scanned = 0
    keys = view.db.scan(prefix, start)
    while chunk := list(itertools.islice(keys, _CHUNK)):
        for key, row in zip(chunk, read(chunk), strict=True):
            scanned += 1
            if row is not None:
                rows.append(row)
            if len(rows) == limit or scanned >= scanned_max:
                return Page(rows, _cursor(key[len(prefix) :]) if _more(view, prefix, key) else None)
    return Page(rows, None)


def _more(view: View, prefix: bytes, key: bytes) -> bool:
    following: Iterator[bytes] = view.db.scan(prefix, key + b"\x00")
    return next(following, None) is not None


def _cursor(rest: bytes) -> str:
    return rest.hex()


def _read_cursor(text: str) -> bytes:
    if not _CURSOR.fullmatch(text):
        raise Problem(400, "cursor_invalid", "cursor must be the next_cursor of an earlier page.")
    return bytes.fromhex(text)
