"""What the nodes of a local cluster are: ports, names, and the properties that they start with."""

from __future__ import annotations

import base64
import random
import socket
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streams.errors import LocalKafkaError

HOST: Final = "127.0.0.1"

_PORTS: Final = range(15_000, 32_000)
"""Below the kernel's ephemeral ports (from 32768): the port of a node that is down for a moment
must not become the local end of somebody's connection."""

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={number}
controller.quorum.bootstrap.servers={quorum}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}

# Topics are made by `outbox topics apply`, never by accident.
auto.create.topics.enable=false
delete.topic.enable=true
default.replication.factor={nodes}
min.insync.replicas={in_sync}

# Coordinators: as many copies as there are nodes, few partitions, since each costs a start.
offsets.topic.num.partitions=4
offsets.topic.replication.factor={nodes}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr={in_sync}
# Committed offsets outlive the dedupe window (7 days).
offsets.retention.minutes=20160

# A dead broker is noticed after 3 s, a dead member as soon as its own settings say.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000

# Compaction and retention act soon, so that tests and demos meet them.
log.cleaner.enable=true
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=16777216
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=10000

num.network.threads=2
num.io.threads=4
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, broker and controller. `directory_id` names its log directory in the quorum."""

    number: int
    port: int
    controller_port: int
    directory_id: str


def plan(count: int, port: int) -> tuple[Node, ...]:
    """Choose `count` new nodes: at `port` and the ones after it, or at free ports where it is 0.

    Raises:
        LocalKafkaError: `port` or one after it is taken.
    """
    chosen = broker_ports(count, port)
    controllers = _free_ports(count, without=chosen)
    return tuple(
        Node(
            number=n, port=chosen[n - 1], controller_port=controllers[n - 1], directory_id=new_id()
        )
        for n in range(1, count + 1)
    )


def broker_ports(count: int, port: int) -> list[int]:
    """`count` ports: from `port` on, which must be free, or any free ones where it is 0."""
    if port == 0:
        return _free_ports(count)
    wanted = list(range(port, port + count))
    taken = [str(number) for number in wanted if not is_free(number)]
    if taken:
        raise LocalKafkaError(
            f"port {', '.join(taken)} of {HOST} is taken by another program:"
            " choose another --port, or 0 for free ones"
        )
    return wanted


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def bootstrap(nodes: Sequence[Node]) -> str:
    """`HOST:PORT[,...]`, as Kafka clients take it."""
    return ",".join(f"{HOST}:{node.port}" for node in nodes)


def new_id() -> str:
    """A new id as Kafka writes them: 22 characters of URL-safe base64, not starting with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def quorum_options(nodes: Sequence[Node]) -> list[str]:
    """How the formatting tool is told who the first controllers are."""
    if len(nodes) == 1:
        return ["--standalone"]
    voters = (f"{n.number}@{HOST}:{n.controller_port}:{n.directory_id}" for n in nodes)
    return ["--initial-controllers", ",".join(voters)]


def properties(node: Node, nodes: Sequence[Node], log_dir: Path) -> str:
    """The text of the node's properties file."""
    return _PROPERTIES.format(
        number=node.number,
        host=HOST,
        port=node.port,
        controller_port=node.controller_port,
        quorum=",".join(f"{HOST}:{n.controller_port}" for n in nodes),
        log_dir=log_dir,
        nodes=len(nodes),
        in_sync=2 if len(nodes) > 2 else 1,
    )


def _free_ports(count: int, *, without: Sequence[int] = ()) -> list[int]:
    """Choose free ports at random, so that clusters started at once seldom meet."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(_PORTS, len(_PORTS)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            if port not in without:
                found.append(port)
            if len(found) == count:
                return found
    raise LocalKafkaError(f"no port between {_PORTS.start} and {_PORTS.stop} of {HOST} is free")
