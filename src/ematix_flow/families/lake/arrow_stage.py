"""The stage of a lake, filled by the Arrow lane: each task writes one Parquet file and checks its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ematix_flow.contract.lane import Carried, TaskInput
from ematix_flow.contract.shape import BATCH_ID, LOADED_AT
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane import parquet_stage
from ematix_flow.dataplane.arrow_values import repeated_value, row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number, in_tasks
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.dataplane.type_mapping import arrow_schema, pairs
from ematix_flow.declare.strategy import Scd2
from ematix_flow.declare.types import String
from ematix_flow.families.lake.integrity import StageFacts
from ematix_flow.families.sql.sink import earlier_watermark, later_watermark
from ematix_flow.families.violations import SAMPLES, row_keys
from ematix_flow.foundation import fault
from ematix_flow.foundation.lazy_imports import pa, pc, pq
from ematix_flow.storage.os_errors import translated_os_errors

_OUTCOME = "file STRING, rows BIGINT, facts STRING"


@dataclass(frozen=True)
class _TaskPlan:
    """The parameters of a task; plain values only, because they are pickled."""

    folder: str
    columns: Carried
    constants: Mapping[str, Any]
    not_null: tuple[str, ...]
    lengths: Mapping[str, int]
    keys: tuple[str, ...]
    mark: tuple[str, str] | None
    options: Mapping[str, Any]
    driver: int


def write_rows(
    tasks: TaskInput, job: WriteJob, folder: Path, *, options: Mapping[str, Any] | None = None
) -> StageFacts:
    """Write complete rows of the target, with its metadata columns, to files of one folder; return their facts."""
    with translated_os_errors(folder):
        attempts, rows = folder.with_name(f"{folder.name}-attempts"), folder
        attempts.mkdir(parents=True, exist_ok=True)
        rows.mkdir(parents=True, exist_ok=True)
        work = _work(job, attempts, options or {})
        outcome = in_tasks(tasks, staging_task(_writer(work), parquet_stage.translate), _OUTCOME).collect()
        for answer in outcome:
            if answer["rows"]:
                (attempts / answer["file"]).rename(rows / answer["file"])
        if not any(answer["rows"] for answer in outcome):
            _write_empty(rows, work)
    return _merged([json.loads(answer["facts"]) for answer in outcome], work)


def _work(job: WriteJob, folder: Path, options: Mapping[str, Any]) -> _TaskPlan:
    declared, table = job.shape.declared, job.shape.table
    added = {column.name for column in job.shape.added}
    stored = set(table.column_names)
    from_source = [column for column in declared.columns if column.name not in stored]  # an event time without a column
    event = job.strategy.event_time if isinstance(job.strategy, Scd2) else None
    own = {LOADED_AT: job.started_at, BATCH_ID: job.run_id}
    mark = None
    if job.incremental is not None:
        mark = (job.incremental.column, declared.column(job.incremental.column).type.kind)
    return _TaskPlan(
        folder=str(folder),
        columns=tuple(pairs((*table.columns, *from_source))),
        constants={name: value for name, value in own.items() if name in added},
        not_null=tuple(
            column.name
            for column in declared.columns
            if not column.nullable or column.primary_key or column.name == event
        ),
        lengths={column.name: column.type.length for column in declared.columns if isinstance(column.type, String)},
        keys=row_keys(job),
        mark=mark,
        options=options,
        driver=os.getpid(),
    )


def _writer(work: _TaskPlan) -> Any:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        name = f"part-{attempt_number()}.parquet"
        schema = arrow_schema(list(work.columns))
        task_facts = _TaskFacts(work)
        with ExitStack() as open_until:
            writer: Any = None
            for group in parquet_stage.row_groups(batches):
                if writer is None:
                    file = f"{work.folder}/{name}"
                    writer = open_until.enter_context(pq.ParquetWriter(file, schema, **work.options))
                task_facts.add(group)
                writer.write_table(_complete_rows(group, schema, work))
                fault.point("mid_stage", victim=work.driver)
        facts = json.dumps(task_facts.to_dict())
        yield row_batch({"file": name, "rows": task_facts.rows, "facts": facts})

    return write


def _complete_rows(group: Any, schema: Any, work: _TaskPlan) -> Any:
    """Return the declared columns, the metadata columns, and NULL for columns that only later loads fill."""
    present = set(group.column_names)
    columns = []
    for field in schema:
        if field.name in present:
            columns.append(group.column(field.name))
        elif field.name in work.constants:
            columns.append(repeated_value(work.constants[field.name], field.type, group.num_rows))
        else:
            columns.append(pa.nulls(group.num_rows, field.type))
    return pa.table(columns, schema=schema)


class _TaskFacts:
    """The facts that one task has collected."""

    def __init__(self, work: _TaskPlan) -> None:
        self._work = work
        self.rows = 0
        self.broken: dict[str, int] = {}
        self.samples: dict[str, list[list[str]]] = {}
        self.watermark: str | None = None
        self.null_watermarks = 0
        self.earliest: str | None = None

    def add(self, group: Any) -> None:
        self.rows += group.num_rows
        for name in self._work.not_null:
            if group.column(name).null_count:
                self._count(f"null:{name}", group, pc.is_null(group.column(name)))
        for name, length in self._work.lengths.items():
            too_long = pc.greater(pc.utf8_length(group.column(name)), length)
            if pc.any(too_long).as_py():
                self._count(f"long:{name}", group, too_long)
        if self._work.mark is not None:
            name, kind = self._work.mark
            self.null_watermarks += group.column(name).null_count
            self.watermark = later_watermark(_as_text(pc.max(group.column(name)).as_py()), self.watermark, kind)
            self.earliest = earlier_watermark(_as_text(pc.min(group.column(name)).as_py()), self.earliest, kind)

    def _count(self, name: str, group: Any, broken: Any) -> None:
        rows = group.filter(broken)
        self.broken[name] = self.broken.get(name, 0) + rows.num_rows
        examples = self.samples.setdefault(name, [])
        for example in rows.select(list(self._work.keys)).slice(0, SAMPLES - len(examples)).to_pylist():
            examples.append([str(value) for value in example.values()])

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "broken": self.broken,
            "samples": self.samples,
            "watermark": self.watermark,
            "null_watermarks": self.null_watermarks,
            "earliest": self.earliest,
        }


def _as_text(value: Any) -> str | None:
    """Return a watermark as text, in the format of the Spark lane."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if value is None else str(value)


def _merged(answers: list[dict[str, Any]], work: _TaskPlan) -> StageFacts:
    total = StageFacts()
    kind = work.mark[1] if work.mark else ""
    for item in answers:
        broken, samples = dict(total.broken), dict(total.samples)
        for name, count in item["broken"].items():
            broken[name] = broken.get(name, 0) + count
            samples[name] = (samples.get(name, []) + item["samples"][name])[:SAMPLES]
        total = replace(
            total,
            rows=total.rows + item["rows"],
            broken=broken,
            samples=samples,
            watermark=later_watermark(item["watermark"], total.watermark, kind),
            null_watermarks=total.null_watermarks + item["null_watermarks"],
            earliest=earlier_watermark(item["earliest"], total.earliest, kind),
        )
    return total


def _write_empty(folder: Path, work: _TaskPlan) -> None:
    pq.write_table(arrow_schema(list(work.columns)).empty_table(), folder / "part-empty.parquet")
