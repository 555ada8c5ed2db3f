"""Deliveries, dead letters and activities as the API shows them, over a view filled by hand."""

from __future__ import annotations

import itertools
import json

import pytest

from streams.api.database import Database
from streams.api.view import View
from streams.cli.api_service import TOMBSTONES_KEPT_MS
from streams.model.ledger import ActivityRow, Kind, Phase
from streams.topics import names, wanted
from streams.wire.codec import encode_activity_row, encode_row
from tests.unit.api.desk import BASE, CANARY, NOW_MS, World, dead_row, row


async def get(world, path, token="t-admin", **params):
    async with world.client(token) as client:
        return await client.get(BASE + path, params=params)


@pytest.mark.parametrize(
    ("phase", "status", "reach"),
    [
        (Phase.QUEUED, "queued", "not_yet"),
        (Phase.CLAIMED, "running", "not_yet"),
        (Phase.WAITING, "running", "not_yet"),
        (Phase.SENT, "sent", "done"),
        (Phase.DEAD, "failed", "never"),
        (Phase.SKIPPED, "skipped", "done"),
    ],
)
async def test_a_delivery_shows_its_status_in_the_words_of_the_contract(
    world, phase, status, reach
):
    """D-008, D-070, O-022."""
    shown = world.deliver(1, row(1, phase=phase))
    facts = (await get(world, f"/deliveries/{shown.delivery_id}")).json()

    assert (status, reach, phase.value) == (facts["status"], facts["reach"], facts["phase"])
    assert (shown.attempts, shown.generation) == (facts["attempts"], facts["generation"])


async def test_pages_by_cursor_show_every_row_once_newest_first(world):
    """Issue 7: keyset cursors, also while rows are added before them."""
    rows = [world.deliver(n) for n in range(25)]
    seen, cursor = [], None
    while True:
        page = (
            await get(world, "/deliveries", limit=10, **({"cursor": cursor} if cursor else {}))
        ).json()
        seen += [item["delivery_id"] for item in page["items"]]
        world.deliver(100 + len(seen))
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert [each.delivery_id for each in reversed(rows)] == seen


@pytest.mark.parametrize(
    ("params", "numbers"),
    [
        ({"status": "failed"}, {3}),
        ({"status": "running"}, {1, 2}),
        ({"target": "mail"}, {2}),
        ({"activity_id": "urn:3"}, {3}),
        ({"target": "crm", "status": "failed"}, {3}),
        ({"target": "https://b.example/inbox?k=1"}, {4}),
        ({"activity_id": "urn:none"}, set()),
    ],
)
async def test_filters_find_exactly_what_they_name(world, params, numbers):
    """Interface §5."""
    world.deliver(1)
    world.deliver(2, row(2, target="mail"))
    world.deliver(3, dead_row(3))
    world.deliver(4, row(4, phase=Phase.SENT, target="https://b.example/inbox?k=1"))
    items = (await get(world, "/deliveries", **params)).json()["items"]

    assert {f"dlv_{n:032x}" for n in numbers} == {item["delivery_id"] for item in items}


async def test_a_status_filter_follows_the_row(world):
    """A row that changes leaves the index of its old status."""
    world.deliver(1)
    world.put(b"acme|urn:1", row(1, phase=Phase.SENT))

    assert [] == (await get(world, "/deliveries", status="running")).json()["items"]
    assert 1 == len((await get(world, "/deliveries", status="sent")).json()["items"])


async def test_a_tombstone_takes_a_delivery_away(world):
    """Design §3, end of life: it leaves rows and indexes alike."""
    shown = world.deliver(1)
    world.fold(Kind.REPAIR, b"acme|urn:1\x00crm", None)

    assert 404 == (await get(world, f"/deliveries/{shown.delivery_id}")).status_code
    assert [] == (await get(world, "/deliveries")).json()["items"]


async def test_a_void_record_changes_nothing(world):
    """Rule 1: the view runs the workers' fold."""
    shown = world.deliver(1, dead_row(1))
    world.fold(Kind.REPORT, b"acme|urn:1\x00crm", encode_row(row(1, phase=Phase.SENT)), epoch=0)

    assert "failed" == (await get(world, f"/deliveries/{shown.delivery_id}")).json()["status"]


