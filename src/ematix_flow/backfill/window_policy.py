"""The window policy: which pipelines read by windows, and whether these may be loaded in parallel or only in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import PipelineSpec, positional_parameters, returns_nothing, takes_window
from ematix_flow.declare.strategy import Append, Scd2, Truncate
from ematix_flow.engine.batch.windows import check_window_keywords, not_windowed_error
from ematix_flow.foundation.errors import PlanError
from ematix_flow.sql.expressions import window_marks


@dataclass(frozen=True)
class WindowPolicy:
    """How a pipeline's windows are loaded, and why; `in_order`: a failed window stops all later ones."""

    side_by_side: bool = True
    in_order: bool = False
    reason: str = ""


def window_policy_of(spec: PipelineSpec) -> WindowPolicy:
    """Return the policy that the pipeline's strategies and targets allow."""
    if not spec.loads:
        return WindowPolicy(False, False, "a plain function gets one window at a time")
    policies = [_policy_of_load(load) for load in spec.loads]
    if spec.transforms_post:
        policies.append(WindowPolicy(False, False, "transforms that follow each load do not expect company"))
    return next(
        (manner for manner in policies if manner.in_order),
        next((manner for manner in policies if not manner.side_by_side), WindowPolicy()),
    )


def _policy_of_load(load: LoadSpec) -> WindowPolicy:
    strategy = load.strategy
    if isinstance(strategy, Append):
        backend = backend_for(resolve(load.connection).connection)
        reason = f"one process at a time may write {backend.title}" if backend.one_writer else ""
        return WindowPolicy(side_by_side=not reason, reason=reason)
    if isinstance(strategy, Scd2) and strategy.event_time is not None:
        return WindowPolicy(False, False, "each window of an scd2 builds on the rows that are there")
    return WindowPolicy(False, True, f"a {strategy.mode} keeps what came last, so its windows come in their order")


def require_windowed(spec: PipelineSpec) -> None:
    """Raise a PlanError for a pipeline whose windows cannot be loaded one by one."""
    check_window_keywords(spec)
    if any(isinstance(load.strategy, Truncate) for load in spec.loads):
        raise PlanError(
            f"{spec.name} truncates: each window would replace the one before it",
            where=spec.where,
            hint='use mode="append" or mode="merge"',
        )
    if not takes_window(spec.function) and _has_no_window(spec):
        raise not_windowed_error(spec)


def _has_no_window(spec: PipelineSpec) -> bool:
    """Return whether the pipeline certainly uses no window; calls its function only if that has no parameters."""
    function = spec.function
    if not spec.loads or (spec.source_table is not None and returns_nothing(function)):
        return True
    if not positional_parameters(function):
        with suppress(Exception):  # the run itself reports the error
            answer = function()
            return not window_marks(str(getattr(answer, "query", answer)))
        return False
    texts = list(_texts(function))
    return not any(window_marks(text) for text in texts) and any("select" in text.lower() for text in texts)


def _texts(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the string constants of a function, and the global strings that it refers to by name."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    known = getattr(function, "__globals__", {})
    for part in _codes(code):
        yield from (constant for constant in part.co_consts if isinstance(constant, str))
        yield from (known[name] for name in part.co_names if isinstance(known.get(name), str))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
