"""Functions on declared pipelines by name, and loads without a decorator."""

from __future__ import annotations

from ematix_flow.api.pipelines import (
    RegistryEntry,
    ScheduledPipeline,
    backfill,
    depends_on_of,
    dry_run,
    forecast_next_run,
    gaps,
    get_pipeline,
    is_due,
    list_entries,
    list_pipelines,
    list_transforms,
    matched_fire_time,
    order_for_run_due,
    preview,
    register,
    render_status_table,
    retry_policy_of,
    run_due_with_dag,
    run_due_with_dag_detailed,
    run_pipeline,
    run_transform,
    send_message,
    status_snapshot,
    sync,
    upstream_freshness_secs_of,
    validate,
    workflow_dag_edges,
)
from ematix_flow.declare.pipeline_data import Pipeline, Source, Target
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.workflow import AllOf, AnyOf, TriggerOp, Workflow, register_workflow
from ematix_flow.engine.batch.post_load import ParentContext
from ematix_flow.engine.batch.preview import ValidateResult
from ematix_flow.run_log.records import AttemptState
from ematix_flow.run_log.sqlite import SqliteRunLog as RunLog
from ematix_flow.scheduler.firing import FailedEvent, FiredEvent, RunDueResult, SkippedEvent

__all__ = [
    "AllOf", "AnyOf", "AttemptState", "FailedEvent", "FiredEvent", "ParentContext", "Pipeline", "RegistryEntry",
    "RetryPolicy", "RunDueResult", "RunLog", "ScheduledPipeline", "SkippedEvent", "Source", "Target", "TriggerOp",
    "ValidateResult", "Workflow", "backfill", "depends_on_of", "dry_run", "forecast_next_run", "gaps", "get_pipeline",
    "is_due", "list_entries", "list_pipelines", "list_transforms", "matched_fire_time", "order_for_run_due", "preview",
    "register", "register_workflow", "render_status_table", "retry_policy_of", "run_due_with_dag",
    "run_due_with_dag_detailed", "run_pipeline", "run_transform", "send_message", "status_snapshot", "sync",
    "upstream_freshness_secs_of", "validate", "workflow_dag_edges",
]  # fmt: skip
