"""What operators may see: every known way past a redactor, and every known way of blinding one."""

import json
from typing import Any

import pytest

from streams.rules.redaction import (
    CYCLE,
    ENTRIES_MAX,
    KEPT_BYTES_MAX,
    LEVELS_MAX,
    TOO_DEEP,
    TOO_LONG,
    TOO_MANY,
    bound,
    mask,
    redact,
    redact_url,
)
from streams.rules.secret_names import is_secret_name
from streams.rules.secret_text import MASK


def nest(levels, name, value):
    """`levels` objects within each other, the innermost of them `{name: value}`."""
    inner: dict[str, Any] = {name: value}
    for _ in range(levels - 1):
        inner = {"x": inner}
    return inner


@pytest.mark.parametrize(
    "name",
    [
        "apiKey", "api_key", "api-key", "API_KEY", "x_api_key", "X-Api-Key", "openai_api_key",
        "accessToken", "refresh_token", "client_secret", "clientSecret", "userPassword", "passwd",
        "privateKey", "sessionId", "Set-Cookie", "x-goog-api-key", "APIKey", "apikey", "xApiKey",
        "PGPASSWORD", "password2", "pass_word", "spring.datasource.password", "token", "tokens",
        "x-amz-security-token", "token_value", "x-hub-signature-256", "stripe_key", "private key",
        "connection_string", "Contraseña", "ｐａｓｓｗｏｒｄ", "secret.value", "session_id",
        "authorization_code",
    ],
)  # fmt: skip
def test_f01_one_name_has_many_spellings(name):
    """
    F01, D-044: words are compared, not letters. The key stays readable.
    """
    view: Any = mask({name: "S01"})
    [(shown, value)] = view.items()

    assert (MASK, True) == (value, shown.isprintable() and len(shown) >= len(name))


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer FAKEBEARER0001",
        "authorization: Basic RkFLRTpGQUtF",
        'Proxy-Authorization: Digest username="u", response="FAKEDIGEST"',
        "Authorization: token FAKEPAT0001",
        "Authorization: FAKEBARE0001",
        "curl -H 'x-api-key: FAKEKEY0001' https://example.com",
        "Cookie: sid=FAKESID0001",
        "sent Bearer FAKEBEARER0001 to it",
        'Digest username="u", response="FAKEDIGEST"',
        "headers=[(b'authorization', b'Bearer FAKEB')]",
        "--password FAKEFLAG",
        "curl -u bob:FAKEPW https://example.com",
        "<Password>FAKEXML</Password>",
        "user[password]=FAKEFORM&x=1",
        "password%3DFAKEENC",
        "{&quot;password&quot;:&quot;FAKEHTML&quot;}",
        'at {"client_secret":"FAKE a b","x":1} in line 3',
        '{\\"password\\":\\"FAKE\\\\\\"x\\",\\"u\\":1} unparsable',
        'token: ["FAKE1",\n "FAKE2"]',
        "password=FAKE,1;2&3",
        "password:FAKE@1",
        "pass\u200bword=FAKEZW",
        "ｐａｓｓｗｏｒｄ=FAKEWIDE",
        "api key: FAKEKEY",
        "db://u:p@h user:FAKE/1@h",
        "key sk-FAKEFAKEFAKE0001",
        "saw whsec_FAKEFAKEFAKE in it",
        "invalid token FAKE0001",
        "token Bearer FAKE0001",
        "token=password= FAKE0001",
        "--token --password FAKE0001",
    ],
)
def test_f02_a_credential_in_a_text_is_masked_whatever_its_scheme(text):
    """
    F02: schemes are open-ended (RFC 9110 §11), so the whole credential part goes.
    """
    shown = redact(text)

    assert "FAKE" not in shown
    assert "RkFL" not in shown


