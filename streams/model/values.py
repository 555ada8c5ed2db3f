"""One way to change a frozen value, whichever of the two kinds it is."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def replace(value: T, **changes: Any) -> T:
    """A copy of a frozen value with some fields changed: a dataclass, or a `msgspec.Struct`.

    Raises:
        TypeError: a field that it does not have.
    """
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return cast("T", dataclasses.replace(cast("Any", value), **changes))
