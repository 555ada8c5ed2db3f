"""What befalls a world, drawn from a seed; and the shortest list of it that still breaks a promise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from streams.model.ledger import Phase
from tests.sim.bounds import ENDLESS, Bounds
from tests.sim.loop import run_virtual
from tests.sim.quiet import quiet
from tests.sim.world import World

TARGETS = ("strict-1", "strict-2", "idem-1", "idem-2")
KINDS = (
    ("move", 6),
    ("cut", 6),
    ("crash", 5),
    ("freeze", 5),
    ("slow", 5),
    ("compact", 4),
    ("produce", 8),
    ("repeat", 3),
    ("further", 2),
    ("conflict", 2),
    ("redrive", 8),
    ("skew", 2),
    ("look_ups", 1),
    ("sweep", 4),
    ("disable", 2),
    ("cancel", 3),
)


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that befalls the world.

    Attributes:
        at: Virtual seconds.
        kind: One of `KINDS`, or what follows from one: `tell`, `thaw`, `start`.
        who: A machine, or the number of an activity.
        how: Further choice, uniform in 0..1.
    """

    at: float
    kind: str
    who: str = ""
    how: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.kind} {self.who} {self.how:.3f}"


def draw(seed: int) -> list[Happening]:
    """What befalls the world of a seed."""
    rng = Random(f"plan {seed}")
    busy_s = rng.choice((3.0, 8.0, 20.0))
    plan = [Happening(0.0, "cut", "A"), Happening(0.01, "produce", "0", rng.random())]
    names, weights = zip(*KINDS, strict=True)
    for _ in range(rng.randint(3, 16)):
        (kind,) = rng.choices(names, weights)
        at = rng.uniform(0.0, busy_s)
        is_worldly = kind in ("produce", "repeat", "further", "conflict", "redrive", "disable")
        who = str(rng.randint(0, 3)) if is_worldly else rng.choice("ABC")
        plan.append(Happening(at, kind, who, rng.random()))
        later = at + rng.choice((0.05, 0.5, 2.0, 6.0)) * rng.uniform(0.5, 1.5)
        match kind:
            case "cut":
                plan.append(Happening(later, "tell", rng.choice("ABC")))
            case "crash":
                plan.append(Happening(later, "start", who))
                plan.append(Happening(at + rng.uniform(0.1, 3), "cut", rng.choice("ABC")))
            case "disable":
                plan.append(Happening(later, "enable", who))
            case "freeze":
                plan.append(Happening(later, "thaw", who))
                if rng.random() < 0.7:
                    plan.append(Happening(at + rng.uniform(0, 2), "cut", rng.choice("ABC")))
    return sorted(plan, key=lambda happening: happening.at)


def bounds(seed: int) -> Bounds:
    """How long the world of a seed remembers, and tries: half of them for ever, as far as they know."""
    rng = Random(f"bounds {seed}")
    return Bounds(
        window_ms=rng.choice((ENDLESS.window_ms, ENDLESS.window_ms, 3_000, 12_000)),
        max_age_ms=rng.choice((ENDLESS.max_age_ms, ENDLESS.max_age_ms, 4_000, 9_000)),
    )


async def live(seed: int, plan: Sequence[Happening]) -> World:
    """Let it befall a world, then let that come to rest.

    Raises:
        FailedError: a promise was broken.
    """
    world = World(seed, bounds=bounds(seed))
    for happening in plan:
        await asyncio.sleep(max(0.0, happening.at - world.loop.time()))
        world.check()
        _befall(world, happening)
    await world.come_to_rest()
    return world


def _befall(world: World, happening: Happening) -> None:
    who, how = happening.who, happening.how
    if happening.kind in _TO_MACHINES:
        _TO_MACHINES[happening.kind](world, who, how)
    elif happening.kind in ("disable", "enable"):
        getattr(world, happening.kind)(TARGETS[int(who)])
    elif happening.kind == "redrive":
        _redrive(world, how)
    elif happening.kind == "cancel":
        _cancel(world, how)
    else:
        _produce(world, happening.kind, who, how)


def _crash(world: World, who: str, how: float) -> None:
    store = ("kept", "older", "lost")[int(how * 3)]
    world.crash(who, store=store, landing=(how * 7) % 1)


def _freeze(world: World, who: str, how: float) -> None:
    world.say(who, "freezes")
    world.machines[who].freeze()