def test_f04_json_within_strings_is_opened():
    """
    F04: bodies are usually logged as text. `u1` may stay.
    """
    inner = json.dumps({"token": "FAKEJS0002"})
    text = json.dumps({"user": "u1", "password": "FAKEJS0001", "nested": inner})

    shown: Any = mask({"variables": text})

    assert {"user": "u1", "password": MASK, "nested": json.dumps({"token": MASK})} == json.loads(
        shown["variables"]
    )


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 20_000 + "]" * 20_000, '{"a":' * 5_000])
def test_f04_opening_is_bounded(text):
    """
    F04, D-045: a text that is brackets only neither ends the process nor comes out.
    """
    assert len(json.dumps(mask({"x": text}))) < 100_000
    assert len(redact(text).encode()) <= 200


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\nRkFLRUtFWQ==\n-----END PRIVATE KEY-----",
        '{"key":"-----BEGIN RSA PRIVATE KEY-----\\nRkFLRUtFWQ==\\n-----END RSA PRIVATE KEY-----"}',
        "KEY=-----BEGIN EC PRIVATE KEY-----RkFLRUtFWQ==-----END EC PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\\nRkFLRUtFWQ== (cut here, no END)",
    ],
)
def test_f06_a_pem_block_is_masked_however_it_is_broken(text):
    """
    F06: keys rarely travel in file form; one without an end reaches to the end.
    """
    assert "RkFLRUtFWQ" not in redact(text) + str(mask({"x": text}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T000/B000/FAKEPATH0001",
         "https://hooks.example.com/services/*/*/*~d19cfccd"),
        ("https://example.com/api/webhooks/1200000000000000000/FAKEPATH0002",
         "https://example.com/api/webhooks/*/*~0988bf61"),
        ("https://u:FAKEUSER0001@example.com/h", "https://*@example.com/h"),
        ("https://example.com/h?token=FAKEQ0001&x=1&sig=FAKEQ0002#access_token=FAKEQ0003",
         "https://example.com/h?*#*"),
        ("https://b.example:8443/inbox", "https://b.example:8443/inbox"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("https://u:FAKE/1@example.com/h", "https://*"),
        ("https://u:12/FAKE@example.com/h", "https://*"),
        ("https://u:FAKE?1@example.com/h", "https://*"),
        ("https://example.com\\FAKE0001", "https://example.com/*~"),
        ("FAKE0001", "***"),
        ("", "***"),
    ],
)  # fmt: skip
def test_f07_the_url_can_be_the_credential(url, shown):
    """
    F07: scheme, host and port stay; of the path a template, and a hash that tells two apart.
    """
    redacted = redact_url(url)

    assert redacted.startswith(shown)
    assert "FAKE" not in redacted + redact(f"POST {url} failed: 503") or "://" not in url


def test_f07_two_destinations_on_one_host_stay_two():
    """
    F07: "host and a stable hash are enough to debug".
    """
    one, two = (redact_url(f"https://h.example/hooks/{name}") for name in ("FAKE0001", "FAKE0002"))

    assert one != two


@pytest.mark.parametrize(
    "error",
    [
        "Cannot connect to host example.com:443 [https://example.com/h?api_key=FAKEEX0001]",
        "401, message='no', url=URL('https://example.com/h?api_key=FAKEEX0001')",
        'for url: "https:\\/\\/example.com\\/h?api_key=FAKEEX0001"',
    ],
)
def test_f08_the_text_of_an_exception_repeats_the_url(error):
    """
    F08: errors come from outside, too.
    """
    assert "FAKEEX0001" not in redact(error)


def test_f09_harmless_words_stay():
    """
    F09: over-masking blinds operators. Values and their types are unchanged; a secret beside them is not.
    """
    harmless = {
        "maxTokens": 4096, "token_count": 12, "tokenizer": "bpe", "authorType": "Person",
        "author": "https://example.com/u/1", "monkey": "m", "keyboard": "us", "compass": "north",
        "passed": True, "primaryKey": "id-1", "idempotency_key": "d-1",
        "note": "Basic header is applied; auth-smoke: 3", "key": "a", "http_status": 503,
        "password_policy": "long", "code": "http_503", "at": 1.5, "none": None,
    }  # fmt: skip

    assert harmless | {"token": MASK} == mask(harmless | {"token": "FAKE"})


@pytest.mark.parametrize(
    "text",
    [
        "Basic header is applied; auth-smoke: 3",
        "http_503 after 12 attempts; the effect is unknown",
        "12:30:01 connection to b.example:443 refused",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "acct:alice@b.example",
        "read_timeout: no answer within 30000 ms (attempt 3 of 12)",
        "Bearer token missing",
    ],
)
def test_f09_diagnostics_stay_readable(text):
    """
    F09: what our own lines say is never masked.
    """
    assert text == redact(text)


@pytest.mark.parametrize(("levels", "kept"), [(LEVELS_MAX, True), (LEVELS_MAX + 1, False)])
def test_f10_past_twelve_levels_nothing_is_shown(levels, kept):
    """
    F10, D-045: the root is level 1; level 12 is handled as usual, the thirteenth is a marker.
    """
    shown = json.dumps(mask(nest(levels, "x", "plain")))

    assert (kept, not kept) == ("plain" in shown, TOO_DEEP in shown)


@pytest.mark.parametrize(
    ("levels", "name"), [(12, "password"), (13, "x"), (13, "password"), (200, "x"), (100_000, "x")]
)
def test_f10_the_depth_limit_closes(levels, name):
    """
    F10: no repr of the rest, no RecursionError.
    """
    assert "FAKED" not in json.dumps(mask(nest(levels, name, "FAKED")))


