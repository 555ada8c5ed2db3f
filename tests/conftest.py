"""What tests share: one real local Kafka a session, a topic prefix a test, settings from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import structlog
from structlog._config import BoundLoggerLazyProxy

from streams.edge.kafka_jars import cache_dir
from streams.edge.localkafka import LocalKafka
from streams.settings import Settings, load


class SettingsFor(Protocol):
    """Load settings from these overrides alone, by field name: `settings_for(partitions=4)`."""

    def __call__(self, **overrides: object) -> Settings: ...


class Outbox(Protocol):
    """Run the `outbox` command as a process with these settings alone, in a folder of the test."""

    def __call__(
        self, *arguments: str, **overrides: object
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap of a real Kafka: that of OUTBOX_BROKERS, else a local one for this session."""
    given = os.environ.get("OUTBOX_BROKERS")
    if given:
        yield given
        return
    local = LocalKafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield local.up()
    finally:
        local.down(wait_s=5.0)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Undo what a test, or a command that it ran in this process, did to everybody's log lines."""
    before = structlog.get_config()
    yield
    if structlog.get_config() == before:
        return
    structlog.configure(**before)
    for name, module in list(sys.modules.items()):
        log = vars(module).get("log") if name.startswith("streams.") else None
        if isinstance(log, BoundLoggerLazyProxy):
            # One that was first used meanwhile keeps what it found there: a level, a renderer.
            vars(log).pop("bind", None)


@pytest.fixture
def prefix() -> str:
    """A topic prefix of this test's own, so that tests share a broker and nothing on it."""
    return f"t{uuid.uuid4().hex[:8]}."


@pytest.fixture
def settings_for(monkeypatch: pytest.MonkeyPatch) -> SettingsFor:
    """Load settings from overrides alone; the environment of the test run has no say."""

    def build(**overrides: object) -> Settings:
        for name in [name for name in os.environ if name.upper().startswith("OUTBOX_")]:
            monkeypatch.delenv(name)
        for name, value in _variables(overrides).items():
            monkeypatch.setenv(name, value)
        return load()

    return build


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    """Run `outbox` for real; Kafka's jars come from the cache of the test run."""
    jars = tmp_path / "cache" / "outbox" / "kafka-jars"
    jars.parent.mkdir(parents=True)
    cache_dir().mkdir(parents=True, exist_ok=True)
    jars.symlink_to(cache_dir().resolve())
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("OUTBOX_")}
    clean["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def run(*arguments: str, **overrides: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streams", *arguments],
            cwd=tmp_path,
            env=clean | _variables(overrides),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def _variables(overrides: dict[str, object]) -> dict[str, str]:
    return {f"OUTBOX_{name.upper()}": str(value) for name, value in overrides.items()}
