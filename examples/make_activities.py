"""Make `activities.jsonl`, what the demo delivers, and say what must come of it.

    python -m examples.make_activities            writes activities.jsonl beside this file
    python -m examples.make_activities --expected prints what `expected` says, as JSON

The same bytes come out every time. Inbox URLs stand at `http://receiver.invalid`, and `rewritten`
puts a real receiver in its place. `outbox receiver` behaves as the path says.

Lines: 541, in a shuffled order, the repeats after what they repeat.

| kind | lines | deliveries each | what it is |
|---|---|---|---|
| note | 285 | 1 | a Create of a Note; every fifth in another script than ours |
| announce | 60 | 2 to 6 | an Announce to several inboxes, 220 deliveries in all |
| ledger | 36 | 1 | a Create whose object is a CaseLedgerEntry |
| crm | 60 | 1 | a notification to the target `crm`, tenant `default` |
| pager | 24 | 1 | a notification to the target `pager`, tenant `default`; it answers |
| pager-reset | 6 | 1 | a notification to the target `pager`, tenant `acme`; it resets |
| raw | 8 | 1 | `body` in base64 with its `content_type`; bytes that are not JSON among them |
| large | 1 | 1 | a Create of 200 KiB |
| hard | 46 | 1 | a Create to an inbox that does not simply answer |
| duplicate | 4 | 0 | a line that came before, byte for byte: a receipt `duplicate` |
| conflict | 3 | 0 | an id that came before with other content: a receipt `conflict` |
| malformed | 8 | 0 | JSON that breaks a rule: `produce` refuses it; in the topic: quarantine |

So 526 activities, 686 deliveries; by the behaviour of the path, with the calls that each delivery
takes under the policy `activity`, to an inbox (idempotent), where `max` is its `max_attempts`:

| path | deliveries | calls each | ends |
|---|---|---|---|
| `/ok` | 606 | 1 | sent |
| `/flaky/2` | 32 | 3 | sent |
| `/retry-after/3` | 8 | 2 | sent |
| `/status/400` | 12 | 1 | dead: refused, `rejected_permanent` |
| `/redirect` | 6 | 1 | dead: refused, `rejected_permanent` |
| `/status/503` | 9 | max | dead: exhausted |
| `/reset` | 5 | max | dead: exhausted |
| `/hang` | 2 | max | dead: exhausted |
| `/reset` as `pager` of `acme`, not idempotent | 6 | 1 | dead: `reconciliation_required` |
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from examples import activity_kinds
from examples.activity_kinds import PLACEHOLDER, Line

FILE: Final = Path(__file__).with_name("activities.jsonl")
SEED: Final = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTarget:
    """A target that the activities name, and that is to be registered before they are produced."""

    tenant: str
    name: str
    path: str
    idempotent: bool
    policy: str


TARGETS: Final = (
    NamedTarget(tenant="default", name="crm", path="/ok/crm", idempotent=True, policy="activity"),
    NamedTarget(
        tenant="default", name="pager", path="/ok/pager", idempotent=False, policy="notification"
    ),
    NamedTarget(
        tenant="acme", name="pager", path="/reset/pager", idempotent=False, policy="notification"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOutcome:
    """What comes of the deliveries of one behaviour.

    Attributes:
        path: The behaviour; ` once` marks the target that is not idempotent.
        deliveries: How many there are.
        calls_each: What the receiver's log must show for each.
        receipt: The verdict of each one's receipt.
        is_dead: Whether each ends in its activity's dead letter.
    """

    path: str
    deliveries: int
    calls_each: int
    receipt: str
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must come of the whole file. The numbers of the module's tables, checked by a test.

    Attributes:
        lines: All lines.
        malformed: Lines that `outbox produce` refuses.
        duplicates, conflicts: Lines that bring a receipt of that name and no call.
        activities: Lines that are delivered.
        dead_activities: Activities with at least one dead delivery: one dead letter each.
    """

    lines: int
    malformed: int
    duplicates: int
    conflicts: int
    activities: int
    dead_activities: int
    paths: tuple[PathOutcome, ...]

    @property
    def deliveries(self) -> int:
        """Deliveries owed in all."""
        return sum(p.deliveries for p in self.paths)

    @property
    def calls(self) -> int:
        """Calls that the receiver's log must show in all, where no worker dies in a call."""
        return sum(p.deliveries * p.calls_each for p in self.paths)

    @property
    def dead(self) -> int:
        """Deliveries that end in dead letters."""
        return sum(p.deliveries for p in self.paths if p.is_dead)


