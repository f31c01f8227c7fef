"""Entry functions of batch pipelines: run, rehearse, preview, validate."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.declare import registry
from ematix_flow.declare.engine import EngineWish
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine import lease, post, spark_errors
from ematix_flow.engine.ask import NoSource, QuerySource, ask, plain_answer
from ematix_flow.engine.choice import choose
from ematix_flow.engine.context import RunContext, open_context
from ematix_flow.engine.reading import Reading, plan_reading
from ematix_flow.engine.result import Event, Listener, Result, TargetResult
from ematix_flow.engine.walk import Walk, close, outcome
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, PartialFailure
from ematix_flow.foundation.redact import mask
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog


SMALL_ROWS = 200_000


def run(
    spec: PipelineSpec,
    *,
    overrides: Mapping[str, Any] | None = None,
    run_log: RunLog | None = None,
    accept_deletes: int | None = None,
    listener: Listener | None = None,
) -> Result:
    """Run a pipeline once; raises a FlowError when it fails."""
    spec = spec.overridden(overrides)
    run_id, started_at = str(uuid.uuid4()), now()
    with lease.held(run_log, spec.name), _recorded(run_log, spec, run_id, started_at) as record:
        result = _run(spec, run_id, started_at, listener or _silent, accept_deletes)
        record.result = result
        if result.status == "partial":
            failed = [target for target in result.targets if target.error]
            raise PartialFailure(
                f"{len(failed)} of {len(result.targets)} targets of {spec.name} failed: "
                + "; ".join(f"{target.table}: {target.error}" for target in failed),
                where=spec.where,
                hint="the others are loaded; correct these and run again",
                result=result,
            )
        return result


def rehearse(spec: PipelineSpec, *, overrides: Mapping[str, Any] | None = None, accept_deletes: int | None = None,
             listener: Listener | None = None) -> Result:  # fmt: skip
    """Do everything but the last step: stage, check and count, then roll back."""
    spec = spec.overridden(overrides)
    return _run(spec, str(uuid.uuid4()), now(), listener or _silent, accept_deletes, rehearsal=True)


def _silent(_: Event) -> None:
    return None


def _run(spec: PipelineSpec, run_id: str, started_at: datetime, emit: Listener, accept_deletes: int | None, *,
         rehearsal: bool = False) -> Result:  # fmt: skip
    began = time.monotonic()
    emit = _timed(emit, began)
    if not spec.loads and not rehearsal:
        return Result(spec.name, run_id, "success", seconds=time.monotonic() - began, value=plain_answer(spec))
    with source_of(spec, emit) as (context, reading):
        if isinstance(reading, NoSource):
            return Result(spec.name, run_id, "success", seconds=time.monotonic() - began, value=reading.value)
        walk = Walk(context, run_id=run_id, started_at=started_at, emit=emit, accept_deletes=accept_deletes,
                    rehearsal=rehearsal)  # fmt: skip
        loadings = walk.load(reading)
        targets = tuple(outcome(loading, reading) for loading in loadings)
        transforms: Sequence[Mapping[str, Any]] = ()
        if spec.transforms_post and not rehearsal and all(target.error is None for target in targets):
            transforms = post.run_transforms(
                context, targets[0], emit, lambda name: run(registry.get_pipeline(name).spec)
            )
    status = "dry_run" if rehearsal else _status(targets)
    return Result(spec.name, run_id, status, targets, time.monotonic() - began, spec.fan_out, None, tuple(transforms))


def _status(targets: Sequence[TargetResult]) -> str:
    failed = sum(target.error is not None for target in targets)
    return "success" if failed == 0 else "partial"


def _timed(emit: Listener, began: float) -> Listener:
    from dataclasses import replace

    return lambda event: emit(replace(event, seconds=time.monotonic() - began))


@contextmanager
def source_of(spec: PipelineSpec, emit: Listener) -> Iterator[tuple[RunContext, Reading | NoSource]]:
    """Resolve, call the function, plan the read; everything opened is closed at the end."""
    context = open_context(spec)
    try:
        emit(Event(spec.name, "plan"))
        try:
            asked = ask(spec, context.spark, context.open_until)
            if isinstance(asked, NoSource):
                yield context, asked
                return
            if isinstance(asked, QuerySource):
                context.source = asked.connection
            reading = plan_reading(context, asked, parallelism=parallelism(spec.engine))
            rows = reading.plan.estimated_rows if reading.plan else None
            context.is_small = rows is not None and rows <= SMALL_ROWS
        except FlowError as exc:
            exc.facts.setdefault("step", "plan")
            raise exc.at(spec.where) from exc
        except Exception as exc:
            raise spark_errors.translate(exc).at(spec.where) from exc
        yield context, reading
    finally:
        close(context.open_until)


def parallelism(said: EngineWish | None = None) -> int:
    """Tasks that may read at once."""
    return (os.cpu_count() or 2) if choose(said).is_local else int(os.environ.get("EMATIX_FLOW_PARALLELISM", "8"))


@dataclass
class _Record:
    """What the run log will say."""

    result: Result | None = None
    extras: dict[str, Any] = field(default_factory=dict)


@contextmanager
def _recorded(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime) -> Iterator[_Record]:
    """A record that says running, then how it ended; the run matters more than its record."""
    record = _Record()
    write = _writer(run_log, spec, run_id, started_at)
    write("running", record, None)
    try:
        yield record
    except BaseException as exc:
        write("failed", record, exc)
        raise
    write("succeeded", record, None)


def _writer(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime) -> Callable[..., None]:
    def write(status: str, record: _Record, error: BaseException | None) -> None:
        if run_log is None:
            return
        from ematix_flow.runlog.records import RunRecord

        ended = None if status == "running" else now()
        facts = error.facts if isinstance(error, FlowError) else {}
        extras = record.result.to_dict() if record.result else {}
        extras["worker"] = this_worker()  # a reader can tell a dead run from a long one
        if isinstance(error, FlowError):
            error.facts.setdefault("run_id", run_id)
            extras["error"] = error.to_dict()
        with suppress(FlowError):
            run_log.record_run_record(
                RunRecord(
                    run_id=run_id,
                    pipeline=spec.name,
                    status=status,
                    started_at=started_at,
                    finished_at=ended,
                    failed_step=str(facts["step"]) if "step" in facts else None,
                    error_summary=mask(str(getattr(error, "what", error))) if error else None,
                    extras=extras,
                )
            )
            if ended is not None:
                run_log.record_run(spec.name, ended, error is None)

    return write


def run_transform(name: str) -> dict[str, Any]:
    """Run a named transform by itself."""
    known = registry.get_transform(name)
    try:
        metrics = post.call_transform(known, None)
    except FlowError as exc:
        exc.at(known.where)
        raise
    except Exception as exc:
        from ematix_flow.foundation.errors import RunFailed

        raise RunFailed(f"transform {name} raised {type(exc).__name__}: {exc}", where=known.where) from exc
    return {
        "status": "success",
        "metrics": metrics if isinstance(metrics, Mapping) else {},
        "run_id": str(uuid.uuid4()),
    }
