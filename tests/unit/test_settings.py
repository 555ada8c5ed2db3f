"""Settings are read once and checked together (interface.md §2)."""

from __future__ import annotations

import socket
from ipaddress import ip_network
from pathlib import Path

import pytest
import trustme

from streams.errors import SettingsError
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.model.values import replace
from streams.settings import load
from tests.conftest import SettingsFor

TOKENS = '[{"token": "canary-token", "subject": "al", "tenants": ["acme"], "scopes": ["s"]}]'


def refusal(settings_for: SettingsFor, **overrides: object) -> list[str]:
    """The lines of the one message with which these settings are refused."""
    with pytest.raises(SettingsError) as refused:
        settings_for(**overrides)
    return str(refused.value).splitlines()


def test_defaults_are_those_of_the_contract(settings_for: SettingsFor) -> None:
    """interface.md §2 and spec §2 fix the defaults that operators rely on."""
    found = settings_for()

    assert (
        ("127.0.0.1:9092", "", 64, 3, 2, socket.gethostname()),
        (12_000, True, 512, 33_554_432, 262_144, 32, 604_800_000),
        ("127.0.0.1:8081", "127.0.0.1:8080", (), None),
    ) == (
        (
            found.brokers,
            found.prefix,
            found.partitions,
            found.replication,
            found.min_insync_replicas,
            found.worker_id,
        ),
        (
            found.session_timeout_ms,
            found.leave_on_stop,
            found.max_in_flight,
            found.max_held_bytes,
            found.max_activity_bytes,
            found.max_activity_depth,
            found.dedupe_window_ms,
        ),
        (found.health_address, found.api_address, found.tokens, found.schema_registry_url),
    )


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("notification", (5, 1_000, 60_000, 900_000, 20_000, 30_000, 3_600_000)),
        ("activity", (12, 1_000, 3_600_000, 86_400_000, 30_000, 45_000, 172_800_000)),
    ],
)
def test_policies_have_the_bounds_of_the_spec(
    settings_for: SettingsFor, name: str, bounds: tuple[int, ...]
) -> None:
    """C-02, D-014, D-015, D-016, D-017: unless somebody sets others."""
    policy = settings_for().policies[name]

    assert bounds == (
        *(policy.max_attempts, policy.first_delay_ms, policy.max_delay_ms, policy.max_elapsed_ms),
        *(policy.timeout_ms, policy.lease_ms, policy.max_age_ms),
    )
    assert (500, 20, 5) == (policy.jitter_ms, policy.max_connections, policy.max_idle)


def test_policies_are_those_of_the_model(settings_for: SettingsFor) -> None:
    """C-02: two named policies, their defaults in one place."""
    assert {"activity": ACTIVITY, "notification": NOTIFICATION} == settings_for().policies


def test_a_policy_variable_overrides_its_policy_only(settings_for: SettingsFor) -> None:
    """O-016/017: `max_attempts` is configurable, per policy."""
    found = settings_for(policy_activity_max_attempts=3).policies

    assert {
        "activity": replace(ACTIVITY, max_attempts=3),
        "notification": NOTIFICATION,
    } == found


def test_drain_defaults_to_the_longest_call_and_two_seconds(settings_for: SettingsFor) -> None:
    """interface.md §1: a clean stop waits for every call that can be in flight."""
    found = settings_for(policy_notification_timeout_ms=40_000, policy_notification_lease_ms=50_000)

    assert found.drain_ms == 42_000


def test_a_drain_of_nothing_is_kept(settings_for: SettingsFor) -> None:
    """Zero is a choice (stop at once), not a missing value."""
    assert settings_for(drain_ms=0).drain_ms == 0


