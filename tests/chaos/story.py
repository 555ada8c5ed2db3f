"""The history of one activity, for a person."""

from __future__ import annotations

from tests.chaos.folding import fold
from tests.chaos.history import ZERO, History


def tell(history: History, activity: str) -> str:
    """Everything about one activity, and who came to own its partition, in order of time."""
    folded = fold(history.ledger)
    lines: list[tuple[float, str]] = []
    own = activity.encode()
    ids: set[str] = set()
    partitions: set[int] = set()
    for entry in history.ledger:
        if entry.key.partition(ZERO)[0] == own:
            void = "VOID " if (entry.partition, entry.offset) in folded.void else ""
            row = entry.row or {}
            if entry.is_delivery and row:
                ids.add(row["delivery_id"])
            partitions.add(entry.partition)
            what = f"{row.get('phase', '')} a{row.get('attempts')} b{row.get('budget')} {row.get('code')}"
            text = f"ledger   @{entry.offset} {void}{entry.kind} e={entry.epoch} t={entry.token.hex()[:6]}"
            lines.append((entry.t_ms / 1000, f"{text} {what} {row.get('target', '')}"))
    for entry in history.ledger:
        if entry.kind == "OWNER" and entry.partition in partitions:
            text = f"ledger   @{entry.offset} OWNER of {entry.partition} t={entry.token.hex()[:6]}"
            lines.append((entry.t_ms / 1000, text))
    lines += [
        (s.t_ms / 1000, f"source   {s.partition}@{s.offset} for {s.targets}")
        for s in history.sources
        if s.activity == activity
    ]
    lines += [
        (r.t_ms / 1000, f"retry    {r.topic} {r.partition}@{r.offset} due {r.due_ms} {r.items}")
        for r in history.retries
        if r.activity == activity
    ]
    lines += [
        (c.t, f"call     {c.id} attempt {c.attempt} {c.path} {c.status}")
        for c in history.calls
        if c.id.rpartition("-")[0] in ids
    ]
    lines += [
        (
            r.t_ms / 1000,
            f"receipt  {r.fields['verdict']} a{r.fields['attempts']} {r.fields['target']}",
        )
        for r in history.receipts
        if r.activity == activity
    ]
    lines += [
        (r.t_ms / 1000, f"letter   {r.partition}@{r.offset} {r.deliveries}")
        for r in history.letters
        if r.activity == activity
    ]
    lines += [
        (
            c.t_ms / 1000,
            f"command  {c.partition}@{c.offset} {c.fields.get('kind')} {c.fields.get('verdict')}",
        )
        for c in history.commands
        if c.activity == activity
    ]
    return "\n".join(f"{t:.3f} {text}" for t, text in sorted(lines))
