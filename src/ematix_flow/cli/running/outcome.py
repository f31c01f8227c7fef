"""The order of several pipelines of a command, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.cli.render.failure import exit_code, failure_to_dict
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.errors import PartialFailure

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import Result


@dataclass(frozen=True)
class FailedPipeline:
    """A pipeline that failed."""

    pipeline: str
    error: Exception
    run_id: str = ""


@dataclass(frozen=True)
class SkippedPipeline:
    """A pipeline that was not tried."""

    pipeline: str
    reason: str


@dataclass
class CommandOutcome:
    """The results of all pipelines of one command, in order of execution."""

    results: list[Result] = field(default_factory=list)
    failed: list[FailedPipeline] = field(default_factory=list)
    skipped: list[SkippedPipeline] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code: 0, the code of the first failure, or 8 when others succeeded."""
        if not self.failed:
            return exit_codes.OK
        return exit_codes.PARTIAL if self.results else exit_code(self.failed[0].error)

    def runnable(
        self, specs: Sequence[PipelineSpec], skip: Callable[[SkippedPipeline], None]
    ) -> Iterator[PipelineSpec]:
        """Yield the pipelines in turn; those that depend on a failed or skipped one are skipped."""
        for spec in specs:
            missing = {item.pipeline: "failed" for item in self.failed}
            missing |= {item.pipeline: "was skipped" for item in self.skipped}
            blocked = [name for name in spec.depends_on if name in missing]
            if not blocked:
                yield spec
                continue
            self.skipped.append(SkippedPipeline(spec.name, ", ".join(f"{name} {missing[name]}" for name in blocked)))
            skip(self.skipped[-1])

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of pipelines that succeeded, failed and were skipped."""
        return {"succeeded": len(self.results), "failed": len(self.failed), "skipped": len(self.skipped)}

    def to_dict(self) -> dict[str, Any]:
        """Return one dict for JSON; the first failure is at its top level, as in the output of any other command."""
        first = failure_to_dict(self.failed[0].error) if self.failed else {}
        return {
            **_error_facts(first),
            "exit_code": self.exit_code,
            "results": [result.to_dict() for result in self.results],
            "failed": [_failure(item) for item in self.failed],
            "skipped": [{"pipeline": item.pipeline, "reason": item.reason} for item in self.skipped],
        }


def _failure(item: FailedPipeline) -> dict[str, Any]:
    return {
        "pipeline": item.pipeline,
        "run_id": item.run_id or None,
        **_error_facts(failure_to_dict(item.error)),
        **_loaded_facts(item.error),
    }


def loaded_targets(error: Exception) -> Result | None:
    """Return the result of the targets that were loaded although others failed; None if the error has none."""
    from ematix_flow.engine.batch.result import Result

    result = error.facts.get("result") if isinstance(error, PartialFailure) else None
    return result if isinstance(result, Result) else None


def _loaded_facts(error: Exception) -> dict[str, Any]:
    result = loaded_targets(error)
    return {"result": result.to_dict()} if result is not None else {}


def _error_facts(error: Mapping[str, object]) -> dict[str, object]:
    """Return the error's dict without facts that are objects, which JSON would only render as text."""
    facts = error.get("facts")
    kept = {key: value for key, value in facts.items() if key != "result"} if isinstance(facts, Mapping) else {}
    return {**{key: value for key, value in error.items() if key != "facts"}, **({"facts": kept} if kept else {})}
