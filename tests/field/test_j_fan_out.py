"""One activity for many recipients."""

from __future__ import annotations

from collections import Counter

from streams.model.ledger import FailurePhase, Phase
from streams.rules.decide import Turned
from tests.field.worlds import calls_of, dead_letters, row_of, simulate


def test_j06_one_bad_recipient_spoils_nobody_elses_delivery():
    """
    J06, C-08: 100 recipients, one of which always fails and one of which may not be called: 98 are told
    once, at once; each of the two ends in its own way.
    """
    targets = [f"idem-{n}" for n in range(100)]

    async def scenario(world):
        find = world.targets.find

        async def find_but_one(tenant, recipient):
            if recipient.key == "idem-64":
                return Turned(FailurePhase.ADMISSION, "address_forbidden")
            return await find(tenant, recipient)

        world.targets.find = find_but_one
        world.lasts_s = 0.01
        world.answers |= dict.fromkeys(targets, "200") | {"idem-37": "500"}
        world.produce("x1", *targets)
        await world.come_to_rest()

    world = simulate(scenario)

    rows = {target: row_of(world, "x1", target) for target in targets}
    assert {Phase.SENT: 98, Phase.DEAD: 2} == Counter(row.phase for row in rows.values())
    assert ("attempts_exhausted", 3) == (rows["idem-37"].code, rows["idem-37"].attempts)
    assert ("address_forbidden", 0) == (rows["idem-64"].code, rows["idem-64"].attempts)
    assert {1} == {len(calls_of(world, t)) for t in targets if t not in ("idem-37", "idem-64")}
    assert max(c.at for t in targets for c in calls_of(world, t) if t != "idem-37") < 2.0
    assert dead_letters(world)
