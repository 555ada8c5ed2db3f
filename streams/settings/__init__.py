"""Every setting of the product: read once, checked together, handed down as values.

Names are `OUTBOX_` and the field's name in capitals. The environment wins over the env-file. Only
`app`, `cli` and `topics` know this room; what lies below them receives numbers and policies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from dotenv import dotenv_values
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from streams.edge.failpoint import VARIABLE as FAILPOINT  # for tests: no setting, and no typo
from streams.errors import SettingsError
from streams.model.policy import ACTIVITY, NOTIFICATION, Policy
from streams.settings.variables import (
    PREFIX,
    PolicyVariables,
    Setting,
    Settings,
    Source,
    policy_prefix,
)

__all__ = ["Setting", "Settings", "load"]

_HARMLESS: Final = {
    "timeout_ms": 1,
    "max_delay_ms": 2**62,
    "max_age_ms": 2**62,
    "max_idle": 0,
}
"""Values that break no rule: put in for a broken one, so that the rules after it are checked."""


def load(env_file: Path | None = None) -> Settings:
    """Read the environment, and the env-file beneath it, and check all of it together.

    Raises:
        SettingsError: one line for each broken rule, naming its variable. Never holds a secret.
    """
    if env_file is not None and not env_file.is_file():
        raise SettingsError(f"there is no env-file {env_file}")
    in_file = _named(dotenv_values(env_file)) if env_file else set()
    in_environment = _named(os.environ)
    broken = [f"{line} (in {env_file})" for line in _unknown(in_file)]
    settings = _read(Settings, PREFIX, env_file, broken)
    policies = {p.name: _policy(p, env_file, broken) for p in (ACTIVITY, NOTIFICATION)}
    broken += _rules_across(settings)
    if broken:
        raise SettingsError("\n".join(broken))
    sources: dict[str, Source] = dict.fromkeys(in_file, "env-file")
    sources |= dict.fromkeys(in_environment, "environment")
    whole = settings.completed(policies, sources, unknown=tuple(_unknown(in_environment)))
    whole.kafka_options()  # the TLS files must be readable now, not when the first client starts
    return whole


_Model = TypeVar("_Model", bound=BaseSettings)


def _read(model: type[_Model], prefix: str, env_file: Path | None, broken: list[str]) -> _Model:
    """Read one group of variables. A wrong one is named in `broken`, and its default goes on."""
    options: dict[str, Any] = {"_env_prefix": prefix, "_env_file": env_file}
    try:
        return model(**options)
    except ValidationError as error:
        for wrong in error.errors(include_input=False, include_url=False, include_context=False):
            name = str(wrong["loc"][0])
            rule = wrong["msg"].removeprefix("Value error, ")
            broken.append(f"{prefix}{name.upper()}: {rule}")
            options[name] = model.model_fields[name].get_default(call_default_factory=True)
        return model(**options)


def _policy(defaults: Policy, env_file: Path | None, broken: list[str]) -> Policy:
    """Apply the variables of one policy to its defaults, naming every rule that breaks."""
    prefix = policy_prefix(defaults)
    given = _read(PolicyVariables, prefix, env_file, broken).model_dump(exclude_none=True)
    values = asdict(defaults) | given
    while True:
        try:
            return Policy(**values)
        except ValueError as error:
            rule = str(error).partition(": ")[2]
            field = rule.split(" ")[0]
            broken.append(f"{prefix}{field.upper()}: {rule}")
            if values.get(field) == _HARMLESS.get(field):
                return defaults
            values[field] = _HARMLESS.get(field)


def _known() -> list[str]:
    """The name of every variable that there is."""
    plain = [PREFIX + field.upper() for field in Settings.model_fields]
    return plain + [
        f"{policy_prefix(policy)}{field.upper()}"
        for policy in (ACTIVITY, NOTIFICATION)
        for field in PolicyVariables.model_fields
    ]


def _named(variables: Mapping[str, str | None]) -> set[str]:
    """Those of our variables that have a value; an empty one counts as not set."""
    given = (name.upper() for name, value in variables.items() if value)
    return {name for name in given if name.startswith(PREFIX)}


def _unknown(names: set[str]) -> list[str]:
    """Say of each name that is no setting which one it may have meant."""
    known = _known()
    lines = []
    for name in sorted(names.difference(known, {FAILPOINT})):
        near = get_close_matches(name, known, n=1)
        lines.append(f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else ""))
    return lines


def _rules_across(s: Settings) -> list[str]:
    """Check what several settings promise each other; a line for each rule that is broken."""
    tls = s.security_protocol.endswith("SSL")
    sasl = s.security_protocol.startswith("SASL")
    password = bool(s.sasl_password.get_secret_value())
    rules = (
        (
            s.min_insync_replicas <= s.replication,
            "MIN_INSYNC_REPLICAS: must not exceed OUTBOX_REPLICATION",
        ),
        (
            s.max_held_bytes >= s.max_activity_bytes,
            "MAX_HELD_BYTES: must hold one activity of OUTBOX_MAX_ACTIVITY_BYTES",
        ),
        (
            not sasl or s.sasl_username,
            "SASL_USERNAME: must be set for OUTBOX_SECURITY_PROTOCOL SASL_...",
        ),
        (not sasl or password, "SASL_PASSWORD: must be set for OUTBOX_SECURITY_PROTOCOL SASL_..."),
        (
            sasl or not (s.sasl_username or password),
            "SECURITY_PROTOCOL: must be SASL_SSL or SASL_PLAINTEXT where OUTBOX_SASL_... is set",
        ),
        (
            tls or not (s.tls_ca_file or s.tls_cert_file or s.tls_key_file),
            "SECURITY_PROTOCOL: must be SSL or SASL_SSL where OUTBOX_TLS_... is set",
        ),
        (
            s.tls_key_file or not s.tls_cert_file,
            "TLS_KEY_FILE: must be set with OUTBOX_TLS_CERT_FILE",
        ),
        (
            s.tls_cert_file or not s.tls_key_file,
            "TLS_CERT_FILE: must be set with OUTBOX_TLS_KEY_FILE",
        ),
        (
            s.activitypub_key or not s.activitypub_key_id,
            "ACTIVITYPUB_KEY: must be set with OUTBOX_ACTIVITYPUB_KEY_ID",
        ),
        (
            s.activitypub_key_id or not s.activitypub_key,
            "ACTIVITYPUB_KEY_ID: must be set with OUTBOX_ACTIVITYPUB_KEY",
        ),
        (
            bool(s.api_tls_cert_file) == bool(s.api_tls_key_file),
            "API_TLS_KEY_FILE: must be set with OUTBOX_API_TLS_CERT_FILE, and the other way round",
        ),
        (
            not s.api_jwks_url or s.api_jwks_issuer,
            "API_JWKS_ISSUER: must be set with OUTBOX_API_JWKS_URL",
        ),
        (
            not s.api_jwks_url or s.api_jwks_audience,
            "API_JWKS_AUDIENCE: must be set with OUTBOX_API_JWKS_URL (other services' tokens)",
        ),
    )
    return [PREFIX + rule for holds, rule in rules if not holds]
