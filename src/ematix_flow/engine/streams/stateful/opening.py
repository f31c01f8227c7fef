"""The assembly of the stateful processor of a stream with a window or a join: its operator and its state backend."""

from __future__ import annotations

import hashlib

from ematix_flow.declare.streams.parts import REOPEN, StateStore
from ematix_flow.declare.streams.spec import EXACTLY_ONCE, BrokerTarget, StreamSpec
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.engine.streams.stateful.fold import Fold, Manner
from ematix_flow.engine.streams.stateful.joins import JoinOperator
from ematix_flow.engine.streams.stateful.keepers import keeper_of
from ematix_flow.engine.streams.stateful.operator import Operator
from ematix_flow.engine.streams.stateful.operators import operator_of
from ematix_flow.engine.streams.stateful.rows import EventTime
from ematix_flow.foundation.errors import Unsupported

_COMPACT_MS = StateStore("in_memory").checkpoint_interval_ms


def fold_of(spec: StreamSpec, folder: StreamFolder, generation: str) -> Fold | None:
    """Return the stateful processor of a stream; None for a stream without state."""
    said = spec.window or spec.join
    if said is None:
        return None
    if spec.delivery == EXACTLY_ONCE and any(isinstance(target, BrokerTarget) for target in spec.targets):
        raise Unsupported(
            f'{spec.name}: delivery="exactly_once" between brokers carries the offsets of every row, and what comes out of '
            f"{spec.processing[0]}= is made of many",
            hint="leave delivery= out: messages are then sent at least once, each with the same id when it is sent again",
            where=spec.where,
        )
    operator, manner = _operator(spec, hashlib.sha256(repr(said).encode()).hexdigest()[:16])
    return Fold(spec, operator, manner, keeper_of(spec, folder, generation), EventTime(said.event_time_column))


def _operator(spec: StreamSpec, made_by: str) -> tuple[Operator, Manner]:
    store = spec.state_store
    compact_ms = store.checkpoint_interval_ms if store is not None else _COMPACT_MS
    forgets = store is not None and store.kind == "in_memory"
    if spec.window is None:
        if spec.join is None:
            raise AssertionError("a window or a join")
        return JoinOperator(spec.join), Manner(made_by, is_eager=True, compact_ms=compact_ms, forgets=forgets)
    windows = operator_of(spec.window)
    return windows, Manner(
        made_by,
        is_eager=spec.window.late_data == REOPEN,
        refuse_crowds=windows.refuse_crowds,
        most_rows=spec.window.max_groups_per_window,
        compact_ms=compact_ms,
        forgets=forgets,
    )
