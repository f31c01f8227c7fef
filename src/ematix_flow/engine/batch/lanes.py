"""The choice of a load's lane through Spark, and the tasks of the Arrow lane."""

from __future__ import annotations

from ematix_flow.contract.lane import ArrowSource, ArrowStage, TaskInput
from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane.arrow_normalize import normalized_columns, normalizing_query
from ematix_flow.dataplane.type_mapping import pairs
from ematix_flow.engine.batch.context import RunContext, TargetContext
from ematix_flow.engine.batch.reading import PlannedSource, TargetSource, compares_alike
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.planning.lanes import INSIDE, LaneChoice, choose_lane, shape_obstacle


def lane_of(context: RunContext, target: TargetContext, job: WriteJob, reading: PlannedSource, inside: TargetSource, *,
            plan: ReadPlan | None = None) -> LaneChoice:  # fmt: skip
    """Return the lane: Arrow for a load that reads, casts and writes row by row, Spark rows for everything else."""
    if inside.query is not None:
        return LaneChoice(INSIDE, "no row leaves the database")
    plan = plan or reading.plan
    return choose_lane(force=context.spec.force_lane, obstacle=_arrow_obstacle(context, target, job, reading, plan))


def _arrow_obstacle(
    context: RunContext, target: TargetContext, job: WriteJob, reading: PlannedSource, plan: ReadPlan | None
) -> str | None:
    spec, source, sink = context.spec, reading.source, target.sink
    if len(context.loads) > 1:
        return "the source is read once for several targets"
    if source is None or plan is None:
        return "the source is a dataframe"
    if spec.transforms_pre:
        return "pre-transforms run in Spark"
    if spec.transform_sql is not None:
        return "transform_sql runs in Spark"
    if not isinstance(source, ArrowSource):
        return f"{reading.backend.title if reading.backend else 'a federated query'} is read by Spark"
    if not isinstance(sink, ArrowStage):
        return f"{target.backend.title} is written by Spark"
    if spec.incremental is not None and not compares_alike(context, reading, spec.incremental):
        return f"the watermark {spec.incremental.column} is compared in Spark"
    columns = source.arrow_columns(plan)
    if isinstance(columns, str):
        return columns
    refused = sink.arrow_obstacle(job)
    if refused is not None:
        return refused
    ready = normalized_columns(target.load.table, columns)
    return ready if isinstance(ready, str) else shape_obstacle(ready, target.load.table.columns)


def tasks_of(context: RunContext, target: TargetContext, reading: PlannedSource, plan: ReadPlan) -> TaskInput:
    """Return the tasks that process the Arrow batches of the source."""
    from ematix_flow.dataplane.arrow_lane import ArrowFlow, SparkTasks

    if not isinstance(reading.source, ArrowSource):
        raise AssertionError("the load was not planned for the Arrow lane")
    parts = reading.source.arrow_parts(plan, context.open_until)
    table = target.load.table
    ready = normalized_columns(table, parts.columns)
    if isinstance(ready, str):
        raise RunFailed(f"the load was planned for the Arrow lane: {ready}", hint="run it again")
    flow = ArrowFlow(parts, normalizing_query(table, parts.columns), ready, tuple(pairs(table.columns)))
    return SparkTasks(flow, context.spark())
