"""What surrounds the code keeps its promises: build, container, chart, CI and the demo's input."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from examples import make_activities
from examples.activity_kinds import LARGE_BYTES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text().splitlines()
MAKEFILE = (ROOT / "Makefile").read_text()
CHART = ROOT / "helm" / "outbox"
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*")


def package_name(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group()


# ── Dependencies ──


def test_every_dependency_says_why_it_is_there_and_nothing_else_does():
    """Issue 3: `docs/dependencies.md` says in a line why each dependency is there."""
    text = (ROOT / "docs" / "dependencies.md").read_text()
    named = re.findall(
        r"^\| ([a-z0-9-]+) \| .{10,}\|$", text.split("## Outside Python")[0], re.MULTILINE
    )

    declared = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    assert sorted(map(package_name, declared)) == sorted(named)


def test_what_the_engine_reaches_into_is_pinned_exactly():
    """Issue 3: a minor release of these may change what we override or what we wrote to disk."""
    pinned = {package_name(d) for d in PROJECT["project"]["dependencies"] if "==" in d}

    assert {"faust-streaming", "aiokafka", "httpx", "fastavro", "rocksdict"} <= pinned


# ── Makefile and CI ──


def test_every_make_target_says_what_it_does():
    """`make help` is made of these lines; a target without one would be a secret."""
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE).group(1).split()
    documented = re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)

    assert sorted(phony) == sorted(documented)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "chaos", "bench", "format"])
def test_every_target_of_the_contract_sets_itself_up(target):
    """Interface §1: `make setup` is called by every other target, on a fresh machine."""
    assert re.search(rf"^{target}: setup ## ", MAKEFILE, re.MULTILINE)


def test_ci_runs_lint_and_tests_through_the_commands_that_people_use():
    """A CI that has its own way to test proves nothing about ours."""
    script = (ROOT / ".ci" / "run").read_text()

    assert re.search(r'^check "lint" make lint$', script, re.MULTILINE)
    assert re.search(r'^check "test" make test$', script, re.MULTILINE)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_one_version_of_uv_reads_the_lock_file_everywhere():
    """The image must install what the tests ran with."""
    version = re.search(r"^UV_VERSION := (\S+)$", MAKEFILE, re.MULTILINE).group(1)

    assert [f"uv=={version}"] == re.findall(r"uv==\S+", "\n".join(DOCKERFILE))


# ── Image ──


def test_the_image_does_not_run_as_root():
    """A number other than 0, so that Kubernetes' `runAsNonRoot` can see it."""
    user = [line.split()[1] for line in DOCKERFILE if line.startswith("USER ")][-1]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_image_is_built_from_pinned_images_in_two_stages():
    """What built it, and how it was built, must not change by itself or stay in it."""
    bases = [line.split()[1] for line in DOCKERFILE if line.startswith("FROM ")]

    assert 2 == len(bases)
    assert [] == [base for base in bases if not PINNED.fullmatch(base)]


def test_the_image_says_how_it_is_and_starts_the_command():
    """A container that hangs must be seen from outside; the roles are arguments of one command."""
    text = "\n".join(DOCKERFILE)

    assert re.search(r"^HEALTHCHECK (.*\\\n)?.*/healthz", text, re.MULTILINE)
    assert 'ENTRYPOINT ["outbox"]' in DOCKERFILE


# ── Compose ──


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_of_compose_is_pinned_confined_and_checked(name):
    """Issue 3: health checks and pinned tags; and nothing that it does not need."""
    service = COMPOSE["services"][name]
    is_one_shot = service["restart"] == "no"

    assert PINNED.fullmatch(service["image"]) or service["image"] == "${OUTBOX_IMAGE:-outbox:local}"
    assert ["ALL"] == service["cap_drop"]
    assert ["no-new-privileges:true"] == service["security_opt"]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service)
    assert is_one_shot or "test" in service["healthcheck"]


def test_compose_starts_each_service_when_what_it_needs_is_there():
    """A worker that starts before its topics refuses to; compose must not have to retry."""
    needs = {
        name: {on: d["condition"] for on, d in service.get("depends_on", {}).items()}
        for name, service in COMPOSE["services"].items()
    }

    assert {
        "broker": {},
        "topics": {"broker": "service_healthy"},
        "receiver": {},
        "worker": {
            "topics": "service_completed_successfully",
            "receiver": "service_healthy",
        },
        "api": {"topics": "service_completed_successfully"},
    } == needs


def test_compose_shows_the_api_to_this_machine_only():
    """Its token stands in the file: whoever reaches the port may redrive."""
    api = COMPOSE["services"]["api"]
    (known,) = json.loads(api["environment"]["OUTBOX_API_TOKENS"])

    assert ["127.0.0.1:8080:8080"] == api["ports"]
    assert known["token"] == api["environment"]["OUTBOX_API_TOKEN"]
    published = [port for each in COMPOSE["services"].values() for port in each.get("ports", ())]
    assert [True] * len(published) == [port.startswith("127.0.0.1:") for port in published]


def test_compose_allows_the_worker_its_own_network_only():
    """C-10: private addresses are refused unless allowed, and no more of them than needed."""
    (network,) = COMPOSE["networks"]["outbox"]["ipam"]["config"]
    allowed = COMPOSE["services"]["worker"]["environment"]["OUTBOX_ALLOW_NETWORKS"]

    assert network["subnet"] == allowed


# ── Chart ──


