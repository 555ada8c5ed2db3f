"""Closed sets of words, as they stand in records, logs and answers."""

from __future__ import annotations

from enum import StrEnum


class Word(StrEnum):
    """One word of a closed set.

    It hashes as the text that it is. `Enum` hashes its member's name, by a function in Python, which
    makes each look-up 20 ns dearer (timeit); a delivery makes some forty.

    To read a member from its class takes 95 ns, from a name of one's own 5 (timeit, Python 3.11): modules
    that a delivery passes through have names for those that it meets.
    """

    __hash__ = str.__hash__
