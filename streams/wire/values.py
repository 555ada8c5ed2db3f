"""Our frozen values as the plain fields of a record, and back."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from streams.errors import RecordError

T = TypeVar("T")


def fields_of(value: object) -> dict[str, Any]:
    """The attributes of a dataclass by name: enums and map keys as text, bytes as bytes."""
    fields = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    return cast("dict[str, Any]", fields)


def convert(fields: dict[str, Any], type_: type[T]) -> T:
    """Build a dataclass from the fields of a record.

    Raises:
        RecordError: `record_invalid`, e.g. for an enum's text that this version does not know.
    """
    try:
        return msgspec.convert(fields, type_, builtin_types=(bytes,), str_keys=True)
    except msgspec.ValidationError:
        # msgspec's own message repeats the value.
        raise RecordError(
            "record_invalid",
            f"a field of the record is outside what {type_.__name__} allows; "
            "was it written by a newer version?",
        ) from None
