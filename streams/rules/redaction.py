"""What operators may see: secrets masked, sizes bounded, closed where a limit is met (D-044..047).

Three entrances: `redact` for diagnostic strings, `redact_url` for destinations (a URL can itself be
the credential, F07), `mask` for the one content view. Nothing here touches what is sent.
"""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from streams.rules.secret_names import is_secret_name
from streams.rules.secret_text import MASK, scrub, shown_url

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

TOO_DEEP: Final = "*** too deep"
TOO_MANY: Final = "*** too many keys"
TOO_LONG: Final = "*** too long"
CYCLE: Final = "*** cycle"

LEVELS_MAX: Final = 12
"""The outermost object or list is level 1; an object or list on level 13 is not shown."""

ENTRIES_MAX: Final = 2_048
"""Keys of objects and items of lists, over the whole tree: it bounds the work, not the looks."""

KEPT_BYTES_MAX: Final = 65_536
"""Of keys and strings looked at, in UTF-8; what a secret name hides is not, and does not count."""

_WINDOW_CHARS: Final = 16_384
"""A diagnostic string is cut to this before anything else, so that a huge one costs no more."""

_INTEGER_BITS_MAX: Final = 128
_NAME_KEYS: Final = frozenset(
    {"name", "key", "header", "field", "param", "parameter", "variable", "property", "label", "k"}
)
"""Keys whose value is itself a name, as in `{"name": "Authorization", "value": …}` (F18)."""

_PAIR_KEYS_MAX: Final = 16


def redact(text: str, max_bytes: int = 200) -> str:
    """A diagnostic string fit for logs, dead letters and answers: one line, bounded, no secrets.

    Args:
        text: From anywhere: exception texts, reasons, provider codes.
        max_bytes: Bound of the result in UTF-8; no character is split, `…` says that it was cut.
    """
    if len(text) > _WINDOW_CHARS:
        # What the cut leaves of the last word may be half a secret, which no pattern knows.
        words = text[:_WINDOW_CHARS].rsplit(maxsplit=1)
        text = words[0] if len(words) == 2 else MASK
    return bound(_Walk(strict=True).text(text, level=1), max_bytes)


def bound(text: str, max_bytes: int) -> str:
    """`text` as one line of at most `max_bytes` bytes of UTF-8; no character is split."""
    line = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text)
    encoded = line.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    mark = "…" if max_bytes >= len("…".encode()) else ""
    room = max(max_bytes - len(mark.encode()), 0)
    return encoded[:room].decode(errors="ignore") + mark


def redact_url(url: str) -> str:
    """A destination as operators may see it: `https://b.example/users/*/inbox~1f0c2a9b`.

    Scheme, host and port stay. Of the path only well-known words and the shortest segments stay,
    since the rest may be what authenticates; eight digits of its SHA-256 tell destinations apart.
    At most 200 bytes; what is no URL is masked whole.
    """
    return bound(shown_url(url, strict=True), 200)


def mask(value: object) -> Json:
    """A content view of `value` (JSON, or Python's like of it), with secrets masked.

    Fails closed: what lies beyond `LEVELS_MAX`, `ENTRIES_MAX` or `KEPT_BYTES_MAX`, refers back to
    itself, or is none of JSON's types becomes a marker; nothing raw is ever returned in its place.
    A string that is itself JSON is opened and counts as the object or list that it holds. Always
    terminates, raises nothing.
    """
    return _Walk(strict=False).value(value, level=1)


class _Walk:
    """One walk over one value, with what is left of its bounds."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._entries = ENTRIES_MAX
        self._bytes = KEPT_BYTES_MAX
        self._path: set[int] = set()

    def value(self, value: object, level: int) -> Json:
        match value:
            case None | bool() | float():
                return value
            case int():
                return value if value.bit_length() <= _INTEGER_BITS_MAX else TOO_LONG
            case str():
                return self.text(value, level)
            case dict() | list() | tuple():
                return self._container(value, level)
            case _:
                return MASK

    def text(self, text: str, level: int) -> str:
        """A string with its secrets masked, opened first where it is JSON itself (F04)."""
        if len(text) > self._bytes:
            return TOO_LONG
        if text.lstrip()[:1] in ("{", "["):
            try:
                opened = json.loads(text)
            except RecursionError:
                return TOO_DEEP
            except ValueError:
                opened = None
            if opened is not None:
                return json.dumps(self.value(opened, level), ensure_ascii=False)
        if not self._afford(text):
            return TOO_LONG
        return scrub(text, strict=self._strict)

    def _container(
        self, value: dict[object, object] | list[object] | tuple[object, ...], level: int
    ) -> Json:
        if level > LEVELS_MAX:
            return TOO_DEEP
        if id(value) in self._path:
            return CYCLE
        self._path.add(id(value))
        shown: Json = (
            self._object(value, level + 1)
            if isinstance(value, dict)
            else self._list(value, level + 1)
        )
        self._path.discard(id(value))
        return shown

    def _object(self, value: dict[object, object], level: int) -> Json:
        shown: dict[str, Json] = {}
        hides_all = _names_a_secret(value)
        for key, item in value.items():
            if self._entries <= 0:
                shown[TOO_MANY] = MASK
                break
            self._entries -= 1
            name = _readable(key)
            if not self._afford(name):
                shown[TOO_LONG] = MASK
                break
            hidden = is_secret_name(name) or (hides_all and name.lower() not in _NAME_KEYS)
            label = scrub(name, strict=self._strict)
            shown[label] = _hidden(item) if hidden else self.value(item, level)
        return shown

    def _list(self, value: list[object] | tuple[object, ...], level: int) -> Json:
        shown: list[Json] = []
        hidden = False
        for item in value:
            if self._entries <= 0:
                shown.append(TOO_MANY)
                break
            self._entries -= 1
            shown.append(_hidden(item) if hidden else self.value(item, level))
            # ["cookie", "…"], raw header lists and argument lists: the name is the item before.
            hidden = _is_name_of_a_secret(item)
        return shown

    def _afford(self, text: str) -> bool:
        self._bytes -= len(text.encode(errors="replace"))
        return self._bytes >= 0


def _names_a_secret(value: dict[object, object]) -> bool:
    return len(value) <= _PAIR_KEYS_MAX and any(
        _readable(key).lower() in _NAME_KEYS and _is_name_of_a_secret(item)
        for key, item in value.items()
    )


def _is_name_of_a_secret(item: object) -> bool:
    if not isinstance(item, str | bytes):
        return False
    name = _readable(item).strip()
    return len(name) <= 64 and len(name.split()) <= 2 and is_secret_name(name)


def _hidden(item: object) -> Json:
    """What stands for a value under a secret name; that there is none is no secret."""
    return item if item is None or isinstance(item, bool) else MASK


def _readable(key: object) -> str:
    match key:
        case str():
            return key
        case bytes():
            return key.decode(errors="replace")
        case None | bool() | int() | float():
            return repr(key)
        case _:
            return MASK
