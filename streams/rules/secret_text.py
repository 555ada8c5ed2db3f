"""Secrets inside running text: found by the name before them or by their shape, and masked.

Every pattern is linear in the text: runs start at a look-behind, repeats are possessive or bounded.
Where a text leaves open how far a secret reaches, more is masked rather than less.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from streams.rules.secret_names import is_secret_name

MASK: Final = "***"
"""Stands for a secret. Has no bracket or quote, so that masking a masked text changes nothing."""

_PEM: Final = re.compile(r"(?<!-)-{2,}+\s{0,8}BEGIN\b.*?(?:--\s{0,8}END\b[^-]*-{2,}|\Z)", re.DOTALL)
"""A block with line breaks, escaped breaks or none; one without an end reaches to the end (F06)."""

_TEXT_URL: Final = re.compile(
    # A quote belongs to the URL only when an @ follows: then it stands inside a password.
    r"""[A-Za-z][A-Za-z0-9+.-]{0,15}://(?:[^\s"'<>`]|["'<>`](?=[^\s/?#]{0,128}@))+"""
)
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15})://(?P<authority>[^/?#\\]*)"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?",
    re.DOTALL,
)
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]{2,64}\]|[\w.-]{1,253})(?P<port>:[0-9]{0,5})?")
_USER_INFO: Final = re.compile(
    r"""(?<![\w.@:/+-])(?!(?:acct|mailto):)[^\s:/@"'<>]{1,64}:(?!//)[^\s"'<>]{1,256}@(?=[\w\[])"""
)
"""`user:password@host` without a scheme."""

_PAIR: Final = re.compile(
    r"""
    (?<![\w.-]) (?P<name>[\w.-]++)
    (?P<close>(?:[\\"'`\])]|&quot;|&\#3[49];){0,16}+) [ \t]{0,8}+
    (?P<sep>=>|:=|={1,3}|:(?!//)|%3[aAdD]|,)
    \s{0,64}+
    """,
    re.VERBOSE,
)
"""A name and what separates it from its value; a comma does so after a quoted name (F18)."""

_QUOTED: Final = re.compile(
    r"""[bBfFrRuU]?(?P<quote>\\*["'`]).*?(?:(?<!\\)(?P=quote)|\Z)(?:[\w"'`\\]\S*)?""", re.DOTALL
)
_LINE: Final = re.compile(r"[^\r\n]*")
_WORD: Final = re.compile(r"\S*")
_SCHEMES: Final = (
    "bearer|basic|digest|token|negotiate|ntlm|hawk|oauth|signature|apikey|api-key|dpop|gnap|mac|"
    "hmac-sha256|aws4-hmac-sha256|sharedkey|scram-sha-256|mutual|vapid|privatetoken"
)
_SCHEME_AND_WORD: Final = re.compile(rf"(?:{_SCHEMES})[ \t]+\S+", re.IGNORECASE)
_BEFORE: Final = re.compile(r"([A-Za-z]{1,24})[ \t]\Z")
_SECOND_HALVES: Final = frozenset({"key", "keys", "id", "code", "codes", "string", "phrase"})
"""Names whose meaning stands in the word before: `api key: …`."""

_ELEMENT: Final = re.compile(r"<(?P<name>[\w.:-]{1,128})(?P<rest>[^<>]{0,256})>")
_FLAG: Final = re.compile(
    r"""(?<!\S)--?(?P<name>[A-Za-z][\w-]*+)[ \t]+(?=(?P<value>"[^"]*"?|'[^']*'?|\S+))"""
)
"""The value is looked at and not consumed, here and below: it may be the next one's name."""

_USER_FLAG: Final = re.compile(r"(?<!\S)(?P<flag>-u|--user|--proxy-user)[ \t=]*\S+:\S+")
_PARAMETERS: Final = re.compile(
    rf"\b(?P<scheme>{_SCHEMES})[ \t]+[\w-]{{1,64}}=[^\r\n]*", re.IGNORECASE
)
_CREDENTIAL: Final = re.compile(
    rf"\b(?P<scheme>{_SCHEMES}|password|passwd|passphrase|secret|api[ _-]?key)"
    r"[ \t]+(?=(?P<value>[^\s,;\"'()]+))",
    re.IGNORECASE,
)
_HARMLESS: Final = frozenset(
    (
        *("header", "headers", "auth", "authentication", "authorization", "scheme", "schemes"),
        *("token", "tokens", "credential", "credentials", "realm", "missing", "invalid"),
        *("expired", "required", "rejected", "refused", "unknown", "wrong", "failed"),
    )
)
"""What follows a scheme's name in sentences about it (F09)."""

