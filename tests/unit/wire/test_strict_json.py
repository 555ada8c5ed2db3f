"""Depth, endless numbers and exact slices of JSON text."""

import pytest

from streams.errors import RecordError
from streams.wire.strict_json import has_endless_number, is_too_deep, members


@pytest.mark.parametrize("kind", [b"[]", b"{}"])
@pytest.mark.parametrize("max_depth", [1, 2, 32])
def test_depth_is_exact(kind, max_depth):
    """
    C-14: the limit passes, one more does not.
    """
    opens, closes = kind[:1], kind[1:]

    assert not is_too_deep(opens * max_depth + closes * max_depth, max_depth)
    assert is_too_deep(opens * (max_depth + 1) + closes * (max_depth + 1), max_depth)


@pytest.mark.parametrize(
    "text",
    [
        b'["[[[[[[", 1]',
        b'["\\"[[[[[["]',
        b'["\\\\", "\\\\\\"[[[[[["]',
        b"[" + b"[]," * 100 + b"[]]",
        b'[[{}, {"a": "]"}], [[]]]',
    ],
)
def test_brackets_in_strings_and_siblings_do_not_count(text):
    assert not is_too_deep(text, 3)


def test_an_escaped_backslash_does_not_hide_the_end_of_a_string():
    """
    The string of one backslash ends; what follows it are real brackets.
    """
    assert is_too_deep(b'["\\\\", [[[]]]]', 3)


def test_brackets_that_never_close_are_too_deep():
    """G05."""
    assert is_too_deep(b'{"a":' * 33, 32)
    assert is_too_deep(b"[]" * 5 + b"[{" * 17, 32)


@pytest.mark.parametrize(("digits", "expected"), [(4_300, False), (4_301, True)])
def test_a_number_may_have_as_many_digits_as_python_takes(digits, expected):
    """G08."""
    assert expected == has_endless_number(b"[" + b"7" * digits + b" " * 5_000 + b"]")


def test_members_are_the_exact_bytes():
    found = members('\n{ "a" : [1 ,2] ,"é":\t"ü" , "n" :1.0}\n'.encode())

    assert {
        "a": ([1, 2], b"[1 ,2]"),
        "é": ("ü", '"ü"'.encode()),
        "n": (1.0, b"1.0"),
    } == found


def test_an_empty_object_has_no_members():
    assert {} == members(b" { } ")


@pytest.mark.parametrize("value", [b"[]", b"1", b'"a"', b"null"])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(RecordError) as refused:
        members(value)

    assert "not_an_object" == refused.value.code


@pytest.mark.parametrize("value", [b"", b" ", b"{'a':1}", b'{"a":1,}', b'{"a" 1}', b'{"a":1} x'])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(RecordError) as refused:
        members(value)

    assert "not_json" == refused.value.code
