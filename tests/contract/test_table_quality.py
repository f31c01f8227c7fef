"""Checks of a table as it stands: every system finds in its tables what its stages are asked for before a load."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Integer, KafkaConnection, Text, TimestampTZ, alerters, pk
from ematix_flow.config import connect
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.quality import (
    QualityCheckFailed,
    QualityDependencyMissing,
    QualityOutcome,
    QualityUnrunnable,
    run_expectations,
    run_quality_stage,
)
from tests.contract.loading import declare, load, unique
from tests.contract.test_quality import COLUMNS, REFUSED, expectations, rows
from tests.harness.base import Harness

SYSTEMS = pytest.mark.systems("postgres", "mariadb", "sqlite", "duckdb", "delta", "files-parquet", "files-csv")
PLAIN = {"id": Annotated[BigInt, pk()], "n": Integer | None, "at": TimestampTZ | None}


class Received:
    """An alerter that remembers."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def notify(self, event: Any) -> None:
        self.events.append(event)


@pytest.fixture
def received() -> Any:
    alerter = Received()
    alerters.register_alerter(alerter)
    yield alerter.events
    alerters.clear_alerters()


@SYSTEMS
@pytest.mark.by_default("postgres", "sqlite", "files-parquet")
def test_a_table_is_asked_what_its_loads_are_asked(harness: Harness) -> None:
    table = declare(COLUMNS)
    load(harness, table, rows(), mode="append")
    outcome = run_expectations(
        target_connection=harness.connection, pipeline_name="orders", target_cls=table, expectations=expectations
    )
    assert isinstance(outcome, QualityOutcome)
    assert {item.name: item.failing for item in outcome.wrong} == REFUSED
    assert (outcome.verdict, outcome.checks_total, outcome.checks_errored) == ("fail", 22, 0)
    found = {item.name: item for item in outcome.assertions}
    assert found["unique_group(id)"].verdict == "pass"
    assert sorted(found["amount.between"].samples) == ["id=2", "id=3"]
    assert found["row_count"].message == "the table has 7, expected are at least 8 and at most 100 rows"
    assert outcome.qualified_table == table.spec().qualified


@pytest.mark.systems("postgres", "sqlite", "delta")
@pytest.mark.by_default("postgres", "sqlite")
def test_what_a_declaration_promises_is_checked_and_of_versions_the_current_ones(harness: Harness) -> None:
    table = declare(PLAIN)
    for value in (1, 2):
        load(harness, table, [{"id": 7, "n": value, "at": now()}], mode="scd2", name=f"{table.__name__}_{value}")
    assert len(harness.rows(table.spec())) == 2
    told = run_expectations(
        target_connection=harness.connection, pipeline_name="versions", target_cls=table,
        expectations=lambda t: (t.row_count(at_most=1), t.column("n").between(2, 2)),
    )  # fmt: skip
    assert told is not None
    assert [item.name for item in told.assertions] == ["id.not_null", "unique_group(id)", "row_count", "n.between"]
    assert told.verdict == "pass"


