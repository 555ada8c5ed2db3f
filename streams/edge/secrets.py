"""Secrets by reference: found in the environment or in a file, when they are needed (D-042).

No message holds more than the reference: neither the secret, nor its length, nor what was wrong in it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streams.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_BYTES_MAX: Final = 64 * 1024
"""A private key in PEM has under 8 KiB; a path to something else must not be read into memory."""


def read_secret(reference: str, environ: Mapping[str, str] | None = None) -> str:
    """Give the secret that `env:NAME` or `file:/path` names, without a trailing line break.

    Blocks: to be called from a thread. A file may be readable by others: Kubernetes mounts secrets
    so, and who else may read it is decided there.

    Args:
        environ: In place of this process's own environment.

    Raises:
        TargetError: there is none; names the reference.
    """
    kind, _, place = reference.partition(":")
    if kind == "env":
        secret = (os.environ if environ is None else environ).get(place, "")
    elif kind == "file":
        secret = _read_file(reference, Path(place))
    else:
        raise TargetError(f"secret {reference}: must be env:NAME or file:/path")
    secret = secret.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise TargetError(f"secret {reference}: is not set, or empty")
    return secret


def _read_file(reference: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Of a pipe or a terminal the read would never end.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TargetError(f"secret {reference}: is no regular file")
            content = file.read(SECRET_BYTES_MAX + 1)
        if len(content) > SECRET_BYTES_MAX:
            raise TargetError(f"secret {reference}: is over {SECRET_BYTES_MAX} bytes")
        return content.decode()
    except OSError as error:
        raise TargetError(f"secret {reference}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TargetError(f"secret {reference}: is no text in UTF-8") from None
