"""Captured logs of runs, and masking for every log handler of the process."""

from __future__ import annotations

import io
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.foundation import redact
from ematix_flow.logs import capture_pipeline_logs, logs_dir, prune_old_logs, read_run_logs
from ematix_flow.observe.logs import mask_every_log_record

RUN = "orders-20260301T120000-1"


@pytest.fixture(autouse=True)
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(project / "logs"))
    return project / "logs"


@pytest.fixture
def masking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, hook = logging.getLogRecordFactory(), threading.excepthook
    mask_every_log_record()
    yield
    logging.setLogRecordFactory(before)
    threading.excepthook = hook


def test_logs_are_in_the_users_home_unless_the_environment_says_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert logs_dir() == folder
    monkeypatch.delenv("EMATIX_FLOW_LOGS_DIR")
    assert logs_dir() == tmp_path / "home" / ".ematix-flow" / "logs"


def test_what_is_printed_and_logged_is_kept_and_still_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with capture_pipeline_logs(RUN):
        print("to stdout")
        print("to stderr", file=sys.stderr)
        logging.getLogger("shop").warning("to the %s", "log")
    print("afterwards")
    text = read_run_logs(RUN) or ""
    assert [line for line in text.splitlines() if line.startswith("to std")] == ["to stdout", "to stderr"]
    assert "WARNING shop: to the log" in text
    assert "afterwards" not in text
    seen = capsys.readouterr()
    assert seen.out == "to stdout\nafterwards\n"
    assert "to stderr" in seen.err


def test_a_secret_is_masked_even_when_it_is_printed_in_pieces() -> None:
    redact.remember_secret("canary-geheim-1")
    with capture_pipeline_logs(RUN):
        sys.stdout.write("password canary-")
        sys.stdout.write("geheim-1 printed\nlast canary-geheim-1")
        logging.getLogger("shop").warning("canary-geheim-1 %s", "postgres://a:other99@db")
    text = read_run_logs(RUN) or ""
    assert "password *** printed" in text
    assert "last ***" in text
    assert "canary-geheim-1" not in text
    assert "other99" not in text


def test_files_are_private_and_stay_in_their_folder(folder: Path) -> None:
    with capture_pipeline_logs("../../evil/run") as path:
        print("x")
    assert path is not None
    assert path.parent == folder
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert read_run_logs("../../evil/run") == "x\n"
    assert read_run_logs("never") is None


def test_a_folder_that_cannot_be_written_is_a_warning(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "taken").write_text("")
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(project / "taken" / "logs"))
    with capture_pipeline_logs(RUN) as path:
        print("goes on")
    assert path is None
    assert "cannot be kept" in caplog.text


def test_an_error_passes_through_and_the_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr, list(logging.getLogger().handlers)
    with pytest.raises(ValueError, match="mine"), capture_pipeline_logs(RUN):
        raise ValueError("mine")
    assert (sys.stdout, sys.stderr, list(logging.getLogger().handlers)) == before


def test_old_files_are_removed_and_young_ones_stay(folder: Path) -> None:
    for name, days in (("old", 40), ("young", 3)):
        with capture_pipeline_logs(name) as path:
            print("x")
        assert path is not None
        os.utime(path, (time.time() - days * 86400,) * 2)
    (folder / "other.txt").write_text("")
    assert prune_old_logs() == 1
    assert sorted(path.name for path in folder.iterdir()) == ["other.txt", "young.log"]
    assert prune_old_logs(max_age_days=1) == 1


def test_every_handler_is_masked_wherever_and_whenever_it_is_added(masking: None) -> None:
    redact.remember_secret("canary-geheim-2")
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("somebody.else")
    logger.addHandler(handler)
    try:
        raise RuntimeError("login canary-geheim-2 refused")
    except RuntimeError:
        logger.exception("with %s", "canary-geheim-2", stack_info=True)
    finally:
        logger.removeHandler(handler)
    assert "canary-geheim-2" not in said.getvalue()
    assert "with ***" in said.getvalue()
    assert "RuntimeError: login *** refused" in said.getvalue()


def test_records_without_a_secret_keep_their_arguments(masking: None) -> None:
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "x.py", 1, "%s and %d", ("a", 2), None)
    assert (record.msg, record.args) == ("%s and %d", ("a", 2))
    mask_every_log_record()  # a second time changes nothing
    odd = logging.getLogger("x").makeRecord("x", logging.INFO, "x.py", 1, "only %s", ("one", "two"), None)
    assert odd.args == ("one", "two")


def test_an_error_in_a_thread_is_written_without_the_secret() -> None:
    code = (
        "import threading\n"
        "from ematix_flow.foundation import redact\n"
        "from ematix_flow.observe.logs import mask_every_log_record\n"
        "mask_every_log_record(); redact.remember_secret('canary-geheim-3')\n"
        "def work():\n"
        "    raise RuntimeError('canary-geheim-3')\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RuntimeError: ***" in done.stderr
    assert done.stderr.count("canary-geheim-3") == 0
