"""What several modules ask for beside their own worlds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.api_process import ApiProcess
from tests.integration.world import World


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(world: World) -> AsyncIterator[ApiProcess]:
    """An API over the module's world."""
    async with ApiProcess(world=world) as api:
        yield api
