"""Bulk redrive as jobs: start one, look at it, stop it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streams.api.asking import Answer, Asking, Desk, reason_of
from streams.api.auth import ADMIN, READ, owned
from streams.api.jobs import RATE_PER_S_MAX, Filter, JobAsked, RedriveJobs, detail_of
from streams.api.problems import Problem
from streams.api.routes import BASE, mode_of
from streams.api.shapes import SeenJob
from streams.api.view import View

PATH = f"{BASE}/redrive-jobs"
JOBS_SHOWN = 200


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    effect_mode: str
    filter: Filter
    rate_per_s: Annotated[int, msgspec.Meta(ge=1, le=RATE_PER_S_MAX)] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRoutes:
    """The endpoints of bulk redrive."""

    desk: Desk
    jobs: RedriveJobs

    @property
    def _view(self) -> View:
        return self.desk.view

    def routes(self) -> list[Route]:
        """All of them."""
        endpoint = self.desk.endpoint
        one = f"{PATH}/{{job_id}}"
        return [
            Route(PATH, self._list_or_start(), methods=["GET", "POST"]),
            Route(f"{one}:stop", endpoint(self.stop, ADMIN), methods=["POST"]),
            Route(one, endpoint(self.show, READ)),
        ]

    def _list_or_start(self) -> Callable[[Request], Awaitable[Response]]:
        """One route for both, so that `Allow` names both."""
        shown, started = (
            self.desk.endpoint(self.list, READ),
            self.desk.endpoint(self.start, ADMIN),
        )

        async def answer(request: Request) -> Response:
            return await (started if request.method == "POST" else shown)(request)

        return answer

    async def list(self, asking: Asking) -> Answer:
        """The tenant's jobs, the newest first."""
        mine = [job for job in self._view.db.jobs() if job.tenant == asking.tenant]
        mine.sort(key=lambda job: job.started_ms, reverse=True)
        return Answer(body={"items": [self._facts(job) for job in mine[:JOBS_SHOWN]]})

    async def show(self, asking: Asking) -> Answer:
        """One job, and how far it is."""
        return Answer(body=self._facts(self._job(asking)))

    async def start(self, asking: Asking) -> Answer:
        """Start one (202): it goes on without its caller, and after a restart."""
        body = await asking.struct(_Body)
        if body.filter == Filter():
            raise Problem(422, "filter_empty", "filter must name at least one thing to select by.")
        job = await self.jobs.start(
            JobAsked(
                tenant=asking.tenant,
                filter=body.filter,
                mode=mode_of(body.effect_mode),
                rate_per_s=body.rate_per_s,
                reason=reason_of({"reason": body.reason}),
                subject=asking.caller.subject,
                request_id=asking.request_id,
            )
        )
        place = {"location": f"{PATH}/{job.job_id}"}
        return Answer(body=self._facts(job), status=202, headers=place)

    async def stop(self, asking: Asking) -> Answer:
        """Stop one: no further letter is asked for."""
        job = self._job(asking)
        reason = reason_of(await asking.body("reason"))
        stopped = await self.jobs.stop(
            job, subject=asking.caller.subject, request_id=asking.request_id, reason=reason
        )
        return Answer(body=self._facts(stopped))

    def _job(self, asking: Asking) -> SeenJob:
        return owned(self._view.db.job(asking.path("job_id")), asking.tenant, "job")

    def _facts(self, job: SeenJob) -> dict[str, Any]:
        detail = detail_of(job)
        return {
            "job_id": job.job_id,
            "state": "running" if job.end is None else job.end.value,
            "effect_mode": job.effect_mode,
            "filter": msgspec.to_builtins(detail.filter),
            "rate_per_s": detail.rate_per_s,
            "redriven": job.asked,
            "left": self.jobs.left(job),
            "started_ms": job.started_ms,
            "ended_ms": job.ended_ms or None,
        }
