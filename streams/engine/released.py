"""Targets that were enabled a moment ago: what is parked for them need not wait its time out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streams.rules.pacing import PARK_MS
from streams.wire.records import RetryItem

REMEMBERED_S: Final = PARK_MS / 1000 + 60.0
"""By then everything that was parked before has come up by itself."""


class Released:
    """The names, of any tenant: a parked delivery of another tenant that is looked at parks again."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, target: str, now_s: float) -> None:
        """A target's deliveries need not be parked any more."""
        self._until[target] = now_s + REMEMBERED_S

    def has_any(self, now_s: float) -> bool:
        """Whether there is one to look for."""
        if self._until:
            self._until = {name: until for name, until in self._until.items() if until > now_s}
        return bool(self._until)

    def frees(self, items: Iterable[RetryItem]) -> bool:
        """Whether a waiting record may go at once: all that it carries is parked, and released."""
        return all(item.parked_since_ms and item.target in self._until for item in items)
