"""Declared streams: by decorator and by name, and what the doors hand to the runner."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ematix_flow
from ematix_flow import KafkaConnection, PostgresConnection, ematix, register_connection, streaming
from ematix_flow.declare import registry
from ematix_flow.declare.connections import clear_registry
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.run_log.urls import from_url

KAFKA = KafkaConnection("kafka_prod", bootstrap_servers="localhost:9092", group_id="ematix-flow")
WAREHOUSE = PostgresConnection("warehouse", url="postgres://localhost/wh")
SAID: dict[str, Any] = {
    "source": KAFKA, "source_query": "events", "target": WAREHOUSE, "target_table": ("public", "events"),
}  # fmt: skip
TOML = """
pipeline_name = "events_to_pg"
source_query = "events"

[source]
name = "kafka_prod"
kind = "kafka"
bootstrap_servers = "localhost:9092"
group_id = "ematix-flow"

[target]
name = "warehouse"
kind = "postgres"
url = "postgres://localhost/wh"

[target.table]
schema = "public"
name = "events"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clear_registry()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    clear_registry()


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[StreamSpec, dict[str, Any]]]:
    """What the doors give to the runner, which does nothing here."""
    import ematix_flow.streaming.runtime as room

    calls: list[tuple[StreamSpec, dict[str, Any]]] = []

    def run(spec: StreamSpec, **more: Any) -> dict[str, Any]:
        calls.append((spec, more))
        return {"total_rows": 3, "iterations": 1, "shutdown_triggered": False}

    stand_in = ModuleType("ematix_flow.streaming.runtime.runner")
    stand_in.run_stream = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr(room, "runner", stand_in, raising=False)
    return calls


def declare(**given: Any) -> Any:
    @ematix.streaming_pipeline(**{**SAID, **given})
    def events_to_pg() -> None:
        """Drain events."""

    return events_to_pg


# The decorator -------------------------------------------------------------------------------------------------------


def test_a_decorated_function_is_a_stream_under_its_own_name_or_another() -> None:
    made = declare()
    assert (made.name, made.__name__, made.__doc__) == ("events_to_pg", "events_to_pg", "Drain events.")
    assert declare(name="another").name == "another"
    assert streaming.list_streaming_pipelines() == ["another", "events_to_pg"]
    assert "stream another at" in repr(declare(name="another"))


def test_a_stream_takes_no_arguments() -> None:
    with pytest.raises(TypeError, match="takes arguments") as caught:
        ematix.streaming_pipeline(name="x", **SAID)(lambda conn: None)
    assert isinstance(caught.value, DeclarationError)


def test_an_unknown_keyword_names_the_decorator_and_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"@ematix.streaming_pipeline has no keyword 'udf'") as caught:
        ematix.streaming_pipeline(name="x", udf=[], **SAID)
    assert caught.value.hint == "did you mean udfs=?"  # type: ignore[attr-defined]


def test_a_mistake_is_reported_at_the_line_of_the_decorator() -> None:
    with pytest.raises(ValueError, match="mode='upsert'") as caught:
        declare(mode="upsert")
    assert caught.value.where.file == __file__  # type: ignore[attr-defined]


# By name -------------------------------------------------------------------------------------------------------------


def test_a_stream_is_registered_found_and_listed_by_name() -> None:
    streaming.register_streaming_pipeline("b", SAID)
    streaming.register_streaming_pipeline("a", SAID)
    assert streaming.list_streaming_pipelines() == ["a", "b"]
    assert streaming.get_streaming_pipeline("a") == {"name": "a", **SAID}
    assert streaming.get_streaming_pipeline("c") is None
    with pytest.raises(KeyError) as caught:
        streaming.render_streaming_pipeline_toml("c")
    assert isinstance(caught.value, UnknownName)


def test_the_same_name_twice_is_refused() -> None:
    streaming.register_streaming_pipeline("a", SAID)
    with pytest.raises(ValueError, match=r"'a' is already declared at .*test_streams_registry\.py"):
        streaming.register_streaming_pipeline("a", SAID)


def test_the_same_line_may_run_again() -> None:
    for _ in range(2):
        declare()
    assert streaming.list_streaming_pipelines() == ["events_to_pg"]


def test_a_stream_and_a_pipeline_do_not_share_a_name() -> None:
    from ematix_flow import pipeline

    pipeline.register(name="events_to_pg", schedule=None)(lambda: None)
    declare()
    with pytest.raises(ValueError, match="the name of a pipeline and of a stream"):
        registry.check_graph()


def test_clearing_the_declarations_clears_the_streams() -> None:
    declare()
    registry.clear()
    assert streaming.list_streaming_pipelines() == []


# Workflows -----------------------------------------------------------------------------------------------------------


