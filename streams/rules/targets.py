"""From what operators and producers wrote of a target to the target that is called, or why none is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from streams.errors import TargetError
from streams.model.policy import Policy
from streams.model.target import NAME_PATTERN, Target
from streams.rules.verdict import OVERRIDES

OVERRIDABLE: Final = frozenset(f.name for f in fields(Policy) if f.name != "name")
"""Fields of a policy that a target may override (C-02)."""


def inbox_target(url: str, tenant: str, policies: Mapping[str, Policy]) -> Target:
    """An activity's inbox URL as a target: the `activity` policy, idempotent (C-03)."""
    return Target(key=url, tenant=tenant, url=url, idempotent=True, policy=policies["activity"])


def registered_target(
    *,
    name: str,
    tenant: str,
    url: str,
    idempotent: bool,
    policy: str,
    policy_overrides: Mapping[str, int],
    policies: Mapping[str, Policy],
    **more: Any,
) -> Target:
    """A registered target, everything checked but its URL (`rules.addresses.admit_url` does that).

    Args:
        more: Further fields of `Target`.

    Raises:
        TargetError: naming the rule broken.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise TargetError(
            "name: must be 1 to 64 letters, digits, dots, underscores and dashes, and start with a "
            "letter or digit"
        )
    if policy not in policies:
        raise TargetError(f"policy: must be one of {', '.join(sorted(policies))}")
    verdicts = more.get("verdicts", {})
    for status, verdict in verdicts.items():
        if not 100 <= status <= 599 or verdict not in OVERRIDES:
            raise TargetError(
                f"verdicts: must map a status of 100 to 599 to one of {', '.join(sorted(OVERRIDES))}"
            )
    return Target(
        key=name,
        tenant=tenant,
        url=url,
        idempotent=idempotent,
        policy=overridden(policies[policy], policy_overrides),
        **more,
    )


def overridden(policy: Policy, overrides: Mapping[str, int]) -> Policy:
    """A policy with some fields replaced, checked as a whole.

    Raises:
        TargetError: an unknown field, or a rule of `Policy` broken.
    """
    if not overrides:
        return policy
    for name in overrides:
        if name not in OVERRIDABLE:
            raise TargetError(
                f"policy field {name!r}: must be one of {', '.join(sorted(OVERRIDABLE))}"
            )
    try:
        return replace(policy, name=policy.name, **overrides)
    except ValueError as error:
        raise TargetError(str(error)) from None