async def test_an_activity_counts_what_was_never_claimed_as_queued(world):
    """O-022, O-007: a delivery without a row is owed still."""
    key = world.admit("urn:a/1", owed=3)
    world.put(key, row(1, phase=Phase.SENT), dead_row(2, target="mail"))
    facts = (await get(world, "/activities/urn:a%2F1")).json()

    assert ("not_yet", 3, 1) == (facts["reach"], facts["owed"], facts["unclaimed"])
    assert {"queued": 1, "running": 0, "sent": 1, "failed": 1, "skipped": 0} == facts["counts"]


async def test_an_activity_with_a_dead_delivery_and_none_open_is_never(world):
    """O-022, O-007: told apart from "not yet" by query."""
    key = world.admit("urn:a", owed=2)
    world.put(key, row(1, phase=Phase.SENT), dead_row(2, target="mail"))

    assert "never" == (await get(world, "/activities/urn:a")).json()["reach"]


async def test_dead_letters_are_paged_by_limit_and_offset(world):
    """D-057..059: the newest first, without content."""
    for n in range(5):
        world.deliver(n, dead_row(n))
    body = (await get(world, "/dead-letters", limit=2, offset=1)).json()

    assert [f"dlv_{n:032x}.1" for n in (3, 2)] == [i["dead_letter_id"] for i in body["items"]]
    assert (2, 1) == (body["limit"], body["offset"])
    assert {
        "delivery_id",
        "failure_phase",
        "code",
        "provider_id",
        "integration_id",
        "summary",
        "attempts",
        "generation",
        "created_ms",
        "resolved_ms",
    } <= set(body["items"][0])


async def test_no_destination_is_shown_whole_or_kept(world):
    """F07, D-043: a URL can be the credential; the view's files hold none of it either."""
    url = f"https://u:{CANARY}@b.example/{CANARY}/x?key={CANARY}"
    shown = world.deliver(1, dead_row(1, target=url))
    world.register("crm", url=f"https://crm.example/{CANARY}?k={CANARY}")
    paths = (
        "/deliveries",
        f"/deliveries/{shown.delivery_id}",
        "/dead-letters",
        "/activities/urn:1",
        "/targets",
    )
    told = "".join([(await get(world, path)).text for path in paths])
    world.close()
    files = b"".join(f.read_bytes() for f in world.folder.rglob("*") if f.is_file())

    assert "b.example" in told
    assert CANARY not in told
    assert CANARY.encode() not in files


@pytest.mark.parametrize(
    ("path", "params", "code"),
    [
        ("/deliveries", {"limit": "0"}, "parameter_invalid"),
        ("/deliveries", {"limit": "many"}, "parameter_invalid"),
        ("/deliveries", {"status": "lost"}, "parameter_invalid"),
        ("/deliveries", {"state": "open"}, "parameter_unknown"),
        ("/deliveries", {"cursor": "xyz"}, "cursor_invalid"),
        ("/dead-letters", {"offset": "-1"}, "parameter_invalid"),
        ("/dead-letters", {"at-least": "%"}, "at_least_invalid"),
    ],
)
async def test_a_wrong_parameter_is_a_problem_that_names_the_rule(world, path, params, code):
    """RFC 9457: never a guess, never the value itself."""
    answer = await get(world, path, **params)

    assert (400, code) == (answer.status_code, answer.json()["code"])
    assert "application/problem+json" == answer.headers["content-type"]
    assert f"urn:outbox:problem:{code}" == answer.json()["type"]


async def test_a_token_is_waited_for_and_a_later_one_is_not_pretended(world):
    """Issue 7: read your writes; where it does not come in time, that is said."""
    world.deliver(1)
    token = (await get(world, "/deliveries")).headers["offset-token"]

    assert 200 == (await get(world, "/deliveries", **{"at-least": token})).status_code
    behind = await get(world, "/deliveries", **{"at-least": "l0.999999"})
    assert (409, "view_behind") == (behind.status_code, behind.json()["code"])


async def test_every_answer_says_how_far_behind_it_is(world):
    """Issue 7."""
    assert "0.250" == (await get(world, "/deliveries")).headers["as-of"]


