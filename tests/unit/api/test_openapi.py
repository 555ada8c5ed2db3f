"""The OpenAPI document against the API that it describes, by schemathesis over real HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks

from streams.api.openapi import document
from streams.model.ledger import Phase
from tests.unit.api.desk import World, auth, dead_row, row

QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

CONFORMANCE = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
"""That an answer is one of those described."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API over a few rows, served on a free port."""
    world = World(tmp_path_factory.mktemp("api"))
    world.deliver(1, dead_row(1))
    world.deliver(2, row(2, phase=Phase.SENT))
    world.register("crm")
    config = uvicorn.Config(world.app(patience_s=0.01), port=0, log_config=None, lifespan="off")
    served = uvicorn.Server(config)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{served.servers[0].sockets[0].getsockname()[1]}"
    served.should_exit = True
    thread.join()
    world.close()


schema = schemathesis.openapi.from_dict(document())


def test_the_document_is_what_the_api_serves(server):
    """Interface §5: at /openapi.json."""
    served = httpx.get(f"{server}/openapi.json", headers=auth("t-reader")).json()

    assert document() == served
    assert "3.1.0" == served["openapi"]


@schema.parametrize()
@QUICK
def test_the_api_does_what_its_document_says(case, server):
    """Issue 7: schemathesis, authenticated: no 5xx, no answer that the document does not know."""
    case.call_and_validate(
        base_url=server,
        headers=auth("t-admin", "acme"),
        # Asks again without what `headers` gives it anew; the next test asks without.
        excluded_checks=[checks.ignored_auth],
    )


@schema.parametrize()
@QUICK
def test_without_a_token_every_endpoint_answers_401(case, server):
    """Issue 7: schemathesis, not authenticated."""
    answer = case.call(base_url=server, headers={"authorization": "Bearer nobody"})

    assert 401 == answer.status_code
    case.validate_response(answer, checks=CONFORMANCE)
