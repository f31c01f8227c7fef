"""Does it answer? One report per thing that a run may need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ematix_flow.cli import exit_codes
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True)
class HealthReport:
    """What was found: ok, fail, or skip where nothing can be said."""

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
        """It answered."""
        return self.status == "ok"

    @property
    def is_fail(self) -> bool:
        """It did not, and should have."""
        return self.status == "fail"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)


class Skip(Exception):
    """Nothing can be said from here; the text says why."""


def examine(name: str, kind: str, look: Callable[[], str]) -> HealthReport:
    """Look once; the text it gives is the detail, an error is a failure."""
    began = time.monotonic()
    status, detail, hint, code = "ok", "", None, exit_codes.OK
    try:
        detail = look()
    except Skip as skip:
        status, detail = "skip", str(skip)
    except FlowError as error:
        status, detail, hint, code = "fail", error.what, error.hint, error.exit_code
    except Exception as error:
        status, detail, code = "fail", f"{type(error).__name__}: {error}", exit_codes.RUN_FAILED
    elapsed = round((time.monotonic() - began) * 1000)
    return HealthReport(name, kind, status, mask(detail), elapsed, mask(hint) if hint else None, code)


def check_connection(name: str) -> HealthReport:
    """Find the connection of this name and ask whether it answers."""
    from ematix_flow.cli.probe import probe
    from ematix_flow.config.resolve import resolve

    try:
        connection = resolve(name).connection
    except FlowError as error:
        hint = mask(error.hint) if error.hint else None
        return HealthReport(name, "?", "fail", mask(error.what), hint=hint, exit_code=error.exit_code)
    return examine(name, connection.kind, lambda: probe(connection))


def worst(reports: Sequence[HealthReport]) -> int:
    """The exit code for all of them: that of the first failure."""
    return next((report.exit_code for report in reports if report.is_fail), exit_codes.OK)
