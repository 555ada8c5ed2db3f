"""Is every schema readable by the last release, and the last release's by us?

Compares `schemas/*.avsc` with the last git tag's, in both directions, by Avro's rules of schema
resolution, and holds each to our own: a default everywhere, no enums, no ambiguous unions.
Called by `make lint`. Exit code 0 when all is well, 1 with a line for each rule broken.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

Schema: TypeAlias = Any
ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "schemas"

_PROMOTIONS: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Avro 1.11, "Schema Resolution": what a writer's type may be read as."""
_NUMERIC: Final = {"int", "long", "float", "double"}


def main() -> int:
    """Check, print a line for each finding, and say whether there was none."""
    ours = {file.stem: json.loads(file.read_text()) for file in (ROOT / FOLDER).glob("*.avsc")}
    findings = [f"{name}: {rule}" for name, schema in ours.items() for rule in breaches(schema)]
    tag = _git("describe", "--tags", "--abbrev=0")
    if tag is None:
        print("schemas: no release yet, nothing to be compatible with")
    else:
        theirs = released(tag)
        kept = [json.loads(file.read_text()) for file in (ROOT / FOLDER / "history").glob("*.avsc")]
        findings += [f"{finding} ({tag})" for finding in compare(ours, theirs, kept)]
        print(f"schemas: {len(ours)} compared with {tag}")
    for finding in findings:
        print(f"schemas: {finding}", file=sys.stderr)
    return 1 if findings else 0


def released(tag: str) -> dict[str, Schema]:
    """The schemas of a tag, by name."""
    listed = _git("ls-tree", "--name-only", tag, f"{FOLDER}/") or ""
    files = [Path(line) for line in listed.splitlines() if line.endswith(".avsc")]
    return {file.stem: json.loads(_git("show", f"{tag}:{file}") or "null") for file in files}


def compare(ours: dict[str, Schema], theirs: dict[str, Schema], kept: list[Schema]) -> list[str]:
    """What keeps one release from reading the other's records.

    Args:
        ours: Name -> schema now.
        theirs: Name -> schema of the last release.
        kept: Those of `schemas/history`, by which old records are read.
    """
    found = []
    for name, old in theirs.items():
        new = ours.get(name)
        if new is None:
            found.append(f"{name}: a schema must not be removed, its records are still there")
            continue
        found += [f"{name}: we cannot read theirs: {why}" for why in conflicts(new, old)]
        found += [f"{name}: they cannot read ours: {why}" for why in conflicts(old, new)]
        if shape(new) != shape(old) and shape(old) not in map(shape, kept):
            found.append(f"{name}: the released version must be kept in {FOLDER}/history")
    return found


def conflicts(reader: Schema, writer: Schema, path: str = "") -> list[str]:
    """Why `reader` cannot read everything that `writer` writes; empty when it can."""
    if isinstance(writer, list):
        return [why for branch in writer for why in conflicts(reader, branch, path)]
    if isinstance(reader, list):
        fits = any(not conflicts(branch, writer, path) for branch in reader)
        return [] if fits else [f"{path or '/'}: no branch of the union takes {kind(writer)}"]
    is_type, was_type = kind(reader), kind(writer)
    if is_type != was_type:
        promoted = is_type in _PROMOTIONS.get(was_type, ())
        return [] if promoted else [f"{path or '/'}: {was_type} cannot be read as {is_type}"]
    match is_type:
        case "record":
            return _record_conflicts(reader, writer, path)
        case "array":
            return conflicts(reader["items"], writer["items"], f"{path}[]")
        case "map":
            return conflicts(reader["values"], writer["values"], f"{path}{{}}")
        case "enum":
            unread = set(writer["symbols"]) - set(reader["symbols"])
            is_lost = bool(unread) and "default" not in reader
            return [f"{path}: enum symbols {sorted(unread)} have no default"] if is_lost else []
        case "fixed":
            return [] if reader["size"] == writer["size"] else [f"{path}: sizes differ"]
        case _:
            return []


def _record_conflicts(reader: Schema, writer: Schema, path: str) -> list[str]:
    if reader["name"] != writer["name"]:
        return [f"{path or '/'}: record {writer['name']} was renamed {reader['name']}"]
    written = {field["name"]: field["type"] for field in writer["fields"]}
    found = []
    for field in reader["fields"]:
        at = f"{path}/{field['name']}"
        if field["name"] in written:
            found += conflicts(field["type"], written[field["name"]], at)
        elif "default" not in field:
            found.append(f"{at}: is not written and has no default")
    return found


def breaches(schema: Schema, path: str = "") -> list[str]:
    """Which of our own rules a schema breaks.

    G11: every field has a default. G15: it fits the union's first branch. G16: no enums, whose new
    symbols stop old readers. G19: no union of two numbers, whose branch is a matter of luck.
    """
    if isinstance(schema, list):
        found = [why for branch in schema for why in breaches(branch, path)]
        if sum(kind(branch) in _NUMERIC for branch in schema) > 1:
            found.append(f"{path}: a union must not hold two numeric types (G19)")
        return found
    match kind(schema):
        case "record":
            return [why for field in schema["fields"] for why in _field_breaches(field, path)]
        case "array":
            return breaches(schema["items"], f"{path}[]")
        case "map":
            return breaches(schema["values"], f"{path}{{}}")
        case "enum":
            return [f"{path}: must be a string, not an enum (G16)"]
        case _:
            return []


def _field_breaches(field: Schema, path: str) -> list[str]:
    at = f"{path}/{field['name']}"
    found = breaches(field["type"], at)
    if "default" not in field:
        found.append(f"{at}: must have a default (G11)")
    elif isinstance(field["type"], list) and (field["type"][0], field["default"]) != ("null", None):
        found.append(f"{at}: must be [null, T] with default null (G15)")
    return found


def kind(schema: Schema) -> str:
    """The name of a schema's type."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


def shape(schema: Schema) -> Schema:
    """What of a schema decides on the bytes: names and types, not defaults and docs."""
    if isinstance(schema, list):
        return [shape(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: [{"name": field["name"], "type": shape(field["type"])} for field in value]
        if key == "fields"
        else shape(value)
        for key, value in schema.items()
        if key not in ("doc", "default")
    }


def _git(*arguments: str) -> str | None:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
