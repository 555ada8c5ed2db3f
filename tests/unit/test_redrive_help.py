"""What an operator is told of the two ways to redrive, where they are chosen."""

from __future__ import annotations

import re
from pathlib import Path

from streams.api.openapi import document
from streams.rules.decide import EffectMode

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()


def test_the_apis_help_says_which_way_to_prefer() -> None:
    """D-072, D-073: the one while the effect is uncertain, the other where a second is wanted."""
    told = document()["components"]["schemas"]["RedriveRequest"]["properties"]["effect_mode"]

    assert set(EffectMode) == set(told["enum"])
    assert re.search(r"reconcile_replay.*uncertain", told["description"])
    assert re.search(r"new_external_send.*second effect", told["description"])


def test_the_runbook_says_which_way_to_prefer_and_that_the_replay_comes_after() -> None:
    """D-072, D-073, D-075: the seed's seven steps hold all three."""
    steps = re.findall(r"^\*\*(\d\. .*?)\*\*", RUNBOOK, re.MULTILINE)

    assert "Prefer `reconcile_replay` while it is uncertain whether it happened." in steps[2]
    assert "Choose `new_external_send` only where a second effect is wanted." in steps[3]
    assert "Replay the original trigger from its own source." in steps[5]
    assert 7 == len(steps)
