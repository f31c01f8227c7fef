"""Quality checks of a load between stage and publish: executed, reported, and enforced if the policy requires it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.alerters.text import format_span
from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.quality.checks import (
    Between,
    Check,
    Fresh,
    Matches,
    NotNull,
    OneOf,
    RowCount,
    Unique,
    format_duration,
)
from ematix_flow.declare.quality.expectations import FAIL, QualitySpec
from ematix_flow.declare.table import TableSpec
from ematix_flow.engine.batch.context import TargetContext
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, QualityCheckFailed, QualityUnrunnable
from ematix_flow.foundation.redact import mask

SKIP_VARIABLE = "EMATIX_SKIP_QUALITY"
PASSED, WARNED, FAILED, ERRED, SKIPPED, EMPTY = "pass", "warn", "fail", "error", "skipped", "empty"
_OFF = ("", "0", "false", "no", "off")
_LONGEST_LIST = 60
_LOAD_ALL_THE_SAME = 'correct the source, or load such rows all the same: on_quality_failure="warn"'
_CORRECT = "correct the source and load again, or correct the rows in the table"


@dataclass(frozen=True)
class QualityAssertion:
    """The result of one check: pass, fail or error, the number of failing rows, and keys of some of them."""

    name: str
    verdict: str
    message: str | None = None
    failing: int = 0
    samples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON."""
        return {**asdict(self), "samples": list(self.samples)}

    def __str__(self) -> str:
        examples = f" (for example {'; '.join(self.samples)})" if self.samples else ""
        return f"{self.name}: {self.message or self.verdict}{examples}"


@dataclass(frozen=True)
class QualityOutcome:
    """The result of all checks of one load.

    The verdict is `pass`, `fail` if rows violate a check, `warn` if a check could not be run, `skipped` or `empty`.
    """

    pipeline: str
    table: str
    schema: str | None
    verdict: str
    assertions: tuple[QualityAssertion, ...] = ()
    duration_seconds: float = 0.0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    policy: str = "warn"
    alert: bool = False
    """Whether alerters are notified although the load continued."""
    is_loaded: bool = False
    """Whether the rows were already in their table when they were checked."""

    @property
    def qualified_table(self) -> str:
        """Return `schema.table`."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def checks_total(self) -> int:
        """Return the number of checks."""
        return len(self.assertions)

    @property
    def checks_failed(self) -> int:
        """Return the number of checks that rows violate."""
        return sum(item.verdict == FAILED for item in self.assertions)

    @property
    def checks_errored(self) -> int:
        """Return the number of checks that could not be run."""
        return sum(item.verdict == ERRED for item in self.assertions)

    @property
    def wrong(self) -> tuple[QualityAssertion, ...]:
        """Return the checks that failed or could not be run."""
        return tuple(item for item in self.assertions if item.verdict in (FAILED, ERRED))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON."""
        return {
            "verdict": self.verdict,
            "pipeline": self.pipeline,
            "schema": self.schema,
            "table": self.table,
            "policy": self.policy,
            "alert": self.alert,
            "checks_total": self.checks_total,
            "checks_failed": self.checks_failed,
            "checks_errored": self.checks_errored,
            "assertions": [item.to_dict() for item in self.assertions],
            "duration_seconds": self.duration_seconds,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
        }

    def __str__(self) -> str:
        number = len(self.wrong)
        refuses, into = "refuses" if number == 1 else "refuse", "of" if self.is_loaded else "for"
        text = f"{number} of {self.checks_total} checks {refuses} the rows {into} {self.qualified_table}"
        if not self.checks_failed and self.checks_errored:
            text = f"{self.checks_errored} of {self.checks_total} checks of {self.qualified_table} could not be asked"
        return "\n".join([text if self.is_loaded else f"{text}; nothing was loaded", *map(str, self.wrong)])


def run_checks(
    pipeline: str, quality: QualitySpec, target: TargetContext, job: WriteJob, stage: Stage
) -> QualityOutcome:
    """Run the checks of a load on its stage, and return their outcome."""
    checks, began = target.load.checks, now()
    if is_skipped():
        assertions: tuple[QualityAssertion, ...] = ()
        verdict = SKIPPED
    else:
        assertions = _run_checks(target, job, stage, checks)
        verdict = verdict_of(assertions)
    outcome = outcome_of(pipeline, target.load.table, verdict, assertions, began)
    return replace(outcome, policy=quality.on_failure, alert=quality.alert_on_warn)


