"""The plan of a run: frozen steps, which change nothing and which `begin` refines once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, ManagedTable, Text, pk
from ematix_flow.contract.write import Commit, Counts, WriteResult, WriteSession
from ematix_flow.declare.connections import from_fields
from ematix_flow.declare.pipeline import PipelineOptions, PipelineSpec, pipeline_from
from ematix_flow.engine.batch.context import RunContext
from ematix_flow.engine.batch.plan import (
    Adopt,
    Begin,
    Ensure,
    LoadPlan,
    Publish,
    Refine,
    RefusedLoad,
    RunParameters,
    RunPlan,
    Settle,
    StageArrow,
    StageQuery,
    StageRows,
    shared_read,
)
from ematix_flow.engine.batch.planner import open_plan, refine
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.sql.sources import NoSource
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import MissingColumn
from ematix_flow.foundation.location import caller


class Orders(ManagedTable):
    __schema__, __tablename__ = "main", "orders_kept"
    id: Annotated[BigInt, pk()]
    item: Text


class Widened(ManagedTable):
    __schema__, __tablename__ = "main", "widened"
    id: Annotated[BigInt, pk()]
    colour: Text


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with sqlite3.connect(tmp_path / "shop.db") as session:
        session.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        session.execute("INSERT INTO orders VALUES (1, 'tea'), (2, 'rice')")
    return from_fields("shop", {"url": f"sqlite:///{tmp_path}/shop.db"})


@pytest.fixture
def house(tmp_path: Path) -> Any:
    return from_fields("house", {"url": f"duckdb:///{tmp_path}/house.duckdb"})


def declared(source: Any, target: Any, table: type[ManagedTable] = Orders, **more: Any) -> PipelineSpec:
    options = {"target": table, "target_connection": target, "source_connection": source, "name": "keep", **more}
    where = caller()
    return pipeline_from(lambda: "SELECT id, item FROM orders", PipelineOptions.parse(options, where), where)


@contextmanager
def planned(spec: PipelineSpec) -> Iterator[tuple[RunContext, RunPlan]]:
    with open_plan(spec, RunParameters("run-1", now()), StepClock("keep")) as (context, plan):
        assert not isinstance(plan, NoSource)
        yield context, plan


def opened(**more: Any) -> WriteSession:
    return WriteSession(Commit("keep", 1), **more)


def test_a_plan_is_a_sequence_of_steps_and_changes_nothing(shop: Any, house: Any, tmp_path: Path) -> None:
    with planned(declared(shop, house, mode="merge", transforms_post=["DELETE FROM orders_kept"])) as (_, plan):
        (load,) = plan.accepted()
        assert [type(step) for step in load.opening] == [Ensure, Begin, Refine]
        assert [type(step) for step in load.loading] == [StageArrow, Publish, Settle]
        assert [step.number for step in plan.transforms] == [0]
        assert load.ensure.creates
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.db"]


def test_a_target_that_cannot_be_planned_is_part_of_the_plan(shop: Any, house: Any) -> None:
    spec = declared(shop, house, Widened, mode="merge")
    with planned(spec) as (_, plan):
        (load,) = plan.loads
        assert isinstance(load, RefusedLoad)
        assert load.error.facts["step"] == "plan"
        with pytest.raises(MissingColumn, match="colour"):
            plan.accepted()


def test_begin_restricts_a_load_to_rows_from_the_watermark_on(shop: Any, house: Any) -> None:
    with planned(declared(shop, shop, mode="append", watermark_column="id")) as (context, plan):
        (load,) = plan.accepted()
        assert isinstance(load.rows, StageQuery)
        assert refine(context, plan.reading, load, opened()) is load
        restricted = refine(context, plan.reading, load, opened(watermark="41")).rows
        assert isinstance(restricted, StageQuery)
        assert "41" in restricted.query
    with planned(declared(shop, house, mode="append", watermark_column="id", force_lane="spark")) as (context, plan):
        (load,) = plan.accepted()
        later = refine(context, plan.reading, load, opened(watermark="41"))
        assert later.rows == StageRows("41")
        read = shared_read(context.spec, [later, refine(context, plan.reading, load, opened(watermark="7"))])
        assert read is not None
        assert (read.since, read.targets) == ("7", 2)


@pytest.mark.parametrize(("mode", "adopts"), [("append", True), ("merge", False)])
def test_a_plain_append_adopts_what_a_dead_run_published(shop: Any, house: Any, mode: str, adopts: bool) -> None:
    published = WriteResult("dead", Commit("keep", 1), Counts(inserted=2))
    with planned(declared(shop, house, mode=mode)) as (context, plan):
        (load,) = plan.accepted()
        assert isinstance(load, LoadPlan)
        later = refine(context, plan.reading, load, opened(recovered=published))
        assert later.loading == ((Adopt(published),) if adopts else load.loading)
