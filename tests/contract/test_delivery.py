"""Delivery: a repeated publish changes nothing, history and watermarks tell the truth, a dead run is settled."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk
from ematix_flow.contract.write import WriteJob
from ematix_flow.engine.batch.context import open_context
from ematix_flow.foundation.clock import now
from tests.contract.loading import columns, counts, declare, frame, load, pipeline_of
from tests.harness.base import Harness

pytestmark = [pytest.mark.offers("append"), pytest.mark.proves("{backend}: once")]


def small() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None})


@pytest.mark.core
def test_a_run_that_died_after_its_publish_is_not_loaded_again(harness: Harness, spark: Any) -> None:
    table = declare({"id": BigInt, "name": Text | None})
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    pipeline = pipeline_of(harness, table, rows, mode="append")
    dead = _publish_and_die(pipeline, frame(spark, table.spec(), rows), settle=False)
    result = pipeline.sync()
    assert result.targets[0].run_id == dead
    assert "already published" in " ".join(result.targets[0].notes)
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,), (2,)]
    assert counts(pipeline.sync()) == {"inserted": 2}


def test_a_run_that_died_before_its_publish_left_nothing(harness: Harness, spark: Any) -> None:
    table = small()
    rows = [{"id": 1, "name": "a"}]
    pipeline = pipeline_of(harness, table, rows, mode="append")
    context = open_context(pipeline.spec)
    target = context.loads[0]
    job = _job(pipeline)
    from ematix_flow.contract.ddl import CreateTable

    target.ddl.apply(target.shape, [CreateTable(target.shape.table)])
    target.sink.begin(job)
    target.sink.stage(job, frame(spark, table.spec(), rows))
    assert harness.rows(table.spec()) == []
    assert counts(pipeline.sync()) == {"inserted": 1}
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,)]


def test_a_dry_run_counts_and_changes_nothing(harness: Harness) -> None:
    table = small()
    pipeline = pipeline_of(harness, table, [{"id": 1, "name": "a"}], mode="append")
    assert counts(pipeline.dry_run()) == {"inserted": 1}
    load(harness, table, [{"id": 1, "name": "a"}], mode="append")
    more = pipeline_of(harness, table, [{"id": 2, "name": "b"}], mode="append")
    rehearsed = more.dry_run()
    assert (rehearsed.status, counts(rehearsed)) == ("dry_run", {"inserted": 1})
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,)]


def _job(pipeline: Any) -> WriteJob:
    import uuid

    context = open_context(pipeline.spec)
    load_spec = pipeline.spec.loads[0]
    return WriteJob(str(uuid.uuid4()), pipeline.spec.name, pipeline.spec.writer(load_spec), context.loads[0].shape,
                    load_spec.strategy, now())  # fmt: skip


def _publish_and_die(pipeline: Any, rows: Any, *, settle: bool) -> str:
    from ematix_flow.contract.ddl import CreateTable

    context = open_context(pipeline.spec)
    target = context.loads[0]
    job = _job(pipeline)
    target.ddl.apply(target.shape, [CreateTable(target.shape.table)])
    opening = target.sink.begin(job)
    stage = target.sink.stage(job, rows)
    target.sink.publish(job, stage, opening)
    return job.run_id
