"""The kinds of value that a setting can be, and the rule that each keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr, TypeAdapter, ValidationError
from pydantic_settings import NoDecode

from streams.rules.targets import KEY_ID, SECRET_REFERENCE

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]*")


def _legal_in_kafka(text: str) -> str:
    if not _LEGAL.fullmatch(text) or text in (".", "..") or len(text) > 200:
        raise ValueError("may hold letters, digits, '.', '_' and '-' only, at most 200")
    return text


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT` (an IPv6 host in brackets).

    Raises:
        ValueError: it is not of that form.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError("must be HOST:PORT")
    return found["host"].strip("[]"), int(found["port"])


def _address(text: str) -> str:
    split_address(text)
    return text


def _addresses(text: str) -> str:
    for part in text.split(","):
        if split_address(part.strip())[1] == 0:
            raise ValueError("must be HOST:PORT[,HOST:PORT...]")
    return text


def _networks(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return tuple(ip_network(part) for part in re.split(r"[\s,]+", given.strip()))
    except ValueError as error:
        raise ValueError(f"must be networks such as 10.0.0.0/8,fd00::/8: {error}") from error


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https URL")
    return text


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path


def _reference(text: str) -> str:
    if text and not SECRET_REFERENCE.fullmatch(text):
        raise ValueError("must be env:NAME or file:/absolute/path, never the secret itself")
    return text


def _key_id(text: str) -> str:
    if text and not KEY_ID.fullmatch(text):
        raise ValueError("must be ASCII without spaces, quotes and backslashes")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who may ask the API with one bearer token, for which tenants, in which scopes."""

    token: SecretStr
    subject: str
    tenants: tuple[str, ...]
    scopes: tuple[str, ...]


_TOKENS: Final = TypeAdapter(tuple[Token, ...])


def parse_tokens(secret: SecretStr) -> tuple[Token, ...]:
    """The tokens that a valid `OUTBOX_API_TOKENS` lists."""
    text = secret.get_secret_value()
    return _TOKENS.validate_json(text) if text else ()


def _tokens(secret: SecretStr) -> SecretStr:
    try:
        parse_tokens(secret)
    except ValidationError:
        raise ValueError(  # "from None": pydantic's error holds the tokens
            'must be JSON: [{"token": "...", "subject": "...", "tenants": ["..."],'
            ' "scopes": ["notification:read"]}]'
        ) from None
    return secret


LegalName = Annotated[str, AfterValidator(_legal_in_kafka)]
Address = Annotated[str, AfterValidator(_address)]
Brokers = Annotated[str, AfterValidator(_addresses)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
ExistingFile = Annotated[Path, AfterValidator(_file)]
SecretReference = Annotated[str, AfterValidator(_reference)]
KeyId = Annotated[str, AfterValidator(_key_id)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_networks)]
Tokens = Annotated[SecretStr, AfterValidator(_tokens)]