async def test_a_view_that_is_being_built_tells_nothing(world):
    """A 404 out of half a view would be a lie."""
    world.fresh.is_ready = False

    assert (503, "view_rebuilding") == (
        (answer := await get(world, "/deliveries")).status_code,
        answer.json()["code"],
    )


async def test_deliveries_read_before_their_activity_find_their_tenant(world):
    """After compaction an activity's row can lie behind its deliveries'; the row knows the tenant."""
    world.put(b"urn|1", row(1))
    world.put(b"acme|urn:2", row(2))
    world.fold(Kind.ADMIT, b"urn|1", _activity("urn|1", "default"))

    default = world.view.db.delivery(row(1).delivery_id)
    assert ("default", "urn|1") == (default.tenant, default.activity_id)
    assert "acme" == world.view.db.delivery(row(2).delivery_id).tenant


async def test_what_was_read_is_there_after_a_restart(world):
    """Issue 7: resumes from stored offsets."""
    world.deliver(1, dead_row(1))
    position = world.view.position("l0")
    world.close()
    again = type(world)(world.folder, offsets=itertools.count(position))
    try:
        assert position + 1 == again.view.position("l0")  # its own OWNER record came on top
        items = (await get(again, "/dead-letters")).json()["items"]
        assert [f"dlv_{1:032x}.1"] == [item["dead_letter_id"] for item in items]
    finally:
        again.close()


async def test_files_of_another_cluster_or_too_old_are_dropped(tmp_path):
    """Issue 7: tombstones that were missed may be gone from the log."""

    def kept(identity, stale_before_ms):
        database = Database(tmp_path / "db", identity, stale_before_ms=stale_before_ms)
        was = database.is_complete
        database.complete(NOW_MS)
        database.close()
        return was

    assert [False, True, False, False] == [
        kept("one", 0),
        kept("one", NOW_MS),
        kept("two", 0),
        kept("two", NOW_MS + 1),
    ]


async def test_a_replica_that_missed_tombstones_shows_none_of_what_they_took(tmp_path):
    """Issue 7: away longer than `delete.retention.ms` the log tells of no end any more; it is read anew."""
    first = World(tmp_path)
    kept = first.deliver(1)
    first.database.complete(NOW_MS)
    first.close()
    away_ms = TOMBSTONES_KEPT_MS + 1
    database = Database(
        tmp_path / "api", "cluster", stale_before_ms=NOW_MS + away_ms - TOMBSTONES_KEPT_MS
    )
    view = View(database, 1)
    try:
        assert None is database.delivery(kept.delivery_id)
        assert (
            not database.is_complete
        )  # so nothing is answered until the ledger was read from its start
        assert 0 == view.position("l0")
    finally:
        database.close()


def test_the_ledger_keeps_tombstones_for_as_long_as_a_replica_may_be_away():
    """The two numbers are one: the topic's setting and when files count as stale."""
    ledger = next(topic for topic in wanted("") if topic.name == names("").ledger)

    assert str(TOMBSTONES_KEPT_MS) == dict(ledger.settings)["delete.retention.ms"]


def _activity(activity_id, tenant):
    return encode_activity_row(
        ActivityRow(canonical_hash=bytes(32), activity_id=activity_id, tenant=tenant)
    )


async def test_another_tenants_rows_are_in_no_list(world):
    """D-057, C-13: lists and single rows alike, by every index."""
    mine = world.deliver(1, dead_row(1))
    async with world.client("t-other") as client:
        lists = [
            (await client.get(BASE + path)).json()["items"]
            for path in (
                "/deliveries",
                "/deliveries?status=failed",
                "/deliveries?target=crm",
                "/deliveries?activity_id=urn:1",
                "/dead-letters",
                "/targets",
            )
        ]
        codes = [
            (await client.get(BASE + path)).status_code
            for path in (
                f"/deliveries/{mine.delivery_id}",
                f"/dead-letters/{mine.letter_id}",
                "/activities/urn:1",
            )
        ]
        unknown = (await client.get(f"{BASE}/deliveries/dlv_none")).json()
        other = (await client.get(f"{BASE}/deliveries/{mine.delivery_id}")).json()

    assert [[]] * 6 == lists
    assert [404] * 3 == codes
    assert json.dumps(unknown | {"request_id": ""}) == json.dumps(other | {"request_id": ""})