def test_f10_lists_and_texts_are_levels_as_well():
    """
    F10: a thirteenth level is not reached by another kind of nesting.
    """
    inner: list[Any] = ["FAKED"]
    for _ in range(LEVELS_MAX - 1):
        inner = [inner]

    assert "FAKED" in json.dumps(mask(inner))
    assert "FAKED" not in json.dumps(mask([inner]))
    assert "FAKED" not in json.dumps(mask({"x": json.dumps(inner)}))


def test_f11_2048_keys_pass():
    """
    F11, D-046: the limit itself is inside.
    """
    wide = {f"k{i}": i for i in range(ENTRIES_MAX)}

    assert wide == mask(wide)


@pytest.mark.parametrize(
    "value",
    [
        {f"k{i}": i for i in range(ENTRIES_MAX)} | {"x": "FAKEW"},
        {f"k{i}": i for i in range(ENTRIES_MAX)} | {"password": "FAKEW"},
        [{f"k{i}": "FAKEW" if i + j == 98 else i for i in range(50)} for j in range(50)],
        [0] * ENTRIES_MAX + ["FAKEW"],
        json.dumps([0] * ENTRIES_MAX + ["FAKEW"]),
    ],
)
def test_f11_the_width_limit_counts_the_whole_tree_and_closes(value):
    """
    F11: keys and list items count alike; what is over is dropped, with a marker in its place.
    """
    shown = json.dumps(mask(value))

    assert (False, True) == ("FAKEW" in shown, TOO_MANY in shown)


@pytest.mark.parametrize(("size", "kept"), [(KEPT_BYTES_MAX - 1, True), (KEPT_BYTES_MAX, False)])
def test_kept_strings_are_bounded(size, kept):
    """
    D-047: 64 KiB with the key's one byte; one more and the string is not shown, not even in part.
    """
    text = "a " * (size // 2) + "a" * (size % 2)

    assert {"k": text if kept else TOO_LONG} == mask({"k": text})


def test_kept_strings_are_counted_together_and_in_bytes():
    """
    D-047: over the whole tree, in UTF-8; what comes after the limit is closed too.
    """
    full = "ü" * (KEPT_BYTES_MAX // 2)

    assert [full, TOO_LONG, {TOO_LONG: MASK}] == mask([full, "b", {"c": "d"}])


def test_f13_cycles_end_and_shared_values_are_masked_each_time():
    """
    F13: the guard never hands back the raw object.
    """
    a: dict[str, Any] = {"password": "FAKEC1"}
    twice = mask([a, a])
    a["self"] = a
    b: list[Any] = []
    b.append(b)

    assert [{"password": MASK}, {"password": MASK}] == twice
    assert {"x": [{"password": MASK, "self": CYCLE}] * 2, "b": [CYCLE]} == mask(
        {"x": [a, a], "b": b}
    )


@pytest.mark.parametrize(
    "text",
    [
        "com.example.service",
        "org.apache.kafka.clients",
        "application/vnd.example.v1+json",
        "claude-sonnet-4-5-20250929",
        "<task-notification>",
    ],
)
def test_f16_dotted_names_are_no_jwts(text):
    """
    F16: a JWT's header is JSON, so it starts with eyJ.
    """
    assert (text, text) == (redact(text), mask(text))


@pytest.mark.parametrize(
    "token",
    [
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJGQUtFIn0.",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJGQUtFIn0.RkFLRUZBS0U",
        "eyJhbGciOiJIUzI1NiJ9",
    ],
)
def test_f16_jwts_are_masked(token):
    """
    F16: with a signature, without one (RFC 7519 §6), or cut off.
    """
    assert f"got {MASK} back" == redact(f"got {token} back")


def test_f18_names_that_stand_as_values_are_names():
    """
    F18: the secret is under the innocent key `value`.
    """
    value: dict[str, Any] = {
        "headers": [
            {"name": "Authorization", "value": "Bearer FAKEP1"},
            {"name": "X-Api-Key", "value": "FAKEP2"},
            {"name": "Subject", "value": "Hello"},
        ],
        "raw": [["cookie", "FAKEP3"], ["accept", "*/*"]],
        "env": [{"key": "DB_PASSWORD", "val": "FAKEP4"}],
        "asgi": [(b"authorization", b"Bearer FAKEP5")],
        "argv": ["--verbose", "--password", "FAKEP6"],
    }

    shown: Any = mask(value)

    assert "FAKEP" not in json.dumps(shown)
    assert {"name": "Subject", "value": "Hello"} == shown["headers"][2]
    assert [["cookie", MASK], ["accept", "*/*"]] == shown["raw"]
    assert "FAKEP" not in redact(json.dumps(value["headers"]), 1_000)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"FAKE", {"k": b"FAKE"}, {"k": object()}])
