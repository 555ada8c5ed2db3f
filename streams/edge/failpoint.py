"""Named lines at which a test can kill, freeze or fail this process: `OUTBOX_FAILPOINT`.

For tests only: a crash between two particular lines cannot be hit from outside. Unset, which is
always in production, `failpoint` is a function that returns (0.03 µs a call, timeit); set, its value
is `NAME:kill`, `NAME:freeze` or `NAME:raise`, and `:N` after that means the Nth time the line is
reached. Where the lines are, and what must hold at each, stands in docs/guarantees.md.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from streams.errors import StreamsError

VARIABLE: Final = "OUTBOX_FAILPOINT"


class FailpointError(StreamsError):
    """A test asked for a failure here, or named no failpoint that there could be."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise() -> None:
    raise FailpointError("this failure was asked for by OUTBOX_FAILPOINT")


_DEEDS: Final[dict[str, Callable[[], None]]] = {"kill": _kill, "freeze": _freeze, "raise": _raise}


def _nothing(_name: str) -> None:
    return


def armed(spec: str) -> Callable[[str], None]:
    """The function that acts as `spec` says, once, and does nothing for every other name.

    Raises:
        FailpointError: `spec` is not `NAME:kill|freeze|raise[:N]`.
    """
    if not spec:
        return _nothing
    name, _, rest = spec.partition(":")
    deed, _, nth = rest.partition(":")
    if not name or deed not in _DEEDS or not (nth or "1").isdigit():
        raise FailpointError(f"{VARIABLE} must be NAME:kill|freeze|raise[:N]")
    left = int(nth or "1")

    def reached(here: str) -> None:
        nonlocal left
        if here == name:
            left -= 1
            if left == 0:
                _DEEDS[deed]()

    return reached


failpoint: Final = armed(os.environ.get(VARIABLE, ""))
"""Call it at a line that has a name. Bound when the module is imported."""
