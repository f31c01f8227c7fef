"""Help: every command has one, and every option that is shared stands in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.main import COMMANDS, root


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        found.append((name,))
        command = root.get_command(click.Context(root), name)
        if isinstance(command, FlowGroup):
            found += [(name, inner) for inner in command.list_commands(click.Context(command))]
    return found


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_help_with_the_output_options(flow: Any, project: Path, words: tuple[str, ...]) -> None:
    answer = flow(*words, "--help")
    assert answer.code == 0
    assert answer.err == ""
    for option in ("--json", "--format", "--verbose", "--no-color", "--no-progress"):
        assert option in answer.out


def test_the_documented_commands_are_all_there() -> None:
    assert {" ".join(words) for words in every_command()} == {
        "list", "run", "run-due", "backfill", "gaps", "freshness-check", "preview", "dry-run", "validate", "status", "runs", "runs list", "runs show", "runs compare",
        "runs tail", "runs restart", "runs resume", "runs cancel", "scheduler", "consume", "consume-list", "stream",
        "stream status", "stream stop", "stream rewind", "stream repair", "dlq", "dlq list", "dlq show", "dlq replay",
        "dlq park", "dlq purge", "send", "retry", "pause", "unpause", "logs",
        "connections", "connections list", "connections check", "connections set", "secrets",
        "secrets test", "transform", "transform list", "transform run",
        "backends", "engine", "engine start", "engine status", "engine stop", "cluster", "cluster start", "cluster status",
        "cluster stop", "init", "doctor", "version",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["run", "status", "doctor", "consume"])
def test_commands_with_a_run_log_take_all_its_options(flow: Any, project: Path, name: str) -> None:
    answer = flow(name, "--help")
    for option in ("--module", "--run-log", "--run-log-url", "--run-log-path", "--no-run-log"):
        assert option in answer.out


def test_a_command_without_a_word_shows_help_and_is_a_usage_error(flow: Any, project: Path) -> None:
    answer = flow()
    assert answer.code == 2
    assert answer.out == ""
    titles = [line.removesuffix(":") for line in answer.err.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Options", "Build", "Run", "Schedule", "Stream", "Inspect", "Set up", "Exit codes", "Variables"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("lst",), "'list'"), (("run-s",), "'runs'"), (("runs", "shw"), "'show'"), (("valdate",), "'validate'")],
)
def test_a_mistyped_command_is_answered_with_the_nearest_one(
    flow: Any, project: Path, words: tuple[str, ...], meant: str
) -> None:
    answer = flow(*words)
    assert answer.code == 2
    assert f"did you mean {meant}?" in answer.err


def test_version_is_printed_by_the_command_and_by_the_option(flow: Any, project: Path) -> None:
    from ematix_flow import __version__

    assert flow("version").out == flow("--version").out
    assert flow("version").out.startswith(f"flow {__version__} (Python 3.")
