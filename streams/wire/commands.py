"""What is asked of the owner of a partition: a redrive, a cancel, or to note a report that came late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from streams.errors import RecordError
from streams.model.ledger import FailurePhase
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import EffectMode
from streams.wire.avro import Codec

_CODEC: Final = Codec("command")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Reopen a dead letter (D-060..069).

    Attributes:
        letter_id: The letter, `delivery_id.budget`: a second copy finds another budget (rule 11).
        mode: What is wanted (D-064).
        audit_id: The audit record written in the same transaction (D-065).
    """

    letter_id: str
    mode: EffectMode
    audit_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReport:
    """What a claim came to, reported by a worker that no longer leads (ledger.md, rule 4).

    Attributes:
        delivery_key: The delivery's ledger key.
        token: Of the claim, 16 bytes: the report counts only while the row is claimed under it.
        judgement: What the call was judged to mean.
    """

    delivery_key: bytes
    token: bytes
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Take back a delivery that is not settled.

    Attributes:
        letter_id: Delivery and budget, written as the id of the dead letter that it would have.
        audit_id: The audit record written in the same transaction.
    """

    letter_id: str
    audit_id: str


Command: TypeAlias = Redrive | Cancel | LateReport


def encode_command(command: Command) -> bytes:
    """Write a command (value of `outbox.commands`)."""
    match command:
        case Redrive():
            return _CODEC.encode(
                {
                    "kind": "redrive",
                    "letter_id": command.letter_id,
                    "mode": command.mode.value,
                    "audit_id": command.audit_id,
                }
            )
        case Cancel():
            return _CODEC.encode(
                {"kind": "cancel", "letter_id": command.letter_id, "audit_id": command.audit_id}
            )
        case LateReport():
            return _CODEC.encode(_late_report_fields(command))
        case _:
            assert_never(command)


def decode_command(value: bytes) -> Command:
    """Read a command.

    Raises:
        RecordError: as `Codec.decode`; `command_unknown` for a kind, mode or verdict that this
            version does not know. A mode is never guessed: it decides on a second effect.
    """
    record = _CODEC.decode(value)
    try:
        match record["kind"]:
            case "redrive":
                return Redrive(
                    letter_id=record["letter_id"],
                    mode=EffectMode(record["mode"]),
                    audit_id=record["audit_id"],
                )
            case "cancel":
                return Cancel(letter_id=record["letter_id"], audit_id=record["audit_id"])
            case "late_report":
                return _late_report(record)
            case _:
                raise RecordError("command_unknown", "the command's kind must be a known one")
    except ValueError:
        raise RecordError(
            "command_unknown", "the command's mode and verdict must be known ones"
        ) from None


def _late_report_fields(report: LateReport) -> dict[str, Any]:
    judged = report.judgement
    return {
        "kind": "late_report",
        "delivery_key": report.delivery_key,
        "token": report.token,
        "verdict": judged.verdict.value,
        "code": judged.code,
        "status": judged.status,
        "failure_phase": None if judged.phase is None else judged.phase.value,
        "provider_message_id": judged.provider_message_id,
        "retry_after": list(judged.retry_after),
        "disables_target": judged.disables_target,
    }


def _late_report(record: dict[str, Any]) -> LateReport:
    return LateReport(
        delivery_key=record["delivery_key"],
        token=record["token"],
        judgement=Judgement(
            verdict=Verdict(record["verdict"]),
            code=record["code"],
            phase=known_failure_phase(record["failure_phase"]),
            status=record["status"],
            retry_after=tuple(record["retry_after"]),
            disables_target=record["disables_target"],
            provider_message_id=record["provider_message_id"],
        ),
    )


def known_failure_phase(name: str | None) -> FailurePhase | None:
    """The phase of this name. One that a newer version wrote is read as "effect unknown" (G16)."""
    if name is None:
        return None
    return FailurePhase(name) if name in _PHASES else FailurePhase.AMBIGUOUS_POST_CALL


_PHASES: Final = frozenset(FailurePhase)
