"""The record of a batch run in the run log: written when the run begins, and again when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.fingerprint import fingerprint
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.batch.cost import CostMeter, component_versions
from ematix_flow.engine.batch.plan import RunParameters
from ematix_flow.engine.batch.result import Result
from ematix_flow.engine.batch.run_request import claim_requested_run
from ematix_flow.foundation.errors import FlowError, RunCancelled
from ematix_flow.run_log.records import RunRecord, run_record
from ematix_flow.run_log.retention import retire_runs_occasionally
from ematix_flow.run_log.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog


@dataclass
class RunRecording:
    """Records a run as running inside its block, then how the block ended; a record that cannot be written fails no run."""

    run_log: RunLog | None
    spec: PipelineSpec
    parameters: RunParameters
    meter: CostMeter
    attempt: int
    requested: RunRecord | None
    extras: Mapping[str, Any]
    """What the record says beside the result; the window is added as soon as one is claimed."""
    result: Result | None = None
    """To be set inside the block."""

    def __enter__(self) -> None:
        claim_requested_run(self.run_log, self.requested)
        self._write("running", None)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._write("cancelled" if isinstance(error, RunCancelled) else "failed" if error else "succeeded", error)

    def _write(self, status: str, error: BaseException | None) -> None:
        if self.run_log is None:
            return
        ended = status != "running"
        extras = {**self.extras, **(self._outcome() if ended else {}), "worker": this_worker()}
        if isinstance(error, FlowError):
            error.facts.setdefault("run_id", self.parameters.run_id)
            extras["error"] = error.to_dict()
        record = run_record(self.parameters.run_id, self.spec.name, status, self.parameters.started_at, error=error,
                            attempt=self.attempt, extras=extras)  # fmt: skip
        with suppress(FlowError):
            self.run_log.record_run_record(record)
            if record.finished_at is None:
                return
            if "backfill" not in self.extras:  # old windows do not reflect the pipeline's current health
                self.run_log.record_run(self.spec.name, record.finished_at, error is None)
            retire_runs_occasionally(self.run_log)

    def _outcome(self) -> dict[str, Any]:
        """Return the extras of a run that has ended; settings are read only after success, else the session may be lost."""
        extras = self.result.to_dict() if self.result else self.meter.cost().to_dict()
        if self.result is not None and self.result.status == "success":
            extras["settings"] = self.meter.settings()
        return {**extras, "versions": component_versions(), "declaration": fingerprint(self.spec)}
