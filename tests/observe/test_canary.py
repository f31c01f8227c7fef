"""Canary secrets are planted, runs succeed and fail, and every artefact is searched for them.

The password of a database user, a webhook's key and a lineage server's key are known only by reference. Nothing that the
product writes, sends or starts may hold one of them: output, run log, the target's own tables, event log and
configuration of Spark, process arguments, alerts, metrics, traces, lineage, captured logs.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tests.observe.listener import Listener

pytestmark = pytest.mark.timeout(900)

PASSWORD = "Canary!p@ss/w%41rd#77-database"
HOOK_KEY = "canary-hook-key-5512"
LINEAGE_KEY = "canary-lineage-key-8123"
CANARIES = tuple(
    spelling
    for secret in (PASSWORD, HOOK_KEY, LINEAGE_KEY)
    for spelling in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
)
FLOW = (sys.executable, "-m", "ematix_flow.cli")

MODULE = """
import logging
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class shop:
    kind = "postgres"
    url = "{url}"


@ematix.connection
class strangers:
    kind = "postgres"
    url = "{wrong}"


@ematix.table(schema="marts")
class People:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=People, source_connection="shop", target_connection="shop", mode="merge")
def people(conn):
    return "SELECT id, name FROM raw_people"


@ematix.pipeline(target=People, source_connection="shop", target_connection="shop", mode="merge",
                 force_path="cross_db", force_lane="spark")
def by_spark(conn):
    return "SELECT id, name FROM raw_people"


@ematix.pipeline(target=People, source_connection="shop", target_connection="shop", mode="merge")
def bad_sql(conn):
    return "SELECT id, nmae FROM raw_people"


@ematix.pipeline(target=People, source_connection="strangers", target_connection="shop", mode="merge")
def refused(conn):
    return "SELECT id, name FROM raw_people"


@ematix.pipeline(target=People, source_connection="shop", target_connection="shop", mode="merge")
def talkative(conn):
    from ematix_flow.config import resolve_dsn

    logging.getLogger("talkative").error("the address is %s", resolve_dsn("shop"))
    raise RuntimeError(f"cannot use {{resolve_dsn('shop')}}")
"""

SETTINGS = """
[alerters.hook]
url = "{listener}/hook"
headers = {{ Authorization = "Bearer ${{HOOK_KEY}}" }}

[lineage]
url = "{listener}/lineage?api_key=${{LINEAGE_KEY}}"

[metrics]
url = "stdout://"

[spark]
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://{events}"
"""

OBSERVED = """
import logging, sys
logging.basicConfig(level=logging.INFO)

import pipelines
from ematix_flow.declare import registry
from ematix_flow.engine.batch import pipeline_run
from ematix_flow.logs import capture_pipeline_logs
from ematix_flow.observe.logs import mask_every_log_record
from ematix_flow.observe.settings import ObserverOptions, requested_observers

mask_every_log_record()
watching = requested_observers(ObserverOptions(traces="otel://stdout"), warn=lambda text: print("warning:", text, file=sys.stderr))
for name in ("people", "bad_sql", "refused", "talkative", "people"):
    spec = registry.get_pipeline(name).spec
    try:
        with capture_pipeline_logs(f"{name}-1"), watching.watching(spec) as watch:
            watch.succeeded(pipeline_run.run(spec, listener=watch.listener).to_dict())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0], file=sys.stderr)
watching.close()
"""


@contextlib.contextmanager
def process_arguments() -> Iterator[set[str]]:
    """The arguments of every process of this machine while the block lasts."""
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    with contextlib.suppress(OSError):
                        seen.add((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join(5)


def found_in(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


def files_with_canaries(*folders: Path, but: Path) -> list[str]:
    guilty = []
    for folder in folders:
        for path in folder.rglob("*"):
            if not path.is_file() or path == but:
                continue
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            if found_in(data.decode(errors="replace")):
                guilty.append(str(path))
    return guilty


@pytest.fixture(scope="module")
def database(fresh_postgres: str) -> Iterator[str]:
    """A user whose password is a canary, and a table to load from."""
    with psycopg.connect(fresh_postgres, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE canary_user LOGIN PASSWORD '{PASSWORD}'".encode())
        admin.execute(f"GRANT ALL ON DATABASE {urlsplit(fresh_postgres).path[1:]} TO canary_user".encode())
        admin.execute("GRANT ALL ON SCHEMA public TO canary_user")
        admin.execute("CREATE TABLE raw_people AS SELECT g AS id, 'n' || g AS name FROM generate_series(1, 500) g")
        admin.execute("GRANT ALL ON raw_people TO canary_user")
        yield fresh_postgres
        admin.execute("REASSIGN OWNED BY canary_user TO CURRENT_USER")
        admin.execute("DROP OWNED BY canary_user")
        admin.execute("DROP ROLE canary_user")


@pytest.fixture
def canary_project(project: Path, database: str, listener: Listener, tmp_path: Path) -> dict[str, str]:
    """A project whose secrets are references; the environment to run it in."""
    parts = urlsplit(database)
    address = f"{parts.hostname}:{parts.port}{parts.path}"
    secret = tmp_path / "db_password"
    secret.write_text(PASSWORD + "\n")
    url = f"postgres://canary_user:${{file:{secret}}}@{address}"
    (project / "pipelines.py").write_text(MODULE.format(url=url, wrong=url.replace("canary_user", "nobody_at_all")))
    (project / "observed.py").write_text(OBSERVED)
    events, temporary = tmp_path / "events", tmp_path / "temporary"
    events.mkdir()
    temporary.mkdir()
    (project / ".ematix-flow.toml").write_text(SETTINGS.format(listener=listener.url, events=events))
    return {
        **os.environ,
        "HOOK_KEY": HOOK_KEY,
        "LINEAGE_KEY": LINEAGE_KEY,
        "TMPDIR": str(temporary),
        "EMATIX_FLOW_LOGS_DIR": str(tmp_path / "logs"),
        "EMATIX_FLOW_RUN_LOG_PATH": str(tmp_path / "run_log.db"),
        "EMATIX_FLOW_CACHE": os.environ.get("EMATIX_FLOW_CACHE", str(REAL_CACHE)),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


REAL_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ematix-flow"


def everything_in(url: str) -> str:
    """Every row of every table outside the system's own."""
    with psycopg.connect(url) as admin:
        tables = admin.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        rows = [admin.execute(f"SELECT t::text FROM {name} t".encode()).fetchall() for (name,) in tables]
    assert tables
    return repr(rows)


