"""Fan-out: the source is read once, each target has its own strategy, its own outcome and its own recovery."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Target, Text, ematix, pk
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.write import WriteJob
from ematix_flow.engine.batch.context import open_context
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import NullViolation, PartialFailure
from tests.contract.conftest import Systems
from tests.contract.loading import columns, declare, frame, unique
from tests.harness.base import Harness


@pytest.fixture
def warehouse(systems: Systems) -> Any:
    """Source and first target."""
    return systems("postgres")


@pytest.fixture
def copy(systems: Systems) -> Harness:
    """Second target."""
    return systems("duckdb")


def tickets(name: Any = None) -> Any:
    return declare({"ticket": Annotated[BigInt, pk()], "name": name or Text | None})


def found(harness: Harness, table: Any) -> list[tuple[Any, ...]]:
    return columns(harness.rows(table.spec()), ("ticket", "name"))


@pytest.mark.full
def test_the_source_is_read_once_for_all_targets(warehouse: Any, copy: Harness, systems: Systems) -> None:
    source, counter, lake = declare({"name": Text}), unique("reads"), systems("delta")
    warehouse.seed(source.spec(), [{"name": name} for name in ("a", "b", "c")])
    warehouse.execute(f"CREATE SEQUENCE {counter}")
    tables = [tickets(), tickets(), tickets()]
    modes = ["append", "merge", "scd2"]
    homes = [warehouse, copy, lake]

    @ematix.pipeline(
        targets=[Target(connection=home.connection, table=table, mode=mode) for home, table, mode in zip(homes, tables, modes, strict=True)],
        source_connection=warehouse.connection, name=unique("fan"),
    )  # fmt: skip
    def fan() -> str:
        return f"SELECT nextval('{counter}') AS ticket, name FROM {source.spec().qualified}"

    first, second = fan.sync(), fan.sync()
    assert warehouse.ask(f"SELECT last_value FROM {counter}")[1] == [(6,)]
    assert [target.rows_inserted for target in (*first.targets, *second.targets)] == [3] * 6
    assert {(target.mode, target.path) for target in first.targets} == {(mode, "cross_db") for mode in modes}
    assert len({target.run_id for target in first.targets}) == 3
    kept = [found(home, table) for home, table in zip(homes, tables, strict=True)]
    assert kept[0] == kept[1] == kept[2]
    assert sorted(ticket for ticket, _ in kept[0]) == [1, 2, 3, 4, 5, 6]
    assert first[tables[0].spec().qualified]["rows_inserted"] == 3


def fanned(rows: list[dict[str, Any]], targets: list[Target], **options: Any) -> tuple[Any, list[int]]:
    """A fan-out of a dataframe, and how often its function was called."""
    calls: list[int] = []

    def source(spark: Any) -> Any:
        calls.append(len(rows))
        return frame(spark, tickets().spec(), rows)

    return ematix.pipeline(targets=targets, **{"name": unique("fan"), **options})(source), calls


def test_a_target_that_fails_stops_the_run_unless_configured_otherwise(warehouse: Any, copy: Harness) -> None:
    strict, loose = tickets(Text), tickets()
    targets = [Target(warehouse.connection, strict, mode="append"), Target(copy.connection, loose, mode="append")]
    pipeline, _ = fanned([{"ticket": 1, "name": None}], targets)
    with pytest.raises(NullViolation):
        pipeline.sync()
    assert (found(warehouse, strict), found(copy, loose)) == ([], [])


def test_continue_on_failure_loads_the_others_and_tells_which_failed(warehouse: Any, copy: Harness) -> None:
    strict, loose = tickets(Text), tickets()
    rows = [{"ticket": 1, "name": None}]
    targets = [Target(warehouse.connection, strict, mode="merge"), Target(copy.connection, loose, mode="merge")]
    pipeline, calls = fanned(rows, targets, continue_on_failure=True)
    with pytest.raises(PartialFailure, match=r"1 of 2 targets .* failed") as caught:
        pipeline.sync()
    assert caught.value.exit_code == 8
    assert strict.spec().qualified in str(caught.value)
    outcomes: Any = caught.value.facts["result"]
    assert [target.status for target in outcomes.targets] == ["failed", "success"]
    assert "NULL" in outcomes.targets[0].error
    assert (found(warehouse, strict), found(copy, loose)) == ([], [(1, None)])
    rows[0] = {"ticket": 1, "name": "mended"}
    again = pipeline.sync()
    assert [(target.rows_inserted, target.rows_updated) for target in again.targets] == [(1, 0), (0, 1)]
    assert found(warehouse, strict) == found(copy, loose) == [(1, "mended")]
    assert calls == [1, 1]


def test_a_target_that_a_dead_run_had_loaded_is_not_loaded_again(warehouse: Any, copy: Harness, spark: Any) -> None:
    first, second = tickets(), tickets()
    rows = [{"ticket": 1, "name": "a"}, {"ticket": 2, "name": "b"}]
    targets = [Target(warehouse.connection, first, mode="append"), Target(copy.connection, second, mode="append")]
    pipeline, _ = fanned(rows, targets)
    dead = _publish_and_die(pipeline.spec, frame(spark, first.spec(), rows))
    result = pipeline.sync()
    assert result.targets[0].run_id == dead
    assert "already published" in " ".join(result.targets[0].notes)
    assert found(warehouse, first) == found(copy, second) == [(1, "a"), (2, "b")]


def _publish_and_die(spec: Any, rows: Any) -> str:
    """What a run leaves that is killed between its first and its second target."""
    target = open_context(spec).loads[0]
    job = WriteJob(str(uuid.uuid4()), spec.name, spec.writer(target.load), target.shape, target.load.strategy, now())
    target.ddl.apply(target.shape, [CreateTable(target.shape.table)])
    opening = target.sink.begin(job)
    target.sink.publish(job, target.sink.stage(job, rows), opening)
    return job.run_id


def test_each_target_has_its_own_watermark(warehouse: Any, copy: Harness) -> None:
    source, early, late = tickets(), tickets(), tickets()
    name = unique("fan")
    both = [Target(warehouse.connection, early, mode="append"), Target(copy.connection, late, mode="append")]

    def load(newest: int, targets: list[Target]) -> Any:
        warehouse.seed(source.spec(), [{"ticket": number, "name": "x"} for number in range(8, newest + 1)])
        decorate = ematix.pipeline(
            targets=targets,
            source_connection=warehouse.connection,
            name=name,
            incremental=True,
            watermark_column="ticket",
        )
        return decorate(lambda conn: f"SELECT * FROM {source.spec().qualified}").sync()

    load(8, both)
    load(10, both[:1])
    # The marks are 10 and 8 now: the read must begin at the smaller number, which is not the smaller text.
    result = load(11, both)
    assert [target.rows_inserted for target in result.targets] == [1, 3]
    assert [target.watermark for target in result.targets] == ["11", "11"]
    assert found(warehouse, early) == found(copy, late)
    assert len(found(copy, late)) == 4