def test_what_is_not_json_is_masked_whole(value):
    """
    D-045: no repr, which may show anything.
    """
    assert mask(value) in (MASK, {"k": MASK})


@pytest.mark.parametrize("value", [None, True, 0, -3, 2.5, "plain", [], {}, [1, [2]], {"a": {}}])
def test_plain_values_come_out_as_they_are(value):
    """
    F09: values and types.
    """
    assert value == mask(value)


def test_a_huge_number_is_no_way_around_the_bounds():
    """
    D-047: a number can be a long text as well.
    """
    assert [TOO_LONG] == mask([10**5_000])


def test_keys_are_texts_too():
    """
    D-044: a URL as a key is redacted like one as a value.
    """
    assert "FAKE" not in json.dumps(mask({"https://u:FAKE@h.example/": 1, ("FAKE",): 2}))


def test_that_there_is_no_secret_is_no_secret():
    """
    F09: `password: null` and `token: false` help an operator.
    """
    assert {"password": None, "token": False} == mask({"password": None, "token": False})


@pytest.mark.parametrize(
    ("text", "max_bytes", "cut"),
    [
        ("plain", 5, "plain"),
        ("plainer", 6, "pla…"),
        ("ééééé", 8, "éé…"),
        ("日本語日本語", 10, "日本…"),
        ("abcdef", 2, "ab"),
        ("abc", 0, ""),
        ("a\r\nb\tc\x1b[31m\u2028", 50, "a  b c [31m "),
        ("half \ud800", 50, "half ?"),
    ],
)
def test_a_string_is_cut_without_splitting_a_character(text, max_bytes, cut):
    """
    D-047, interface.md §3: one line of so many bytes of UTF-8.
    """
    assert cut == bound(text, max_bytes)


def test_a_diagnostic_string_is_bounded_by_200_bytes():
    """
    Interface.md §3: `summary` is at most 200 bytes.
    """
    assert len(redact("ä ö ü " * 10_000).encode()) <= 200


def test_a_secret_at_the_edge_of_what_is_looked_at_is_not_half_shown():
    """
    D-047: what precedes it shrinks to a mask, so the edge comes into view; the cut word is dropped.
    """
    text = "-----BEGIN X-----" + "a" * 16_330 + "-----END X----- eyJhbGciOiJub25lIn0.FAKE"

    assert "eyJ" not in redact(text)


def test_a_huge_word_is_masked_whole():
    """
    D-047: no part of one word of a megabyte is shown.
    """
    assert redact("a" * 1_000_000) == MASK


def test_redacting_twice_changes_nothing():
    """
    D-047: a summary is redacted where it is made and where it is logged.
    """
    texts = ["password=a b", 'x {"token":"a","b":1} y', "https://u:p@h.example/abcdef?q=1 ended"]

    once = [redact(text) for text in texts]

    assert once == [redact(text) for text in once]


def test_hostile_texts_end():
    """
    D-045: the steps of every pattern grow with the text and not with its square. One that backtracks
    without bound would not get through this within the suite's time-out.
    """
    hostile = [
        "-" * 60_000, "\\" * 60_000, '"' * 60_000, "a" * 60_000, "a." * 30_000, "=" * 60_000,
        "bearer " * 8_000, "<a" * 30_000, "http://" * 8_000, "a:" * 30_000, ",:" * 30_000, "@" * 60_000,
        "--BEGIN " * 7_000, "--END" * 12_000, 'https://h/"' * 5_000, "password" * 7_000, " " * 60_000,
        "bearer" + " " * 59_000, "token='" * 8_000, "eyJ" * 20_000, "&quot;" * 10_000, "--a " * 15_000,
    ]  # fmt: skip

    for text in hostile:
        assert len(json.dumps(mask([text]))) <= 4 * len(text)
        assert len(redact(text).encode()) <= 200


def test_names_are_judged_by_whole_words():
    """
    F01, F09: pairs that differ by little.
    """
    secret = ["api_key", "auth", "access tokens", "session_id", "password_hash"]
    harmless = [
        "primary_key",
        "author",
        "max tokens",
        "session_timeout",
        "password_count",
        "",
        "_",
        "7",
    ]

    assert [True] * len(secret) == [is_secret_name(name) for name in secret]
    assert [False] * len(harmless) == [is_secret_name(name) for name in harmless]
