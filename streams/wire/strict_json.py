"""What a fast parser will not say of JSON text: its depth, its duplicates, its exact slices."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from streams.errors import RecordError

_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LONGEST_NUMBER: Final = 4_300
"""Digits that Python's own integers take (G08); receivers in other languages take fewer."""


def is_too_deep(text: bytes, max_depth: int) -> bool:
    """Whether containers nest deeper than `max_depth`; the outermost is level 1.

    Linear and without recursion, so that it may run before any parser does (G05). Text that is no
    JSON gets some answer and fails in the parser. 0.4 µs for 700 bytes with few brackets; 256 KiB
    of nothing but brackets takes 0.5 to 20 ms.
    """
    # What has no more brackets than levels cannot be too deep: nearly every activity ends here. To take a
    # rare byte out costs 0.14 µs for 700 bytes, to count it 0.33 (timeit).
    without = len(text.replace(b"{", b"")) + len(text.replace(b"[", b""))
    if 2 * len(text) - without <= max_depth:
        return False
    if b"\\" in text:  # a backslash stands in strings only; pairs go first, then escaped quotes
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(text.split(b'"')[::2])
    brackets = outside_strings.translate(_ONE_KIND, _NOT_BRACKETS)
    if b"[" * (max_depth + 1) in brackets:
        return True
    for _ in range(max_depth):
        inner = brackets.replace(b"[]", b"")  # takes away exactly one level, the innermost
        if len(inner) == len(brackets):
            break
        brackets = inner
    # What is left after that many levels is deeper, or was never closed and opens too often.
    return b"[]" in brackets or brackets.count(b"[") > max_depth


def has_endless_number(text: bytes) -> bool:
    """Whether a run of digits is longer than a number may be (G08): none fits into short text."""
    if len(text) <= _LONGEST_NUMBER:
        return False
    return b"0" * (_LONGEST_NUMBER + 1) in text.translate(_DIGITS_TO_ZERO)


def members(value: bytes) -> dict[str, tuple[Any, bytes]]:
    """The members of a JSON object: name -> parsed value and its exact bytes in `value`.

    Slow (12 µs for 700 bytes) and exact: for what the fast path refuses, to say why or to accept it
    nevertheless. Half a surrogate pair is accepted in values, as RFC 8259 §8.2 allows.

    Raises:
        RecordError: `not_json` (NaN, Infinity, a BOM, trailing text, bad UTF-8 …), `not_an_object`,
            `duplicate_field` for a name given twice here or in one of the objects of `recipients`.
    """
    try:
        text = value.decode()
        return _members(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise RecordError("not_json", "the value must be one JSON text in UTF-8") from None


def _members(text: str) -> dict[str, tuple[Any, bytes]]:
    at = _skip(text, 0)
    whole, end = _STRICT.raw_decode(text, at)
    if _skip(text, end) != len(text):
        raise ValueError
    if not isinstance(whole, dict):
        raise RecordError("not_an_object", "the value must be a JSON object")
    found: dict[str, tuple[Any, bytes]] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _STRICT.raw_decode(text, at)
        if name in found:
            raise _duplicate()
        start = _skip(text, _skip(text, at) + 1)  # over the colon; the whole was parsed above
        decoder = _UNIQUE if name == "recipients" else _STRICT
        member, at = decoder.raw_decode(text, start)
        found[name] = (member, text[start:at].encode())
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise _duplicate()
    return names


def _duplicate() -> RecordError:
    return RecordError("duplicate_field", "a name must not be given twice in one object")


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_UNIQUE: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
