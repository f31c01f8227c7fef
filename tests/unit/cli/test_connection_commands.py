"""`flow connections` and `flow doctor`: what is configured, and whether it answers."""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def configure(project: Path, text: str) -> None:
    (project / ".ematix-flow.toml").write_text(text)


def test_the_list_shows_address_and_origin_and_no_password(
    flow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(project, '[connections.lake]\nkind = "delta_local"\npath = "lake"\n')
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://ana:hunter22-secret@db.example:5433/shop")
    answer = flow("connections", "list")
    lake, warehouse = answer.out.splitlines()
    assert lake.split() == ["lake", "delta:lake", "./.ematix-flow.toml:1"]
    assert "db.example:5433/shop" in warehouse
    assert "env EMATIX_FLOW_DSN_WAREHOUSE" in warehouse
    assert "hunter22-secret" not in answer.out + answer.err + flow("connections", "list", "--json").out


def test_a_broken_entry_is_listed_with_its_problem(flow: Any, project: Path) -> None:
    configure(project, '[connections.bad]\nkind = "postgrs"\n')
    answer = flow("connections", "list")
    assert answer.code == 0
    assert "✗" in answer.out
    assert flow("connections", "list", "--json").document[0]["problem"]


def test_no_connections_is_a_sentence_and_no_failure(flow: Any, project: Path) -> None:
    for words in (("connections",), ("connections", "list"), ("connections", "check")):
        answer = flow(*words)
        assert (answer.code, answer.out) == (0, "")
        assert "flow connections set" in answer.err


def test_a_database_is_asked_a_question(flow: Any, shop: Path) -> None:
    answer = flow("connections", "check", "shop")
    assert answer.code == 0
    assert answer.out.startswith("shop: ok (sqlite:shop.db, ")


def test_a_file_that_is_no_database_fails_the_check(flow: Any, project: Path) -> None:
    (project / "not.db").write_text("plain text, and rather a lot of it\n" * 100)
    configure(project, '[connections.odd]\nkind = "sqlite"\npath = "not.db"\n')
    answer = flow("connections", "check", "odd")
    assert answer.code == 5
    assert "✗ odd:" in answer.err
    assert answer.out == ""


def test_what_is_not_there_yet_is_fine_and_the_check_does_not_make_it(flow: Any, project: Path) -> None:
    configure(
        project, '[connections.new]\nkind = "sqlite"\npath = "new.db"\n[connections.lake]\nurl = "delta://lake"\n'
    )
    answer = flow("connections", "check")
    assert answer.code == 0
    assert answer.out.count("is not there yet; the first load makes it") == 2
    assert sorted(path.name for path in project.iterdir()) == [".ematix-flow.toml"]


def test_a_lake_is_a_folder_and_not_a_file(flow: Any, project: Path) -> None:
    (project / "lake").mkdir()
    (project / "file").write_text("")
    configure(project, '[connections.lake]\nurl = "delta://lake"\n[connections.file]\nurl = "delta://file"\n')
    assert flow("connections", "check", "lake").out.startswith("lake: ok (delta:lake, ")
    answer = flow("connections", "check", "file")
    assert answer.code == 5
    assert "is a file" in answer.err


def test_a_kind_without_a_backend_is_checked_by_whether_its_port_is_open(
    flow: Any, project: Path, listener: int, closed_port: int
) -> None:
    configure(
        project,
        f'[connections.up]\nkind = "kafka"\nbootstrap_servers = "127.0.0.1:{listener},127.0.0.1:1"\n'
        f'[connections.down]\nkind = "rabbitmq"\namqp_url = "amqp://guest:hunter22@127.0.0.1:{closed_port}/"\n'
        '[connections.cloud]\nkind = "bigquery"\nproject = "p"\ndataset = "d"\n',
    )
    up, down, cloud = (flow("connections", "check", name) for name in ("up", "down", "cloud"))
    assert up.out.startswith(f"up: ok (127.0.0.1:{listener} accepts connections")
    assert (down.code, cloud.code) == (5, 0)
    assert f"no server answers at 127.0.0.1:{closed_port}" in down.err
    assert "hunter22" not in down.err
    assert cloud.out.startswith("cloud: skip (a bigquery connection cannot be checked from here")


def test_an_unknown_name_is_answered_with_the_nearest_one(flow: Any, shop: Path) -> None:
    answer = flow("connections", "check", "shp")
    assert answer.code == 5
    assert "did you mean 'shop'?" in answer.err


def test_a_connection_that_is_set_is_found_again_and_a_password_in_it_is_warned_of(flow: Any, project: Path) -> None:
    answer = flow("connections", "set", "wh", "url=postgres://ana:hunter22@db/shop")
    path = project.parent / "home" / ".ematix-flow" / "connections.toml"
    assert answer.code == 0
    assert answer.out == f"{path}\n"
    assert "warning:" in answer.err
    assert "${VARIABLE}" in answer.err
    assert "hunter22" not in answer.out + answer.err
    assert "hunter22" in path.read_text()
    listed = flow("connections", "list")
    assert listed.out.startswith("wh ")
    assert "db/shop" in listed.out
    assert "hunter22" not in listed.out
    quiet = flow("connections", "set", "wh=postgres://ana:${PGPASSWORD}@db/shop")
    assert "warning" not in quiet.err


def test_doctor_says_what_is_there_and_the_first_failures_code_is_its_own(flow: Any, shop: Path) -> None:
    answer = flow("doctor")
    lines = {line.split("  ")[0]: line for line in answer.out.splitlines()}
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in lines["python"]
    assert "2 pipelines, no circles" in lines["module"]
    assert " ok " in lines["shop"]
    configured = shop / ".ematix-flow.toml"
    configured.write_text('[connections.file]\nurl = "delta://pipelines.py"\n')
    failing = flow("doctor")
    assert failing.code == (5 if answer.code == 0 else answer.code)
    assert " fail " in next(line for line in failing.out.splitlines() if line.startswith("file"))


def test_doctor_reports_a_broken_module_a_broken_file_and_a_run_log_that_cannot_be_written(
    flow: Any, project: Path
) -> None:
    (project / "pipelines.py").write_text("1 / 0\n")
    configure(project, "[connections.wh\n")
    answer = flow("doctor", "--run-log-path", "pipelines.py/x.db", "--json")
    failed = {report["name"]: report["exit_code"] for report in answer.document if report["status"] == "fail"}
    assert {"run log": 5, "module": 3, "connections": 5}.items() <= failed.items()
    assert answer.code != 0


def test_doctor_in_an_empty_folder_skips_the_module(flow: Any, project: Path) -> None:
    reports = {report["name"]: report["status"] for report in flow("doctor", "--json").document}
    assert reports["module"] == "skip"


def test_the_check_leaves_the_database_as_it_was(flow: Any, shop: Path) -> None:
    flow("connections", "check", "shop")
    with closing(sqlite3.connect(shop / "shop.db")) as sql:
        assert [name for (name,) in sql.execute("SELECT name FROM sqlite_master")] == ["raw_people"]