def _thaw(world: World, who: str, how: float) -> None:
    world.say(who, "thaws")
    world.machines[who].thaw()


def _slow(world: World, who: str, how: float) -> None:
    world.machines[who].slow_until = world.loop.time() + 6 * how


def _skew(world: World, who: str, how: float) -> None:
    world.skew(who, int(20_000 * (how - 0.5)))


def _look_ups(world: World, who: str, how: float) -> None:
    world.targets.slow_look_ups = how / 3


_TO_MACHINES: dict[str, Callable[[World, str, float], None]] = {
    "move": lambda world, who, how: world.move(who),
    "cut": lambda world, who, how: world.move(who, told=False),
    "tell": lambda world, who, how: world.tell(who),
    "crash": _crash,
    "start": lambda world, who, how: world.start(who),
    "freeze": _freeze,
    "thaw": _thaw,
    "slow": _slow,
    "skew": _skew,
    "look_ups": _look_ups,
    "sweep": lambda world, who, how: world.machines[who].sweep(),
    "compact": lambda world, who, how: world.compact(how),
}


def _produce(world: World, kind: str, number: str, how: float) -> None:
    first = int(how * 4)
    known = {owed.activity.activity_id for owed in world.oracle.owed.values()}
    activity_id = f"x{number}"
    if kind == "produce" and activity_id not in known:
        world.produce(activity_id, *TARGETS[first : first + 1 + int(how * 10) % 3])
    elif kind == "repeat" and activity_id in known:
        asked = [key for key in world.oracle.owed if key.startswith(activity_id.encode() + b"\0")]
        world.produce(activity_id, *(key.decode().split("\0")[1] for key in asked))
    elif kind == "further" and activity_id in known:
        world.produce(activity_id, TARGETS[first], TARGETS[(first + 1) % 4])
    elif kind == "conflict" and activity_id in known:
        world.produce(activity_id, TARGETS[first], content="other")


def _cancel(world: World, how: float) -> None:
    """Cancel a delivery that waits, or that is about to: the command may come after its next claim."""
    open_phases = (Phase.WAITING, Phase.QUEUED, Phase.CLAIMED)
    keys = [k for k in world.oracle.owed if world.oracle.is_in(k, *open_phases)]
    if keys:
        world.cancel(keys[int(how * len(keys))], copies=1 + int(how * 100) % 2)


def _redrive(world: World, how: float) -> None:
    """Reopen a dead letter; its caller replays the trigger once it sees that this was done."""
    keys = [k for k in world.oracle.owed if (r := world.oracle.row(k)) and r.phase is Phase.DEAD]
    if not keys:
        return
    key = keys[int(how * len(keys))]
    row = world.oracle.row(key)
    assert row is not None
    budget = row.budget
    world.redrive(key, copies=1 + int(how * 100) % 2)

    def replay(left: int) -> None:
        now = world.oracle.row(key)
        if now is not None and now.budget > budget:
            world.replay(key)
        elif left:
            world.broker.soon(0.3, replay, left - 1)

    world.broker.soon(0.3 if how < 0.9 else 10.0, replay, 200)


def run(seed: int, plan: Sequence[Happening]) -> World:
    """One world from its start to its rest; the same again for the same arguments.

    Raises:
        FailedError: a promise was broken.
    """
    return run_virtual(live(seed, plan))


def explain(seed: int) -> str:
    """Why a seed fails: its plan without whatever can be left out, and the transcript of that."""
    plan = shortened(seed)
    if plan is None:
        return f"seed {seed} holds"
    befell = "\n".join(map(str, plan))
    with quiet():
        return f"seed {seed} fails with {bounds(seed)} and\n{befell}\n{failure_of(seed, plan)}"


def shortened(seed: int) -> list[Happening] | None:
    """The plan of a seed that fails, without whatever can be left out; None where it holds."""
    plan = draw(seed)
    with quiet():
        if failure_of(seed, plan) is None:
            return None
        at = 0
        while at < len(plan):
            shorter = plan[:at] + plan[at + 1 :]
            if failure_of(seed, shorter) is None:
                at += 1
            else:
                plan, at = shorter, 0  # what was needed before may not be needed now
    return plan


def failure_of(seed: int, plan: Sequence[Happening]) -> str | None:
    """The transcript and what was wrong in the end; None where nothing was."""
    try:
        run(seed, plan)
    except AssertionError as failure:
        return str(failure) or repr(failure)
    return None
