"""A record that kills the process while it is being read is given up at its third death (C-14)."""

from __future__ import annotations

from pathlib import Path

from streams.edge.deathmark import DEATHS_MAX, Deathmark

POSITION = "outbox/3/41"


def test_a_record_that_kills_its_reader_is_deadly_at_the_third_death(tmp_path: Path) -> None:
    """C-14: each start finds the mark that the death before it left behind, and counts it."""
    for death in range(DEATHS_MAX):
        mark = Deathmark(tmp_path)
        assert not mark.is_deadly(POSITION), f"given up after {death} deaths"
        mark.mark(POSITION)  # and the process is gone

    assert Deathmark(tmp_path).is_deadly(POSITION)


def test_a_record_that_was_read_leaves_no_mark(tmp_path: Path) -> None:
    """C-14: a worker that dies of something else blames no record."""
    for _ in range(DEATHS_MAX + 1):
        mark = Deathmark(tmp_path)
        mark.mark(POSITION)
        mark.clear()

    assert not Deathmark(tmp_path).is_deadly(POSITION)


def test_other_records_are_not_blamed(tmp_path: Path) -> None:
    """C-14: the count belongs to one position, also where one name is the beginning of another."""
    for _ in range(DEATHS_MAX):
        Deathmark(tmp_path).mark(POSITION)

    assert not Deathmark(tmp_path).is_deadly("outbox/3/4")


def test_damaged_counts_are_started_anew(tmp_path: Path) -> None:
    """The counts are a help, not a truth: a torn file must not keep the worker from starting."""
    (tmp_path / "deaths.json").write_text("{")

    assert not Deathmark(tmp_path).is_deadly(POSITION)
