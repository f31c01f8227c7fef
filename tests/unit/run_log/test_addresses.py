"""Addresses of run logs, and the one that is used when nobody names one."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import ConfigError, MissingDriver
from ematix_flow.run_log import InMemoryRunLog, SqliteRunLog, default_run_log, from_url
from ematix_flow.run_log.urls import file_of


def path_of(url: str) -> Path:
    log = from_url(url)
    assert isinstance(log, SqliteRunLog)
    log.close()
    return log.path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EMATIX_FLOW_RUN_LOG_URL", raising=False)
    monkeypatch.delenv("EMATIX_FLOW_RUN_LOG_PATH", raising=False)
    return tmp_path


def test_a_plain_path_is_a_file(here: Path) -> None:
    assert path_of(f"{here}/a.db") == here / "a.db"
    assert path_of("b.db") == Path("b.db")
    assert path_of("~/c.db") == here / "home" / "c.db"


@pytest.mark.parametrize("scheme", ["sqlite:///", "sqlite://", "file://"])
def test_an_absolute_path_is_understood_behind_any_number_of_slashes(here: Path, scheme: str) -> None:
    assert path_of(f"{scheme}{here}/run_log.db").resolve() == here / "run_log.db"


@pytest.mark.parametrize(
    "url", ["sqlite:///logs/run_log.db", "sqlite://logs/run_log.db", "sqlite:///logs/run%5Flog.db"]
)
def test_a_relative_path_stays_below_the_working_directory(here: Path, url: str) -> None:
    assert path_of(url).resolve() == here / "logs" / "run_log.db"


def test_memory_keeps_nothing_between_logs() -> None:
    assert isinstance(from_url("memory://"), InMemoryRunLog)


def test_a_driver_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, module, extra in (
        ("postgres://u:hunter22@h/d", "psycopg", "runlog-postgres"),
        ("mysql://u:hunter22@h/d", "pymysql", "runlog-mysql"),
        ("duckdb:///x.duckdb", "duckdb", "runlog-duckdb"),
        ("s3://b/p", "boto3", "runlog-s3"),
        ("gcs://b/p", "google.cloud.storage", "runlog-gcs"),
        ("gcs://b/p", "google.cloud.storage.retry", "runlog-gcs"),
        ("azureblob://a/c", "azure.storage.blob", "runlog-azure"),
    ):
        monkeypatch.setitem(sys.modules, module, None)  # what an import of a package that is not there meets
        with pytest.raises(ImportError, match="not installed") as caught:
            from_url(url)
        assert isinstance(caught.value, MissingDriver)
        assert f"[{extra}]" in str(caught.value)
        assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(("url", "near"), [("sqlit:///x.db", "sqlite://"), ("postgre://h/d", "postgres://")])
def test_a_scheme_that_is_not_known_is_refused_with_the_nearest_one(url: str, near: str) -> None:
    with pytest.raises(ConfigError, match="unknown run log address") as caught:
        from_url(url)
    assert f"did you mean {near}" in str(caught.value)


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "1.5", "99999999999"])
def test_a_connect_timeout_that_is_no_number_of_seconds_is_refused(seconds: str) -> None:
    pytest.importorskip("pymysql")
    with pytest.raises(ConfigError, match=f"connect_timeout={seconds} of the run log's URL") as caught:
        from_url(f"mysql://u:hunter22@h/d?connect_timeout={seconds}")
    assert "connect_timeout=5" in str(caught.value.hint)
    assert "hunter22" not in str(caught.value)


def test_the_file_of_an_address_is_known_without_opening_it(here: Path) -> None:
    assert file_of("logs/run_log.db") == Path("logs/run_log.db")
    assert file_of(f"duckdb:///{here}/x.duckdb") == here / "x.duckdb"
    assert file_of("duckdb://:memory:") is None
    assert file_of("memory://") is None
    assert file_of("postgres://u@h/d") is None
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("url", ["", "   ", "sqlit:///x.db", "ftp://x", "sqlite://"])
def test_an_address_that_says_nothing_is_a_value_error(url: str) -> None:
    with pytest.raises(ConfigError):
        from_url(url)


def test_the_default_is_a_file_in_the_home_directory(here: Path) -> None:
    log = default_run_log()
    assert isinstance(log, SqliteRunLog)
    assert log.path == here / "home" / ".ematix-flow" / "run_log.db"
    assert default_run_log() is log


def test_the_url_variable_wins_over_the_path_variable(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(here / "by_path.db"))
    by_path = default_run_log()
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_URL", f"sqlite:///{here}/by_url.db")
    by_url = default_run_log()
    assert isinstance(by_path, SqliteRunLog)
    assert isinstance(by_url, SqliteRunLog)
    assert (by_path.path.name, by_url.path.name) == ("by_path.db", "by_url.db")


def test_a_default_that_cannot_be_opened_is_a_warning_and_nothing_more(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a_file").write_text("")
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(here / "a_file" / "run_log.db"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert default_run_log() is None
    assert "continuing without history" in str(caught[0].message)


def test_a_default_that_does_not_answer_is_waited_for_once_and_not_by_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_URL", "postgres://ana:hunter22@127.0.0.1:9/log")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [default_run_log(), default_run_log()] == [None, None]
    assert len(caught) == 1
    assert "hunter22" not in str(caught[0].message)


@pytest.mark.parametrize("url", ["postgres://h/d?schema=a;b", "mysql://h/d?table_prefix=a%20b"])
def test_a_name_that_would_become_part_of_a_statement_is_plain(url: str) -> None:
    with pytest.raises(ConfigError, match="not a plain name"):
        from_url(url)
