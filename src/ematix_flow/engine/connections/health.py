"""Health checks: one report for each resource that a run may need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True)
class HealthReport:
    """The result of one check: ok, fail, or skip where it is not possible."""

    name: str
    kind: str
    status: str
    detail: str = ""
    elapsed_ms: int = 0
    hint: str | None = None
    exit_code: int = exit_codes.OK
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """Whether the check succeeded."""
        return self.status == "ok"

    @property
    def is_fail(self) -> bool:
        """Whether the check failed."""
        return self.status == "fail"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict that can be written as JSON."""
        return asdict(self)


class CheckSkipped(Exception):
    """Raised by a check that is not possible from here; the text is the reason."""


def run_check(name: str, kind: str, look: Callable[[], str]) -> HealthReport:
    """Run one check; its return value becomes the detail, an exception other than `Skip` makes a failed report."""
    began = time.monotonic()
    status, detail, hint, code = "ok", "", None, exit_codes.OK
    try:
        detail = look()
    except CheckSkipped as skip:
        status, detail = "skip", str(skip)
    except FlowError as error:
        status, detail, hint, code = "fail", error.what, error.hint, error.exit_code
    except Exception as error:
        status, detail, code = "fail", f"{type(error).__name__}: {error}", exit_codes.RUN_FAILED
    elapsed = round((time.monotonic() - began) * 1000)
    return HealthReport(name, kind, status, mask(detail), elapsed, mask(hint) if hint else None, code)


def check_connection(name: str) -> HealthReport:
    """Resolve the connection of this name and check that it answers."""
    from ematix_flow.config.resolve import resolve
    from ematix_flow.engine.connections.probe import check_reachable

    try:
        connection = resolve(name).connection
    except FlowError as error:
        hint = mask(error.hint) if error.hint else None
        return HealthReport(name, "?", "fail", mask(error.what), hint=hint, exit_code=error.exit_code)
    return run_check(name, connection.kind, lambda: check_reachable(connection))


def first_failure_code(reports: Sequence[HealthReport]) -> int:
    """Return the exit code for all reports: that of the first failure."""
    return next((report.exit_code for report in reports if report.is_fail), exit_codes.OK)
