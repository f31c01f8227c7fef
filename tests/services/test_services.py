"""The test servers themselves: usable, separate, for this machine only, and gone when their run is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from tests.services.built import RECIPES, build, product
from tests.services.server import ServiceMissing

ROOT = Path(__file__).resolve().parents[2]


def _connect_mysql(url: str) -> pymysql.Connection:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=parts.password, database=parts.path[1:]
    )


def test_postgres_speaks_utf8_and_its_user_may_do_everything(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        facts = connection.execute(
            "SELECT current_setting('server_encoding'), current_setting('is_superuser'), current_setting('fsync')"
        ).fetchone()
    assert facts == ("UTF8", "on", "off")


def test_a_fresh_postgres_database_is_empty(fresh_postgres: str, postgres_url: str) -> None:
    assert fresh_postgres != postgres_url
    with psycopg.connect(fresh_postgres) as connection:
        count = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert count == (0,)


@pytest.mark.parametrize(("fixture", "version"), [("fresh_mariadb", "MariaDB"), ("fresh_mysql8", "8.0.15")])
def test_a_fresh_mysql_database_keeps_any_character(request: pytest.FixtureRequest, fixture: str, version: str) -> None:
    with _connect_mysql(request.getfixturevalue(fixture)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version(), @@local_infile")
        ((spoken, local_infile),) = cursor.fetchall()
        assert version in spoken
        assert local_infile == 1
        cursor.execute("CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
        cursor.execute("INSERT INTO words VALUES ('žluť 🦊')")
        cursor.execute("SELECT word FROM words")
        assert cursor.fetchall() == (("žluť 🦊",),)


def test_a_server_ends_when_its_run_is_killed(postgres_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "EMATIX_FLOW_TEST_SERVICES"}
    run = subprocess.Popen(
        [sys.executable, "-c", "from tests.services import *; print(start_postgres().url, flush=True); input()"],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    url = run.stdout.readline().strip()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    deadline = time.monotonic() + 20
    while _answers(url) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _answers(url)
    assert _answers(postgres_url)


def _listeners(url: str) -> set[str]:
    """The addresses on which somebody listens at the port of this URL, as the kernel writes them."""
    port = f"{urlsplit(url).port:04X}"
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {words[1].partition(":")[0] for words in lines if words[1].endswith(f":{port}") and words[3] == "0A"}


@pytest.mark.parametrize("fixture", ["s3_url", "azure_url", "gcs_url"])
def test_an_object_store_listens_on_loopback_only(request: pytest.FixtureRequest, fixture: str) -> None:
    assert _listeners(request.getfixturevalue(fixture)) == {"0100007F"}


def test_a_tool_that_is_missing_is_a_reason_and_not_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "jars"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for recipe in RECIPES.values():
        with pytest.raises(ServiceMissing, match="make servers"):
            product(recipe)
        with pytest.raises(ServiceMissing, match=f"built with {recipe.tool}"):
            build(recipe)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
