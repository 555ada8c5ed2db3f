"""What a local Kafka does around the JVM: ports, processes, jars, messages. The real one: integration."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.edge.kafka_jars import cache_dir, fetch, java
from streams.edge.kafka_jars.nodes import HOST, bootstrap, is_free, plan, properties
from streams.edge.localkafka import LocalKafka
from streams.errors import LocalKafkaError
from streams.model.values import replace

FAKE_JAVA = """#!/bin/sh
case "$*" in
  *-version*) echo 'openjdk version "{version}.0.1" 2024-01-01' >&2 ;;
  *StorageTool*) exit 0 ;;
  *) echo start >> {counter}; echo "{reason}"; printf '\\tat a.stack.frame\\n'; exit 1 ;;
esac
"""

FAKE_MAVEN = """#!/bin/sh
echo run >> {counter}
for word in "$@"; do case "$word" in -DoutputDirectory=*) to="${{word#*=}}" ;; esac; done
mkdir "$to" && echo jar > "$to/kafka.jar"
"""

BROKEN_MAVEN = """#!/bin/sh
echo "[ERROR] no route to repo.maven.apache.org"; exit 1
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def use_java(
    monkeypatch: pytest.MonkeyPatch, home: Path, *, version: int = 17, reason: str = "boom"
) -> Path:
    """Put a Java in place that formats well and whose broker ends at once; its starts' counter."""
    counter = home / "starts"
    text = FAKE_JAVA.format(version=version, reason=reason, counter=counter)
    script(home / "bin" / "java", text)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return counter


def use_maven(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str = FAKE_MAVEN) -> Path:
    """Put a Maven in place; its runs' counter."""
    counter = folder / "runs"
    script(folder / "mvn", text.format(counter=counter))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return counter


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[java.Process]:
    process = java.start(["sleep", "600"], log=tmp_path / "log", pid_file=tmp_path / "pid")
    yield process
    process.send(signal.SIGKILL)
    process.wait(wait_s=10)


def test_a_process_is_remembered_by_its_pid_file(sleeper: java.Process, tmp_path: Path) -> None:
    """`outbox kafka down` is another process than the `up` before it."""
    assert sleeper == java.recall(tmp_path / "pid")


def test_a_process_has_a_session_of_its_own(sleeper: java.Process) -> None:
    """Ctrl-C in the terminal of the parent must not reach the broker."""
    assert os.getsid(sleeper.pid) != os.getsid(0)


def test_an_ended_process_is_not_remembered(sleeper: java.Process, tmp_path: Path) -> None:
    """Also where it is an ended child that nobody waited for: a zombie serves nothing."""
    sleeper.send(signal.SIGKILL)

    assert sleeper.wait(wait_s=10)
    assert java.recall(tmp_path / "pid") is None


def test_a_recycled_pid_is_left_alone(sleeper: java.Process, tmp_path: Path) -> None:
    """The kernel gives numbers out again: the start time tells our process from a stranger's."""
    stranger = replace(sleeper, started="another boot/1")
    (tmp_path / "pid").write_text(json.dumps({"pid": sleeper.pid, "started": "another boot/1"}))

    stranger.send(signal.SIGKILL)

    assert java.recall(tmp_path / "pid") is None
    assert sleeper.is_running


def test_a_torn_pid_file_speaks_of_nobody(tmp_path: Path) -> None:
    """A machine that lost power while it was written must still be able to start."""
    (tmp_path / "pid").write_text('{"pid": 1')

    assert java.recall(tmp_path / "pid") is None


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fresh Debian has no Java: the message must be enough to go on."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(LocalKafkaError, match="apt-get install openjdk-17-jre-headless"):
        java.find_java()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kafka 4 would end with a class file version that tells nobody anything."""
    use_java(monkeypatch, tmp_path, version=11)

    with pytest.raises(LocalKafkaError, match=r"Java 17 or newer is needed, .* is Java 11"):
        java.find_java()


def test_missing_maven_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Maven is needed once, for the jars."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LocalKafkaError, match="apt-get install maven"):
        fetch(tmp_path / "cache", lambda line: None)


def test_jars_are_fetched_once_by_any_number_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two `make` targets side by side share one cache and must not spoil it."""
    counter = use_maven(monkeypatch, tmp_path / "bin")
    found: list[Path] = []
    crowd = [
        threading.Thread(target=lambda: found.append(fetch(tmp_path / "cache", lambda line: None)))
        for _ in range(4)
    ]

    for one in crowd:
        one.start()
    for one in crowd:
        one.join()

    assert counter.read_text() == "run\n"
    assert [found[0]] * 4 == found
    assert ["kafka.jar"] == [jar.name for jar in found[0].iterdir()]


