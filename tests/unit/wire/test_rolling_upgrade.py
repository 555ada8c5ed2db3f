"""Version n and n+1 of every record side by side, and records that were written once, read for ever."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.errors import RecordError
from streams.wire import schemas
from streams.wire.avro import Codec
from streams.wire.schemas import schema_set
from tests.unit.wire.golden import FILE, WIRES, Wire, fingerprint, holds, shown, written

ROOT = Path(__file__).parents[3] / "schemas"
IN_AVRO = {kind: wire for kind, wire in WIRES.items() if wire.schema}
LATER = {"name": "later", "type": "string", "default": "as before"}


def next_version(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a field more: in the record, and in each record within it."""
    grown = json.loads(json.dumps(schema))

    def grow(type_: Any) -> None:
        if isinstance(type_, list):
            for branch in type_:
                grow(branch)
        elif isinstance(type_, dict):
            grow(type_.get("items"))
            for field in type_.get("fields", ()):
                grow(field["type"])
            if type_.get("type") == "record":
                # Among the others: a reader that trusted to the order would read nonsense.
                type_["fields"].insert(1, dict(LATER))

    grow(grown)
    return grown


class Releases:
    """Three installed releases of one record's schema."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.now = json.loads((ROOT / f"{name}.avsc").read_text())
        self.next = next_version(self.now)
        self._name, self._folder, self._monkeypatch = name, folder, monkeypatch

    def codec(self, current: dict[str, Any], *history: dict[str, Any]) -> Codec:
        """What a release reads and writes with, whose folder holds these."""
        own = self._folder / f"release-{len(list(self._folder.iterdir()))}"
        (own / "history").mkdir(parents=True)
        (own / f"{self._name}.avsc").write_text(json.dumps(current))
        for at, schema in enumerate(history):
            (own / "history" / f"{self._name}.{at}.avsc").write_text(json.dumps(schema))
        self._monkeypatch.setattr(schemas, "schema_folder", lambda: own)
        schema_set.cache_clear()
        return Codec(self._name)

    def install(self, wire: Wire, codec: Codec) -> None:
        """Let the product's own reader of this kind read with that codec."""
        self._monkeypatch.setattr(importlib.import_module(wire.module), wire.codec, codec)


@pytest.fixture(params=sorted(IN_AVRO))
def wire(request: pytest.FixtureRequest) -> Wire:
    """Each kind of record that has a schema."""
    return IN_AVRO[request.param]


@pytest.fixture
def releases(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """The releases of its schema; the real ones are back afterwards."""
    yield Releases(tmp_path, monkeypatch, wire.schema)
    monkeypatch.undo()
    schema_set.cache_clear()


def rewritten(value: bytes, reader: Codec, writer: Codec, **more: Any) -> bytes:
    """What `writer` writes of a record that `reader` read."""
    return writer.encode({**reader.decode(value), **more})


def test_the_old_release_reads_what_the_new_one_writes(wire: Wire, releases: Releases) -> None:
    """G11: told of the version a release ahead, it ignores the field that it has no use for."""
    old = releases.codec(releases.now, releases.next)
    new = releases.codec(releases.next, releases.now)
    releases.install(wire, old)

    for value in wire.samples.values():
        newer = rewritten(value, new, new, later="said by n+1")
        assert newer != value
        assert shown(wire.decode(value)) == shown(wire.decode(newer))


def test_the_new_release_reads_what_the_old_one_wrote(wire: Wire, releases: Releases) -> None:
    """G11: what was never said has the default; all that was said is as it was."""
    old = releases.codec(releases.now, releases.next)
    new = releases.codec(releases.next, releases.now)

    for value in wire.samples.values():
        read = new.decode(value)
        assert "as before" == read["later"]
        assert holds(shown(old.decode(value)), shown(read))


def test_the_old_release_writes_on_without_the_new_field(wire: Wire, releases: Releases) -> None:
    """A row that goes from n+1 to n and back loses what n does not know, and nothing else."""
    old = releases.codec(releases.now, releases.next)
    new = releases.codec(releases.next, releases.now)

    for value in wire.samples.values():
        there = rewritten(value, new, new, later="said by n+1")
        back = rewritten(there, old, old)
        assert value == back
        assert "as before" == new.decode(back)["later"]


def test_a_release_that_was_not_told_refuses_and_does_not_guess(
    wire: Wire, releases: Releases
) -> None:
    """G11: without the writer's schema every field behind the new one would be another's."""
    new = releases.codec(releases.next, releases.now)
    untold = releases.codec(releases.now)

    for value in wire.samples.values():
        with pytest.raises(RecordError) as refused:
            untold.decode(rewritten(value, new, new))
        assert "schema_unknown" == refused.value.code


@pytest.mark.parametrize("record", written(), ids=lambda r: f"{r['kind']}, {r['name']}")
def test_what_was_written_once_is_read_for_ever(record: dict[str, Any]) -> None:
    """Topics and ledgers outlive releases: no version may lose what an earlier one wrote."""
    read = shown(WIRES[record["kind"]].decode(bytes.fromhex(record["hex"])))

    assert holds(record["value"], read), f"{record['value']} became {read}"


@pytest.mark.parametrize("kind", WIRES)
def test_every_kind_as_it_is_written_today_is_among_them(kind: str) -> None:
    """Whoever changes a schema adds its bytes: `.venv/bin/python -m tests.unit.wire.golden`."""
    there = {(r["name"], r["schema"]) for r in written() if r["kind"] == kind}

    assert {(name, fingerprint(WIRES[kind])) for name in WIRES[kind].samples} <= there


def test_every_schema_has_a_kind() -> None:
    """A new schema must not go without its golden bytes."""
    assert {file.stem for file in ROOT.glob("*.avsc")} == {w.schema for w in IN_AVRO.values()}
    assert FILE.exists()
