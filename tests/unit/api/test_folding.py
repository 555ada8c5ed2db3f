"""The view built in bulk is the view that grew record by record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from streams.api import folding, rebuild
from streams.api.database import Database
from streams.api.listing import Asked, deliveries, letters
from streams.api.rebuild import RECORDS_AT_ONCE, groups
from streams.api.shapes import Status
from streams.api.view import View
from streams.model.ledger import OWNER_KEY, SEPARATOR, ActivityRow, Admission, Kind, Phase
from streams.rules.fold import LedgerRecord
from streams.wire.codec import encode_activity_row, encode_row
from tests.unit.api.desk import NOW_MS, dead_row, row

STRAYED = "urn|9"
"""An id of the tenant `default` whose key reads like one of a tenant `urn`."""


def admitted(activity_id: str, tenant: str) -> bytes:
    return encode_activity_row(
        ActivityRow(
            canonical_hash=bytes(32),
            activity_id=activity_id,
            tenant=tenant,
            first_seen_ms=NOW_MS,
            admissions=(Admission(offset=0, targets=bytes(16)),),
        )
    )


def told() -> list[tuple[Kind, bytes, bytes | None]]:
    """Every kind of thing that can happen to a row, activities after their deliveries too."""
    records: list[tuple[Kind, bytes, bytes | None]] = [(Kind.OWNER, OWNER_KEY, None)]
    for n in range(40):
        key = f"acme|urn:{n}".encode()
        records.append((Kind.ADMIT, key, admitted(f"urn:{n}", "acme")))
        each = dead_row(n) if n % 7 == 0 else row(n, target=f"https://b.example/inbox?k={n % 3}")
        records.append((Kind.REPORT, key + SEPARATOR + each.target.encode(), encode_row(each)))
        sent = row(100 + n, target="mail", phase=Phase.SENT)
        parts = SEPARATOR + b"0123456789abcdef" if n % 5 == 0 else b""
        records.append((Kind.REPORT, key + SEPARATOR + b"mail" + parts, encode_row(sent)))
    again = row(7, phase=Phase.QUEUED, budget=2, generation=2, admitted_ms=NOW_MS + 9_000)
    records += [
        (Kind.REDRIVE, b"acme|urn:7" + SEPARATOR + b"crm", encode_row(again)),
        (Kind.REPAIR, b"acme|urn:3" + SEPARATOR + b"mail", None),
        (Kind.REPORT, STRAYED.encode() + SEPARATOR + b"crm", encode_row(dead_row(300))),
        (Kind.ADMIT, STRAYED.encode(), admitted(STRAYED, "default")),
    ]
    return records


def ledger(first: int = 1) -> list[LedgerRecord]:
    return [
        LedgerRecord(
            offset=first + at,
            key=key,
            kind=kind,
            epoch=-1 if kind is Kind.OWNER else first,
            token=b"t" * 16,
            value=value,
        )
        for at, (kind, key, value) in enumerate(told())
    ]


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[list[Database]]:
    made = [Database(tmp_path / name, "cluster") for name in ("grown", "built")]
    yield made
    for each in made:
        each.close()


def shown(view: View) -> dict[str, object]:
    """All that lists can show of it."""
    wanted = [
        *(Asked(tenant=tenant, limit=200) for tenant in ("acme", "default", "urn")),
        *(Asked(tenant="acme", status=status, limit=200) for status in Status),
        Asked(tenant="acme", target="mail", limit=200),
        Asked(tenant="acme", target="https://b.example/inbox?k=1", limit=200),
        Asked(tenant="acme", activity_id="urn:7", limit=200),
    ]
    found: dict[str, object] = {str(each): deliveries(view, each).rows for each in wanted}
    for tenant in ("acme", "default"):
        page = letters(view, tenant, is_open=True, limit=200, offset=0, cursor=None)
        found[f"letters of {tenant}"] = page.rows
    return found | {"positions": view.positions()}


@pytest.mark.parametrize("parts", [1, 2, 30])
def test_a_view_built_in_bulk_is_the_one_that_grew(databases, monkeypatch, parts):
    """Issue 7, rule 1: in one piece, where nothing is looked up, or in several, where all is."""
    monkeypatch.setattr(folding, "WRITTEN_AT_ONCE", 3)
    grown, built = (View(each, 1) for each in databases)
    for record in ledger():
        grown.fold(0, [record])

    built.begin_build()
    records = ledger()
    size = -(-len(records) // parts)
    for at in range(0, len(records), size):
        built.ledger.fold(0, records[at : at + size])
        for _ in built.ledger.build(0):
            pass
    built.db.end_build()

    assert shown(grown) == shown(built)


def test_after_it_was_built_a_view_goes_on_growing(databases):
    """What was built is found, changed and kept like any other row."""
    grown, built = (View(each, 1) for each in databases)
    built.begin_build()
    built.ledger.fold(0, ledger())
    for _ in built.ledger.build(0):
        pass
    built.db.end_build()
    for view in (grown, built):
        view.fold(0, ledger())
        view.fold(0, ledger(first=1_000))

    assert shown(grown) == shown(built)


def test_partitions_are_read_together_up_to_a_bound():
    """Memory holds what is read together, so it is bounded; no partition is left out."""
    half = RECORDS_AT_ONCE // 2
    ends = {0: half, 1: half, 2: 1, 3: 3 * half, 4: 0, 5: half}

    assert [[0, 1], [2], [3], [4, 5]] == list(groups(ends))
    assert [] == list(groups({}))


async def test_a_rebuild_that_cannot_read_on_says_so_as_it_is(databases, monkeypatch):
    """What explains Kafka's errors to people must know them; what was read meanwhile is being written."""
    view = View(databases[0], 2)
    taken: list[int] = []

    async def read_all(options, topic, partitions, sink, progress):
        if taken:
            raise KafkaConnectionError("gone")
        taken.extend(partitions)
        view.ledger.fold(0, ledger())

    monkeypatch.setattr(rebuild, "read_all", read_all)

    with pytest.raises(KafkaConnectionError):
        await rebuild.rebuild(view, {}, "ledger", {0: RECORDS_AT_ONCE, 1: 1})
