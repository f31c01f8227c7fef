"""Rows of the comparison with the original (docs/differences.md): what runs tell, and who remembers it."""

from __future__ import annotations

import inspect
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Flow, fill
from tests.unit.config.stream_texts import SOURCE, TARGET, TOP

from ematix_flow import CDC, ematix, pipeline, run_streaming_pipeline
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.declare import registry
from ematix_flow.metrics import InMemorySink
from ematix_flow.run_log import InMemoryRunLog, SqliteRunLog

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


class Received:
    """An alerter that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def notify(self, event: Any) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def broken() -> Iterator[set[str]]:
    """Two plain pipelines, `orders` and `revenue`, which depends on it; those whose names are in the set fail."""
    registry.clear()
    found: set[str] = set()

    def declare(name: str, **options: Any) -> None:
        @pipeline.register(name=name, schedule=None, **options)
        def work() -> dict[str, Any]:
            if name in found:
                raise LookupError(f"{name} is nowhere")
            return {"name": name}

    declare("orders", retry={"max_attempts": 2, "base_secs": 60})
    declare("revenue", depends_on=["orders"])
    yield found
    registry.clear()


def at(seconds: int, **options: Any) -> Any:
    return pipeline.run_due_with_dag_detailed(["orders"], now=NOON + timedelta(seconds=seconds), **options)


def test_words_for_operations_are_taken_whole_in_python_and_in_toml() -> None:
    """gaps M3"""
    words = {"I": "create", "U": "update", "D": "delete", "S": "read"}
    assert CDC(op_map=words).op_map == {"I": "c", "U": "u", "D": "d", "S": "r"}
    text = f'{TOP}{SOURCE}{TARGET}[transform.cdc]\nenvelope = "debezium"\nop_map = {{ I = "create" }}\n'
    assert stream_from_text(text, name="changes").cdc.op_map == {"I": "c"}
    with pytest.raises(ValueError, match=r"c \(create\)"):
        CDC(op_map={"I": "insert"})


def test_without_a_run_log_the_process_remembers_back_off_giving_up_and_upstreams(broken: set[str]) -> None:
    """gaps M4"""
    broken.add("orders")
    assert [event.attempt_count for event in at(0).failed] == [1]
    assert "retry backoff (attempt 1/2" in at(10).skipped[0].reason
    assert [(event.attempt_count, event.gave_up) for event in at(70).failed] == [(2, True)]
    assert "gave up after 2" in at(400).skipped[0].reason
    assert pipeline.run_due_with_dag(["revenue"], now=NOON) == []  # its upstream never succeeded


def test_what_succeeded_in_one_call_is_an_upstream_of_the_next(broken: set[str]) -> None:
    """gaps M4"""
    assert pipeline.run_due_with_dag(["orders"], now=NOON) == ["orders"]
    assert pipeline.run_due_with_dag(["revenue"], now=NOON) == ["revenue"]
    assert pipeline.run_due_with_dag(["revenue"], now=NOON) == ["revenue"]  # asked for again, it runs again
    broken.add("revenue")
    for _ in range(2):  # without a retry policy nothing waits and nothing is given up
        failed = pipeline.run_due_with_dag_detailed(["revenue"], now=NOON).failed
        assert [(event.attempt_count, event.gave_up) for event in failed] == [(1, False)]


@pytest.mark.parametrize("kind", ["log", "url", "connection"])
def test_a_recovery_is_reported_across_calls_with_a_run_log(broken: set[str], kind: str, tmp_path: Path) -> None:
    """gaps M5"""
    from ematix_flow import SQLiteConnection

    file = tmp_path / "runs.db"
    given = {"log": SqliteRunLog(file), "url": f"sqlite:///{file}", "connection": SQLiteConnection("r", str(file))}[
        kind
    ]
    heard = Received()
    broken.add("orders")
    at(0, run_log=given, alerters=[heard])
    broken.clear()
    assert [event.name for event in at(70, run_log=given, alerters=[heard]).fired] == ["orders"]
    assert heard.kinds == ["failed", "recovered"]
    assert file.exists()


def test_events_and_alerts_name_the_users_exception(broken: set[str]) -> None:
    """gaps M6"""
    heard, log = Received(), InMemoryRunLog()
    broken.add("orders")
    (failed,) = at(0, run_log=log, alerters=[heard]).failed
    assert (failed.error_type, failed.error_message) == ("LookupError", "orders is nowhere")
    assert [(event.error_type, event.error_message) for event in heard.events] == [("LookupError", "orders is nowhere")]
    (record,), _ = log.list_runs()
    assert (record.error_summary, record.extras["error"]["error"]) == ("orders is nowhere", "LookupError")


def test_the_command_line_names_the_users_exception_in_json(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps M6"""
    declare(
        '\n\n@ematix.pipeline(target=Names, target_connection="shop", mode="append")\ndef wrong(conn):\n    raise KeyError("nowhere")\n'
    )
    told = flow("run", "wrong", "--json").document
    assert (told["error"], told["message"]) == ("KeyError", "'nowhere'")
    assert "wrong raised KeyError: 'nowhere'" in flow("run", "wrong").err


