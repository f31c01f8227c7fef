"""Addresses of every store: what they mask, what they refuse, and how soon."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log import Interval, RunLog, RunRecord, from_url
from ematix_flow.run_log.blob import objects
from ematix_flow.run_log.duckdb import DuckDBRunLog
from ematix_flow.run_log.sql import migrations
from tests.run_log_contract.places import SHARED_STORES, Place
from tests.services.object_stores import AZURE_ACCESS, AZURE_ACCOUNT, PLACE, S3_ACCESS

shared = pytest.mark.parametrize("place", SHARED_STORES, indirect=True)


@shared
def test_what_one_log_writes_another_of_the_same_address_reads(place: Place, run_log: RunLog) -> None:
    run_log.set_paused("orders", True, "ana")
    with closing(from_url(place.url)) as other:
        assert set(other.paused()) == {"orders"}


def test_a_closed_log_opens_again_when_it_is_used(place: Place, run_log: RunLog) -> None:
    run_log.set_paused("orders", True, "ana")
    run_log.close()
    assert set(run_log.paused()) == {"orders"}


NOBODY = {
    "postgres": "postgres://ana:hunter22@127.0.0.1:9/shop",
    "mysql": "mysql://ana:hunter22@127.0.0.1:9/shop",
    "s3": "s3://bucket/prefix?endpoint=http://127.0.0.1:9&region=us-east-1",
    "azureblob": "azureblob://account/container/prefix?endpoint=http://127.0.0.1:9",
    "gcs": "gcs://bucket/prefix?endpoint=http://127.0.0.1:9",
}


@pytest.mark.parametrize("store", NOBODY)
def test_a_store_that_does_not_answer_is_one_sentence_within_a_minute(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**S3_ACCESS, "AZURE_STORAGE_KEY": "aHVudGVyMjI="}.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="cannot be reached") as caught:
        from_url(NOBODY[store])
    assert time.monotonic() - began < 60
    assert "hunter22" not in str(caught.value)
    assert "--no-run-log" in str(caught.value)


def test_a_wrong_password_is_refused_and_shown_nowhere(fresh_postgres: str, fresh_mariadb: str) -> None:
    for url in (fresh_postgres, fresh_mariadb):
        with pytest.raises(PermissionDenied) as caught:
            from_url(url.replace("flow:flow@", "flow:hunter22@"))
        assert "hunter22" not in str(caught.value) + repr(caught.value)


def test_a_wrong_key_is_refused_and_shown_nowhere(s3_url: str, azure_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "flow")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter22-hunter22")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "aHVudGVyMjItaHVudGVyMjI=")
    for url in (
        f"s3://{PLACE}/x?endpoint={s3_url}&region=us-east-1",
        f"azureblob://{AZURE_ACCOUNT}/{PLACE}/x?endpoint={azure_url}",
    ):
        with pytest.raises(PermissionDenied) as caught:
            from_url(url)
        assert "hunter22" not in str(caught.value)
        assert "aHVudGVyMjI" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(
    s3_url: str, azure_url: str, gcs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**S3_ACCESS, **AZURE_ACCESS}.items():
        monkeypatch.setenv(name, value)
    for url in (
        f"s3://nowhere/x?endpoint={s3_url}&region=us-east-1",
        f"azureblob://{AZURE_ACCOUNT}/nowhere/x?endpoint={azure_url}",
        f"gcs://nowhere/x?endpoint={gcs_url}",
    ):
        with pytest.raises(ConnectionFailed, match="nowhere") as caught:
            from_url(url)
        assert not isinstance(caught.value, Unreachable)


def test_credentials_in_an_object_stores_url_are_refused_without_being_quoted() -> None:
    with pytest.raises(FlowError, match="do not belong") as caught:
        from_url("s3://ana:hunter22@bucket/prefix")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://b/p?regoin=eu", "gcs://", "azureblob://account", "mysql://h/", "duckdb://"])
def test_an_address_that_says_too_little_or_too_much_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|names no"):
        from_url(url)


def test_a_secret_in_a_record_or_an_interval_is_masked_before_it_is_stored(place: Place, run_log: RunLog) -> None:
    begun = datetime(2026, 1, 1, tzinfo=timezone.utc)
    said = "cannot reach postgres://ana:hunter22@db/shop"
    run_log.record_run_record(RunRecord("r", "orders", "failed", begun, begun, error_summary=said))
    run_log.record_intervals("orders", [Interval(begun, begun + timedelta(days=1), "failed", error=said)])
    told = json.dumps([str(run_log.get_run("r")), str(run_log.intervals("orders"))])
    assert "hunter22" not in told
    assert "***" in told


@shared
def test_a_run_log_of_a_later_version_is_refused(
    place: Place, run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_log.close()
    monkeypatch.setattr(migrations, "VERSIONS", migrations.VERSIONS[:1])
    monkeypatch.setattr(objects, "VERSION", 0)
    with pytest.raises(ConnectionFailed, match=r"has version \d, and this program knows versions up to \d"):
        from_url(place.url)


def test_without_leave_to_make_tables_none_are_made(tmp_path: Path, fresh_postgres: str) -> None:
    for url in (f"duckdb:///{tmp_path}/new.duckdb", f"{fresh_postgres}?schema=unmade", fresh_postgres):
        separator = "&" if "?" in url else "?"
        with pytest.raises(ConnectionFailed, match="has no tables"):
            from_url(f"{url}{separator}create_tables=false")
    DuckDBRunLog(tmp_path / "made.duckdb").close()
    with closing(from_url(f"duckdb:///{tmp_path}/made.duckdb?create_tables=false")) as log:
        assert log.paused() == {}


def test_a_password_from_the_environment_is_filled_in_and_masked(
    fresh_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_PASSWORD", "flow")
    url = fresh_postgres.replace("flow:flow@", "flow:${LOG_PASSWORD}@")
    with closing(from_url(f"{url}?schema=masked")) as log:
        assert log.last_runs() == {}
    assert "flow:***@" in mask("postgres://flow:flow@db/shop")


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_a_connection_that_the_server_ended_is_opened_again(place: Place, run_log: RunLog) -> None:
    run_log.set_paused("orders", True, "ana")
    with closing(from_url(place.url)) as other, pytest.raises(FlowError):
        _end_all_connections(place, other)
    assert set(run_log.paused()) == {"orders"}


def _end_all_connections(place: Place, log: RunLog) -> None:
    with log._transaction() as sql:  # type: ignore[attr-defined]
        if place.store == "postgres":
            sql.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "ORDER BY pid = pg_backend_pid()")  # fmt: skip
            return
        mine = sql.one("SELECT CONNECTION_ID()")[0]
        others = sql.rows("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> ?", mine)
        for (number,) in [*others, (mine,)]:
            sql.run(f"KILL {number}")
