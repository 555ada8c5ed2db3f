"""A delivery's history as operators see it (D-048..055)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from streams.api.app import _problem
from streams.api.asking import Desk
from streams.api.auth import ADMIN, READ, Caller
from streams.api.observations import PATH, routes
from streams.api.problems import Problem
from streams.api.shapes import Status
from streams.api.tokens import Positions
from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Stage
from streams.model.verdict import Verdict
from streams.wire.observations import encode_observation
from tests.unit.api.intake import NOW_MS, Bench, attempt, delivery_id

OLD_S = NOW_MS / 1_000 - 3_600
SECOND = {"generation": 1, "attempt": 2}


class Window:
    """The route of histories that a bench of provider events fills."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.caller = Caller(subject="op", tenants=("acme",), scopes=frozenset({READ}), key=b"")
        view: Any = SimpleNamespace(
            db=SimpleNamespace(delivery=self.delivery), positions=lambda: Positions({})
        )
        fresh: Any = SimpleNamespace(is_ready=True, behind_s=0.0)
        handlers: Any = {Problem: _problem}
        self.app = Starlette(
            routes=routes(Desk(view=view, freshness=fresh), bench.histories),
            exception_handlers=handlers,
        )

    def delivery(self, delivery_id: str) -> Any:
        seen = self.bench.owned.get(delivery_id)
        if seen is not None:
            seen.status, seen.provider_message_id = Status.SENT, "m1"
        return seen

    async def get(self, of: str, **query: object) -> httpx.Response:
        async def with_caller(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {"caller": self.caller, "request_id": "r"}
            await self.app(scope, receive, send)

        transport = httpx.ASGITransport(app=with_caller)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.get(PATH.format(delivery_id=of), params=query)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "h")
    yield bench
    bench.histories.close()


async def test_attempts_and_events_stand_in_one_history(bench):
    """
    D-052..054: append-only, in order; codes, times and ids, and the merged state beside it.
    """
    own = bench.sent()
    await bench.post(
        {"message_id": "m1", "state": "bounced", "code": "5.1.1", "at": OLD_S, "event_id": "e1"}
    )
    body = (await Window(bench).get(own)).json()

    first, second = body["observations"]
    assert first == {
        "source": "attempt",
        "observed_ms": NOW_MS - 1_000,
        "generation": 1,
        "worker": "w1",
        "budget": 1,
        "attempt": 1,
        "phase": "sent",
        "verdict": "sent",
        "code": "http_202",
        "http_status": 202,
        "stage": None,
        "failure_phase": None,
        "duration_ms": 12,
        "provider_message_id": "m1",
    }
    assert second.pop("event_id").startswith("evt_")
    assert second == {
        "source": "provider",
        "observed_ms": NOW_MS,
        "generation": 1,
        "provider": "mail",
        "provider_event_id": "e1",
        "kind": "bounced",
        "subject": None,
        "state": "bounced",
        "engagement": "none",
        "about": "recipient",
        "provider_code": "5.1.1",
        "summary": "bounced (bounced), code 5.1.1; about the recipient",
        "provider_ms": int(OLD_S * 1_000),
    }
    assert ("sent", "bounced", "none", "5.1.1", 1, 0) == (
        body["status"],
        *(
            body["downstream"][name]
            for name in ("state", "engagement", "provider_code", "events", "repeats")
        ),
    )


async def test_sent_alone_says_nothing_of_what_came_after(bench):
    """
    D-048..051: accepted is no receipt of a mailbox; state and engagement are `unknown` and `none`.
    """
    own = bench.sent()
    body = (await Window(bench).get(own)).json()

    assert ("sent", "unknown", "none") == (
        body["status"],
        body["downstream"]["state"],
        body["downstream"]["engagement"],
    )


async def test_a_failed_attempt_shows_where_it_struck(bench):
    """
    D-009: phase, stage and code, as the dead letter has them.
    """
    own = bench.sent(
        verdict=Verdict.RETRY,
        code="connect_refused",
        status=0,
        stage=Stage.CONNECT,
        failure_phase=FailurePhase.CONNECT,
        phase=Phase.WAITING,
        provider_message_id=None,
    )
    [shown] = (await Window(bench).get(own)).json()["observations"]

    assert ("retry", "connect_refused", None, "connect", "connect", "waiting") == (
        shown["verdict"],
        shown["code"],
        shown["http_status"],
        shown["stage"],
        shown["failure_phase"],
        shown["phase"],
    )


async def test_another_tenants_history_does_not_exist(bench):
    """
    C-13: the same 404 as for an id that nobody has.
    """
    own = bench.sent(tenant="globex")
    window = Window(bench)
    answers = [await window.get(own), await window.get(delivery_id(99))]

    assert [404, 404] == [answer.status_code for answer in answers]
    assert answers[0].json() == answers[1].json()


async def test_without_the_scope_there_is_no_answer(bench):
    """
    D-057: `notification:read`, or the admin's.
    """
    own = bench.sent()
    window = Window(bench)
    for scopes, status in [({"other"}, 403), ({ADMIN}, 200)]:
        window.caller = Caller(subject="op", tenants=("acme",), scopes=frozenset(scopes), key=b"")
        assert status == (await window.get(own)).status_code


async def test_a_long_history_comes_in_pages(bench):
    """
    Issue 7, keyset cursors: every entry once, in order; the merged state is of all of them.
    """
    own = bench.sent()
    for n in range(4):
        await bench.post(
            {"message_id": "m1", "engagement": "opened", "at": OLD_S + n, "event_id": str(n)}
        )
    window, seen = Window(bench), []
    query: dict[str, object] = {"limit": 2}
    while "done" not in query:
        body = (await window.get(own, **query)).json()
        assert ("opened", 4) == (body["downstream"]["engagement"], body["downstream"]["events"])
        seen += [entry.get("provider_event_id") for entry in body["observations"]]
        query = {"limit": 2, "cursor": body["next_cursor"]} if body["next_cursor"] else {"done": 1}

    assert [None, "0", "1", "2", "3"] == seen


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1_001}, {"limit": "x"}, {"cursor": "é"}, {"colour": "red"}]
)
async def test_a_parameter_that_breaks_a_rule_is_refused(bench, query):
    """
    Issue 7: a problem, and never a 500.
    """
    own = bench.sent()

    assert 400 == (await Window(bench).get(own, **query)).status_code


async def test_while_histories_are_rebuilt_none_is_shown(bench):
    """
    D-054: half a history would look like a whole one.
    """
    own = bench.sent()
    bench.histories.is_ready = False

    assert 503 == (await Window(bench).get(own)).status_code


async def test_what_others_wrote_under_a_deliverys_key_is_not_shown(bench):
    """
    C-13, C-14: the topic may be written by anyone; a history holds its own delivery's entries.
    """
    own = bench.sent()
    foreign = attempt(2, tenant="globex")
    bench._put(3, own.encode(), encode_observation(foreign))
    bench._put(3, own.encode(), b"no avro")

    assert 1 == len((await Window(bench).get(own)).json()["observations"])
