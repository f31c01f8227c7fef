"""Builds the stateful processor of a stream with a window or a join."""

from __future__ import annotations

import hashlib

from ematix_flow.declare.streams.parts import REOPEN, StateStore, Window
from ematix_flow.declare.streams.spec import EXACTLY_ONCE, BrokerTarget, StreamSpec
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.state.event_time import EventTime
from ematix_flow.streaming.state.joins import JoinOperator
from ematix_flow.streaming.state.local_state import state_backend_of
from ematix_flow.streaming.state.operator import Operator
from ematix_flow.streaming.state.processor import OperatorConfig, StatefulProcessor
from ematix_flow.streaming.state.sessions import SessionOperator
from ematix_flow.streaming.state.windows import WindowOperator

_COMPACT_MS = StateStore("in_memory").checkpoint_interval_ms


def stateful_processor_of(spec: StreamSpec, folder: CheckpointFolder, generation: str) -> StatefulProcessor | None:
    """Return the stateful processor of a stream; None for a stream without state."""
    declared = spec.window or spec.join
    if declared is None:
        return None
    if spec.delivery == EXACTLY_ONCE and any(isinstance(target, BrokerTarget) for target in spec.targets):
        raise Unsupported(
            f'{spec.name}: delivery="exactly_once" between brokers carries the offsets of every row, and what comes out of '
            f"{spec.processing[0]}= is made of many",
            hint="leave delivery= out: messages are then sent at least once, each with the same id when it is sent again",
            where=spec.where,
        )
    operator, config = _operator(spec, hashlib.sha256(repr(declared).encode()).hexdigest()[:16])
    return StatefulProcessor(
        spec, operator, config, state_backend_of(spec, folder, generation), EventTime(declared.event_time_column)
    )


def _operator(spec: StreamSpec, made_by: str) -> tuple[Operator, OperatorConfig]:
    store = spec.state_store
    compact_ms = store.checkpoint_interval_ms if store is not None else _COMPACT_MS
    forgets = store is not None and store.kind == "in_memory"
    if spec.window is None:
        if spec.join is None:
            raise AssertionError("a window or a join")
        return JoinOperator(spec.join), OperatorConfig(made_by, is_eager=True, compact_ms=compact_ms, forgets=forgets)
    windows = operator_of(spec.window)
    return windows, OperatorConfig(
        made_by,
        is_eager=spec.window.late_data == REOPEN,
        check_group_limit=windows.check_group_limit,
        max_rows=spec.window.max_groups_per_window,
        compact_ms=compact_ms,
        forgets=forgets,
    )


def operator_of(window: Window) -> WindowOperator | SessionOperator:
    """Return the operator of a window."""
    return SessionOperator(window) if window.kind == "session" else WindowOperator(window)
