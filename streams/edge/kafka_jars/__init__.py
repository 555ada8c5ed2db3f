"""Apache Kafka's own jars, fetched once from Maven Central and shared by all who use this cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from streams.errors import LocalKafkaError


def cache_dir() -> Path:
    """Where the jars are kept: `$XDG_CACHE_HOME/outbox/kafka-jars`, else `.local/kafka-jars`."""
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared) / "outbox" / "kafka-jars"
    return Path(".local") / "kafka-jars"


def fetch(cache: Path, say: Callable[[str], None]) -> Path:
    """Return the folder with the jars, filling it first where that was not done yet (about 10 s).

    The folder's name is the hash of the `pom.xml`, so a new version is another folder. It appears
    whole or not at all, and two processes at once fetch once: the second waits for the first.

    Raises:
        LocalKafkaError: Maven is missing, or could not fetch.
    """
    pom = resources.files(__name__).joinpath("pom.xml").read_bytes()
    folder = cache / hashlib.sha256(pom).hexdigest()[:16]
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        if not folder.exists():
            _fetch_into(folder, pom, say)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file at `path` as a lock between processes; the kernel lets go when one dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_into(folder: Path, pom: bytes, say: Callable[[str], None]) -> None:
    """Let Maven copy the jars beside `folder` and put them in place with one rename."""
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalKafkaError(
            "Maven (`mvn`) is needed once, to fetch Apache Kafka's jars: apt-get install maven,"
            " or set OUTBOX_BROKERS to a Kafka that runs already"
        )
    for left_over in folder.parent.glob("fetch-*"):
        shutil.rmtree(left_over)
    say("fetching Apache Kafka from Maven Central (44 MB, once; about 10 s) ...")
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=folder.parent)).resolve()
    try:
        (work / "pom.xml").write_bytes(pom)
        _run_maven(maven, work)
        (work / "libs").rename(folder)
    finally:
        shutil.rmtree(work)


def _run_maven(maven: str, work: Path) -> None:
    """Copy the dependencies of `work/pom.xml` to `work/libs`, checksums enforced."""
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work / 'libs'}"]
    done = subprocess.run(
        [maven, "-q", "-B", "--strict-checksums", "-f", str(work / "pom.xml"), *goal],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-8:])
        raise LocalKafkaError(f"Maven could not fetch Apache Kafka's jars:\n{last}")
