"""The histories' own store: found by delivery and by message id, dropped by age, rebuilt when foreign."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.api.histories import ENTRIES_MAX, Histories
from streams.errors import FatalError
from streams.wire.observations import MESSAGE_ID_HEADER, encode_observation
from tests.unit.api.intake import attempt, delivery_id


def record(number: int = 1, *, offset: int = 0, at: int = 1_000, **fields: Any) -> Any:
    seen = attempt(number, **fields)
    message_id = seen.provider_message_id
    return SimpleNamespace(
        offset=offset,
        key=seen.delivery_id.encode(),
        value=encode_observation(seen),
        headers=[] if message_id is None else [(MESSAGE_ID_HEADER, message_id.encode())],
        timestamp=at,
    )


@pytest.fixture
def histories(tmp_path):
    histories = Histories(tmp_path / "h", "cluster")
    yield histories
    histories.close()


def test_a_history_is_in_the_order_of_the_topic_and_its_own(histories):
    """
    D-054: append-only; no other delivery's entry stands in it.
    """
    histories.take(1, [record(offset=n, attempt=n + 1) for n in range(300)])
    histories.take(1, [record(2, offset=300)])

    entries = histories.entries(delivery_id(1))
    assert list(range(1, 301)) == [entry.seen.attempt for entry in entries]
    assert 301 == histories.position(1)


def test_a_message_id_is_its_tenants(histories):
    """
    C-13, D-071: two tenants' providers may count alike; brackets of a mail's id do not matter.
    """
    histories.take(1, [record(1, tenant="a", provider_message_id="<m@x>", generation=2)])
    histories.take(2, [record(2, tenant="b", provider_message_id="m@x")])

    found = [histories.by_message_id(tenant, "m@x") for tenant in "abc"]
    assert [(delivery_id(1), 1, 2), (delivery_id(2), 2, 1), None] == [
        each and (each.delivery_id, each.partition, each.generation) for each in found
    ]


def test_what_is_older_than_the_topic_is_dropped_with_its_indexes(histories):
    """
    design.md §1: 90 days; else the files would grow for ever.
    """
    histories.take(1, [record(1, offset=0, at=1_000), record(2, offset=1, at=9_000)])

    assert 2 == histories.prune(before_ms=5_000)
    assert 0 == histories.prune(before_ms=5_000)
    assert ([], None) == (histories.entries(delivery_id(1)), histories.by_message_id("acme", "m1"))
    assert 1 == len(histories.entries(delivery_id(2)))


def test_it_goes_on_where_it_was(tmp_path):
    """
    Issue 7: a restart reads no more than what is new.
    """
    first = Histories(tmp_path / "h", "cluster")
    first.take(1, [record(offset=41)])
    first.close()
    again = Histories(tmp_path / "h", "cluster")

    assert (42, 1) == (again.position(1), len(again.entries(delivery_id(1))))
    again.close()


def test_files_of_another_log_are_dropped(tmp_path):
    """
    design.md §3: offsets mean nothing on another cluster.
    """
    first = Histories(tmp_path / "h", "cluster")
    first.take(1, [record(offset=41)])
    first.close()
    other = Histories(tmp_path / "h", "another")

    assert (0, []) == (other.position(1), other.entries(delivery_id(1)))
    other.close()


def test_two_processes_do_not_share_files(histories, tmp_path):
    """
    Issue 7, "several replicas side by side": each has files of its own.
    """
    with pytest.raises(FatalError):
        Histories(tmp_path / "h", "cluster")


def test_no_history_is_read_without_end(histories):
    """
    Issue 7: an answer has a bound whatever the topic holds.
    """
    histories.take(1, [record(offset=n) for n in range(ENTRIES_MAX + 10)])

    assert ENTRIES_MAX == len(histories.entries(delivery_id(1)))


def test_a_record_that_is_none_is_passed_over(histories):
    """
    C-14: it stops nothing, and the place moves on.
    """
    broken = record(offset=1)
    broken.value = b"no avro"
    empty = record(offset=2)
    empty.value = None
    keyless = record(offset=3)
    keyless.key = None
    histories.take(1, [record(offset=0), broken, empty, keyless])

    assert (4, 1) == (histories.position(1), len(histories.entries(delivery_id(1))))
