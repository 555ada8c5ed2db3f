"""Bulk redrive: a filter, worked through letter by letter, each with an audit record of its own.

A job lives in the audit topic: its start, each redrive and its end are records there, so it survives the
process and its disk. What is left of it is what its filter still finds open; nothing else need be
remembered, and a letter that is asked for twice is reopened once (ledger.md, rule 11).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from streams.api import listing
from streams.api.problems import Problem
from streams.api.redriving import Reopened, Wish
from streams.api.shapes import UNREADABLE, JobEnd, SeenJob, SeenLetter
from streams.api.tokens import AUDIT
from streams.api.view import View
from streams.api.writer import REASON_BYTES_MAX, AuditedWriter
from streams.rules.decide import EffectMode
from streams.rules.redaction import redact, redact_url
from streams.wire.audit import AuditRecord

log = structlog.get_logger(__name__)

START, STOP = "job.start", "job.stop"
RATE_PER_S_MAX: Final = 50
AT_ONCE: Final = 16
"""Redrives of one job whose owner has not answered yet."""

PAUSE_S: Final = 5.0
"""How long a job waits after one that could not be written."""

VISIBLE_S: Final = 10.0
LOOK_S: Final = 1.0
_PAGE: Final = 200

ENDED: Final = Problem(409, "already_ended", "The job is done, or was stopped.")


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which open letters a job is for; all that is given must fit. Times are epoch milliseconds.

    Attributes:
        target: A registered name; of an inbox URL what operators may see (F07).
        created_from_ms, created_to_ms: First and last moment of being given up.
    """

    target: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    failure_phase: str | UnsetType = UNSET
    activity_id: str | UnsetType = UNSET
    created_from_ms: int | UnsetType = UNSET
    created_to_ms: int | UnsetType = UNSET

    def shown(self) -> Filter:
        """The same without what must not be kept: the whole URL of an inbox."""
        if self.target is UNSET or "://" not in self.target:
            return self
        return msgspec.structs.replace(self, target=redact_url(self.target))

    def fits(self, letter: SeenLetter) -> bool:
        """Whether a letter is one of them."""
        return (
            self.target in (UNSET, letter.target)
            and self.code in (UNSET, letter.code)
            and self.failure_phase in (UNSET, letter.failure_phase)
            and self.activity_id in (UNSET, letter.activity_id)
            and (self.created_from_ms is UNSET or letter.created_ms >= self.created_from_ms)
            and (self.created_to_ms is UNSET or letter.created_ms <= self.created_to_ms)
        )


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's audit record says of it, beside who and why.

    Attributes:
        replica: Works it through; one of this name goes on with it after a restart.
    """

    filter: Filter
    rate_per_s: int
    replica: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """Who wants which letters reopened, how, how fast and why."""

    tenant: str
    filter: Filter
    mode: EffectMode
    rate_per_s: int
    reason: str
    subject: str
    request_id: str


class Redrives(Protocol):
    """Reopens one letter; `Redriver` does."""

    async def redrive(self, wish: Wish) -> Reopened:
        """See `Redriver.redrive`."""


def detail_of(job: SeenJob) -> Detail:
    """What a job does."""
    return msgspec.json.decode(job.detail, type=Detail)


class RedriveJobs:
    """Starts, stops and works through jobs.

    Args:
        replica: Names this process; jobs of others are theirs.
        pause: Waits so many seconds.
    """

    def __init__(
        self,
        view: View,
        writer: AuditedWriter,
        redriver: Redrives,
        *,
        replica: str,
        new_id: Callable[[], str],
        now_ms: Callable[[], int],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._view = view
        self._writer = writer
        self._redriver = redriver
        self._replica = replica
        self._new_id = new_id
        self._now_ms = now_ms
        self._pause = pause
        self._running: dict[str, asyncio.Task[None]] = {}
        self._left: dict[str, int] = {}

    def left(self, job: SeenJob) -> int | None:
        """How many letters wait to be asked for, as far as this process knows."""
        return 0 if job.end is not None else self._left.get(job.job_id)

    async def start(self, asked: JobAsked) -> SeenJob:
        """Write a job down; it is worked through from then on.

        Raises:
            Problem: 503.
        """
        job_id = self._new_id()
        detail = Detail(
            filter=asked.filter.shown(), rate_per_s=asked.rate_per_s, replica=self._replica
        )
        record = AuditRecord(
            audit_id=self._new_id(),
            action=START,
            tenant=asked.tenant,
            subject=asked.subject,
            request_id=asked.request_id,
            at_ms=self._now_ms(),
            reason=redact(asked.reason, REASON_BYTES_MAX),
            target="",
            effect_mode=asked.mode,
            job_id=job_id,
            detail=msgspec.json.encode(detail).decode(),
        )
        await self._writer.write(record, [])
        return await self._shown(job_id, lambda _: True)

    async def stop(self, job: SeenJob, *, subject: str, request_id: str, reason: str) -> SeenJob:
        """Let a job go no further; what it reopened stays so.

        Raises:
            Problem: 409 or 503.
        """
        if job.end is not None:
            raise ENDED
        await self._end(job, JobEnd.STOPPED, subject=subject, request_id=request_id, reason=reason)
        return await self._shown(job.job_id, lambda job: job.end is not None)

    async def _shown(self, job_id: str, holds: Callable[[SeenJob], bool]) -> SeenJob:
        def is_shown() -> bool:
            job = self._view.db.job(job_id)
            return job is not None and holds(job)

        await self._view.until(is_shown, VISIBLE_S)
        job = self._view.db.job(job_id)
        if job is None:
            raise Problem(
                503,
                "view_behind",
                "The job is written and will be worked through; the read model does not show it yet.",
                {"retry-after": "2"},
            )
        return job

    async def run(self) -> None:
        """Work through this replica's jobs until cancelled, those of before a restart included.

        What fails in one ends the process: it is ours to find, and a restart goes on with it.
        """
        async with asyncio.TaskGroup() as group:
            while True:
                read = self._view.position(AUDIT)
                for job in self._view.db.jobs():
                    is_mine = job.end is None and detail_of(job).replica == self._replica
                    if is_mine and job.job_id not in self._running:
                        self._running[job.job_id] = group.create_task(self._work(job))
                while not await self._view.until(
                    lambda read=read: self._view.position(AUDIT) > read,  # type: ignore[misc]
                    LOOK_S,
                ):
                    pass

    async def _work(self, job: SeenJob) -> None:
        detail, asked = detail_of(job), set[str]()
        room = asyncio.Semaphore(AT_ONCE)
        self._left[job.job_id] = sum([1 async for _ in self._open(job, detail.filter, asked)])
        log.info("job.running", job_id=job.job_id, letters=self._left[job.job_id])
        is_new = True
        while is_new and not self._is_ended(job):
            is_new = False
            async with asyncio.TaskGroup() as group:
                async for letter in self._open(job, detail.filter, asked):
                    await room.acquire()
                    if self._is_ended(job):
                        break
                    is_new = True
                    asked.add(letter.dead_letter_id)
                    group.create_task(self._one(job, letter, asked, room))
                    await self._pause(1 / detail.rate_per_s)
        if not self._is_ended(job):
            await self._finish(job)
        self._left.pop(job.job_id, None)

    async def _open(
        self, job: SeenJob, wanted: Filter, asked: set[str]
    ) -> AsyncIterator[SeenLetter]:
        """Its letters that are open and not asked for yet. One that dies again is none of them."""
        cursor: str | None = None
        while True:
            page = listing.letters(
                self._view, job.tenant, is_open=True, limit=_PAGE, offset=0, cursor=cursor
            )
            for letter in page.rows:
                is_old = letter.created_ms <= job.started_ms
                is_known = letter.dead_letter_id in asked
                is_readable = not letter.dead_letter_id.startswith(UNREADABLE)
                if is_old and is_readable and not is_known and wanted.fits(letter):
                    yield letter
            cursor = page.next_cursor
            if cursor is None:
                return
            await asyncio.sleep(0)

    async def _one(
        self, job: SeenJob, letter: SeenLetter, asked: set[str], room: asyncio.Semaphore
    ) -> None:
        wish = Wish(
            tenant=job.tenant,
            letter_id=letter.dead_letter_id,
            mode=EffectMode(job.effect_mode),
            reason=job.reason,
            subject=job.subject,
            request_id=job.request_id,
            job_id=job.job_id,
        )
        try:
            await self._redriver.redrive(wish)
            self._left[job.job_id] = max(0, self._left[job.job_id] - 1)
        except Problem as problem:
            log.warning("job.letter", job_id=job.job_id, code=problem.code)
            if problem.status == 503:
                # Nothing was written, or nobody can tell: it is asked for again where it is still open.
                await self._pause(PAUSE_S)
                asked.discard(letter.dead_letter_id)
            else:
                self._left[job.job_id] = max(0, self._left[job.job_id] - 1)
        finally:
            room.release()

    def _is_ended(self, job: SeenJob) -> bool:
        now = self._view.db.job(job.job_id)
        return now is None or now.end is not None

    async def _finish(self, job: SeenJob) -> None:
        while True:
            try:
                await self._end(
                    job,
                    JobEnd.DONE,
                    subject=job.subject,
                    request_id=job.request_id,
                    reason=job.reason,
                )
            except Problem:
                await self._pause(PAUSE_S)
            else:
                log.info("job.done", job_id=job.job_id)
                return

    async def _end(
        self, job: SeenJob, how: JobEnd, *, subject: str, request_id: str, reason: str
    ) -> None:
        record = AuditRecord(
            audit_id=self._new_id(),
            action=STOP,
            tenant=job.tenant,
            subject=subject,
            request_id=request_id,
            at_ms=self._now_ms(),
            reason=redact(reason, REASON_BYTES_MAX),
            target="",
            effect_mode=job.effect_mode,
            code=how,
            job_id=job.job_id,
        )
        await self._writer.write(record, [])
