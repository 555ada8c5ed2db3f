"""Where the deliveries go: nginx where the machine has it, else `outbox receiver`."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.children import START_S, Child, clean_environment
from tests.bench.proc import BenchError

_NGINX = """\
daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events {{ worker_connections 8192; }}
http {{
  log_format calls '$msec $http_outbox_attempt $http_webhook_id';
  access_log {access_log};
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  keepalive_requests 1000000000;
  keepalive_timeout 3600s;
  default_type application/json;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ return 200 "{{}}"; }}
    location /flaky/1 {{
      if ($http_outbox_attempt = "1") {{ return 503; }}
      return 200 "{{}}";
    }}
  }}
}}
"""
"""Answers at once and keeps every connection. `/flaky/1` fails the first attempt, as `outbox receiver`'s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One call as the receiver wrote it down. `t` is epoch seconds."""

    t: float
    id: str
    attempt: int


@dataclass(slots=True, kw_only=True)
class Place:
    """A receiver that runs.

    Attributes:
        kind: `nginx VERSION` or `outbox receiver`.
        resolution_s: What its clock leaves out: nginx writes whole milliseconds.
    """

    kind: str
    port: int
    child: Child
    calls_log: Path
    resolution_s: float

    def url(self, path: str) -> str:
        """The absolute URL of `path` here."""
        return f"http://127.0.0.1:{self.port}{path}"

    def calls(self) -> list[Received]:
        """Every call that it has written down so far."""
        with self.calls_log.open("rb") as file:
            raw = file.read()
        lines = raw[: raw.rfind(b"\n") + 1].decode().splitlines()
        return [_read_json(x) if x.startswith("{") else _read_nginx(x) for x in lines]

    async def until_called(self, count: int, within_s: float = 30.0) -> list[Received]:
        """Wait until so many calls are written down (nginx writes them late); give all there are."""
        ends = asyncio.get_running_loop().time() + within_s
        while len(found := self.calls()) < count:
            self.child.check()
            if asyncio.get_running_loop().time() > ends:
                raise BenchError(f"{self.kind} wrote down {len(found)} calls of {count}")
            await asyncio.sleep(0.2)
        return found

    async def until_told(self, ids: Collection[str], within_s: float = 30.0) -> list[Received]:
        """Wait until a call of each id is written down; give all calls there are.

        Others' calls are written between them (a calibration's), so counting would end too early.
        """
        ends = asyncio.get_running_loop().time() + within_s
        while True:
            found = self.calls()
            missing = set(ids).difference(call.id for call in found)
            if not missing:
                return found
            self.child.check()
            if asyncio.get_running_loop().time() > ends:
                raise BenchError(f"{self.kind} wrote down no call of {len(missing)} ids")
            await asyncio.sleep(0.2)


@asynccontextmanager
async def receiver(folder: Path, *, logs: bool = False, slow: bool = False) -> AsyncIterator[Place]:
    """Start a receiver, its files in `folder`, which must be there, and end it.

    Args:
        logs: Whether it writes each call down.
        slow: Whether paths such as `/slow/20` are asked for, which nginx alone cannot do.
    """
    nginx = shutil.which("nginx", path=_search_path())
    place = await (
        _outbox(folder, logs) if slow or nginx is None else _start_nginx(nginx, folder, logs)
    )
    try:
        yield place
    finally:
        await place.child.end()


def _search_path() -> str:
    """Debian puts nginx where root looks."""
    return f"{clean_environment().get('PATH', '')}:/usr/sbin:/usr/local/sbin"


async def _start_nginx(nginx: str, folder: Path, logs: bool) -> Place:
    calls = folder / "calls.log"
    access_log = f"{calls} calls buffer=64k flush=100ms" if logs else "off"
    for _ in range(3):  # another program may take the free port before nginx does
        port = _free_port()
        text = _NGINX.format(folder=folder, port=port, access_log=access_log)
        (folder / "nginx.conf").write_text(text)
        command = [
            nginx,
            "-p",
            str(folder),
            "-c",
            "nginx.conf",
            "-e",
            str(folder / "nginx-error.log"),
        ]
        child = Child("nginx", command, log=folder / "nginx.log", environment=clean_environment())
        if await _listens(child, port):
            kind = f"nginx {await _nginx_version(nginx)}"
            return Place(kind=kind, port=port, child=child, calls_log=calls, resolution_s=0.001)
        child.kill()
    raise BenchError(f"nginx does not listen:\n{child.tail()}\n{_text(folder / 'nginx-error.log')}")


async def _outbox(folder: Path, logs: bool) -> Place:
    calls = folder / "calls.jsonl"
    command = [sys.executable, "-m", "streams", "receiver", "--json"]
    if logs:
        command += ["--log", str(calls)]
    child = Child("receiver", command, log=folder / "receiver.log", environment=clean_environment())
    ends = asyncio.get_running_loop().time() + START_S
    while not (said := _text(child.log)).strip().endswith("}"):
        child.check()
        if asyncio.get_running_loop().time() > ends:
            child.kill()
            raise BenchError("outbox receiver does not listen")
        await asyncio.sleep(0.05)
    port = int(json.loads(said)["listening"].rpartition(":")[2])
    return Place(kind="outbox receiver", port=port, child=child, calls_log=calls, resolution_s=0.0)


async def _listens(child: Child, port: int) -> bool:
    for _ in range(100):
        try:
            child.check()
        except BenchError:
            return False
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return True
    return False


async def _nginx_version(nginx: str) -> str:
    process = await asyncio.create_subprocess_exec(nginx, "-v", stderr=asyncio.subprocess.PIPE)
    _, told = await process.communicate()
    return told.decode().strip().rpartition("/")[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _read_nginx(line: str) -> Received:
    t, attempt, message_id = line.split(" ", 2)
    return Received(t=float(t), id=message_id, attempt=int(attempt) if attempt.isdigit() else 0)


def _read_json(line: str) -> Received:
    told = json.loads(line)
    return Received(t=told["t"], id=told["id"] or "", attempt=told["attempt"] or 0)
