from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from streams.errors import TargetError
from streams.rules.addresses import (
    SERVICE_PORTS,
    URL_CHARS_MAX,
    Origin,
    admit_url,
    judge,
    judge_all,
    parse_url,
)

HOSTILE_URLS = [
    # C01: IPv4 inside IPv6
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::ffff:127.0.0.1]:8080/",
    "http://[::FFFF:10.0.0.1]/",
    "http://[0:0:0:0:0:ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:5::1]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    # C02: numbers
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0X7F000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2852039166/",
    "http://169.254.43518/",
    "http://0251.0376.0251.0376/",
    "http://017700000001/",
    "http://0x7f.1/",
    "http://127.0.0.0x1/",
    "http://127.0.0.1./",
    "http://127.1./",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://\u2460\u2461\u2466.1/",
    "http://127\u30020\u30020\u30021/",
    "http://256.1.1.1/",
    "http://1.2.3.4.5/",
    "http://1.2.3.08/",
    "http://4294967296/",
    "http://example.1/",
    "http://a.0x7f/",
    "http://1..1/",
    # C08: user info
    "http://example.com@169.254.169.254/",
    "https://user:s3cret@receiver.example/hook",
    "http://example.com:80@127.0.0.1:8080/",
    "https://good.example%40evil.example/",
    "http://@example.com/",
    # C12: ports
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:\u0668\u0660/",
    "http://example.com:-1/",
    "http://example.com:+80/",
    "http://example.com:8_0/",
    "http://example.com:22/",
    "http://example.com:6379/",
    "http://example.com:9092/",
    "http://example.com:80:80/",
    "http://example.com:http/",
    "http://example.com:999999999999/",
    # C13: unspecified, zone ids
    "http://0/",
    "http://0.0.0.0:9092/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[fe80::1]/",
    "http://[::1]/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    # C14: schemes and halves
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "ftp://example.com/",
    "ws://example.com/",
    "//example.com/x",
    "http:/example.com",
    "http:example.com",
    "http:///x",
    "http://",
    "http://?x",
    "http://#x",
    "http://:80/",
    "http://./",
    "javascript:alert(1)",
    "example.com",
    "",
    " http://example.com/",
    "http://example.com/\n",
    "http://example.com/a b",
    "http://exa\tmple.com/",
    "http://example.com/\r\nHost: evil",
    "http://example.com\\@evil.example/",
    "http:\\\\example.com/",
    "http://example.com/\x00",
    "http://example.com/\u2028",
    "http://example.com\u00a0/",
    "http://example.com/\ud800",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[::1]:80x/",
    "http://[not-an-address]/",
    "http://[]/",
    "http://example..com/",
    "http://.example.com/",
    "http://example.com../",
    "http://-example.com/",
    "http://example-.com/",
    "http://exa$mple.com/",
    "http://ex%61mple.com/",
    "http://\u2100.example/",
    "http://a\u200db.example/",
    "http://" + "a" * 64 + ".example/",
    "http://" + "a." * 127 + "example/",
    "http://example.com/" + "a" * URL_CHARS_MAX,
    # private and special networks, plainly
    "http://10.0.0.5/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[100::1]/",
    "http://[4000::1]/",
]

HARMLESS_URLS = {
    "HTTP://EXAMPLE.COM/x": (Origin("http", "example.com", 80), b"/x", b"example.com"),
    "https://example.com": (Origin("https", "example.com", 443), b"/", b"example.com"),
    "https://example.com?a=b": (Origin("https", "example.com", 443), b"/?a=b", b"example.com"),
    "https://example.com/x?a=b?c#d?e": (
        Origin("https", "example.com", 443),
        b"/x?a=b?c",
        b"example.com",
    ),
    "https://example.com:8443/": (
        Origin("https", "example.com", 8443),
        b"/",
        b"example.com:8443",
    ),
    "http://example.com:/": (Origin("http", "example.com", 80), b"/", b"example.com"),
    "http://example.com:443/": (Origin("http", "example.com", 443), b"/", b"example.com:443"),
    "https://example.com:0443/": (Origin("https", "example.com", 443), b"/", b"example.com"),
    "https://example.com./x": (Origin("https", "example.com", 443), b"/x", b"example.com"),
    "https://b\u00fccher.example/": (
        Origin("https", "xn--bcher-kva.example", 443),
        b"/",
        b"xn--bcher-kva.example",
    ),
    "https://fa\u00df.example/": (
        Origin("https", "xn--fa-hia.example", 443),
        b"/",
        b"xn--fa-hia.example",
    ),
    "https://example.com/\u00fc?q=\u00fc%20": (
        Origin("https", "example.com", 443),
        b"/%C3%BC?q=%C3%BC%20",
        b"example.com",
    ),
    "https://example.com/a@b:c": (Origin("https", "example.com", 443), b"/a@b:c", b"example.com"),
    "http://my_service.internal/": (
        Origin("http", "my_service.internal", 80),
        b"/",
        b"my_service.internal",
    ),
    "http://1password.com/": (Origin("http", "1password.com", 80), b"/", b"1password.com"),
    "http://0xcafe.example/": (Origin("http", "0xcafe.example", 80), b"/", b"0xcafe.example"),
    "http://8.8.8.8/": (Origin("http", "8.8.8.8", 80), b"/", b"8.8.8.8"),
    "http://134744072/": (Origin("http", "8.8.8.8", 80), b"/", b"8.8.8.8"),
    "http://010.8.8.8/": (Origin("http", "8.8.8.8", 80), b"/", b"8.8.8.8"),
    "http://[::ffff:8.8.8.8]/": (
        Origin("http", "::ffff:808:808", 80),
        b"/",
        b"[::ffff:808:808]",
    ),
    "http://[2606:4700:0:0::1111]:8080/": (
        Origin("http", "2606:4700::1111", 8080),
        b"/",
        b"[2606:4700::1111]:8080",
    ),
    "http://[64:ff9b::8.8.8.8]/": (
        Origin("http", "64:ff9b::808:808", 80),
        b"/",
        b"[64:ff9b::808:808]",
    ),
}


