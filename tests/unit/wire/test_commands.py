"""Commands survive the wire, and what is not understood is not carried out."""

import pytest

from streams.errors import RecordError
from streams.model.ledger import FailurePhase
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import EffectMode
from streams.wire.avro import Codec
from streams.wire.commands import Cancel, LateReport, Redrive, decode_command, encode_command

REDRIVE = Redrive(letter_id="dlv_1.2", mode=EffectMode.NEW_EXTERNAL_SEND, audit_id="aud_1")
CANCEL = Cancel(letter_id="dlv_1.2", audit_id="aud_1")
LATE = LateReport(
    delivery_key=b"https://a.example/1\x00crm",
    token=b"\x02" * 16,
    judgement=Judgement(
        verdict=Verdict.RETRY,
        code="http_503",
        phase=FailurePhase.REJECTED_TRANSIENT,
        status=503,
        retry_after=("20", "Wed, 21 Oct 2026 07:28:00 GMT"),
        disables_target=True,
        provider_message_id="m-1",
    ),
)
LATE_SENT = LateReport(
    delivery_key=b"a\x00b", token=b"\x02" * 16, judgement=Judgement(verdict=Verdict.SENT, code="ok")
)


@pytest.mark.parametrize("command", [REDRIVE, CANCEL, LATE, LATE_SENT])
def test_a_command_comes_back_as_it_was_written(command):
    """
    D-065, ledger.md rule 4.
    """
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "of_tomorrow"},
        {"kind": "redrive", "mode": "of_tomorrow"},
        {"kind": "redrive"},
        {"kind": "late_report", "verdict": "of_tomorrow"},
    ],
)
def test_a_command_that_is_not_understood_is_refused(fields):
    """
    D-064: the mode decides on a second effect, so it is never guessed.
    """
    with pytest.raises(RecordError) as refused:
        decode_command(Codec("command").encode(fields))

    assert "command_unknown" == refused.value.code


def test_a_late_reports_new_failure_phase_is_read_as_effect_unknown():
    """G16."""
    value = Codec("command").encode(
        {"kind": "late_report", "verdict": "retry", "failure_phase": "of_tomorrow"}
    )

    read = decode_command(value)

    assert isinstance(read, LateReport)
    assert FailurePhase.AMBIGUOUS_POST_CALL is read.judgement.phase
