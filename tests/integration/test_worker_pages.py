"""What an orchestrator and a scraper see of a worker: /healthz, /readyz, /metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.worker_process import WorkerProcess
from tests.integration.world import PATIENT, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    overrides = {**PATIENT, "partitions": 1}
    async with World(kafka, tmp_path_factory.mktemp("pages"), overrides) as world:
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(world: World) -> WorkerProcess:
    return await world.work()


async def samples(worker: WorkerProcess) -> dict[tuple[str, str], float]:
    """Every sample of /metrics by its name and its labels' values, by label name."""
    _, text = await worker.page("/metrics")
    return {
        (sample.name, ",".join(v for _, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_worker_that_leads_its_partitions_is_ready_and_well(worker: WorkerProcess) -> None:
    """interface.md §2: 200 and no reasons."""
    for path in ("/readyz", "/healthz"):
        status, text = await worker.page(path)

        told = json.loads(text)
        assert (200, "ok", []) == (status, told["status"], told["reasons"])


async def test_healthz_shows_each_partition_in_numbers(world: World, worker: WorkerProcess) -> None:
    """faust.md §8, issue 4: what is judged can be seen, and no content with it."""

    async def is_shown() -> bool:
        return bool(json.loads((await worker.page("/healthz"))[1])["partitions"])

    await world.until_true(is_shown, "the first look at the partitions")
    (shown,) = json.loads((await worker.page("/healthz"))[1])["partitions"]
    assert {"partition": 0, "led": True, "gaps": 0} == {
        name: shown[name] for name in ("partition", "led", "gaps")
    }
    assert {int, float, bool} >= {type(value) for value in shown.values()}


async def test_a_worker_that_leads_nothing_is_well_and_not_ready(
    world: World, worker: WorkerProcess
) -> None:
    """A worker beyond the number of partitions waits; restarting it would help nobody."""
    other = world.launch("w2")
    await world.until(lambda: other.port is not None, "its port")

    async def one_leads() -> bool:
        led = [await each.metric("outbox_partitions_led") for each in (worker, other)]
        assigned = [await each.metric("outbox_partitions_assigned") for each in (worker, other)]
        return sorted(led) == sorted(assigned) == [0.0, 1.0]

    await world.until_true(one_leads, "one of the two to lead the one partition")
    pages = [(await each.page("/readyz"), await each.page("/healthz")) for each in (worker, other)]
    (waiting,) = [json.loads(ready[1]) for ready, _ in pages if ready[0] == 503]
    assert {"status": "unavailable", "reasons": ["no partition is assigned yet"]} == waiting
    assert [200, 200] == [well[0] for _, well in pages]
    other.terminate()
    assert 0 == await other.ended()
    await world.until_true(worker.is_ready, "the first to lead again")


async def test_metrics_count_what_was_done(world: World, worker: WorkerProcess) -> None:
    """Issue 3: attempts by verdict and code, what was not taken, what could not be read."""
    sent = world.activity("urn:sent", "/ok/1", "/ok/2")
    refused = world.activity("urn:refused", "/status/400/1")
    retried = world.activity("urn:retried", "/flaky/1/1")
    before = await samples(worker)
    await world.produce(sent, refused, retried)
    await world.until_settled(sent, refused, retried)
    await world.produce(sent)
    written = await world.write([(b"k", 0, b"junk")])
    await world.until(lambda: len(world.receipts["urn:sent"]) == 3, "the duplicate's receipt")
    (offset,) = written
    position = f"{world.topics.outbox}/0/{offset}"
    await world.until(lambda: position in world.letters, "the dead letter of the unreadable")

    after = await samples(worker)

    expected = {
        ("outbox_attempts_total", "http_200,sent"): 3.0,
        ("outbox_attempts_total", "http_400,refused"): 1.0,
        ("outbox_attempts_total", "http_503,ambiguous"): 1.0,
        ("outbox_not_taken_total", "duplicate"): 1.0,
        ("outbox_rejected_total", "not_json"): 1.0,
        ("outbox_retry_lateness_seconds_count", ""): 1.0,
        ("outbox_call_seconds_count", ""): 5.0,
    }
    assert expected == {name: after[name] - before.get(name, 0.0) for name in expected}
    assert float(world.partitions) == after["outbox_partitions_led", ""]


async def test_labels_name_no_target_and_no_activity(world: World, worker: WorkerProcess) -> None:
    """D-043: closed sets only; a URL in a label would show content and grow without bound."""
    _, text = await worker.page("/metrics")

    assert [] == [word for word in ("http://", "urn:", world.prefix) if word in text]


async def test_there_is_no_other_page(worker: WorkerProcess) -> None:
    """faust's own web server shows tables to anyone; it must not be there."""
    assert {404} == {(await worker.page(path))[0] for path in ("/", "/stats/", "/tables/")}