def outcome_of(
    pipeline: str, table: TableSpec, verdict: str, assertions: tuple[QualityAssertion, ...], began: datetime
) -> QualityOutcome:
    """Return the outcome of checks that began at `began` and end now."""
    ended = now()
    took = round((ended - began).total_seconds(), 3)
    return QualityOutcome(pipeline, table.name, table.schema or None, verdict, assertions, took, began, ended)


def enforce_policy(outcome: QualityOutcome, checks: Sequence[Check]) -> None:
    """Raise QualityCheckFailed or QualityUnrunnable if the policy is "fail" and a check failed or could not run."""
    if outcome.policy != FAIL:
        return
    names = {item.name for item in outcome.wrong}
    where = next((check.where for check in checks if check.name in names), None)
    if outcome.verdict == FAILED:
        raise QualityCheckFailed(
            outcome,
            where=where,
            hint=_CORRECT if outcome.is_loaded else _LOAD_ALL_THE_SAME,
            checks=len(outcome.wrong),
        )
    if outcome.verdict == WARNED:
        raise QualityUnrunnable(
            str(outcome), where=where, hint=f'correct the check, or go on without: {SKIP_VARIABLE}=1 or "warn"'
        )


def check_notes(outcome: QualityOutcome) -> tuple[str, ...]:
    """Return the notes of a run about checks that did not pass."""
    if outcome.verdict == SKIPPED:
        return (f"quality: the checks were skipped, because {SKIP_VARIABLE} is set",)
    return tuple(f"quality: {item}" for item in outcome.wrong)


def is_skipped() -> bool:
    """Return whether EMATIX_SKIP_QUALITY switches the checks off."""
    return os.environ.get(SKIP_VARIABLE, "").strip().lower() not in _OFF


def verdict_of(assertions: Sequence[QualityAssertion]) -> str:
    """Return the overall verdict of several checks."""
    verdicts = {item.verdict for item in assertions}
    if not verdicts:
        return EMPTY
    return FAILED if FAILED in verdicts else WARNED if ERRED in verdicts else PASSED


def _run_checks(
    target: TargetContext, job: WriteJob, stage: Stage, checks: Sequence[Check]
) -> tuple[QualityAssertion, ...]:
    try:
        findings = target.sink.check(job, stage, checks)
    except FlowError as exc:
        if exc.retryable:  # the load itself would fail for the same reason
            raise
        return tuple(unrunnable_assertion(check, exc) for check in checks)
    return tuple(assertion_of(finding, job.started_at) for finding in findings)


def assertion_of(finding: CheckResult, at: datetime, of: str = "load") -> QualityAssertion:
    """Return the result of a check run at time `at`, on a load or a table."""
    name = finding.check.name
    if finding.passed:
        return QualityAssertion(name, PASSED)
    return QualityAssertion(name, FAILED, _refusal(finding, at, of), finding.failing, finding.samples)


def unrunnable_assertion(check: Check, error: FlowError) -> QualityAssertion:
    """Return the result of a check that could not be run."""
    return QualityAssertion(check.name, ERRED, f"it could not be asked: {mask(error.what.splitlines()[0])}")


def _refusal(finding: CheckResult, at: datetime, of: str) -> str:
    """Return the message of a failed check."""
    rows = "1 row" if finding.failing == 1 else f"{finding.failing:,} rows"
    match finding.check:
        case NotNull():
            return f"{rows} without a value"
        case Between() as check:
            return f"{rows} {_bound_text(check)}"
        case Matches(_, pattern):
            return f"{rows} without a match of {pattern.source!r}"
        case OneOf(_, values):
            listed = ", ".join(map(repr, values))
            shown = listed if len(listed) <= _LONGEST_LIST else f"{listed[:_LONGEST_LIST]} …"
            return f"{rows} with another value than {shown}"
        case Unique():
            several = "1 value comes" if finding.repeated == 1 else f"{finding.repeated:,} values come"
            return f"{several} more than once, in {rows}"
        case RowCount() as count:
            return f"the {of} has {finding.rows:,}, expected are {count}"
        case Fresh() as wanted:
            return _stale_text(wanted, finding, at)


def _bound_text(check: Between) -> str:
    if check.low is None or check.high is None:
        return f"below {check.low}" if check.high is None else f"above {check.high}"
    return f"outside of {check.low} … {check.high}"


def _stale_text(check: Fresh, finding: CheckResult, at: datetime) -> str:
    allowed = f"at most {format_duration(check.within)} is allowed"
    if finding.newest is None:
        return f"there is no value at all, and {allowed}"
    age: timedelta = at - finding.newest
    return f"the newest value is {format_span(age) or 'less than 1 s'} old, and {allowed}"
