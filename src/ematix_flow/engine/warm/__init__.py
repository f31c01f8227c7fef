"""The warm engine: one Spark process per user that stays running and is shared by many short commands."""

from ematix_flow.engine.warm.client import is_joined, is_usable, join_engine, leave_engine, start_engine, stop_engine
from ematix_flow.engine.warm.policy import KeepWarm, keep_warm
from ematix_flow.engine.warm.records import WarmEngine, engines, retired_engines

__all__ = [
    "KeepWarm",
    "WarmEngine",
    "engines",
    "is_joined",
    "is_usable",
    "join_engine",
    "keep_warm",
    "leave_engine",
    "retired_engines",
    "start_engine",
    "stop_engine",
]
