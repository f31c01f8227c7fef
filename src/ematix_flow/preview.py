"""Plans of runs."""

from __future__ import annotations

from ematix_flow.engine.plans import Preview, TargetPlan, TransformPlan
from ematix_flow.engine.preview import ValidateResult, preview, validate

PreviewResult = Preview

__all__ = ["PreviewResult", "TargetPlan", "TransformPlan", "ValidateResult", "preview", "render_text", "validate"]


def render_text(result: Preview, *, verbose: bool = False, use_color: bool = False) -> str:
    """Return the plan as aligned lines; `verbose` adds the statements that will change the schema."""
    title, *lines = result.to_text().splitlines()
    shown = [line for line in lines if verbose or not line.startswith("  ddl ")]
    return "\n".join([f"\x1b[1m{title}\x1b[0m" if use_color else title, *shown])
