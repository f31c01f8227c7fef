"""The state of a lake beside its data: each writer's last and pending load, and the run history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

from ematix_flow.contract.write import Commit, Counts, Fence, WriteJob, WriteResult
from ematix_flow.foundation.clock import now
from ematix_flow.storage.paths import LakeRoot, append_line, lines_of, read_text_if_exists, write_atomically

HISTORY_COLUMNS = (
    "run_id", "pipeline_name", "target_schema", "target_table", "mode", "path", "started_at", "finished_at", "status",
    "rows_inserted", "error_message", "rows_updated", "rows_unchanged", "parent_run_id", "step_name", "metrics_json",
)  # fmt: skip


@dataclass(frozen=True)
class LakeLoad:
    """One load of a writer: pending, published, or the last settled one."""

    run_id: str
    sequence: int
    schema: str = ""
    table: str = ""
    started_at: str = ""
    counts: Mapping[str, int] | None = None
    watermark: str | None = None
    column: str | None = None
    published: bool = False
    after: Mapping[str, Any] | None = None
    """The work that remains after the load is published."""

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> LakeLoad:
        """Return a load from plain data; ignore fields of newer versions."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in kept.items() if name in known})

    def result(self, writer: str) -> WriteResult:
        """Return the result of the load, marked as repeated."""
        counts = Counts(**(self.counts or {}))
        return WriteResult(self.run_id, Commit(writer, self.sequence), counts, self.watermark, repeated=True)


@dataclass(frozen=True)
class WriterState:
    """The last settled load of a writer and the pending one."""

    last: LakeLoad | None = None
    pending: LakeLoad | None = None

    @property
    def sequence(self) -> int:
        """Return the highest sequence that is certainly published."""
        known = [
            load.sequence
            for load in (self.last, self.pending)
            if load is not None and (load is self.last or load.published)
        ]
        return max(known, default=0)

    def settled(self) -> WriterState:
        """Return the state with the pending load as the last; keep the last watermark if the load has none."""
        if self.pending is None:
            return self
        load = replace(self.pending, published=True, after=None)
        if load.column is None and self.last is not None:
            load = replace(load, watermark=self.last.watermark, column=self.last.column)
        return WriterState(last=load)


@dataclass(frozen=True)
class LakeState:
    """The state files of one lake."""

    lake_root: LakeRoot

    def read(self, writer: str) -> WriterState | None:
        """Return the state of a writer, None when none is stored."""
        text = read_text_if_exists(self.lake_root.state(f"{writer}.json"))
        if text is None:
            return None
        kept = json.loads(text)
        return WriterState(
            *(LakeLoad.from_dict(kept[name]) if kept.get(name) else None for name in ("last", "pending"))
        )

    def write(self, writer: str, state: WriterState) -> None:
        """Store the state atomically."""
        kept = {"last": _load_to_dict(state.last), "pending": _load_to_dict(state.pending)}
        write_atomically(self.lake_root.state(f"{writer}.json"), json.dumps(kept, indent=1))

    def check_fence(self, fence: Fence) -> None:
        """Record the fence; raise `LeaseLost` if a higher number is recorded. Call it with the table's lock held."""
        file = self.lake_root.state(f"fence of {fence.name}.json")
        kept = int(read_text_if_exists(file) or 0)
        if kept > fence.number:
            raise fence.lost()
        if kept < fence.number:
            write_atomically(file, str(fence.number))

    def started(self, job: WriteJob) -> None:
        """Append a history line with status `running`."""
        table = job.shape.declared
        self._line(
            run_id=job.run_id, pipeline_name=job.writer, target_schema=table.schema, target_table=table.name,
            mode=job.mode or job.strategy.mode, path=job.path, started_at=job.started_at.isoformat(), status="running",
        )  # fmt: skip

    def finished(self, run_id: str, writer: str, *, counts: Counts | None, error: str | None) -> None:
        """Append a history line with the end of the run."""
        numbers: dict[str, Any] = {}
        if counts is not None:
            numbers = {
                "rows_inserted": counts.inserted,
                "rows_updated": counts.updated or counts.closed,
                "rows_unchanged": counts.unchanged,
                "metrics_json": json.dumps(asdict(counts)),
            }
        status = "failed" if error else "success"
        self._line(
            run_id=run_id,
            pipeline_name=writer,
            finished_at=now().isoformat(),
            status=status,
            error_message=error,
            **numbers,
        )

    def transformed(self, run_id: str, *, parent: str, pipeline: str, step: str, error: str | None,
                    metrics: str | None, started_at: datetime) -> None:  # fmt: skip
        """Append a history line for a post-load transform."""
        self._line(
            run_id=run_id, pipeline_name=pipeline, mode="transform", path="post", started_at=started_at.isoformat(),
            finished_at=now().isoformat(), status="transform_failed" if error else "transform_success",
            error_message=error, parent_run_id=parent, step_name=step, metrics_json=metrics,
        )  # fmt: skip

    def has_history(self) -> bool:
        """Return whether the run history has a line."""
        return any(lines_of(self.lake_root.state("run_history.jsonl")))

    def history(self) -> list[dict[str, Any]]:
        """Return every run as one row with the columns of the run_history table, oldest first."""
        runs: dict[str, dict[str, Any]] = {}
        for line in lines_of(self.lake_root.state("run_history.jsonl")):
            try:
                event = json.loads(line)
            except ValueError:  # a line truncated by a power failure
                continue
            runs.setdefault(event["run_id"], dict.fromkeys(HISTORY_COLUMNS)).update(event)
        return list(runs.values())

    def _line(self, **values: Any) -> None:
        append_line(self.lake_root.state("run_history.jsonl"), json.dumps(values))


def _load_to_dict(load: LakeLoad | None) -> dict[str, Any] | None:
    return asdict(load) if load is not None else None