def test_a_workflow_with_a_stream_is_fired_by_nothing() -> None:
    from ematix_flow.scheduler.jobs import declared_jobs

    declare()
    made = ematix.workflow(name="live", jobs=["events_to_pg"])
    assert made.jobs == ("events_to_pg",)
    assert declared_jobs() == []
    assert ematix_flow.pipeline.workflow_dag_edges("live") == []
    with pytest.raises(ValueError, match="runs all the time"):
        ematix.workflow(name="nightly", jobs=["events_to_pg"], schedule="0 2 * * *")
    with pytest.raises(ValueError, match="nothing fires workflow"):
        ematix.workflow(name="dead", jobs=["a_batch_load"])


# The doors -----------------------------------------------------------------------------------------------------------


def test_every_door_hands_the_same_stream_to_the_runner(handed_over: Any, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(TOML)
    outcomes = [
        ematix_flow.run_streaming_pipeline(name="events_to_pg", metrics_port=9100, **SAID),
        ematix_flow.run_pipeline(config="pipeline.toml", metrics_port=9100),
        ematix_flow.run_pipeline(config=tmp_path / "pipeline.toml", metrics_port=9100, pipeline_name="events_to_pg"),
        ematix_flow.run_pipeline(config_str=TOML, metrics_port=9100),
        declare()(metrics_port=9100),
    ]
    assert {outcome["total_rows"] for outcome in outcomes} == {3}
    (first, more), *others = handed_over
    assert (more["once"], more["metrics_port"]) == (False, 9100)
    assert more["run_log"] is not None
    for spec, said in others:
        assert (spec.sources, spec.targets, spec.name) == (first.sources, first.targets, "events_to_pg")
        assert said.keys() == more.keys()
        assert said["metrics_port"] == 9100


def test_a_port_of_the_declaration_is_used_unless_the_call_says_another(handed_over: Any) -> None:
    made = declare(metrics_port=9100)
    made()
    made(metrics_port=0)
    made(once=True)
    assert [more["metrics_port"] for _, more in handed_over] == [9100, 0, 9100]
    assert [more["once"] for _, more in handed_over] == [False, False, True]


def test_named_connections_are_looked_up_before_the_stream_runs(handed_over: Any) -> None:
    latest = KafkaConnection("kafka_prod", bootstrap_servers="localhost:9092", auto_offset_reset="latest")
    register_connection(latest)
    register_connection(WAREHOUSE)
    ematix_flow.run_streaming_pipeline(name="x", **{**SAID, "source": "kafka_prod", "target": "warehouse"})
    ((spec, _),) = handed_over
    assert (spec.sources[0].connection, spec.targets[0].connection, spec.start) == (latest, WAREHOUSE, "latest")


def test_a_named_connection_of_the_wrong_sort_is_refused_before_the_stream_runs(handed_over: Any) -> None:
    register_connection(KAFKA)
    with pytest.raises(ValueError, match="a kafka target has no table") as caught:
        ematix_flow.run_streaming_pipeline(name="x", **{**SAID, "target": "kafka_prod"})
    assert caught.value.where.file == __file__  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match="no connection named 'kafka_prd'"):
        ematix_flow.run_streaming_pipeline(name="x", **{**SAID, "source": "kafka_prd"})
    assert handed_over == []


@pytest.mark.parametrize("given", [{}, {"config": "a.toml", "config_str": TOML}])
def test_a_configuration_is_a_file_or_a_text(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of config= and config_str="):
        ematix_flow.run_pipeline(**given)


def test_a_file_that_is_not_there_is_refused(handed_over: Any) -> None:
    with pytest.raises(ValueError, match=r"there is no file nowhere\.toml"):
        ematix_flow.run_pipeline(config="nowhere.toml")
    assert handed_over == []


def test_another_name_is_a_label_of_the_run(handed_over: Any, tmp_path: Path) -> None:
    """The checkpoint and the lease go by the stream's own name, whoever runs it and whatever they call it."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    ematix_flow.run_pipeline(config_str=TOML, pipeline_name="another", metrics_port=9100, run_log_url=url)
    ((spec, _),) = handed_over
    assert spec.name == "events_to_pg"
    run_log = from_url(url)
    ((kept,), _) = run_log.list_runs()
    assert (kept.pipeline, kept.status, kept.kind) == ("another", "succeeded", "streaming")
    run_log.close()


def test_exactly_once_between_topics_has_a_name_of_its_own(handed_over: Any) -> None:
    said = {"name": "copy", "source": KAFKA, "source_query": "events", "target": KAFKA, "target_topic": "clean"}
    streaming.KafkaToKafkaEosPipeline(**said).run(once=True)
    ((spec, more),) = handed_over
    assert (spec.delivery, more["once"]) == ("exactly_once", True)
    for wrong in ({"delivery": "at_least_once"}, {"target": WAREHOUSE, "target_topic": None, "target_table": "a.b"}):
        with pytest.raises(ValueError, match="is for Kafka on both sides"):
            streaming.KafkaToKafkaEosPipeline(**{**said, **wrong})
