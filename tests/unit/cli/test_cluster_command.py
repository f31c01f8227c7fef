"""`flow cluster` where no cluster is started: what it says about none, and about options that cannot be met."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CLUSTER_DIR", str(tmp_path / "cluster"))


def test_without_a_cluster_status_says_how_to_start_one_and_stop_ends_nothing(flow: Any, project: Path) -> None:
    assert "flow cluster start" in flow("cluster").err
    assert flow("cluster", "status", "--json").document is None
    assert flow("cluster", "stop", "--json").document == {"stopped": []}
    assert "no cluster was running" in flow("cluster", "stop").err


def test_a_port_in_use_is_reported(flow: Any, project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = flow("cluster", "start", "--port", str(port), "--json")
    assert (answer.code, answer.document["error"]) == (5, "ConfigError")
    assert f"port {port} cannot be used: address already in use" in answer.document["message"]
    assert "--port 0" in answer.document["hint"]


@pytest.mark.parametrize("words", [("--workers", "0"), ("--memory", "much"), ("--cores", "0"), ("--port", "70000")])
def test_a_size_that_is_none_is_a_usage_error(flow: Any, project: Path, words: tuple[str, str]) -> None:
    assert flow("cluster", "start", *words).code == 2


@pytest.mark.full
def test_doctor_says_which_engine_was_chosen_and_by_whom(
    flow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EMATIX_FLOW_ENGINE", "EMATIX_FLOW_MASTER"):
        monkeypatch.delenv(name, raising=False)
    Path(".ematix-flow.toml").write_text(
        '[spark]\npeers = ["spark://127.0.0.1:7077"]\nsecret = "a-pr1vate-word"\nspark.sql.shuffle.partitions = 7\n'
    )
    told = {item["name"]: item for item in flow("doctor", "spark", "--json").document}
    assert told["engine"]["value"] == "distributed spark://127.0.0.1:7077"
    assert told["engine"]["reason"] == "./.ematix-flow.toml says so"
    assert told["join order"]["value"] == "by cost"
    partitions = {"name": "spark.sql.shuffle.partitions", "value": "7", "reason": "./.ematix-flow.toml says so"}
    assert told["spark.sql.shuffle.partitions"] == partitions
    assert told["spark.authenticate.secret"]["value"] == "***"
    assert "a-pr1vate-word" not in flow("doctor", "spark").out
