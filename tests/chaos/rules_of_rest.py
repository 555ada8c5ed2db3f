"""Nothing lost, nothing stuck: what is open will be moved, and what was read is acknowledged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.folding import Folded, Row
from tests.chaos.history import History, Item
from tests.chaos.violations import SETTLED, Violation, Wrong


def owed(history: History, folded: Folded, at_rest: bool) -> Iterator[Violation]:
    """Each delivery that was asked for is settled, or something that is not committed will move it."""
    pending_sources = {
        f"{source.activity}\0{target}"
        for source in history.sources
        if history.is_pending(history.outbox, source.partition, source.offset)
        for target in source.targets
    }
    pending_retries: defaultdict[str, list[Item]] = defaultdict(list)
    for retry in history.retries:
        if history.is_pending(retry.topic, retry.partition, retry.offset):
            for item in retry.items:
                pending_retries[f"{retry.activity}\0{item.target}"].append(item)
    for delivery in {f"{s.activity}\0{target}" for s in history.sources for target in s.targets}:
        row = folded.rows.get(delivery.encode())
        phase = "unknown to the ledger" if row is None else row["phase"]
        if delivery.encode() in folded.forgotten:
            continue
        if phase in SETTLED or (phase == "queued" and not at_rest):
            continue  # what was redriven waits for its caller to replay it (D-066)
        name = delivery.replace("\0", " → ")
        if delivery not in pending_sources and not _will_move(row, pending_retries[delivery]):
            yield Violation(Wrong.LOST, name, f"{phase}, and nothing is left that could move it")
        elif at_rest:
            yield Violation(Wrong.STUCK, name, f"still {phase}")


def _will_move(row: Row | None, items: list[Item]) -> bool:
    """Whether a retry moves it: one that is stale writes the row's follow-up again (ledger.md, rule 8)."""
    return any(row is not None or (item.fence < 0 and item.attempt == 0) for item in items)


def standing(history: History) -> Iterator[Violation]:
    """No partition stands still: everything that was read is acknowledged."""
    for (topic, partition), end in sorted(history.ends.items()):
        at = history.committed.get((topic, partition), 0)
        if at > end:
            text = f"committed {at}, which lies beyond the end {end}"
            yield Violation(Wrong.DISAGREES, f"{topic}/{partition}", text)
        elif at < end:
            yield Violation(Wrong.STUCK, f"{topic}/{partition}", f"committed {at} of {end}")
