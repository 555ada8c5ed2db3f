"""The frame of the commands: help, JSON, exit codes, settings (interface.md §1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.__main__ import COMMANDS as FIRST_WORDS
from streams.__main__ import build
from streams.cli.common import clear_errors
from streams.errors import SettingsError, TopicsError
from tests.conftest import SettingsFor

COMMANDS = ("kafka up", "kafka down", "kafka status", "topics apply", "topics check", "settings")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command: str) -> None:
    """interface.md §1: `--help` with an example."""
    shown = CliRunner().invoke(build(), [*command.split(), "--help"])

    assert shown.exit_code == 0
    assert f"Example: outbox {command}" in shown.stdout


@pytest.mark.parametrize("command", FIRST_WORDS)
def test_a_command_is_the_same_without_the_others(command: str) -> None:
    """Only the module of the command that was typed is imported; what it says must not tell."""
    words = [command, "--help"]

    alone = CliRunner().invoke(build(words), words)

    assert (0, CliRunner().invoke(build(), words).stdout) == (alone.exit_code, alone.stdout)


@pytest.mark.parametrize("words", [["--help"], ["--env-file", "x", "worker"], ["sideways"]])
def test_where_no_command_stands_first_all_are_there(words: list[str]) -> None:
    """Help shows all, and an option of `outbox` itself may stand before the command."""
    helped = CliRunner().invoke(build(words), ["--help"])

    assert CliRunner().invoke(build(), ["--help"]).stdout == helped.stdout


@pytest.mark.parametrize("line", ["kafka up --brokers x", "kafka sideways", "topics apply --force"])
def test_wrong_usage_ends_with_two(line: str) -> None:
    """interface.md §1: 2 is wrong usage or settings."""
    assert CliRunner().invoke(build(), line.split()).exit_code == 2


@pytest.mark.parametrize(
    ("error", "code"), [(SettingsError("one\ntwo"), 2), (TopicsError("one\ntwo"), 1)]
)
def test_our_errors_are_lines_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    """A traceback tells an operator nothing and may carry content (D-043)."""
    with pytest.raises(SystemExit) as ended, clear_errors():
        raise error

    assert ended.value.code == code
    assert capsys.readouterr() == ("", "outbox: one\noutbox: two\n")


def test_settings_are_facts_with_source_and_meaning(
    settings_for: SettingsFor, tmp_path: Path
) -> None:
    """interface.md §1: `outbox settings --json`; the environment wins over the env-file."""
    settings_for(partitions=4)
    file = tmp_path / "s.env"
    file.write_text("OUTBOX_PARTITIONS=8\nOUTBOX_REPLICATION=1\n")

    shown = CliRunner().invoke(build(), ["settings", "--env-file", str(file), "--json"])
    rows = {row["name"]: row for row in json.loads(shown.stdout)}

    assert ("4", "environment") == (
        rows["OUTBOX_PARTITIONS"]["value"],
        rows["OUTBOX_PARTITIONS"]["source"],
    )
    assert {
        "name": "OUTBOX_REPLICATION",
        "value": "1",
        "source": "env-file",
        "meaning": "copies of every topic",
    } == rows["OUTBOX_REPLICATION"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_an_env_file_is_given_before_or_after_the_command(
    settings_for: SettingsFor, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Wrappers put it first, people last."""
    settings_for()
    file = tmp_path / "s.env"
    file.write_text("OUTBOX_PARTITIONS=8\n")
    words = ("settings", "--env-file", str(file))

    shown = CliRunner().invoke(build(), [words[place] for place in order])

    assert "OUTBOX_PARTITIONS=8 " in shown.stdout


def test_a_secret_is_masked(settings_for: SettingsFor) -> None:
    """D-043: settings are pasted into tickets."""
    settings_for(
        security_protocol="SASL_PLAINTEXT", sasl_username="al", sasl_password="canary-password"
    )

    shown = CliRunner().invoke(build(), ["settings"])

    assert "OUTBOX_SASL_PASSWORD=**** " in shown.stdout
    assert "canary" not in shown.output


def test_a_misspelt_variable_is_told_on_stderr(settings_for: SettingsFor) -> None:
    """It stops nothing, and stays out of the facts."""
    settings_for(partitons=4)

    shown = CliRunner().invoke(build(), ["settings", "--json"])

    assert shown.exit_code == 0
    assert "did you mean OUTBOX_PARTITIONS?" in shown.stderr
    assert len(json.loads(shown.stdout)) > 50
