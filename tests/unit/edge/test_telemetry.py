"""Log lines as machines read them: one JSON object each, on stderr, whatever stands in them."""

from __future__ import annotations

import json
import re
from enum import StrEnum

import pytest
import structlog
from structlog.testing import capture_logs

from streams.edge.telemetry import configure_logging


class Colour(StrEnum):
    RED = "red"


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def logger() -> structlog.typing.FilteringBoundLogger:
    """Made anew: one that was used remembers how it was set up."""
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log


def test_a_line_says_what_happened_how_grave_it_is_and_when(capsys):
    """O-020: alerting reads level and event."""
    configure_logging(level="INFO", as_json=True)

    logger().error("activity.dead_lettered", attempts=3, colour=Colour.RED, none=None)

    (line,) = told(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(line.pop("timestamp")))
    assert {
        "event": "activity.dead_lettered",
        "level": "error",
        "attempts": 3,
        "colour": "red",
        "none": None,
    } == line


def test_what_is_below_the_level_is_not_written(capsys):
    configure_logging(level="WARNING", as_json=True)

    logger().info("delivery.attempted")
    logger().warning("store.corrupt")

    assert ["store.corrupt"] == [line["event"] for line in told(capsys)]


@pytest.mark.parametrize(
    "value", ["\ud800", "a\nb", '"', "\x00", b"\xff", {1: 2}, 10**30, object(), float("nan")]
)
def test_whatever_stands_in_a_line_it_stays_one_line(value, capsys):
    """What cannot be encoded must neither end a worker nor forge a second line."""
    configure_logging(level="INFO", as_json=True)

    logger().info("event", value=value)

    (line,) = told(capsys)
    assert "event" == line["event"]


def test_an_exception_is_told_with_its_traceback(capsys):
    configure_logging(level="INFO", as_json=True)

    try:
        raise ValueError("why")
    except ValueError:
        logger().exception("failed")

    (line,) = told(capsys)
    assert "ValueError: why" in str(line["exception"])
    assert "error" == line["level"]


def test_an_info_line_is_put_together_as_every_other_is(capsys):
    """It has a way of its own (`_bound_logger`), which nobody who reads it may notice."""
    configure_logging(level="INFO", as_json=True)
    log, bound = logger(), logger().bind(worker="w1")

    for write in (log.info, log.warning, bound.info, bound.warning):
        write("event %d %s", 1, "x", b=1, a=None)
        write("event", b=1, level="none", timestamp="never")

    lines = [list(line.items()) for line in told(capsys)]
    unlike = [
        [(key, value) for key, value in line if key not in ("level", "timestamp")] for line in lines
    ]
    assert unlike[2:4] + unlike[6:8] == unlike[0:2] + unlike[4:6]
    keys = [[key for key, _ in line] for line in lines]
    assert keys[2:4] + keys[6:8] == keys[0:2] + keys[4:6]
    assert ["event 1 x", "event"] == [dict(line)["event"] for line in lines[:2]]
    assert ["info", "warning"] * 2 == [dict(line)["level"] for line in lines[::2]]


def test_an_info_line_can_be_caught(capsys):
    """As structlog's own can, for whose tests it is."""
    configure_logging(level="INFO", as_json=True)

    with capture_logs() as lines:
        logger().info("event", a=1)

    assert [{"event": "event", "a": 1, "log_level": "info"}] == lines
    assert [] == told(capsys)


def test_people_get_lines_of_their_own(capsys):
    configure_logging(level="INFO", as_json=False)

    logger().info("delivery.attempted", code="http_200")

    assert re.search(r"info .*delivery\.attempted .*code=http_200", capsys.readouterr().err)
