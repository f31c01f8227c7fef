"""The warm engine: one Spark process per user that stays running and is shared by many short commands."""

from ematix_flow.engine.warm.client import is_joined, is_usable, join, leave, start, stop
from ematix_flow.engine.warm.policy import KeepWarm, keep_warm
from ematix_flow.engine.warm.records import Engine, engines, retired

__all__ = [
    "Engine",
    "KeepWarm",
    "engines",
    "is_joined",
    "is_usable",
    "join",
    "keep_warm",
    "leave",
    "retired",
    "start",
    "stop",
]