def texts_of(requests: Listener) -> str:
    """What other systems were told; a header that carries a key to its own server is its business."""
    return "\n".join(f"{one.path.partition('?')[0]} {one.text}" for one in requests.requests)


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400, check=False)


def test_no_canary_is_in_anything_the_command_leaves_behind(
    canary_project: dict[str, str], database: str, listener: Listener, tmp_path: Path
) -> None:
    with process_arguments() as arguments:
        done = [
            run(canary_project, *FLOW, "run", "by_spark", "--verbose"),
            run(canary_project, *FLOW, "run", "people", "--force-path", "cross_db"),
            run(canary_project, *FLOW, "run", "people", "--json"),
            run(canary_project, *FLOW, "run", "bad_sql", "refused", "talkative", "--verbose"),
            run(canary_project, *FLOW, "run", "bad_sql", "refused", "talkative", "--json"),
            run(canary_project, *FLOW, "runs", "list"),
            run(canary_project, *FLOW, "runs", "list", "--json"),
            run(canary_project, *FLOW, "connections", "list", "--json"),
            run(canary_project, *FLOW, "secrets", "test", f"file:{tmp_path / 'db_password'}"),
        ]
    codes = [one.returncode for one in done]
    assert codes[:3] == [0, 0, 0], "".join(one.stderr for one in done[:3])
    assert all(codes[3:5])
    assert codes[5:] == [0, 0, 0, 0]
    assert "500 rows in" in done[0].stdout
    assert "the address is postgres://canary_user:***@" in done[3].stderr
    assert "cannot use postgres://canary_user:***@" in done[3].stderr
    written = "".join(one.stdout + one.stderr for one in done)
    assert found_in(written) == []
    assert list((tmp_path / "events").iterdir()), "Spark wrote no event log, so nothing was searched"
    assert files_with_canaries(tmp_path, but=tmp_path / "db_password") == []
    assert found_in(everything_in(database)) == []
    assert found_in(texts_of(listener)) == []
    assert any("ematix_flow.cli" in one for one in arguments)
    assert found_in("\n".join(arguments)) == []


def test_no_canary_is_in_anything_that_observers_receive(
    canary_project: dict[str, str], database: str, listener: Listener, tmp_path: Path
) -> None:
    with process_arguments() as arguments:
        began = time.monotonic()
        done = run(canary_project, sys.executable, "observed.py")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 300
    hooks = [one.json for one in listener.requests if one.path == "/hook"]
    assert sorted((one["pipeline"], one["kind"]) for one in hooks) == [
        ("bad_sql", "failed"), ("refused", "failed"), ("talkative", "failed"),
    ]  # fmt: skip
    assert all(one.headers["Authorization"] == f"Bearer {HOOK_KEY}" for one in listener.requests if one.path == "/hook")
    lineage = [one.json for one in listener.requests if one.path == "/lineage"]
    assert [one["eventType"] for one in lineage] == ["START", "COMPLETE", *["START", "FAIL"] * 3, "START", "COMPLETE"]
    assert {one["headers"] for one in [{"headers": one.headers.get("Authorization")} for one in listener.requests if one.path == "/lineage"]} == {f"Bearer {LINEAGE_KEY}"}  # fmt: skip
    assert 'pipeline_runs_total{pipeline="people",outcome="success"} 2' in done.stderr
    assert '"flow.pipeline.name": "talkative"' in done.stderr
    assert "the address is postgres://canary_user:***@" in done.stderr
    captured = sorted((tmp_path / "logs").iterdir())
    assert [path.name for path in captured] == ["bad_sql-1.log", "people-1.log", "refused-1.log", "talkative-1.log"]
    assert "the address is postgres://canary_user:***@" in captured[-1].read_text()
    assert found_in(done.stdout + done.stderr) == []
    assert found_in(texts_of(listener)) == []
    assert files_with_canaries(tmp_path, but=tmp_path / "db_password") == []
    assert found_in(everything_in(database)) == []
    assert found_in("\n".join(arguments)) == []
