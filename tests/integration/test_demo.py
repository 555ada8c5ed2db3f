"""A short form of `make demo`: a real Kafka, a worker that is killed, and a sum."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from examples import make_activities

ROOT = Path(__file__).parents[2]


def few_lines() -> bytes:
    """Some of each kind, malformed lines and repeats included; none that hangs or takes long."""
    lines = make_activities.FILE.read_bytes().splitlines()
    quick = [line for line in lines if not re.search(rb"/hang/|/retry-after/|.{9000}", line)]
    picked = [*quick[:60], *quick[-7:]]
    ids = {json.loads(line)["activity_id"].encode() for line in quick[-7:]}
    originals = [
        line for line in quick[60:-7] if any(b'"activity_id":"%s"' % i in line for i in ids)
    ]
    malformed = [line for line in quick[60:-7] if b"urn:bad" in line]
    return b"\n".join([*picked[:60], *originals, *malformed, *picked[60:]])


def start(folder: Path, kafka: str, *arguments: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("OUTBOX_")}
    (folder / "few.jsonl").write_bytes(few_lines())
    return subprocess.Popen(
        [sys.executable, "-m", "streams", "demo", "--plain", "--file", "few.jsonl", *arguments],
        cwd=folder,
        env=clean | {"OUTBOX_BROKERS": kafka, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    """The command of everything that was started with this folder and did not end."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


async def topics_left(kafka: str) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    found = [name for name in await admin.list_topics() if name.startswith("demo-")]
    await admin.close()
    return found


@pytest.mark.timeout(240)
def test_the_demo_kills_its_worker_adds_up_and_leaves_nothing(kafka: str, tmp_path: Path):
    """
    interface.md §1: shows it live, ends with a summary and exit 0. C-01, C-07, C-14, D-006, D-007:
    what a crash may repeat is counted, malformed records are dead-lettered, repeats are told apart.
    """
    demo = start(tmp_path, kafka)
    try:
        told, said = demo.communicate(timeout=220)
    finally:
        demo.kill()

    assert (0, "") == (demo.returncode, said), told
    assert "worker killed (SIGKILL" in told
    assert "worker started again" in told
    assert re.search(
        r"^lines +\d+ = \d+ activities \+ 4 duplicates \+ 3 conflicts", told, re.MULTILINE
    )
    assert re.search(r"^ +at=\S+ activity=demo-.* code=activity_not_an_object ", told, re.MULTILINE)
    assert re.search(r"^outbox show .*\n  .* reach=never ", told, re.MULTILINE)
    assert re.search(r"^outbox redrive dlv_.*\n  audit=.* status=queued ", told, re.MULTILINE)
    assert "\nit adds up\n" in told
    assert [] == processes_of(tmp_path)
    assert [] == list(tmp_path.glob("outbox-demo-*"))
    assert [] == asyncio.run(topics_left(kafka))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(kafka: str, tmp_path: Path, number: signal.Signals):
    """Ctrl-C in the middle of it is how most demos end."""
    demo = start(tmp_path, kafka)
    try:
        while "receiver listens" not in (line := demo.stdout.readline()):
            assert line, demo.communicate()
        demo.send_signal(number)
        _, said = demo.communicate(timeout=60)
    finally:
        demo.kill()

    assert (1, "outbox: interrupted\n") == (demo.returncode, said)
    assert [] == processes_of(tmp_path)
    assert [] == list(tmp_path.glob("outbox-demo-*"))
