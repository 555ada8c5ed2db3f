"""Three real brokers, each with a second door through which a worker's network can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import Final

from streams.edge.kafka_jars.nodes import HOST, _free_ports
from streams.edge.localkafka import LocalKafka

CHUNK_BYTES: Final = 64 * 1024


class ProxiedKafka(LocalKafka):
    """A local Kafka whose second listener names the ports of proxies, as a client behind them needs."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, brokers=3)
        ports = _free_ports(6)
        self.doors: dict[int, tuple[int, int]] = {
            number: (ports[2 * number - 2], ports[2 * number - 1]) for number in (1, 2, 3)
        }
        """Node to the port of its proxy and the port behind it."""

    @property
    def proxied(self) -> str:
        """The bootstrap for a client behind the proxies."""
        return ",".join(f"{HOST}:{front}" for front, _ in self.doors.values())

    def _start(self, number: int) -> None:
        front, behind = self.doors[number]
        file = self._dir(number) / "properties"
        more = {
            "listeners": f",PROXIED://{HOST}:{behind}",
            "advertised.listeners": f",PROXIED://{HOST}:{front}",
            "listener.security.protocol.map": ",PROXIED:PLAINTEXT",
        }
        lines = [
            line if "PROXIED" in line else line + more.get(line.partition("=")[0], "")
            for line in file.read_text().splitlines()
        ]
        file.write_text("\n".join(lines) + "\n")
        super()._start(number)


class Network:
    """The proxies of all brokers, and whether bytes pass.

    A cut keeps the connections and holds the bytes back, as a lost route does: what was on its way
    arrives when the cut ends.
    """

    def __init__(self, doors: dict[int, tuple[int, int]]) -> None:
        self._doors = doors
        self._to_brokers = asyncio.Event()
        self._to_worker = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.heal()

    async def open(self) -> None:
        """Listen."""
        for front, behind in self._doors.values():
            accept = partial(self._accept, behind)
            self._servers.append(await asyncio.start_server(accept, HOST, front))

    async def close(self) -> None:
        """End all connections and stop listening."""
        for server in self._servers:
            server.close()
        for pump in self._pumps:
            pump.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)
        self._servers.clear()

    def cut(self, direction: str) -> None:
        """Hold back what goes `out` to the brokers, what comes `in` from them, or `both`."""
        if direction != "in":
            self._to_brokers.clear()
        if direction != "out":
            self._to_worker.clear()

    def heal(self) -> None:
        """Let everything pass again, what was held back first."""
        self._to_brokers.set()
        self._to_worker.set()

    async def _accept(
        self, behind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, behind)
        except OSError:
            writer.close()
            return
        for source, sink, gate in (
            (reader, far_writer, self._to_brokers),
            (far_reader, writer, self._to_worker),
        ):
            pump = asyncio.create_task(self._pump(source, sink, gate))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    @staticmethod
    async def _pump(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                while data := await source.read(CHUNK_BYTES):
                    await gate.wait()
                    sink.write(data)
                    await sink.drain()
            finally:
                sink.close()
