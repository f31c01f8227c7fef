"""Quality: checks of a load or of a table, their results, and the freshness of pipelines."""

from ematix_flow.declare.quality.checks import parse_duration
from ematix_flow.engine.batch.quality import QualityAssertion, QualityOutcome
from ematix_flow.engine.batch.table_quality import run_expectations, run_quality_stage
from ematix_flow.foundation.errors import (
    QualityCheckFailed,
    QualityDependencyMissing,
    QualityError,
    QualityUnrunnable,
)
from ematix_flow.scheduler.freshness import (
    FreshnessEvaluator,
    FreshnessState,
    SlaSpec,
    evaluate_freshness,
    evaluate_freshness_once,
    register_freshness_sla,
    registered_slas,
)

__all__ = [
    "FreshnessEvaluator",
    "FreshnessState",
    "QualityAssertion",
    "QualityCheckFailed",
    "QualityDependencyMissing",
    "QualityError",
    "QualityOutcome",
    "QualityUnrunnable",
    "SlaSpec",
    "evaluate_freshness",
    "evaluate_freshness_once",
    "parse_duration",
    "register_freshness_sla",
    "registered_slas",
    "run_expectations",
    "run_quality_stage",
]
