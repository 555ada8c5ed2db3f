"""The OpenAPI document against the API that it describes, by schemathesis over real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks

from streams.api import observation_schemas, observations, provider_events
from streams.api.openapi import document
from streams.model.ledger import Phase
from tests.unit.api.desk import World, auth, dead_row, row
from tests.unit.api.intake import SECRET, Bench, signature

QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

OF_THE_CONNECTION = {
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers by which the server reads a request (RFC 9110 §7, RFC 9112 §6): wrong ones never reach the API."""

CONFORMANCE = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
"""That an answer is one of those described."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API over a few rows, served on a free port."""
    bench = Bench(tmp_path_factory.mktemp("histories"), now_ms=int(time.time() * 1_000))
    world = World(
        tmp_path_factory.mktemp("api"),
        more_routes=lambda desk: [
            *observations.routes(desk, bench.histories),
            *provider_events.routes(bench.intake),
        ],
        more_paths=observation_schemas.paths(),
    )
    bench.sent(1)
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
    bench.histories.close()


WHOLE = document(observation_schemas.paths())
schema = schemathesis.openapi.from_dict(WHOLE)


@schema.hook
def map_headers(context, headers):
    """Leave out what is not for the API to answer; what else is generated stays, however odd."""
    return {name: value for name, value in headers.items() if name.lower() not in OF_THE_CONNECTION}


bearers = schema.exclude(path_regex="provider-events")
signed = schema.include(path_regex="provider-events")


def sign(request: Any) -> Any:
    """Sign whatever is sent, as the provider does; `requests` calls it when all else is made."""
    raw = request.body or b""
    raw = raw.encode() if isinstance(raw, str) else raw
    at_s = int(time.time())
    request.headers["webhook-id"] = "msg_1"
    request.headers["webhook-timestamp"] = str(at_s)
    request.headers["webhook-signature"] = signature(SECRET, raw, at_s)
    return request


def test_the_document_is_what_the_api_serves(server):
    """Interface §5: at /openapi.json."""
    served = httpx.get(f"{server}/openapi.json", headers=auth("t-reader")).json()

    assert json.loads(json.dumps(WHOLE)) == served
    assert "3.1.0" == served["openapi"]


@bearers.parametrize()
@QUICK
def test_the_api_does_what_its_document_says(case, server):
    """Issue 7: schemathesis, authenticated: no 5xx, no answer that the document does not know."""
    answer = case.call_and_validate(
        base_url=server,
        headers=auth("t-admin", "acme"),
        excluded_checks=[
            # Asks again without what `headers` gives it anew; the next test asks without.
            checks.ignored_auth,
            # Judges what was generated, not what was sent: `headers` mends it, an empty list is left out.
            checks.negative_data_rejection,
        ],
    )

    assert answer.status_code < 500


@bearers.parametrize()
@QUICK
def test_without_a_token_every_endpoint_answers_401(case, server):
    """Issue 7: schemathesis, not authenticated."""
    answer = case.call(base_url=server, headers={"authorization": "Bearer nobody"})

    assert 401 == answer.status_code
    case.validate_response(answer, checks=CONFORMANCE)


@signed.parametrize()
@QUICK
def test_signed_provider_events_are_taken_as_the_document_says(case, server):
    """Issue 7: whatever stands in them; for a provider that there is, and for others."""
    case.path_parameters = {"provider": "mail"}
    answer = case.call(base_url=server, auth=sign)

    assert answer.status_code in (202, 400, 405, 413)
    case.validate_response(answer, checks=CONFORMANCE)


@signed.parametrize()
@QUICK
def test_unsigned_provider_events_are_answered_401(case, server):
    """D-056: nothing is told to who cannot sign, not even that the body is none."""
    answer = case.call(base_url=server)

    assert answer.status_code in (401, 405, 413)
    case.validate_response(answer, checks=CONFORMANCE)


def test_schemathesis_finds_nothing_in_all_its_phases(server, tmp_path):
    """Issue 7: 0 failures: also at the edges of every schema, and along the ids that answers give."""
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server}/openapi.json"),
            *("--max-examples", "5", "--seed", "1", "--generation-deterministic"),
            *("--continue-on-failure", "--suppress-health-check", "all", "--no-color"),
            # It takes a header away to see what happens without, by the name as written here.
            *("-H", "Authorization: Bearer t-admin", "-H", "X-Tenant-ID: acme"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert 0 == found.returncode, found.stdout
