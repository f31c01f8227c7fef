"""`flow consume` and `flow consume-list`: which stream is meant, what the options change, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.stream_progress import StreamProgress
from ematix_flow.declare.streams.spec import Restarts, StreamSpec

STREAMS = """
from ematix_flow import ematix

print("the module speaks")


@ematix.connection
class kafka_prod:
    kind = "kafka"
    bootstrap_servers = "${KAFKA_BOOTSTRAP}"
    group_id = "ematix-flow"


@ematix.connection
class warehouse:
    kind = "postgres"
    url = "postgres://ana:sehr-geheim@localhost/wh"


@ematix.streaming_pipeline(name="events_to_pg", source=kafka_prod, source_query="events", target=warehouse,
                           target_table=("public", "events"), metrics_port=9100, max_restarts=7)
def events_to_pg():
    pass
"""
SECOND = """

@ematix.streaming_pipeline(source="kafka_prod", source_query="clicks", target="kafka_prod", target_topic="clean")
def clicks():
    pass
"""
TOML = """
pipeline_name = "from_a_file"
source_query = "events"

[source]
connection = "kafka_prod"

[target]
kind = "sqlite"
path = "shop.db"

[target.table]
schema = "main"
name = "events"
"""


@pytest.fixture
def streams(project: Path) -> Path:
    """A project with one stream."""
    (project / "pipelines.py").write_text(STREAMS)
    return project


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[StreamSpec, dict[str, Any]]]:
    """What the command gives to the runner, which does nothing here."""
    import ematix_flow.streaming.runtime as room

    calls: list[tuple[StreamSpec, dict[str, Any]]] = []

    def run(spec: StreamSpec, **more: Any) -> dict[str, Any]:
        print("the user's code speaks")
        calls.append((spec, more))
        return {"total_rows": 1_234, "iterations": 5, "shutdown_triggered": False}

    stand_in = ModuleType("ematix_flow.streaming.runtime.runner")
    stand_in.run_stream = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr(room, "runner", stand_in, raising=False)
    return calls


# Which stream --------------------------------------------------------------------------------------------------------


def test_a_declared_stream_is_run_by_its_name(flow: Any, streams: Path, handed_over: Any) -> None:
    answer = flow("consume", "--module", "pipelines", "events_to_pg")
    assert (answer.code, answer.out) == (0, "events_to_pg  1,234 rows in 5 batches\n")
    assert "events (kafka_prod) → public.events (warehouse)" in answer.err
    assert "the user's code speaks" in answer.err
    assert "geheim" not in answer.out + answer.err
    ((spec, more),) = handed_over
    assert (spec.name, more["once"], more["metrics_port"]) == ("events_to_pg", False, 9100)
    assert more["run_log"] is not None


@pytest.mark.parametrize("words", [("events_to_pg",), (), ("--module", "pipelines.py")], ids=" ".join)
def test_the_only_stream_of_the_usual_module_need_not_be_named(
    flow: Any, streams: Path, handed_over: Any, words: tuple[str, ...]
) -> None:
    assert flow("consume", *words).code == 0
    assert handed_over[0][0].name == "events_to_pg"


@pytest.mark.parametrize("words", [("pipeline.toml",), ("./pipeline.toml",), ()], ids=" ".join)
def test_a_file_is_run_whose_connections_are_found_by_name(
    flow: Any, project: Path, handed_over: Any, words: tuple[str, ...]
) -> None:
    (project / "pipeline.toml").write_text(TOML)
    (project / ".ematix-flow.toml").write_text(
        '[connections.kafka_prod]\nkind = "kafka"\nbootstrap_servers = "h:9092"\nauto_offset_reset = "latest"\n'
    )
    answer = flow("consume", *words, "--json")
    assert answer.document == {
        "pipeline": "from_a_file",
        "total_rows": 1_234,
        "iterations": 5,
        "shutdown_triggered": False,
    }
    ((spec, _),) = handed_over
    assert (spec.sources[0].connection.bootstrap_servers, spec.start) == ("h:9092", "latest")


def test_a_file_may_name_the_connections_of_a_module(flow: Any, streams: Path, handed_over: Any) -> None:
    (streams / "pipeline.toml").write_text(TOML)
    assert flow("consume", "pipeline.toml", "--module", "pipelines").code == 0
    assert handed_over[0][0].sources[0].connection.group_id == "ematix-flow"


def test_the_usual_file_comes_first_and_the_usual_module_is_known_beside_it(
    flow: Any, streams: Path, handed_over: Any
) -> None:
    (streams / "pipeline.toml").write_text(
        TOML.replace('connection = "kafka_prod"', 'kind = "pubsub"\nproject_id = "p"')
    )
    for words in ((), ("from_a_file",), ("events_to_pg",)):
        assert flow("consume", *words).code == 0
    assert [spec.name for spec, _ in handed_over] == ["from_a_file", "from_a_file", "events_to_pg"]


def test_the_options_come_before_the_declaration(flow: Any, streams: Path, handed_over: Any) -> None:
    flow("consume", "events_to_pg")
    flow(
        "consume", "events_to_pg", "--metrics-port", "0", "--restart-on-error", "--initial-backoff-ms", "10",
        "--max-backoff-ms", "30000", "--max-restarts", "3", "--trigger", "5s",
    )  # fmt: skip
    flow("consume", "events_to_pg", "--once", "--no-run-log")
    (plain, _), (told, more), (_, once) = handed_over
    assert (plain.restarts, plain.trigger) == (Restarts(max_restarts=7), None)
    assert (told.restarts, told.trigger) == (Restarts(True, 10, 30_000, 3), "5 seconds")
    assert more["metrics_port"] == 0
    assert (once["once"], once["run_log"]) == (True, None)


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("consume", "event_to_pg"), 2, "did you mean 'events_to_pg'?"),
        (("consume", "nowhere.toml"), 5, "there is no file nowhere.toml"),
        (("consume", "--module", "nowhere", "x"), 3, "there is no module 'nowhere'"),
        (("consume", "events_to_pg", "--once", "--trigger", "5s"), 2, "leave out --trigger"),
        (("consume", "events_to_pg", "--trigger", "soon"), 3, "trigger='soon' is no interval"),
        (("consume", "events_to_pg", "--metrics-port", "70000"), 2, "--metrics-port"),
        (("consume", "events_to_pg", "--max-backoff-ms", "10"), 2, "--max-backoff-ms"),
    ],
)
def test_what_cannot_be_run_is_reported_with_its_exit_code(
    flow: Any, streams: Path, handed_over: Any, words: tuple[str, ...], code: int, said: str
) -> None:
    answer = flow(*words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert handed_over == []


def test_one_of_several_streams_must_be_named(flow: Any, streams: Path, handed_over: Any) -> None:
    (streams / "pipelines.py").write_text(STREAMS + SECOND)
    answer = flow("consume")
    assert answer.code == 2
    assert "clicks, events_to_pg" in answer.err


def test_without_a_file_and_without_a_module_both_ways_are_reported(flow: Any, project: Path) -> None:
    answer = flow("consume")
    assert answer.code == 2
    assert "--module" in answer.err
    assert "pipeline.toml" in answer.err
    (project / "pipelines.py").write_text("")
    assert "no streams are declared here" in flow("consume").err


def test_a_mistake_in_a_file_is_reported_with_its_line(flow: Any, project: Path) -> None:
    (project / "pipeline.toml").write_text(TOML.replace("source_query", "source_qery"))
    answer = flow("consume", "pipeline.toml")
    assert answer.code == 5
    assert "pipeline.toml:3" in answer.err
    assert "did you mean 'source_query'?" in answer.err
    told = flow("consume", "pipeline.toml", "--json").document
    assert (told["error"], told["where"], told["exit_code"]) == ("ConfigError", "pipeline.toml:3", 5)


def test_a_connection_that_is_not_there_is_reported_before_anything_runs(
    flow: Any, project: Path, handed_over: Any
) -> None:
    (project / "pipeline.toml").write_text(TOML)
    answer = flow("consume", "pipeline.toml")
    assert answer.code == 5
    assert "no connection named 'kafka_prod'" in answer.err
    assert handed_over == []


# Lists ---------------------------------------------------------------------------------------------------------------


def test_streams_are_listed_with_where_they_come_from_and_go(flow: Any, streams: Path) -> None:
    (streams / "pipelines.py").write_text(STREAMS + SECOND)
    answer = flow("consume-list", "--module", "pipelines")
    assert answer.out.splitlines() == [
        "clicks        clicks (kafka_prod) → clean (kafka_prod)",
        "events_to_pg  events (kafka_prod) → public.events (warehouse)",
    ]
    told = flow("consume-list", "--json").document
    assert told["pipelines"] == ["clicks", "events_to_pg"]
    assert told["streams"][1]["targets"] == [{"name": "public.events", "connection": "warehouse"}]
    assert told["streams"][0]["where"].startswith("pipelines.py:")


def test_a_module_without_streams_says_so(flow: Any, shop: Path) -> None:
    answer = flow("consume-list")
    assert (answer.code, answer.out) == (0, "")
    assert "pipelines.py declares no streams" in answer.err
    assert flow("consume-list", "--json").document == {"pipelines": [], "streams": []}


def test_the_batch_commands_know_modules_with_streams(flow: Any, shop: Path, declare: Any) -> None:
    declare(
        '\n@ematix.streaming_pipeline(source="kafka_prod", source_query="events", target="shop", target_table="main.events")\n'
        "def events():\n    pass\n"
    )
    listed = flow("list", "--json").document
    assert [(entry["name"], entry["kind"]) for entry in listed][:2] == [("events", "stream"), ("names", "pipeline")]
    assert "events  stream     (always on)" in flow("list").out
    assert [entry["name"] for entry in flow("status", "--json").document] == ["names", "people"]
    assert flow("validate", "--all").out == "people: ok\n"  # names waits for its first load


# Progress ------------------------------------------------------------------------------------------------------------


def test_a_log_gets_a_line_when_rows_have_come(capsys: pytest.CaptureFixture[str]) -> None:
    with StreamProgress("events", Output(), every=0.0) as progress:
        progress({"numInputRows": 1_200, "batchId": 0})
        progress({"numInputRows": 0, "batchId": 1})
        progress({"numInputRows": 34, "batchId": 2})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("events: 1,234 rows in 2 batches, ")
