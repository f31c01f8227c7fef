"""Installed as a user does it: the wheel in an environment outside of the repository, with the extras it was asked for."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.e2e.installed import Environment, build

CONNECTIONS = {
    "postgres": 'kind = "postgres"\nurl = "postgres://ana:hunter22@127.0.0.1:9/shop"',
    "mysql": 'kind = "mysql"\nurl = "mysql://ana:hunter22@127.0.0.1:9/shop"',
    "sqlite": 'kind = "sqlite"\npath = "shop.db"',
    "duckdb": 'kind = "duckdb"\npath = "shop.duckdb"',
    "kafka": 'kind = "kafka"\nbootstrap_servers = "127.0.0.1:9"',
    "rabbitmq": 'kind = "rabbitmq"\nurl = "amqp://ana:hunter22@127.0.0.1:9/"',
    "pubsub": 'kind = "pubsub"\nproject_id = "shop"',
    "kinesis": 'kind = "kinesis"\nstream_name = "orders"\nregion = "us-east-1"',
}
"""Of each extra for a system a connection that needs it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_a_new_project_runs_and_its_history_is_listed(built: tuple[Path, Path], tmp_path: Path) -> None:
    user = Environment(tmp_path, built[0], "sqlite", "duckdb")
    for words in (["init", "shop"], ["run", "--all"], ["runs", "list"]):
        done = user.flow(*words, inside=tmp_path / "shop" if words[0] != "init" else None)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name in ("load_orders", "sync_customers", "daily_revenue") if name not in done.stdout] == []
    assert done.stdout.count("succeeded") == 3


def test_a_missing_extra_is_one_sentence_with_what_to_install(built: tuple[Path, Path], tmp_path: Path) -> None:
    user = Environment(tmp_path, built[0])
    text = "".join(f"[connections.{name}]\n{body}\n" for name, body in CONNECTIONS.items())
    (tmp_path / ".ematix-flow.toml").write_text(text)
    checked = user.flow("connections", "check", "--json")
    told = {entry["name"]: entry for entry in json.loads(checked.stdout)}
    assert checked.returncode != 0
    hints = {name: entry.get("hint") for name, entry in told.items()}
    assert hints == {name: f'pip install "ematix-flow-spark[{name}]"' for name in CONNECTIONS}
    assert "Traceback" not in checked.stdout + checked.stderr


def test_the_distributions_have_what_they_need_and_nothing_of_the_tests(built: tuple[Path, Path]) -> None:
    wheel, source = built
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {"ematix_flow/__init__.py", "ematix_flow/py.typed"} <= files
    assert {name.split("/")[0] for name in files if not name.startswith("ematix_flow/")} == {
        f"{_stem(wheel)}.dist-info"
    }
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/ematix_flow/__init__.py"} <= inside


def _stem(wheel: Path) -> str:
    return "-".join(wheel.name.split("-")[:2])
