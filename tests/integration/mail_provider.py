"""A provider as targets meet it: takes a message, names it in a header, and says more than is wanted."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Self


@dataclass
class MailProvider:
    """Use as an async context. `/refuse` answers 422, everything else 202.

    Attributes:
        answer: The body of every answer.
        requests: Heads and bodies as they came.
    """

    answer: bytes = b"taken"
    requests: list[bytes] = field(default_factory=list)
    taken: int = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def url(self, path: str = "/send") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            body = await reader.readexactly(int(length.group(1)) if length else 0)
        except asyncio.IncompleteReadError:
            writer.close()
            return
        self.requests.append(head + body)
        self.taken += 1
        status = b"422 No" if head.startswith(b"POST /refuse") else b"202 Accepted"
        writer.write(
            b"HTTP/1.1 %s\r\nx-message-id: m%d\r\nx-note: %s\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s"
            % (status, self.taken, self.answer, len(self.answer), self.answer)
        )
        await writer.drain()
        writer.close()
