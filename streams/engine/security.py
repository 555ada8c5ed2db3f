"""How faust's client reaches the brokers: the same options as every other client of ours."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, cast

from faust.auth import SASLCredentials, SSLCredentials
from faust.types.auth import AuthProtocol, CredentialsT, SASLMechanism


def credentials(options: Mapping[str, Any]) -> CredentialsT | None:
    """faust's credentials for aiokafka's `options`; None for a plain connection."""
    context = cast("ssl.SSLContext | None", options.get("ssl_context"))
    protocol = options.get("security_protocol", "PLAINTEXT")
    if protocol == "SSL":
        return SSLCredentials(context=context)
    if protocol.startswith("SASL"):
        made = SASLCredentials(
            mechanism=SASLMechanism(options["sasl_mechanism"]),
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            ssl_context=context,
        )
        made.protocol = AuthProtocol(protocol)
        return made
    return None
