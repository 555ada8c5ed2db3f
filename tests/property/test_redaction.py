"""A planted secret never comes out, whatever stands around it."""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.rules.redaction import mask, redact, redact_url

CANARY = "Zq7"
"""In every planted secret and in nothing else; it holds a capital and a digit, as random tokens do."""

PRINTABLE = st.text(
    alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'`\\<>"),
    max_size=30,
)
TOKENS = st.builds(lambda a, b: f"x{a}{CANARY}{b}", PRINTABLE, PRINTABLE)
"""For contexts without quotes: no blank, no quote, no backslash."""

ANY = st.builds(lambda a, b: f"{a}{CANARY}{b}", st.text(max_size=30), st.text(max_size=30))
"""For quoted contexts: anything at all."""

WORDS = st.text(
    alphabet="abcdefghijklmnopqrstuvwxyz 0123456789.,:;=-_/@?&#{}[]()\"'<>\\\r\n\u200b", max_size=40
).filter(lambda text: CANARY not in text)
NAMES = st.sampled_from(
    ["password", "api_key", "X-Api-Key", "clientSecret", "DB_PASSWORD", "Authorization", "cookie"]
)
PAIRS = st.sampled_from(["{}={}", "{}: {}", "{}:{}", "{} = {}", "--{}={}", "a=1&{}={}", "{}=>{}"])
QUOTES = st.sampled_from([json.dumps, lambda text: json.dumps(json.dumps(text)), repr])


@given(before=WORDS, after=WORDS, name=NAMES, pair=PAIRS, secret=TOKENS)
def test_a_value_after_a_secret_name_never_comes_out(before, after, name, pair, secret):
    """D-044, F01, F02: in any text."""
    text = f"{before}\n{pair.format(name, secret)} {after}"

    assert CANARY not in redact(text, 10_000)
    assert CANARY not in json.dumps(mask({"x": text}))


@given(before=WORDS, after=WORDS, name=NAMES, quoted=QUOTES, secret=ANY)
def test_a_quoted_value_never_comes_out(before, after, name, quoted, secret):
    """D-044, F04: quotes, escapes, line breaks and all."""
    text = f"{before}\n{json.dumps(name)}: {quoted(secret)}, {after}"

    assert CANARY not in redact(text, 10_000)


@given(
    before=WORDS,
    user=TOKENS.map(lambda text: quote(text, safe="")),
    step=TOKENS.map(lambda text: quote(text, safe="")),
    query=TOKENS,
)
def test_no_part_of_a_url_but_its_host_comes_out(before, user, step, query):
    """F07, F08, D-043: user info, path, query, fragment."""
    url = f"https://u:{user}@h.example/hooks/{step}?a={query}#{query}"

    assert CANARY not in redact_url(url)
    assert CANARY not in redact(f"{before} {url} failed", 10_000)
    assert "h.example" in redact_url(url)


@given(scheme=st.sampled_from(["Bearer", "Basic", "Digest", "token", "DPoP"]), before=WORDS)
def test_a_credential_after_its_scheme_never_comes_out(scheme, before):
    """F02: in running text, with no header's name before it."""
    assert CANARY not in redact(f"{before} {scheme} ab{CANARY}cd9 was refused", 10_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=30,
).filter(lambda value: CANARY not in json.dumps(value, ensure_ascii=False))


@settings(max_examples=60)
@given(
    value=JSON,
    name=NAMES,
    secret=st.one_of(ANY, st.lists(ANY, max_size=3), st.dictionaries(st.text(max_size=5), ANY)),
    levels=st.integers(0, 16),
    packed=st.booleans(),
)
def test_a_value_under_a_secret_name_never_comes_out_of_a_view(value, name, secret, levels, packed):
    """D-044..047, F10, F18: at any depth, packed in a text or not, whatever stands beside it."""
    hidden: Any = {name: secret, "beside": value}
    for level in range(levels):
        hidden = [value, hidden] if level % 2 else {"a": hidden, "b": value}
    if packed:
        hidden = {"text": json.dumps(hidden)}

    assert CANARY not in json.dumps(mask(hidden), ensure_ascii=False)


@settings(max_examples=60)
@given(value=JSON)
def test_a_view_is_json_and_masking_it_again_shows_no_more(value):
    """D-045: always terminates, raises nothing, gives what JSON can hold."""
    once = mask(value)

    assert once == json.loads(json.dumps(once))
    assert mask(once) is not None or value is None


@given(text=st.text(max_size=400), max_bytes=st.integers(0, 300))
def test_any_text_is_bounded_to_one_line(text, max_bytes):
    """D-047: in bytes, without splitting a character."""
    shown = redact(text, max_bytes)

    assert len(shown.encode()) <= max_bytes
    assert shown.splitlines() in ([], [shown])


@given(url=st.text(max_size=80) | st.text(max_size=80).map("https://h.example/".__add__))
def test_a_redacted_url_is_its_own_redaction(url):
    """F07: it may be redacted where it is made and where it is logged."""
    once = redact_url(url)

    assert once == redact_url(once)