@pytest.mark.parametrize(("replication", "in_sync"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_in_sync_copies_follow_from_the_replication(
    settings_for: SettingsFor, replication: int, in_sync: int
) -> None:
    """One broker must be able to die without stopping writes; below three copies that needs 1."""
    assert settings_for(replication=replication).min_insync_replicas == in_sync


def test_a_lease_shorter_than_call_and_margin_is_refused(settings_for: SettingsFor) -> None:
    """C-07: call timeout + margin < lease, checked when the settings are read."""
    assert [
        "OUTBOX_POLICY_ACTIVITY_TIMEOUT_MS: timeout_ms + 2000 ms of margin must not exceed lease_ms"
    ] == refusal(settings_for, policy_activity_timeout_ms=43_001)


def test_a_lease_of_exactly_call_and_margin_is_taken(settings_for: SettingsFor) -> None:
    """C-07: the bound itself is still right."""
    found = settings_for(policy_activity_timeout_ms=43_000)

    assert found.policies["activity"].timeout_ms == 43_000


def test_every_broken_rule_has_its_line(settings_for: SettingsFor) -> None:
    """Whoever mends settings wants all faults at once: of kinds, within and across policies."""
    lines = refusal(
        settings_for,
        partitions="many",
        prefix="no spaces",
        policy_activity_timeout_ms=60_000,
        policy_activity_max_idle=21,
        policy_notification_max_delay_ms=10,
        min_insync_replicas=4,
    )

    assert [
        "OUTBOX_MIN_INSYNC_REPLICAS",
        "OUTBOX_PARTITIONS",
        "OUTBOX_POLICY_ACTIVITY_MAX_IDLE",
        "OUTBOX_POLICY_ACTIVITY_TIMEOUT_MS",
        "OUTBOX_POLICY_NOTIFICATION_MAX_DELAY_MS",
        "OUTBOX_PREFIX",
    ] == sorted(line.partition(":")[0] for line in lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("brokers", "kafka"),
        ("brokers", "kafka:0"),
        ("brokers", "a:1,b"),
        ("prefix", "a/b"),
        ("worker_id", "wor ker"),
        ("worker_id", ".."),
        ("allow_networks", "10.0.0.1/8"),
        ("health_address", "8081"),
        ("health_address", "127.0.0.1:65536"),
        ("api_tokens", "canary-token"),
        ("api_jwks_url", "file:///keys"),
        ("schema_registry_url", "registry:8081"),
        ("activitypub_key", "canary-key"),
        ("activitypub_key_id", 'a"b'),
        ("activitypub_signing", "hmac"),
        ("partitions", 0),
        ("max_activity_bytes", 1_048_577),
        ("tls_ca_file", "/no/such/file"),
        ("log_format", "xml"),
        ("leave_on_stop", "perhaps"),
        ("policy_activity_max_attempts", 0),
        ("policy_activity_lease_ms", 2_000),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(
    settings_for: SettingsFor, name: str, value: object
) -> None:
    """The message names the variable, or nobody finds it among fifty. It holds no secret."""
    lines = refusal(settings_for, **{name: value})

    assert lines[0].startswith(f"OUTBOX_{name.upper()}: ")
    assert "canary" not in lines[0]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            {"security_protocol": "SASL_SSL", "sasl_password": "p"},
            "OUTBOX_SASL_USERNAME: must be set for OUTBOX_SECURITY_PROTOCOL SASL_...",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_username": "u"},
            "OUTBOX_SASL_PASSWORD: must be set for OUTBOX_SECURITY_PROTOCOL SASL_...",
        ),
        (
            {"sasl_username": "u"},
            (
                "OUTBOX_SECURITY_PROTOCOL: must be SASL_SSL or SASL_PLAINTEXT"
                " where OUTBOX_SASL_... is set"
            ),
        ),
        (
            {"tls_ca_file": __file__},
            "OUTBOX_SECURITY_PROTOCOL: must be SSL or SASL_SSL where OUTBOX_TLS_... is set",
        ),
        (
            {"security_protocol": "SSL", "tls_cert_file": __file__},
            "OUTBOX_TLS_KEY_FILE: must be set with OUTBOX_TLS_CERT_FILE",
        ),
        (
            {"api_jwks_url": "https://id.example/keys", "api_jwks_audience": "outbox"},
            "OUTBOX_API_JWKS_ISSUER: must be set with OUTBOX_API_JWKS_URL",
        ),
        (
            {"activitypub_key_id": "https://a.example/al#main-key"},
            "OUTBOX_ACTIVITYPUB_KEY: must be set with OUTBOX_ACTIVITYPUB_KEY_ID",
        ),
        (
            {"activitypub_key": "env:KEY"},
            "OUTBOX_ACTIVITYPUB_KEY_ID: must be set with OUTBOX_ACTIVITYPUB_KEY",
        ),
        (
            {"max_held_bytes": 1_000},
            "OUTBOX_MAX_HELD_BYTES: must hold one activity of OUTBOX_MAX_ACTIVITY_BYTES",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings_for: SettingsFor, overrides: dict[str, object], line: str
) -> None:
    """A password that silently goes unused, or a plain connection in place of TLS, is a hole."""
    assert [line] == refusal(settings_for, **overrides)


def test_networks_are_parsed(settings_for: SettingsFor) -> None:
    """C-10: private ranges are called only where a setting allows them."""
    found = settings_for(allow_networks="10.0.0.0/8, fd00::/8")

    assert (ip_network("10.0.0.0/8"), ip_network("fd00::/8")) == found.allow_networks


def test_an_empty_variable_is_one_that_is_not_set(settings_for: SettingsFor) -> None:
    """Compose files and charts write `NAME=` for "as by default"."""
    found = settings_for(partitions="", brokers="")

    assert (64, False) == (found.partitions, found.is_given("OUTBOX_BROKERS"))


def test_a_misspelt_variable_of_the_environment_is_reported(settings_for: SettingsFor) -> None:
    """It may belong to another program, so it stops nothing, but it is told."""
    assert ("OUTBOX_PARTITONS: no such setting; did you mean OUTBOX_PARTITIONS?",) == settings_for(
        partitons=3
    ).unknown


def test_a_misspelt_variable_of_an_env_file_is_refused(
    settings_for: SettingsFor, tmp_path: Path
) -> None:
    """The file is ours: a name that nobody reads there is a setting that does not work."""
    settings_for()
    file = tmp_path / "settings.env"
    file.write_text("OUTBOX_POLICY_ACTIVITY_TIMEOUT=5\nPATH=/bin\n")

    with pytest.raises(SettingsError) as refused:
        load(file)

    assert (
        "OUTBOX_POLICY_ACTIVITY_TIMEOUT: no such setting; did you mean"
        f" OUTBOX_POLICY_ACTIVITY_TIMEOUT_MS? (in {file})"
    ) == str(refused.value)


def test_the_environment_wins_over_the_env_file(settings_for: SettingsFor, tmp_path: Path) -> None:
    """As every tool does it: the file is the base, the environment the exception."""
    settings_for(partitions=4)
    file = tmp_path / "settings.env"
    file.write_text("OUTBOX_PARTITIONS=8\nOUTBOX_REPLICATION=1\nOUTBOX_POLICY_ACTIVITY_JITTER_MS=0")

    found = load(file)
    sources = {row.name: row.source for row in found.describe()}

    assert (4, 1, 0) == (found.partitions, found.replication, found.policies["activity"].jitter_ms)
    assert ("environment", "env-file", "env-file", "default") == (
        sources["OUTBOX_PARTITIONS"],
        sources["OUTBOX_REPLICATION"],
        sources["OUTBOX_POLICY_ACTIVITY_JITTER_MS"],
        sources["OUTBOX_POLICY_NOTIFICATION_JITTER_MS"],
    )


def test_an_env_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Started with half of its settings, a service would deliver to the wrong cluster."""
    with pytest.raises(SettingsError, match="there is no env-file"):
        load(tmp_path / "none.env")


def test_no_secret_is_shown(settings_for: SettingsFor) -> None:
    """D-043: planted canaries are in no row, and not in the settings' own repr."""
    found = settings_for(
        security_protocol="SASL_PLAINTEXT",
        sasl_username="al",
        sasl_password="canary-password",
        api_tokens=TOKENS,
        schema_registry_url="https://user:canary-url@registry.example/",
    )
    shown = {row.name: row.value for row in found.describe()}

    assert ("****", "****", "https://****@registry.example/") == (
        shown["OUTBOX_SASL_PASSWORD"],
        shown["OUTBOX_API_TOKENS"],
        shown["OUTBOX_SCHEMA_REGISTRY_URL"],
    )
    assert "canary" not in f"{found!r} {found} {found.describe()}"


def test_every_setting_has_a_meaning(settings_for: SettingsFor) -> None:
    """`outbox settings` explains each name that there is."""
    assert [] == [row.name for row in settings_for().describe() if not row.meaning]


def test_tokens_are_parsed(settings_for: SettingsFor) -> None:
    """interface.md §2: OUTBOX_API_TOKENS says who may ask, for whom, in which scopes."""
    (token,) = settings_for(api_tokens=TOKENS).tokens

    assert ("canary-token", "al", ("acme",), ("s",)) == (
        token.token.get_secret_value(),
        token.subject,
        token.tenants,
        token.scopes,
    )


def test_kafka_options_are_plain_by_default(settings_for: SettingsFor) -> None:
    """Nothing about users or TLS reaches a client that needs neither."""
    assert {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
    } == settings_for(brokers="a:1, b:2").kafka_options()


def test_kafka_options_hold_user_and_tls(settings_for: SettingsFor, tmp_path: Path) -> None:
    """interface.md §2: OUTBOX_SECURITY_PROTOCOL, OUTBOX_SASL_..., OUTBOX_TLS_..."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("client.example")
    client.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")

    options = settings_for(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="al",
        sasl_password="p",
        tls_ca_file=tmp_path / "ca.pem",
        tls_cert_file=tmp_path / "cert.pem",
        tls_key_file=tmp_path / "key.pem",
    ).kafka_options()
    context = options.pop("ssl_context")

    assert len(context.get_ca_certs()) == 1
    assert {
        "bootstrap_servers": ["127.0.0.1:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "al",
        "sasl_plain_password": "p",
    } == options


def test_tls_files_are_read_with_the_settings(settings_for: SettingsFor) -> None:
    """A certificate that is none is found at the start, not when the first client connects."""
    (line,) = refusal(settings_for, security_protocol="SSL", tls_ca_file=__file__)

    assert line.startswith("OUTBOX_TLS_...: the files do not give a TLS context")