@pytest.mark.systems("sqlite", "postgres")
def test_the_policy_decides_and_the_outcome_goes_into_the_result(harness: Harness, received: list[Any]) -> None:
    table = declare(PLAIN)
    old = {"id": 1, "n": 9, "at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    result = load(harness, table, [old], mode="append")
    told: dict[str, Any] = {
        "target_connection": connect(harness.connection), "pipeline_name": "fresh", "target_cls": table,
        "freshness_column": "at", "freshness_sla": timedelta(hours=1),
    }  # fmt: skip
    outcome = run_quality_stage(**told, sync_result=result)
    assert outcome is not None
    assert outcome.verdict == "fail"
    assert result["quality"]["verdict"] == "fail"
    assert [(event.kind, event.pipeline) for event in received] == [("quality_failed", "fresh")]
    assert "freshness(at): the newest value is" in received[0].error_message
    with pytest.raises(QualityCheckFailed, match="1 of 3 checks refuses the rows of") as caught:
        run_quality_stage(**told, on_quality_failure="fail", sync_result=(kept := {}))
    assert caught.value.outcome.verdict == kept["quality"]["verdict"] == "fail"  # type: ignore[attr-defined]
    assert "nothing was loaded" not in str(caught.value)
    assert len(received) == 1
    with pytest.raises(DeclarationError, match="on_quality_failure='stop' is not known"):
        run_quality_stage(**told, on_quality_failure="stop")


@pytest.mark.systems("postgres", "mariadb", "sqlite", "duckdb", "files-parquet")
def test_a_check_whose_column_is_gone_is_an_error_beside_the_others(harness: Harness, received: list[Any]) -> None:
    table = declare(PLAIN)
    load(harness, table, [{"id": 1, "n": 1, "at": None}], mode="append")
    wider = declare({**PLAIN, "city": Text | None}, schema=table.spec().schema, name=table.spec().name)
    told: dict[str, Any] = {
        "target_connection": harness.connection, "pipeline_name": "wider", "target_cls": wider,
        "expectations": lambda t: (t.column("city").not_null(), t.column("n").between(1, 1)),
    }  # fmt: skip
    outcome = run_quality_stage(**told)
    assert outcome is not None
    assert {item.name: item.verdict for item in outcome.assertions} == {
        "id.not_null": "pass", "unique_group(id)": "pass", "city.not_null": "error", "n.between": "pass",
    }  # fmt: skip
    assert (outcome.verdict, received) == ("warn", [])
    run_quality_stage(**told, alert_on_warn=True)
    assert [event.kind for event in received] == ["quality_failed"]
    with pytest.raises(QualityUnrunnable, match=r"1 of 4 checks of .* could not be asked"):
        run_quality_stage(**told, on_quality_failure="fail")


@pytest.mark.systems("sqlite", "files-parquet")
def test_a_table_that_cannot_be_asked_is_an_error_or_a_warning(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {
        "target_connection": harness.connection, "pipeline_name": unique("gone"), "target_cls": declare(PLAIN)
    }  # fmt: skip
    with pytest.raises(QualityUnrunnable, match="is not there, and cannot be checked"):
        run_expectations(**told)
    with pytest.raises(QualityUnrunnable, match="is not there"):
        run_quality_stage(**told, on_quality_failure="fail")
    with pytest.warns(UserWarning, match=r"were not asked: .* is not there"):
        assert run_quality_stage(**told) is None
    broker = KafkaConnection(name="broker", bootstrap_servers="localhost:1")
    with pytest.raises(QualityUnrunnable, match="Kafka has no tables"):
        run_expectations(**{**told, "target_connection": broker})
    monkeypatch.setenv("EMATIX_SKIP_QUALITY", "1")
    assert run_expectations(**told) is None


@pytest.mark.systems("sqlite")
def test_without_a_class_the_target_of_the_declared_pipeline_is_checked(harness: Harness) -> None:
    table, name = declare(PLAIN), unique("named")
    load(harness, table, [{"id": 1, "n": None, "at": None}], mode="append", name=name)
    told = run_expectations(target_connection=harness.connection, pipeline_name=name)
    assert told is not None
    assert (told.table, told.verdict, told.checks_total) == (table.spec().name, "pass", 2)
    assert run_expectations(target_connection=harness.connection, pipeline_name="nobody") is None
    with pytest.raises(QualityUnrunnable, match="no table is known for nobody"):
        run_expectations(
            target_connection=harness.connection, pipeline_name="nobody", expectations=lambda t: t.row_count(at_least=1)
        )
    with pytest.raises(DeclarationError, match="freshness_column needs freshness_sla"):
        run_expectations(target_connection=harness.connection, pipeline_name=name, freshness_column="at")


def test_a_package_that_is_not_installed_is_named() -> None:
    program = """
import sys
sys.modules["duckdb"] = None
from ematix_flow import Annotated, BigInt, DuckDBConnection, ematix, pk
from ematix_flow.quality import QualityDependencyMissing, run_expectations

@ematix.table(schema="s")
class Orders:
    id: Annotated[BigInt, pk()]

try:
    run_expectations(target_connection=DuckDBConnection(name="d", path="d.db"), pipeline_name="p", target_cls=Orders)
except QualityDependencyMissing as error:
    print("missing:", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "missing: pip install" in done.stdout, done.stderr
    assert issubclass(QualityDependencyMissing, RuntimeError)
