"""Windows as people read them, and the commands that load them."""

from __future__ import annotations

import shlex

from ematix_flow.cli.module import Loaded
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import Window, said


def shown(window: Window, spec: PipelineSpec) -> str:
    """From when to when, by the clocks of the pipeline's zone."""
    start, end = (said(edge, zone=spec.timezone).replace("T", " ") for edge in (window.start, window.end))
    return f"{start} – {end}"


def zone_of(spec: PipelineSpec) -> str:
    """Whose clocks they are."""
    return spec.timezone or "UTC"


def backfill_command(
    spec: PipelineSpec, loaded: Loaded, run_log_option: str, *, window: Window | None = None, chunk: str = ""
) -> str:
    """What to type to load a stretch, or without one whatever is left open."""
    words = f"flow backfill {loaded.option}{shlex.quote(spec.name)}"
    if window is None:
        words += " --resume"
    else:
        start, end = (said(edge, zone=spec.timezone) for edge in (window.start, window.end))
        words += f" --from {start} --to {end}" + (f" --chunk {chunk}" if chunk else "")
    return words + run_log_option


def counted(number: int, what: str) -> str:
    """So many of something.

    >>> counted(1, "window"), counted(1200, "window")
    ('1 window', '1,200 windows')
    """
    return f"{number:,} {what if number == 1 else what + 's'}"
