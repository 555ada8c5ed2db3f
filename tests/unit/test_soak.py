"""What a soak makes of its figures and its receipts; that it runs is CI's to show."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from streams.model.receipt import Outcome, Receipt
from streams.topics import names
from streams.wire.codec import encode_receipt
from tests.soak.judge import judge, slope
from tests.soak.plan import activities, is_kept, is_kept_path
from tests.soak.report import Soak, markdown, write
from tests.soak.tally import Tally

MIB = 1024**2


def series(*values: float) -> list[tuple[float, float]]:
    """One value every ten seconds."""
    return [(10.0 * n, value) for n, value in enumerate(values)]


def test_what_rises_after_warming_up_is_not_flat() -> None:
    """A leak shows in the last third; the first third may do as it likes."""
    leaking = judge("w1: rss", series(*(n * MIB for n in range(10, 40))))

    assert not leaking.is_flat
    assert 360 * MIB == pytest.approx(leaking.per_hour)


def test_warming_up_is_no_growth() -> None:
    """Caches and write buffers fill in the beginning and stay as they are."""
    warming = judge("w1: rss", series(*range(10), *([100 * MIB] * 20)))

    assert warming.is_flat
    assert 0 == warming.per_hour


def test_a_debt_that_stays_is_growth() -> None:
    """ledger.md rule 6: a debt is paid at once; there is no tolerance for one that stands."""
    assert not judge("debts", series(*[0] * 20, *[1] * 10)).is_flat


def test_a_few_samples_are_not_judged() -> None:
    """Thirds of next to nothing would say anything."""
    with pytest.raises(ValueError, match="six"):
        judge("held", series(1, 2, 3))


def test_a_single_moment_has_no_slope() -> None:
    """The arithmetic must not end a run of an hour."""
    assert 0.0 == slope([(1.0, 5.0)])


def test_the_same_seed_is_the_same_hour() -> None:
    """A soak that found something must be repeatable."""
    first, again = (list(islice(activities(7, 3), 500)) for _ in range(2))

    assert first == again
    assert {"/ok", "/slow", "/flaky"} == {f"/{p.split('/')[1]}" for a in first for p in a.paths}


def test_calls_of_what_the_checker_is_shown_are_shown_to_it_too() -> None:
    """It holds calls against claims: one without the other would be a false alarm."""
    for one in islice(activities(7, 3), 500):
        assert all(is_kept_path(path) == is_kept(one.activity_id) for path in one.paths)
        assert is_kept(one.activity_id) or not one.targets


def told(tally: Tally, verdict: Outcome, attempts: int) -> None:
    """A receipt of the one delivery passes by."""
    receipt = Receipt(
        activity_id="n1",
        tenant="default",
        verdict=verdict,
        delivery_id="d1",
        target="inbox",
        attempts=attempts,
        started_ms=0,
        settled_ms=0,
    )
    record: Any = SimpleNamespace(
        topic=names("").receipts, key=b"n1", value=encode_receipt(receipt)
    )
    tally.saw(record)


def test_a_delivery_is_open_until_it_was_sent() -> None:
    """One that died is redriven: exhausted is not the verdict that it must come to."""
    tally = Tally(names(""))
    tally.expect("n1", "inbox")
    told(tally, Outcome.EXHAUSTED, 3)
    assert [("n1", "inbox")] == tally.some_open()

    told(tally, Outcome.SENT, 1)

    assert (0, 1, []) == (tally.open, tally.asked, tally.doubled)


def test_a_verdict_told_twice_is_one_and_two_verdicts_are_found() -> None:
    """ledger.md rule 8: a receipt may be written again, but it must say the same."""
    tally = Tally(names(""))
    tally.expect("n1", "inbox")
    told(tally, Outcome.SENT, 1)
    told(tally, Outcome.SENT, 1)
    assert [] == tally.doubled

    told(tally, Outcome.SENT, 2)

    assert [("n1", "inbox")] == tally.doubled


def test_the_page_says_how_to_repeat_the_run_and_what_grew(tmp_path: Any) -> None:
    """docs/soak.md is committed: who reads it must be able to run it again."""
    grew = judge("ledger bytes", series(*(n * MIB for n in range(30))))
    soak = Soak(
        command="make soak MINUTES=60",
        minutes=60.0,
        per_s=60.0,
        window_s=120.0,
        facts={"deliveries": "1"},
        judged=[grew],
        broken=["lost: a1"],
        samples=series(*range(500)),  # type: ignore[arg-type]  # figures are not looked into
    )
    page = markdown(soak)

    assert not soak.is_good
    assert "    make soak MINUTES=60\n" in page
    assert "| ledger bytes | 14.5 MiB | 24.5 MiB | 29.0 MiB | +360.0 MiB/h | **no** |" in page
    assert "- lost: a1" in page
    assert ["soak.json", "soak.md"] == sorted(path.name for path in write(soak, tmp_path))