_SHAPED: Final = re.compile(
    r"""
    \beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*        # RFC 7515: a JSON header starts with eyJ
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{20,} | \bya29\.[\w.-]+ | \bSG\.[\w.-]{16,}
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}
    | \b(?:gh[oprsu]_|github_pat_|glpat-|npm_|pypi-|hf_|dop_v1_)[A-Za-z0-9_-]{10,}
    | \b(?:whsec|whsk)_[A-Za-z0-9+/=_-]+
    | \bxox[a-z]-[A-Za-z0-9-]{8,}
    """,
    re.VERBOSE,
)
_LONG: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{32,}+={0,2}")

_STEPS: Final = frozenset(
    (
        *("api", "rest", "hook", "hooks", "webhook", "webhooks", "callback", "callbacks", "post"),
        *("event", "events", "notification", "notifications", "message", "messages", "index"),
        *("service", "services", "inbox", "outbox", "shared", "sharedinbox", "shared-inbox"),
        *("user", "users", "actor", "actors", "activity", "activities", "object", "objects"),
        *("status", "statuses", "note", "notes", "follower", "followers", "following", "public"),
        *("collections", "delivery", "deliveries", "ledger", "queue", "queues", "health"),
        # What our own receiver answers by: `outbox receiver --help`.
        *("flaky", "slow", "hang", "reset", "retry-after", "redirect"),
    )
)
"""Path segments of a destination that are shown; every other one longer than three characters may
be what authenticates."""

_PLAIN_STEP: Final = re.compile(r"[\w.-]{0,3}|\*|@?[vV][0-9]{1,3}", re.ASCII)
_WORDY_STEP: Final = re.compile(r"@?[a-z]{1,12}|[0-9]{1,10}", re.ASCII)
_HASH: Final = re.compile(r"~[0-9a-f]{8}\Z")
_STEPS_MAX: Final = 12
_ESCAPED_SLASH: Final = re.compile(r"(?<!\\)\\++/")
_INVISIBLE: Final = frozenset({"Cf", "Cc", "Cs"})


def scrub(text: str, *, strict: bool) -> str:
    """`text` without its secrets.

    Args:
        text: Of any length; the time taken grows with it and with nothing else.
        strict: URLs are destinations and shown as `shown_url` shows them; otherwise they are
            content, and a path made of plain words and numbers stays readable.
    """
    text = _visible(text)
    text = _PEM.sub(MASK, text)
    text = _TEXT_URL.sub(lambda m: shown_url(m[0].rstrip(".,;:!?)]}\\"), strict=strict), text)
    text = _mask_pairs(text)
    text = _USER_INFO.sub("*@", text)
    text = _mask_elements(text)
    text = _mask_ahead(_FLAG, lambda found: is_secret_name(found["name"]), text)
    text = _USER_FLAG.sub(lambda m: f"{m['flag']} {MASK}", text)
    text = _PARAMETERS.sub(lambda m: f"{m['scheme']} {MASK}", text)
    text = _mask_ahead(_CREDENTIAL, _is_credential, text)
    text = _SHAPED.sub(MASK, text)
    return _LONG.sub(lambda m: MASK if _is_mixed(m[0]) else m[0], text)


def shown_url(url: str, *, strict: bool) -> str:
    """Scheme, host, port and a template of the path; user info, query and fragment are gone.

    Where a path segment was masked, eight digits of the path's SHA-256 tell destinations apart
    (F07).
    """
    parts = _URL.fullmatch(url)
    if parts is None:
        return MASK
    _user, at, host = parts["authority"].rpartition("@")
    rest = url[parts.end("authority") :]
    known = _HOST.fullmatch(host)
    # An @ further on, and not at the start of a segment: a password with a slash in it.
    if known is None or (known["port"] and not at and re.search(r"[^/]@", rest)):
        return f"{parts['scheme']}://*"
    return (
        f"{parts['scheme']}://{'*@' if at else ''}{host}{_path(parts['path'], strict)}"
        f"{'?*' if parts['query'] else ''}{'#*' if parts['fragment'] else ''}"
    )


