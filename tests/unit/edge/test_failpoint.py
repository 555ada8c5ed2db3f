"""Failpoints: nothing when unset, exactly one deed at exactly one line when set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streams.edge.failpoint import FailpointError, armed, failpoint
from tests.conftest import SettingsFor


def test_unset_it_is_a_function_that_does_nothing() -> None:
    """Issue 4: compiled into nothing when unset."""
    assert armed("") is failpoint
    assert None is failpoint("before_call")


def test_it_acts_at_its_own_line_and_at_no_other() -> None:
    """A window is hit exactly, or the test proves nothing."""
    reached = armed("before_call:raise")
    reached("called")

    with pytest.raises(FailpointError):
        reached("before_call")


def test_it_acts_once_at_the_nth_time() -> None:
    """`:2` is the second time that the line is reached."""
    reached = armed("append:raise:2")
    reached("append")

    with pytest.raises(FailpointError):
        reached("append")
    reached("append")


@pytest.mark.parametrize("spec", ["x", "x:", ":kill", "x:explode", "x:kill:soon"])
def test_a_malformed_one_is_refused(spec: str) -> None:
    """A test that arms nothing by a typo would pass."""
    with pytest.raises(FailpointError, match="NAME:kill"):
        armed(spec)


def test_kill_is_the_end_without_any_farewell() -> None:
    """As `kill -9`: nothing is flushed or closed."""
    code = "from streams.edge.failpoint import failpoint; failpoint('here'); print('survived')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"OUTBOX_FAILPOINT": "here:kill", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=False,
    )

    assert (-9, b"") == (done.returncode, done.stdout)


def test_the_variable_is_not_called_unknown(settings_for: SettingsFor) -> None:
    """It is no setting, and no typo of one either."""
    assert () == settings_for(failpoint="before_call:kill").unknown
