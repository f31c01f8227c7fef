"""The decision whether a command may leave an engine running."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from ematix_flow.config.engine import IDLE_SECONDS, KEEP_WARM_VARIABLE, engine_config
from ematix_flow.foundation.memory import usable_memory
from ematix_flow.foundation.warm_engine import is_interactive
from ematix_flow.run_log.worker import this_worker

OWNER_VARIABLE = "EMATIX_FLOW_ENGINE_OWNER"
_LEAST_MEMORY = 3 * 1024**3


@dataclass(frozen=True)
class KeepWarm:
    """The decision and its reason; the engine ends together with the long-running process `owner`, if there is one."""

    is_kept: bool
    reason: str
    idle_seconds: float = IDLE_SECONDS
    owner: str = ""


def keep_warm() -> KeepWarm:
    """Return whether this process may start an engine that keeps running after it; raise ConfigError for a bad setting.

    The environment overrides the files, the files override the default: yes at a terminal with 3 GB of memory, and
    below a long-running command that keeps an engine; no elsewhere.
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


def share_engine_with_children() -> None:
    """Let child processes share an engine that ends together with this process."""
    os.environ.setdefault(OWNER_VARIABLE, this_worker())