def test_every_value_of_the_chart_is_in_its_schema_and_the_other_way_round():
    """A value that the schema does not know is refused; one without a default has no comment."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["properties"].pop("global")

    assert_same_names(values, schema, "values")


def assert_same_names(values, schema, where):
    assert set(values) == set(schema["properties"]), where
    assert schema["additionalProperties"] is False, where
    for name, part in schema["properties"].items():
        if "properties" in part:
            assert_same_names(values[name], part, f"{where}.{name}")


def test_the_pods_of_the_chart_are_confined():
    """The same limits as in compose; and no service links, whose names would be settings."""
    pod = (CHART / "templates" / "_pod.tpl").read_text()

    for line in (
        "automountServiceAccountToken: false",
        "enableServiceLinks: false",
        "runAsNonRoot: true",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "drop: [ALL]",
    ):
        assert line in pod


def test_the_chart_runs_no_api_without_saying_who_may_ask():
    """Issue 7: beyond this machine only with tokens or a JWKS; here before anything is installed."""
    api = (CHART / "templates" / "api" / "statefulset.yaml").read_text()

    assert "if not (or .tokens.existingSecret .jwks.url)" in api
    assert "fail" in api.split("kind: StatefulSet")[0]
    assert "fieldPath: metadata.name" in api


def test_the_charts_api_takes_its_secrets_by_reference_and_lets_nobody_else_in():
    """Tokens and keys are never values; metrics need no token, so they need a peer that is named."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["api"]
    env = (CHART / "templates" / "api" / "_env.tpl").read_text()

    assert not values["enabled"]
    assert (True, []) == (
        values["networkPolicy"]["enabled"],
        values["networkPolicy"]["metricsFrom"],
    )
    assert re.search(r"name: OUTBOX_API_TOKENS\n  valueFrom:\n    secretKeyRef:", env)


# ── The demo's input ──


@pytest.fixture(scope="module")
def lines():
    return [json.loads(line) for line in make_activities.FILE.read_bytes().splitlines()]


def test_the_activities_are_those_that_their_maker_makes():
    """A file changed by hand would make the demo's expected numbers wrong."""
    made = b"".join(line + b"\n" for line in make_activities.make_lines())

    assert made == make_activities.FILE.read_bytes()


def test_the_activities_are_as_many_of_each_as_expected(lines):
    """The demo's summary must add up; counted here from the file and not from its maker."""
    expected = make_activities.expected()
    good = [line for line in lines if is_good(line)]
    first: dict[str, dict] = {}
    again: Counter[str] = Counter()
    for line in good:
        before = first.setdefault(line["activity_id"], line)
        if before is not line:
            again["duplicate" if before == line else "conflict"] += 1
    paths = Counter(path_of(line, to) for line in first.values() for to in line["recipients"])

    assert expected.lines == len(lines)
    assert expected.malformed == len(lines) - len(good)
    assert {"duplicate": expected.duplicates, "conflict": expected.conflicts} == again
    assert expected.activities == len(first)
    assert {p.path: p.deliveries for p in expected.paths} == paths
    assert expected.dead_activities == len(dead_activities(first.values(), expected))


def test_the_activities_are_enough_and_of_every_kind(lines):
    """Issue 3: at least 500; one of 200 KiB; non-ASCII text; ledger entries; a named target."""
    raw = make_activities.FILE.read_bytes().splitlines()
    objects = [line.get("activity") for line in lines if isinstance(line.get("activity"), dict)]
    types = Counter(o["object"]["type"] for o in objects if isinstance(o.get("object"), dict))

    assert make_activities.expected().activities >= 500
    assert LARGE_BYTES == max(map(len, raw))
    assert any(not line.isascii() for line in raw)
    assert types["CaseLedgerEntry"] > 0
    assert any(o.get("type") == "Announce" for o in objects)
    assert any("body" in line for line in lines if is_good(line))


def test_every_named_target_of_the_activities_can_be_registered(lines):
    """A notification to a target that nobody registers would not be what the demo shows."""
    named = {
        (line.get("tenant", "default"), to["target"])
        for line in lines
        for to in line.get("recipients", ())
        if "target" in to
    }

    assert {(t.tenant, t.name) for t in make_activities.TARGETS} == named


def test_a_repeat_comes_after_what_it_repeats(lines):
    """Two lines of one id in the other order would make the first a conflict's winner."""
    last = lines[-7:]

    assert [True] * 7 == [
        any(line.get("activity_id") == again["activity_id"] for line in lines[:-7])
        for again in last
    ]


def test_the_expected_calls_follow_the_policy():
    """Attempts of what always fails are the policy's; all others do not depend on it."""
    few, many = make_activities.expected(max_attempts=3), make_activities.expected(max_attempts=5)
    always_failing = sum(p.deliveries for p in few.paths if p.receipt == "exhausted")

    assert 2 * always_failing == many.calls - few.calls
    assert few.deliveries == many.deliveries == 686
    assert 40 == few.dead


def is_good(line):
    """The rules of interface.md §3, as far as the file goes."""
    content = isinstance(line.get("activity"), dict) or {"body", "content_type"} <= set(line)
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]*=*", line.get("body", ""))
    return bool(line.get("activity_id") and line.get("recipients") and content and is_base64)


def path_of(line, recipient):
    if "inbox" in recipient:
        return make_activities.behaviour_of(recipient["inbox"])
    (target,) = (
        t
        for t in make_activities.TARGETS
        if (t.tenant, t.name) == (line.get("tenant", "default"), recipient["target"])
    )
    path = make_activities.behaviour_of(target.path)
    return path if path == "/ok" else f"{path} once"


def dead_activities(activities, expected):
    dead = {p.path for p in expected.paths if p.is_dead}
    return [a for a in activities if any(path_of(a, to) in dead for to in a["recipients"])]