def test_a_failed_fetch_leaves_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half a set of jars must never look like one."""
    use_maven(monkeypatch, tmp_path / "bin", BROKEN_MAVEN)

    with pytest.raises(LocalKafkaError, match=r"no route to repo\.maven\.apache\.org"):
        fetch(tmp_path / "cache", lambda line: None)

    assert ["lock"] == [path.name for path in (tmp_path / "cache").iterdir()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/var/cache", Path("/var/cache/outbox/kafka-jars")), ("", Path(".local/kafka-jars"))],
)
def test_jars_are_kept_where_caches_are(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: Path
) -> None:
    """$XDG_CACHE_HOME is the user's word on it; without it the working folder is tidied with us."""
    monkeypatch.setenv("XDG_CACHE_HOME", given)

    assert expected == cache_dir()


def test_free_ports_are_distinct_and_never_ephemeral() -> None:
    """A node that is down must not lose its port to the local end of a connection (from 32768)."""
    nodes = plan(3, 0)
    ports = {port for node in nodes for port in (node.port, node.controller_port)}

    assert len(ports) == 6
    assert max(ports) < 32_768


def test_a_wanted_port_that_is_taken_is_named() -> None:
    """Who asks for a port wants that one: another would be found by nobody."""
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(LocalKafkaError, match=f"port {port} of 127.0.0.1 is taken"):
            plan(1, port)
        assert not is_free(port)


def test_nodes_listen_on_loopback_only() -> None:
    """A local Kafka has no password."""
    nodes = plan(3, 0)
    lines = properties(nodes[0], nodes, Path("/records")).splitlines()
    listeners = next(line for line in lines if line.startswith("listeners="))

    assert (
        f"listeners=PLAINTEXT://127.0.0.1:{nodes[0].port}"
        f",CONTROLLER://127.0.0.1:{nodes[0].controller_port}"
    ) == listeners


@pytest.mark.parametrize(("count", "in_sync"), [(1, 1), (3, 2)])
def test_internal_topics_have_as_many_copies_as_nodes(count: int, in_sync: int) -> None:
    """One of three nodes may die and groups and transactions go on."""
    nodes = plan(count, 0)
    lines = properties(nodes[0], nodes, Path("/records")).splitlines()

    assert {
        f"offsets.topic.replication.factor={count}",
        f"transaction.state.log.replication.factor={count}",
        f"transaction.state.log.min.isr={in_sync}",
        "auto.create.topics.enable=false",
    } <= set(lines)


def test_bootstrap_names_every_node() -> None:
    """A client must find the cluster while any one node is down."""
    nodes = plan(3, 0)

    assert ",".join(f"127.0.0.1:{node.port}" for node in nodes) == bootstrap(nodes)


def test_other_counts_than_one_and_three_are_refused(tmp_path: Path) -> None:
    """Two nodes have no majority that one of them could be missing from."""
    with pytest.raises(LocalKafkaError, match="1 or 3 brokers, not 2"):
        LocalKafka(tmp_path, brokers=2)


@pytest.mark.parametrize("reason", ["boom", "Address already in use"])
def test_a_failed_start_shows_the_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    """The reason stands in a log that nobody looks for; what never served is removed."""
    use_java(monkeypatch, tmp_path / "java", reason=reason)
    use_maven(monkeypatch, tmp_path / "bin")
    kafka = LocalKafka(tmp_path / "kafka", jars_dir=tmp_path / "jars")

    with pytest.raises(LocalKafkaError, match=f"its log ends with:\n{reason}$"):
        kafka.up()

    assert ({}, None) == (kafka.node_pids(), kafka.bootstrap)
    assert ["lock"] == [path.name for path in (tmp_path / "kafka").iterdir()]


@pytest.mark.parametrize(
    ("reason", "is_wanted", "starts"),
    [("Address already in use", False, 3), ("Address already in use", True, 1), ("boom", False, 1)],
)
def test_a_lost_port_of_our_choice_is_chosen_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, is_wanted: bool, starts: int
) -> None:
    """Between the look and the start another program may take a port; other failures repeat."""
    counter = use_java(monkeypatch, tmp_path / "java", reason=reason)
    use_maven(monkeypatch, tmp_path / "bin")
    port = plan(1, 0)[0].port if is_wanted else 0

    with pytest.raises(LocalKafkaError):
        LocalKafka(tmp_path / "kafka", port=port, jars_dir=tmp_path / "jars").up()

    assert ["start"] * starts == counter.read_text().split()


def test_a_folder_of_another_count_is_refused(tmp_path: Path) -> None:
    """One node's records are not three nodes' records."""
    node = {"number": 1, "port": 1, "controller_port": 2, "directory_id": "d"}
    (tmp_path / "cluster.json").write_text(json.dumps([node]))

    with pytest.raises(LocalKafkaError, match=r"holds a Kafka of 1 node\(s\), not 3"):
        LocalKafka(tmp_path, brokers=3).up()


def test_down_where_nothing_ever_ran_does_nothing(tmp_path: Path) -> None:
    """Idempotent: a clean-up may come before any start, and leaves no folder behind."""
    assert not LocalKafka(tmp_path / "none").down()
    assert not (tmp_path / "none").exists()


def test_killing_a_node_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    """A chaos test that kills nobody would prove nothing."""
    with pytest.raises(LocalKafkaError, match=r"node 1 of .* does not run"):
        LocalKafka(tmp_path).kill(1)
