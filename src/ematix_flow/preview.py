"""Plans of runs."""

from __future__ import annotations

from ematix_flow.engine.batch.preview import ValidateResult, preview, validate
from ematix_flow.engine.batch.preview_plan import PreviewResult, TargetPlan, TransformPlan, render_text

__all__ = [
    "PreviewResult",
    "TargetPlan",
    "TransformPlan",
    "ValidateResult",
    "preview",
    "render_text",
    "validate",
]
