"""From what a target's `signing` names to the signer that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.errors import TargetError
from streams.model.target import Signing
from streams.wire.signatures.cavage import Cavage
from streams.wire.signatures.http_message import HttpMessage
from streams.wire.signatures.keys import ED25519_PREFIX, HMAC_PREFIX, message_key
from streams.wire.signatures.standard_webhooks import StandardWebhooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.wire.signatures.signing import Signer


def signer_of(signing: Signing, secrets: Sequence[str], key_id: str) -> Signer | None:
    """Make the signer of one target, its keys read once; None where nothing is to be signed.

    Args:
        secrets: The secrets themselves, newest first; one key for an HTTP message scheme.
        key_id: Id of that key.

    Raises:
        TargetError: a secret is not of the kind that the scheme takes. Says nothing of its content.
    """
    match signing:
        case Signing.NONE:
            return StandardWebhooks(secrets) if secrets else None
        case Signing.WEBHOOKS_HMAC:
            return StandardWebhooks(_of_kind(secrets, HMAC_PREFIX, signing))
        case Signing.WEBHOOKS_ED25519:
            return StandardWebhooks(_of_kind(secrets, ED25519_PREFIX, signing))
        case Signing.RFC9421 | Signing.RFC9421_PSS:
            pss = signing is Signing.RFC9421_PSS
            return HttpMessage(message_key(_only(secrets)), key_id, pss=pss)
        case Signing.CAVAGE:
            return Cavage(message_key(_only(secrets)), key_id)


def _of_kind(secrets: Sequence[str], prefix: str, signing: Signing) -> Sequence[str]:
    if not all(secret.startswith(prefix) for secret in secrets):
        raise TargetError(f"secrets for {signing} must begin with {prefix}")
    return secrets


def _only(secrets: Sequence[str]) -> str:
    if len(secrets) != 1:
        raise TargetError("an HTTP message signature takes exactly one key")
    return secrets[0]
