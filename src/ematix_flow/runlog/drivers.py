"""Drivers of run logs, imported when a run log of their kind is opened."""

from __future__ import annotations

import importlib
import re
from typing import Any

from ematix_flow.foundation.errors import ConfigError, MissingDriver

ELSEWHERE = "check the address (--run-log URL or EMATIX_FLOW_RUN_LOG_URL); or pass --no-run-log"
CONNECT_SECONDS = 5


def driver(module: str, *, package: str, extra: str) -> Any:
    """Return the imported module; raise a MissingDriver that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDriver(
            f"this run log needs {package}, which is not installed", hint=f'pip install "ematix-flow-spark[{extra}]"'
        ) from error


def plain_name(name: str, *, what: str) -> str:
    """Return a name for use in statements; raise a ConfigError unless it has only letters, digits and _."""
    if not re.fullmatch(r"\w*", name):
        raise ConfigError(f"the run log's {what} {name!r} is not a plain name", hint="use letters, digits and _")
    return name
