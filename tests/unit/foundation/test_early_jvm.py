"""A process that a command starts before its imports: taken over, replaced or ended. `cat` stands where Java does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.foundation import early_jvm

WORDS = ["run", "orders", "--module", "shop"]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that has not started anything, with a cache and logs of its own."""
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path / "logs"))
    monkeypatch.delenv(early_jvm.SWITCH, raising=False)
    monkeypatch.setattr(early_jvm, "_command", early_jvm._Command())
    early_jvm.log_file.cache_clear()
    yield
    early_jvm._end_unused()
    early_jvm.log_file.cache_clear()


def _next_process(monkeypatch: pytest.MonkeyPatch) -> early_jvm.JvmProcess | None:
    monkeypatch.setattr(early_jvm, "_command", early_jvm._Command())
    early_jvm.start_early(WORDS)
    return early_jvm._command.started


def _launched(*more: str, **variables: str) -> early_jvm.JvmProcess:
    return early_jvm.launch(["/bin/cat", *more], {**os.environ, "SPARK_HOME": "/spark", **variables})


def _run_once() -> None:
    early_jvm.start_early(WORDS)
    _launched().end()


def test_the_second_command_takes_over_what_was_started_early(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_once()
    early = _next_process(monkeypatch)
    assert early is not None
    taken = _launched()
    assert taken is early
    assert taken.process.poll() is None
    taken.end()


@pytest.mark.parametrize(("words", "variables"), [(("-u",), {}), ((), {"SPARK_HOME": "/another"})])
def test_another_command_or_environment_gets_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    _run_once()
    early = _next_process(monkeypatch)
    assert early is not None
    taken = _launched(*words, **variables)
    assert taken is not early
    assert early.process.poll() is not None
    taken.end()


def test_what_is_not_needed_is_ended_and_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_once()
    early = _next_process(monkeypatch)
    assert early is not None
    early_jvm._end_unused()
    assert early.process.poll() is not None
    assert not early.file.parent.exists()
    assert _next_process(monkeypatch) is None


def test_variables_of_a_module_are_not_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    early_jvm.start_early(WORDS)
    _launched(MODULE_PASSWORD="moonlight").end()
    assert not list((tmp_path / "cache").rglob("*.json"))
    assert _next_process(monkeypatch) is None


def test_a_record_is_for_its_owner_and_for_this_build_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _run_once()
    (record,) = (tmp_path / "cache" / "early").glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(early_jvm, "build_identity", lambda: {"newest": 1})
    assert _next_process(monkeypatch) is None


@pytest.mark.parametrize("broken", ["", "[]", '{"command": 1}', '{"build": {}, "command": ["/gone"], "variables": {}}'])
def test_a_broken_record_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str) -> None:
    _run_once()
    (record,) = (tmp_path / "cache" / "early").glob("*.json")
    record.write_text(broken, encoding="utf-8")
    assert _next_process(monkeypatch) is None


def test_old_records_go(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "early"
    folder.mkdir(parents=True)
    for number in range(150):
        (folder / f"{number}.json").write_text("{}", encoding="utf-8")
    _run_once()
    assert len(list(folder.glob("*.json"))) == 100


def test_other_commands_and_the_switch_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_once()
    monkeypatch.setattr(early_jvm, "_command", early_jvm._Command())
    early_jvm.start_early(["runs", "list"])
    assert early_jvm._command.started is None
    monkeypatch.setenv(early_jvm.SWITCH, "off")
    assert _next_process(monkeypatch) is None