def test_the_last_attempt_is_reported_as_failed_and_given_up() -> None:
    """gaps L8"""
    registry.clear()

    @pipeline.register(name="once", schedule=None, retry={"max_attempts": 1})
    def once() -> None:
        raise OSError("no")

    heard = Received()
    pipeline.run_due_with_dag_detailed(["once"], now=NOON, alerters=[heard])
    registry.clear()
    assert heard.kinds == ["failed", "gave_up"]


def test_a_skipped_run_is_counted(broken: set[str]) -> None:
    """gaps M7"""
    sink = InMemorySink()
    pipeline.run_due_with_dag_detailed(["revenue"], now=NOON, metrics=sink)
    assert sink.counters == {("revenue", "skipped"): 1}


def test_the_command_line_counts_skipped_runs_and_marks_metrics(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps M7, and the wording: a METRIC prefix for stdout://"""
    declare("""

@ematix.pipeline(target=Names, target_connection="shop", mode="merge", schedule="* * * * *", depends_on=["names"])
def late(conn):
    return "SELECT id, name FROM people"
""")
    done = flow("run-due", "--now", "2026-05-01T12:00:00", "--metrics", "stdout://")
    assert 'METRIC pipeline_runs_total{pipeline="late",outcome="skipped"} 1' in done.err.splitlines()


def test_a_load_by_hand_may_accept_deletes(shop: Path) -> None:
    """gaps M14"""
    from ematix_flow.foundation.errors import Brake

    people = declared_people()
    conn = pipeline_connection(shop)

    def load() -> Any:
        return pipeline.sync(target=people, source="SELECT id, name FROM raw_people", target_connection=conn,
                             mode="merge", handle_deletes="hard", pipeline_name="people", **given)  # fmt: skip

    given: dict[str, Any] = {}
    load()
    fill(shop / "shop.db", 10)
    with pytest.raises(Brake):
        load()
    given = {"accept_deletes": 190}
    assert load().rows_deleted == 190


def declared_people() -> Any:
    from ematix_flow import Annotated, BigInt, Text, pk

    class People:
        id: Annotated[BigInt, pk()]
        name: Text

    People.__annotations__ = {"id": Annotated[BigInt, pk()], "name": Text}
    return ematix.table(schema="main", name="people")(People)


def pipeline_connection(shop: Path) -> Any:
    from ematix_flow import SQLiteConnection

    return SQLiteConnection("shop", str(shop / "shop.db"))


@pytest.mark.parametrize(
    ("function", "some"),
    [
        (ematix.pipeline, {"target", "mode", "handle_deletes", "window_size"}),
        (ematix.job, {"target", "mode"}),
        (ematix.streaming_pipeline, {"source", "target_topic", "cdc"}),
        (run_streaming_pipeline, {"source", "once", "run_log_url"}),
        (pipeline.sync, {"target", "source", "keys", "accept_deletes", "on_drift"}),
    ],
)
def test_signatures_list_every_keyword(function: Any, some: set[str]) -> None:
    """gaps M16"""
    found = inspect.signature(function).parameters
    assert some <= set(found)
    assert not [item for item in found.values() if item.kind is inspect.Parameter.VAR_KEYWORD]


def test_the_scheduler_loop_is_a_name_of_its_package() -> None:
    """gaps M10"""
    from ematix_flow import scheduler

    assert scheduler.DispatchFailedEvent("orders", "DispatchError", "no worker").pipeline == "orders"
    assert {"module", "run_log", "executor", "max_iterations"} <= set(
        inspect.signature(scheduler.run_scheduler).parameters
    )


def test_counts_stand_at_the_top_of_what_ran(flow: Flow, shop: Path) -> None:
    """gaps M13"""
    ran = json.loads(flow("run-due", "--now", "2026-05-01T12:00:00").out)["ran"]
    assert [(entry["_pipeline"], entry["rows_inserted"]) for entry in ran] == [("people", 200)]
    told = flow("run", "people", "--json").document
    assert (told["pipeline"], told["rows_unchanged"], told["path"]) == ("people", 200, "same_db")
    assert [entry["pipeline"] for entry in flow("run", "--all", "--json").document["results"]] == ["people", "names"]


def test_a_failure_while_planning_leaves_a_row_in_the_history(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps M15"""
    declare(
        '\n\n@ematix.pipeline(target=Names, target_connection="shop", mode="scd1")\ndef lost(conn):\n    return "SELECT * FROM nowhere"\n'
    )
    assert flow("run", "lost").code == 3
    with closing(sqlite3.connect(shop / "shop.db")) as base:
        ((pipeline_name, mode, status, error),) = base.execute(
            "SELECT pipeline_name, mode, status, error_message FROM ematix_flow_run_history"
        ).fetchall()
    assert (pipeline_name, mode, status) == ("lost", "scd1", "failed")  # gaps L10: the mode as it was written
    assert "nowhere" in error


def test_a_plain_function_answers_with_what_it_returns(flow: Flow, shop: Path, declare: Callable[[str], None]) -> None:
    """gaps L6"""
    declare("""

from ematix_flow.pipeline import register

@register(name="tally", schedule=None)
def tally():
    return [1, 2, 3]
""")
    done = flow("run", "tally")
    assert done.code == 0
    assert "[1, 2, 3]" in done.out
    assert pipeline.run_pipeline("tally") == [1, 2, 3]


def test_a_transforms_own_exception_is_raised(flow: Flow, shop: Path, declare: Callable[[str], None]) -> None:
    """gaps L5"""
    declare("""

class Odd(Exception):
    pass

def fails(conn):
    raise Odd("not so")

@ematix.pipeline(target=Names, target_connection="shop", mode="merge", transforms_post=[fails], name="followed")
def followed(conn):
    return "SELECT id, name FROM raw_people"
""")
    assert flow("run", "followed").code == 1
    with pytest.raises(Exception, match=r"^not so$") as caught:
        pipeline.run_pipeline("followed")
    assert type(caught.value).__name__ == "Odd"
    assert pipeline.run_transform("tidy")["status"] == "transform_success"
    (record, *_), _ = SqliteRunLog(Path.home() / ".ematix-flow" / "run_log.db").list_runs()
    assert record.failed_step == "transform[0]:fails"


def test_a_result_is_a_mapping_that_json_knows(flow: Flow, shop: Path) -> None:
    """gaps L4"""
    flow("list")
    result = pipeline.run_pipeline("people")
    assert json.loads(json.dumps(result))["rows_inserted"] == result.get("rows_inserted") == 200
    assert dict(result.items()).keys() == result.keys()


def test_a_dry_run_says_so_and_what_it_counted(flow: Flow, shop: Path) -> None:
    """gaps M11"""
    flow("list")
    rehearsed = pipeline.dry_run("people")
    assert rehearsed.is_dry_run
    assert rehearsed.targets[0].dry_run_rows_affected == {
        "rows_inserted": 200, "rows_updated": 0, "rows_unchanged": 0, "rows_deleted": 0,
    }  # fmt: skip
    told = flow("dry-run", "people", "--json").document["results"][0]
    assert (told["is_dry_run"], told["pipeline_name"]) == (True, "people")
    (target,) = told["targets"]
    assert (target["schema_qualified_name"], target["dry_run_error"]) == ("main.people", None)
    assert target["dry_run_rows_affected"]["rows_inserted"] == 200
    assert "DRY RUN" in flow("dry-run", "people").out  # the wording


def test_output_is_captured_where_the_variable_asks_for_it(
    broken: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gaps L13"""
    from ematix_flow.logs import read_run_logs

    monkeypatch.setenv("EMATIX_FLOW_CAPTURE_LOGS", "1")
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path))

    @pipeline.register(name="loud", schedule=None)
    def loud() -> None:
        print("heard")

    log = InMemoryRunLog()
    pipeline.run_due_with_dag_detailed(["loud"], now=NOON, run_log=log)
    (record,), _ = log.list_runs()
    assert "heard" in (read_run_logs(record.run_id) or "")
