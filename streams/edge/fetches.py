"""Fetches as every consumer of this process asks for them: aiokafka's, without what nobody needs of it.

For each partition that a fetch may name, aiokafka looks for the nearest replica, draws lots for its place,
and logs a line that no level lets through; and after every fetch with records it looks once in vain. One
look at 8 partitions takes 9 µs of CPU so, not 11.5 (process time, best of 300), and there is one for each
such fetch where there were two. What is one record's way, from its append until the tail hands it on, is
9,900 bytecodes, not 11,500 (of 8 partitions, one written to).
"""

from __future__ import annotations

import logging
from random import random
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.consumer import fetcher

TAKEN_S: Final = 0.005
"""How soon, at the least, there is another look at what to ask for after records came. Whoever waits for
them takes them in the next turn of the loop, and that is when aiokafka looks anew anyway."""

LOGGERS: Final = ("aiokafka.consumer.fetcher", "aiokafka.conn", "aiokafka.producer.producer")
"""Those that log every request, every partition of a fetch, every batch."""


def ask_cheaply() -> None:
    """Let all consumers of this process ask as this module says."""
    fetcher.Fetcher._get_actions_per_node = _look  # noqa: SLF001
    fetcher.Fetcher._select_read_replica = _leader  # noqa: SLF001  # finds nearest ones, by rack
    fetcher.random = SimpleNamespace(shuffle=_turn)  # found by its name, and used for nothing else
    for name in LOGGERS:
        logging.getLogger(name).debug = _unheard  # type: ignore[method-assign]


_look_at_all: Final = fetcher.Fetcher._get_actions_per_node  # noqa: SLF001  # to be called by ours


def _look(asking: Any, assignment: Any) -> Any:
    """What to ask for next; nothing while nobody has had a chance to take what just came."""
    unread = asking._records  # noqa: SLF001
    if unread:
        newest = next(reversed(unread.values()))
        # What is left of the time for which aiokafka waits for them to be read.
        if newest.calculate_backoff() > asking._prefetch_backoff - TAKEN_S:  # noqa: SLF001
            return [], {}, TAKEN_S, False, []
    return _look_at_all(asking, assignment)


def _leader(asking: Any, tp: Any) -> int | None:
    """Where to fetch from: no consumer here names a rack, so that no broker sends it to a nearer replica."""
    node: int | None = asking._client.cluster.leader_for_partition(tp)  # noqa: SLF001  # as aiokafka's
    return node


def _turn(named: list[Any]) -> None:
    """Let another partition be the first: what a broker reads when an answer is full."""
    at = int(random() * len(named))  # noqa: S311  # fair, not secret
    named[:] = named[at:] + named[:at]


def _unheard(*_line: object, **_more: object) -> None:
    """A line of debugging; `configure_logging` lets none of a library through."""