def _path(path: str, strict: bool) -> str:
    stamp = _HASH.search(path)
    steps = (path[: stamp.start()] if stamp else path).replace("\\", "/").split("/")
    shown = [step if _is_shown(step, strict) else "*" for step in steps[:_STEPS_MAX]]
    if shown == steps:
        return path
    return f"{'/'.join(shown)}~{sha256(path.encode(errors='replace')).hexdigest()[:8]}"


def _is_shown(step: str, strict: bool) -> bool:
    if _PLAIN_STEP.fullmatch(step) or step.lower() in _STEPS:
        return True
    return not strict and _WORDY_STEP.fullmatch(step) is not None


def _visible(text: str) -> str:
    """One form for one name: no invisible characters, no fullwidth letters, no escaped slashes."""
    if not text.isascii() or not text.isprintable():
        folded = unicodedata.normalize("NFKC", text)
        text = "".join(
            c for c in folded if c in "\t\r\n" or unicodedata.category(c) not in _INVISIBLE
        )
    return _ESCAPED_SLASH.sub("/", text)


def _mask_pairs(text: str) -> str:
    kept: list[str] = []
    at = seen = 0
    while pair := _PAIR.search(text, seen):
        # A masked value may end in the name of the next secret: `token=password= …`.
        seen = pair.end("name")
        if pair.end() >= at and _is_secret_pair(pair):
            kept.append(text[at : pair.end()])
            at, masked = _masked_value(text, pair)
            kept.append(masked)
    return "".join((*kept, text[at:]))


def _is_secret_pair(pair: re.Match[str]) -> bool:
    name = pair["name"]
    if pair["sep"] == "," and not pair["close"]:
        return False
    if name.lower() in _SECOND_HALVES:
        before = _BEFORE.search(pair.string, max(0, pair.start() - 25), pair.start())
        name = f"{before[1]}_{name}" if before else name
    return is_secret_name(name)


def _masked_value(text: str, pair: re.Match[str]) -> tuple[int, str]:
    """Where the secret after `pair` ends (or further on), and what stands for it."""
    at = pair.end()
    if text[at : at + 1] in ("[", "{", "(", "<", "|", ">"):
        return len(text), MASK
    reach: re.Match[str] | None = None
    if pair["sep"] != ",":
        if quoted := _QUOTED.match(text, at):
            return quoted.end(), f"{quoted['quote']}{MASK}{quoted['quote']}"
        if pair["sep"] != ":" and not re.search("auth|cookie", pair["name"], re.IGNORECASE):
            reach = _SCHEME_AND_WORD.match(text, at) or _WORD.match(text, at)
    reach = reach or _LINE.match(text, at)
    return reach.end() if reach else len(text), MASK


def _mask_elements(text: str) -> str:
    """XML: what stands in an element with a secret name, up to its end tag."""
    kept: list[str] = []
    at = 0
    while element := _ELEMENT.search(text, at):
        kept.append(text[at : element.end()])
        at = element.end()
        if is_secret_name(element["name"]) and not element["rest"].endswith("/"):
            end = text.find(f"</{element['name']}", at)
            kept.append(MASK)
            at = end if end >= 0 else len(text)
    return "".join((*kept, text[at:]))


def _mask_ahead(
    pattern: re.Pattern[str], is_secret: Callable[[re.Match[str]], bool], text: str
) -> str:
    """Mask the `value` that `pattern` looks ahead at, wherever `is_secret` says so."""
    kept: list[str] = []
    at = 0
    for found in pattern.finditer(text):
        if found.start("value") >= at and is_secret(found):
            kept += (text[at : found.start("value")], MASK)
            at = found.end("value")
    return "".join((*kept, text[at:]))


def _is_credential(found: re.Match[str]) -> bool:
    value = found["value"]
    is_bearer = found["scheme"].lower() == "bearer" and len(value) >= 6
    return value.lower().rstrip(".:!?") not in _HARMLESS and (is_bearer or _is_coded(value))


def _is_coded(word: str) -> bool:
    """Whether a word is none: it has digits, capitals within, or base64's marks."""
    return len(word) >= 6 and re.search(r"[0-9+/=_]|.[A-Z]", word) is not None


def _is_mixed(run: str) -> bool:
    """Whether a long run has the look of a random token; hashes and ids in hexadecimal have not."""
    digits = sum(c.isdigit() for c in run)
    return digits >= 4 and run != run.lower() and run != run.upper()
