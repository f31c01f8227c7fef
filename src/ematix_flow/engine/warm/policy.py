"""Decides whether a command may leave an engine running."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from ematix_flow.config.engine import IDLE_SECONDS, KEEP_WARM_VARIABLE, engine_config
from ematix_flow.foundation.interactive import is_interactive
from ematix_flow.foundation.memory import usable_memory
from ematix_flow.runlog.worker import this_worker

OWNER_VARIABLE = "EMATIX_FLOW_ENGINE_OWNER"
_LEAST_MEMORY = 3 * 1024**3


@dataclass(frozen=True)
class KeepWarm:
    """The decision and its reason; `owner` is the long-running process that the engine ends with, if there is one."""

    is_kept: bool
    reason: str
    idle_seconds: float = IDLE_SECONDS
    owner: str = ""


def keep_warm() -> KeepWarm:
    """Return whether this process may start an engine that outlives it; raise ConfigError for a wrong setting.

    The environment comes before the files, the files before the default: at a terminal yes, elsewhere no.
    """
    configured = engine_config()
    owner, idle = os.environ.get(OWNER_VARIABLE, ""), configured.idle_seconds
    if os.name != "posix":
        return KeepWarm(False, "engines are kept on Linux and macOS only")
    if importlib.util.find_spec("grpc") is None:
        return KeepWarm(False, 'joining an engine needs: pip install "ematix-flow-spark[engine]"')
    if configured.keep_warm is not None:
        return KeepWarm(configured.keep_warm, f"{configured.origin} says so", idle, owner)
    if owner:
        return KeepWarm(True, "a long-running command keeps one", idle, owner)
    if not is_interactive():
        return KeepWarm(False, f"not at a terminal; {KEEP_WARM_VARIABLE}=1 keeps one all the same")
    if (usable_memory() or _LEAST_MEMORY) < _LEAST_MEMORY:
        return KeepWarm(False, f"less than 3 GB of memory; {KEEP_WARM_VARIABLE}=1 keeps one all the same")
    return KeepWarm(True, "at a terminal", idle)


def own_engine() -> None:
    """Let the processes that this one starts share an engine that ends with it."""
    os.environ.setdefault(OWNER_VARIABLE, this_worker())
