"""Addresses of run logs, and the one that is used when nobody names one."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import ConfigError, Unsupported
from ematix_flow.run_log import InMemoryRunLog, SqliteRunLog, default_run_log, from_url


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


@pytest.mark.parametrize(
    "url", ["postgres://u:hunter22@h/d", "mysql://h/d", "duckdb:///x", "s3://b/p", "azureblob://a/b"]
)
def test_a_store_that_is_not_offered_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(Unsupported, match="is not offered") as caught:
        from_url(url)
    assert "hunter22" not in str(caught.value)


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
