"""Which names speak of a secret, however they are spelled (D-044, field cases F01, F09).

A name is split into words (camel case, separators, digits) and judged by whole words, because parts
of words mask what is harmless: `monkey` is no key, `author` no authorization, `maxTokens` a number.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HARD: Final = _words(
    "password passwords passwd pwd passphrase passphrases passcode passwort kennwort senha "
    "contrasena motdepasse secret secrets credential credentials authorization cookie cookies "
    "bearer jwt otp totp cvv cvc dsn phpsessid jsessionid sessid"
)
"""Secret wherever they stand in a name, unless the name ends in a descriptor."""

_SOFT: Final = _words(
    "token tokens auth oauth oauth2 authentication sid sig signature signatures hmac pin pem"
)
"""Secret at the end of a name only: `accessToken` is one, `token_count`, `auth-smoke` are not."""

_DESCRIPTORS: Final = _words(
    "count counts type types length len size limit max min algorithm alg policy expiry expires "
    "expired expiration ttl age enabled required present valid name names url uri endpoint "
    "strength rotation version format status at changed updated"
)
"""At the end of a name they say something about the secret and not the secret."""

_CONTENTS: Final = _words(
    "value values val string str raw header headers hex b64 base64 plain text bytes old new "
    "current previous prod live test"
)
"""At the end of a name they add nothing: `token_value` is the token."""

_COUNTED: Final = _words(
    "max min num count total prompt completion input output used remaining limit reasoning cached"
)
"""Before `tokens` they make it a number."""

_PUBLIC_KEYS: Final = _words(
    "primary idempotency foreign partition public sort cache routing natural object map json "
    "dedupe activity message record row unique composite index translation hot arrow short group "
    "lookup ledger delivery target topic kafka hash range dict unknown missing duplicate invalid "
    "the a this"
)
"""Before `key` they make it an identifier. Every other kind of key is taken for a secret."""

_PAIRS: Final = frozenset(
    {
        ("session", "id"),
        ("connection", "string"),
        ("conn", "str"),
        ("pass", "phrase"),
        ("pass", "word"),
        *(
            (kind, code)
            for kind in _words("verification security auth recovery backup access login")
            for code in ("code", "codes")
        ),
    }
)

_GLUED: Final = (
    *("password", "passwd", "passphrase", "passwort", "secret", "credential", "credentials"),
    *("apikey", "accesskey", "secretkey", "privatekey", "signingkey", "authkey", "accountkey"),
    *("authtoken", "accesstoken", "refreshtoken", "sessiontoken", "idtoken", "csrftoken"),
    *("bearertoken", "apitoken", "sessionid", "sessid", "setcookie"),
)
"""Ends of words that were written without any separator: `clientsecret`, `PGPASSWORD`."""

_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN: Final = re.compile(r"[\W_]+")
_CHARS_MAX: Final = 128


def is_secret_name(name: str) -> bool:
    """Whether the value under `name` is to be masked; any spelling, never raises.

    Only the last 128 characters of a longer name are looked at.
    """
    words = _split(name[-_CHARS_MAX:])
    if tuple(words[-2:]) in _PAIRS:
        return True
    while len(words) > 1 and words[-1] in _CONTENTS:
        words.pop()
    if not words or (len(words) > 1 and words[-1] in _DESCRIPTORS):
        return False
    return (
        any(word in _HARD or word.endswith(_GLUED) for word in words)
        or "".join(words).endswith(_GLUED)
        or _ends_in_secret(words)
    )


def _ends_in_secret(words: list[str]) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "tokens" and _COUNTED.intersection(words):
        return False
    if last in ("key", "keys"):
        return before != "" and before not in _PUBLIC_KEYS
    return last in _SOFT


def _split(name: str) -> list[str]:
    folded = unicodedata.normalize("NFKD", name)
    plain = "".join(c for c in folded if not unicodedata.combining(c))
    words = (w.rstrip("0123456789") for w in _BETWEEN.split(_HUMPS.sub(" ", plain)))
    return [word.casefold() for word in words if word]
