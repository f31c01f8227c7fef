"""Data windows as text, and the commands that load them."""

from __future__ import annotations

import shlex

from ematix_flow.cli.loading.module import LoadedModule
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow, format_instant


def format_window(window: DataWindow, spec: PipelineSpec) -> str:
    """Return start and end of a window in the pipeline's time zone."""
    start, end = (format_instant(edge, zone=spec.timezone).replace("T", " ") for edge in (window.start, window.end))
    return f"{start} – {end}"


def time_zone_of(spec: PipelineSpec) -> str:
    """Return the time zone of a pipeline's windows."""
    return spec.timezone or "UTC"


def backfill_command(
    spec: PipelineSpec, loaded: LoadedModule, run_log_option: str, *, window: DataWindow | None = None, chunk: str = ""
) -> str:
    """Return the command that loads a window or, without one, resumes what was left unloaded."""
    words = f"flow backfill {loaded.option}{shlex.quote(spec.name)}"
    if window is None:
        words += " --resume"
    else:
        start, end = (format_instant(edge, zone=spec.timezone) for edge in (window.start, window.end))
        words += f" --from {start} --to {end}" + (f" --chunk {chunk}" if chunk else "")
    return words + run_log_option


def format_count(number: int, what: str) -> str:
    """Return a number with its noun in singular or plural.

    >>> format_count(1, "window"), format_count(1200, "window")
    ('1 window', '1,200 windows')
    """
    return f"{number:,} {what if number == 1 else what + 's'}"