def test_the_table_of_hostile_urls_is_long_enough():
    """Issue 5, "Addresses": at least 80 hostile URLs."""
    assert len(set(HOSTILE_URLS)) >= 80


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_is_refused_at_admission(url):
    """
    C-10, field cases C01, C02, C08, C12, C13, C14: none of these may reach a socket.
    """
    with pytest.raises(TargetError, match=r"^url: "):
        admit_url(url, ())


@pytest.mark.parametrize(("url", "expected"), HARMLESS_URLS.items())
def test_a_harmless_url_is_read_into_what_is_dialled_and_written(url, expected):
    """
    C-10: the rules must not cost honest targets; ports, brackets and case come out canonical.
    """
    parsed = admit_url(url, ())

    assert expected == (parsed.origin, parsed.target, parsed.authority)


def test_an_error_never_repeats_the_url():
    """C-10, field case C08: user info is a password, and errors end in logs."""
    with pytest.raises(TargetError) as caught:
        parse_url("https://user:s3cret@receiver.example/hook?token=t0ken")

    assert not {"s3cret", "t0ken", "receiver"} & set(str(caught.value).replace(":", " ").split())


def test_a_url_of_the_longest_length_is_read():
    """The bound itself is allowed; one more is not (see the hostile table)."""
    url = "http://example.com/"

    assert parse_url(url + "a" * (URL_CHARS_MAX - len(url))).target.endswith(b"a")


@pytest.mark.parametrize("port", sorted(SERVICE_PORTS))
def test_a_port_of_another_service_is_refused(port):
    """C-10, field case C12: a webhook is not a port scanner."""
    with pytest.raises(TargetError, match="another service"):
        parse_url(f"https://example.com:{port}/")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.255.255", "private"),
        ("169.254.0.1", "link_local"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.64.0.0", "carrier_nat"),
        ("100.127.255.255", "carrier_nat"),
        ("0.1.2.3", "unspecified"),
        ("198.19.255.255", "benchmarking"),
        ("198.51.100.7", "documentation"),
        ("203.0.113.7", "documentation"),
        ("192.0.0.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::2", "reserved"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b:1:ffff::1", "private"),
        ("2002:c0a8:101::", "private"),
        ("2001:0:808:808::1", "reserved"),
        ("2001:2::1", "benchmarking"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff:fff::1", "documentation"),
        ("3ffe::1", "reserved"),
        ("fc00::1", "unique_local"),
        ("fdff::1", "unique_local"),
        ("fd00:ec2::254", "metadata"),
        ("fe80::1", "link_local"),
        ("febf::1", "link_local"),
        ("fec0::1", "site_local"),
        ("ff05::1", "multicast"),
        ("5f00::1", "reserved"),
        ("100::1", "reserved"),
    ],
)
def test_a_special_address_is_refused_with_its_reason(address, reason):
    """C-10: private, loopback, link-local, multicast, metadata, and what stands for them."""
    assert reason == judge(ip_address(address), ())


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:200::1",
        "2400::1",
        "3ffd::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_a_public_address_may_be_called(address):
    """C-10: the neighbours of every special range stay open."""
    assert judge(ip_address(address), ()) is None


@pytest.mark.parametrize("address", ["10.0.0.5", "::ffff:10.0.0.5", "64:ff9b::10.0.0.5", "fd12::1"])
def test_an_allowed_network_opens_its_addresses_in_every_form(address):
    """C-10: "unless allowed by a setting"."""
    allowed = (ip_network("10.0.0.0/8"), ip_network("fd12::/16"))

    assert judge(ip_address(address), allowed) is None


def test_an_allowed_network_opens_nothing_else():
    """C-10: allowing 10/8 does not allow the metadata service."""
    assert judge(ip_address("169.254.169.254"), (ip_network("10.0.0.0/8"),)) == "metadata"


@pytest.mark.parametrize(
    "addresses", [("93.184.216.34", "10.0.0.5"), ("::1", "2606:4700::1111"), ("10.0.0.5",)]
)
def test_one_forbidden_answer_spoils_the_set(addresses):
    """C-10, field case C05: the caller might try all of them, in any order."""
    assert judge_all([ip_address(each) for each in addresses], ()) is not None


def test_a_set_of_public_answers_may_be_called():
    """C-10, field case C05: the rule is about forbidden answers, not about several."""
    answers = [ip_address("93.184.216.34"), ip_address("2606:4700::1111")]

    assert judge_all(answers, ()) is None
