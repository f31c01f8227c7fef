"""What the documents promise and was refused, or refused too late (docs/differences.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Flow, fill
from tests.unit.config.stream_texts import KAFKA

from ematix_flow import Join, KafkaConnection, Source, StateStore, executors
from ematix_flow.declare.engine import engine_options
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.run_log import from_url


def declared(**options: Any) -> Any:
    return stream_from(StreamOptions.parse({"name": "events", **options}, None, door="a stream"), None)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_in_memory_lives_as_long_as_its_process(
    flow: Flow, project: Path, kind: str, tmp_path: Path
) -> None:
    """gaps refusals: :memory: inside one process"""
    (project / "pipelines.py").write_text(f'''
from ematix_flow import Annotated, BigInt, Text, ematix, pk


@ematix.connection
class kept:
    kind = "{kind}"
    path = ":memory:"


@ematix.table(schema="main")
class People:
    id: Annotated[BigInt, pk()]
    name: Text


def made(conn):
    return {{"rows": conn.fetch_scalar_int("SELECT COUNT(*) FROM people")}}


@ematix.pipeline(target=People, target_connection="kept", mode="merge", transforms_post=[made])
def people(conn):
    conn.execute("CREATE TABLE IF NOT EXISTS raw_people (id BIGINT, name TEXT)")
    conn.execute("INSERT INTO raw_people SELECT 1, 'Ada' WHERE NOT EXISTS (SELECT 1 FROM raw_people)")
    return "SELECT id, name FROM raw_people"
''')
    assert flow("run", "people").code == 0
    again = flow("run", "people", "--json")
    assert again.document["rows_unchanged"] + again.document["rows_updated"] == 1
    assert not list(project.glob("*memory*"))


@pytest.mark.parametrize(
    ("peer", "instead"),
    [("http://worker:8080", "spark://worker:7077"), ("k8s://flow.jobs:7077", "dns://flow.jobs.svc.cluster.local:7077")],
)
def test_addresses_of_other_engines_are_answered_with_the_one_to_write(peer: str, instead: str) -> None:
    """gaps refusals: peers"""
    with pytest.raises(ValueError, match="no address of a Spark cluster") as caught:
        engine_options("distributed", [peer])
    assert instead in str(caught.value)
    assert engine_options("distributed", ["k8s://https://host.example:6443"]).peers == (
        "k8s://https://host.example:6443",
    )


def test_a_warehouse_is_refused_as_a_target_when_it_is_declared() -> None:
    """gaps refusals: an unsupported stream target"""
    from ematix_flow.connections import SnowflakeConnection

    away = SnowflakeConnection("wh", account="a", user="u", password="p", warehouse="w", database="d", schema="s")
    with pytest.raises(ValueError, match="does not write to snowflake"):
        declared(source=KAFKA, source_query="events", target=away, target_table=("s", "events"))


def test_metrics_have_the_names_and_the_label_of_the_documents() -> None:
    """gaps refusals: windows_active, state_groups_total, the label policy"""
    metrics = StreamMetrics("events", "reopen")
    found = {family.name: family for family in metrics.collect()}
    assert {"ematix_streaming_windows_active", "ematix_streaming_state_groups_total"} <= set(found)
    (late,) = found["ematix_streaming_late_rows_dropped"].samples
    assert late.labels == {"pipeline": "events", "policy": "reopen"}


def test_consuming_takes_the_time_after_which_restarts_count_anew(flow: Flow, project: Path) -> None:
    """gaps refusals: --reset-backoff-after-secs"""
    assert "--reset-backoff-after-secs" in flow("consume", "--help").out


def test_restarts_count_anew_after_the_configured_time() -> None:
    """gaps refusals: --reset-backoff-after-secs"""
    import threading

    from ematix_flow.declare.streams.spec import Restarts
    from ematix_flow.foundation.errors import Unreachable
    from ematix_flow.streaming.runtime.supervision import run_with_restarts

    class History:
        def restarted(self, error: Exception, number: int) -> None:
            return None

    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) < 5:
            raise Unreachable("away")

    policy = Restarts(on_error=True, initial_backoff_ms=1, max_backoff_ms=1, max_restarts=1, reset_after_secs=0)
    assert run_with_restarts(work, policy, stop=threading.Event(), history=History()) == 4  # type: ignore[arg-type]


def test_words_of_the_original_in_errors() -> None:
    """gaps wording"""
    with pytest.raises(ValueError, match="not both"):
        declared(source=KAFKA, source_query="a", sources=[Source(KAFKA, "a")], target=KAFKA, target_topic="b")
    with pytest.raises(ValueError, match="left_source"):
        declared(
            sources=[Source(KAFKA, "a"), Source(KAFKA, "b")], target=KAFKA, target_topic="c",
            join=Join("x", "b", ("id",), ("id",), time_window_ms=5), state_store=StateStore("in_memory"),
        )  # fmt: skip
    with pytest.raises(ValueError, match="at most one"):
        KafkaConnection("k", bootstrap_servers="k:9092", sasl_plain_username="a", sasl_plain_password="b",
                        sasl_scram_username="a", sasl_scram_password="b", sasl_scram_mechanism="sha-256")  # fmt: skip
    for refuse in (lambda: from_url("ftp://x"), lambda: executors.executor_from_url("ftp://x")):
        with pytest.raises(ValueError, match="unknown"):
            refuse()


def test_a_shop_that_is_filled_again_is_loaded_again(flow: Flow, shop: Path, declare: Callable[[str], None]) -> None:
    """gaps fan-out row: inside one database, once per target"""
    declare("""

@ematix.pipeline(targets=[ematix.target(People, mode="merge"), ematix.target(Names, mode="merge")], target_connection="shop")
def both(conn):
    return "SELECT id, name FROM raw_people"
""")
    assert flow("run", "both").code == 0
    fill(shop / "shop.db", 210)
    told = flow("run", "both", "--json").document["results"][0]
    assert [(target["path"], target["rows_inserted"]) for target in told["targets"]] == [("same_db", 10)] * 2
    assert told["session"] is None
