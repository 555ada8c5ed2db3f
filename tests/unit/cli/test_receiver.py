"""`outbox receiver` says where it listens, keeps its log, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import httpx
import pytest

ALONE = """
import typer
from streams.cli.receiver import register
app = typer.Typer()
app.callback()(lambda: None)
register(app)
app()
"""


@pytest.fixture
def started():
    """Start the command in a process of its own; what still runs at the end is killed."""
    processes = []

    def start(*arguments):
        command = [sys.executable, "-c", ALONE, "receiver", *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(started, tmp_path, number):
    """Interface §1: prints where it listens once it serves; a demo ends it and expects exit 0."""
    log = tmp_path / "calls.jsonl"
    process = started("--log", str(log))
    name, _, address = process.stdout.readline().strip().partition("=")

    answer = httpx.post(f"http://{address}/status/418/tea", trust_env=False)
    process.send_signal(number)

    assert "listening" == name
    assert 418 == answer.status_code
    assert 0 == process.wait(timeout=20)
    assert [("/status/418/tea", 418)] == [
        (call["path"], call["status"]) for call in map(json.loads, log.read_text().splitlines())
    ]


def test_facts_are_json_where_asked_and_the_log_may_be_standard_output(started):
    """In a container the log is the container's."""
    process = started("--json", "--log", "-")
    address = json.loads(process.stdout.readline())["listening"]

    httpx.post(f"http://{address}/ok", trust_env=False)

    assert "/ok" == json.loads(process.stdout.readline())["path"]


def test_a_taken_port_is_one_line_and_exit_1(started):
    """A traceback would hide which port it was."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, said = (process := started("--port", str(port))).communicate(timeout=20)

    assert 1 == process.returncode
    assert 1 == len(said.splitlines())
    assert f"127.0.0.1:{port}" in said
