"""One place, one spelling."""

import pytest

from streams.errors import RecordError
from streams.wire.inbox import canonical_inbox


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/inbox", "https://a.example/inbox"),
        ("HTTPS://A.EXAMPLE:443/inbox", "https://a.example/inbox"),
        ("http://a.example:80/Inbox", "http://a.example/Inbox"),
        ("https://a.example:/inbox", "https://a.example/inbox"),
        ("https://a.example./inbox", "https://a.example/inbox"),
        ("https://a.example/inbox/", "https://a.example/inbox/"),
        ("https://a.example/inbox#top", "https://a.example/inbox"),
        ("https://a.example", "https://a.example/"),
        ("https://a.example?x=1", "https://a.example/?x=1"),
        ("https://a.example:8443/inbox", "https://a.example:8443/inbox"),
        ("https://a.example/%7Eal/../inbox?b=1&a=2", "https://a.example/%7Eal/../inbox?b=1&a=2"),
        ("https://bücher.example/inbox", "https://xn--bcher-kva.example/inbox"),
        ("http://localhost:8000/ok", "http://localhost:8000/ok"),
        ("http://127.0.0.1:8000/ok", "http://127.0.0.1:8000/ok"),
        ("http://[::1]/inbox", "http://[::1]/inbox"),
        ("http://[0:0::1]:80/inbox", "http://[::1]/inbox"),
    ],
)
def test_a_place_has_one_spelling(url, expected):
    """
    J02, RFC 3986 §6.2: scheme, host, port; the path is untouched.
    """
    assert expected == canonical_inbox(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example/inbox",
        "//a.example/inbox",
        "http:/a.example",
        "http:///inbox",
        "ftp://a.example/inbox",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://al:canary@a.example/inbox",
        "https://good.example%40evil.example/",
        "https://a.example/in box",
        "https://a.example/in\nbox",
        "https://a.example\\inbox",
        "https://a.example:0/",
        "https://a.example:65536/",
        "https://a.example:-1/",
        "https://a.example:٨٠/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "https://a..example/",
        "https://a.example/" + "x" * 2_048,
    ],
)
def test_what_can_never_be_called_is_refused_at_admission(url):
    """
    C08, C12, C13, C14: the record is refused, not the call; the message repeats no password.
    """
    with pytest.raises(RecordError) as refused:
        canonical_inbox(url)

    assert "recipient_invalid" == refused.value.code
    assert "canary" not in str(refused.value)