def expected(*, max_attempts: int = 12) -> Expected:
    """Say what must come of the file when the policy `activity` allows `max_attempts` claims."""

    def row(path: str, deliveries: int, calls_each: int, receipt: str) -> PathOutcome:
        return PathOutcome(
            path=path,
            deliveries=deliveries,
            calls_each=calls_each,
            receipt=receipt,
            is_dead=receipt != "sent",
        )

    return Expected(
        lines=541,
        malformed=8,
        duplicates=4,
        conflicts=3,
        activities=526,
        dead_activities=40,
        paths=(
            row("/ok", 606, 1, "sent"),
            row("/flaky/2", 32, 3, "sent"),
            row("/retry-after/3", 8, 2, "sent"),
            row("/status/400", 12, 1, "refused"),
            row("/redirect", 6, 1, "refused"),
            row("/status/503", 9, max_attempts, "exhausted"),
            row("/reset", 5, max_attempts, "exhausted"),
            row("/hang", 2, max_attempts, "exhausted"),
            row("/reset once", 6, 1, "ambiguous"),
        ),
    )


def rewritten(text: str, receiver_url: str) -> str:
    """The lines with the placeholder host replaced by `receiver_url`, without an end slash."""
    return text.replace(PLACEHOLDER, receiver_url)


def behaviour_of(inbox: str) -> str:
    """The behaviour in an inbox URL's path, as `Expected.paths` names it."""
    name, *more = urlsplit(inbox).path.strip("/").split("/")
    return f"/{name}/{more[0]}" if name in {"flaky", "retry-after", "status"} else f"/{name}"


def make_lines() -> list[bytes]:
    """Every line without its line end. Deterministic."""
    chance = random.Random(SEED)
    plain = [
        *activity_kinds.notes(chance),
        *activity_kinds.announces(chance),
        *activity_kinds.ledger_entries(chance),
        *activity_kinds.notifications(chance),
        *activity_kinds.raw_bodies(),
        activity_kinds.large(chance),
        *activity_kinds.hard(chance),
        *activity_kinds.malformed(),
    ]
    chance.shuffle(plain)
    repeats = [line for line in plain if _is_simple_note(line)]
    duplicates = repeats[:4]
    conflicts = [_changed(line) for line in repeats[4:7]]
    return [
        json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
        for line in (*plain, *duplicates, *conflicts)
    ]


def _is_simple_note(line: Line) -> bool:
    return "/activities/note-" in str(line.get("activity_id"))


def _changed(line: Line) -> Line:
    """The same id with other content: a conflict (D-007)."""
    changed: Line = json.loads(json.dumps(line))
    changed["activity"]["object"]["content"] += " (corrected)"
    return changed


def main() -> None:
    """Write the file, or print what is expected of it."""
    parser = argparse.ArgumentParser(description="Make examples/activities.jsonl.")
    parser.add_argument("--expected", action="store_true", help="print what must come of it")
    parser.add_argument("--max-attempts", type=int, default=12, help="of the policy `activity`")
    asked = parser.parse_args()
    if asked.expected:
        print(json.dumps(asdict(expected(max_attempts=asked.max_attempts)), indent=2))
        return
    lines = make_lines()
    FILE.write_bytes(b"".join(line + b"\n" for line in lines))
    print(f"{FILE}: {len(lines)} lines")


if __name__ == "__main__":
    main()
