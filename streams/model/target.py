"""One place to tell an activity to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from streams.model.policy import Policy

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A registered target's name. Has no `:` or `/`, so it never collides with an inbox URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where and how one delivery is called.

    Attributes:
        key: What names it in the ledger, records and metrics: the registered name, or the inbox URL.
        tenant: Whose it is.
        url: Absolute `http` or `https` URL, already validated.
        idempotent: It recognises a repeated id, so a call of unknown effect may be repeated (C-03).
        policy: Its bounds, overrides applied.
        verdicts: Overrides of the verdict table per status (C-04); values of `model.verdict.Verdict`.
        retryable: Which 4xx are tried again, in place of 408, 425 and 429; empty is the strict rule
            of O-027 (no 4xx is), None leaves the table as it is. `verdicts` win over it.
        enabled: False: its deliveries are parked.
    """

    key: str
    tenant: str
    url: str
    idempotent: bool
    policy: Policy
    verdicts: dict[int, str] = field(default_factory=dict)
    retryable: frozenset[int] | None = None
    enabled: bool = True
