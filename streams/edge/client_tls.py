"""A target's own TLS context: our certificate towards it, and the authority that it must come from."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from streams.errors import TargetError

if TYPE_CHECKING:
    from streams.model.target import Tls


def client_context(tls: Tls) -> ssl.SSLContext:
    """Make the context of one target. Blocks on files and costs about 20 ms: once per target.

    Raises:
        TargetError: a file cannot be read, or holds no certificate or key in PEM; names the field.
    """
    field = "tls_ca_file"
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        field = "tls_cert_file, tls_key_file"
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=_refuse)
    except (ssl.SSLError, ValueError):  # OpenSSL's own words may quote what it read
        raise TargetError(f"{field}: hold no such PEM, or do not belong together") from None
    except OSError as error:
        raise TargetError(f"{field}: {error.strerror}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _refuse() -> str:
    """Stand in for the prompt that OpenSSL would open on the worker's terminal for a locked key."""
    raise ValueError("a key under a password cannot be used")
