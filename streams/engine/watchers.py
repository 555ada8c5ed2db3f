"""Who waits for a row to change."""

from __future__ import annotations

import asyncio
import contextlib


class Watchers:
    """Waits, by key; whoever changes a row wakes them."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def changed(self, key: bytes, *, within_s: float) -> None:
        """Wait until the key is woken, no longer than `within_s`."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(change)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(change, timeout=max(0.0, within_s))

    def wake(self, key: bytes) -> None:
        """Wake whoever waits for this key."""
        for change in self._waiting.pop(key, []):
            if not change.done():
                change.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody."""
        for key in list(self._waiting):
            self.wake(key)
