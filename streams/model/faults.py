"""Every way in which a call can end without an answer: its code, its stage, what to do about it.

The stage stands beside the code and nowhere else, so no line of the transport can call a fault
*before* whose code says *after* (C-05).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streams.model.observation import Fault, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNote:
    """What stands behind one fault code.

    Attributes:
        fault: The fault as observations carry it.
        advice: One line for an operator who sees the code.
    """

    fault: Fault
    advice: str


_NOTES: Final = {
    Stage.ADDRESS: {
        "request_invalid": "A header of the request holds a line break (a content type can bring "
        "one), or message_id_from has no known form; correct the activity or the target.",
        "address_forbidden": "The name leads to an address that may not be called; correct the "
        "URL, or name its network in OUTBOX_ALLOW_NETWORKS.",
    },
    Stage.POOL: {
        "pool_timeout": "Every connection of the target was busy until the deadline; it is "
        "slow, or max_connections is too low.",
        "pool_closed": "The worker was stopping; nothing to do, the delivery is tried again.",
    },
    Stage.NAME: {
        "name_not_found": "The host name does not exist; correct the URL or its DNS entry.",
        "name_temporary": "The resolver could not answer; check the worker's DNS if it goes on.",
        "name_timeout": "The resolver gave no answer before the deadline; check the worker's DNS.",
    },
    Stage.CONNECT: {
        "connect_refused": "Nothing listens on that port: the target is down, or the port wrong.",
        "connect_timeout": "No answer to the connection attempt; the target is down or a firewall "
        "drops the packets.",
        "connect_reset": "The target reset the connection before it stood.",
        "connect_unreachable": "There is no route to the target from this worker.",
        "connect_closed": "The target closed the connection, or spoke, before the request was "
        "written; a proxy without a backend does this, and a port that is not HTTP.",
        "connect_failed": "The connection could not be made here: file descriptors or local ports "
        "ran out; see the worker's limits.",
    },
    Stage.TLS: {
        "tls_certificate_expired": "The target's certificate has expired; its owner renews it.",
        "tls_certificate_invalid": "The target's certificate is not trusted; add its CA to the "
        "target, or have its owner send the whole chain.",
        "tls_name_mismatch": "The target's certificate is for another name; correct the URL.",
        "tls_failed": "The TLS handshake failed; protocol versions or ciphers may not meet, or the "
        "port does not speak TLS.",
        "tls_reset": "The target ended the connection within the TLS handshake.",
        "tls_timeout": "The TLS handshake was not done before the deadline.",
    },
    Stage.WRITE: {
        "write_failed": "The connection broke while the request was being written; check at the "
        "target whether it took effect.",
        "write_timeout": "The target did not take the whole request before the deadline; check at "
        "the target whether it took effect.",
    },
    Stage.READ: {
        "read_reset": "The target reset the connection after the request; check at the target "
        "whether it took effect.",
        "read_closed": "The target closed the connection after the request, without an answer; "
        "check at the target whether it took effect.",
        "read_timeout": "The request left and no whole answer came before the deadline; check at "
        "the target whether it took effect.",
        "read_tls_failed": "TLS broke after the request was written; the target may refuse our "
        "client certificate. Check at the target whether it took effect.",
        "stale_connection": "A kept-alive connection ended as the request was written to it; "
        "nothing proves that the target did not take it. Check there.",
    },
    Stage.PROTOCOL: {
        "protocol_malformed": "What came back is not HTTP/1.1; the port serves something else.",
        "protocol_headers_too_large": "The answer's head is over 64 KiB; the target's owner must "
        "look at it.",
        "protocol_truncated": "The answer ended within its head; check at the target whether the "
        "request took effect.",
        "protocol_interim_storm": "More than 16 interim (1xx) answers came and no final one.",
        "protocol_switched": "The target answered 101 to a request that asked for no upgrade.",
    },
}

FAULTS: Final[Mapping[str, FaultNote]] = MappingProxyType(
    {
        code: FaultNote(fault=Fault(stage=stage, code=code), advice=advice)
        for stage, notes in _NOTES.items()
        for code, advice in notes.items()
    }
)
"""Code -> its fault and advice. `docs/codes.md` is written from it."""


def fault_of(code: str) -> Fault:
    """Give the fault of `code`.

    Raises:
        KeyError: when no such code exists; a bug of ours.
    """
    return FAULTS[code].fault
