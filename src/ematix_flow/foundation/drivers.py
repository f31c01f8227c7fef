"""Imports packages that only some systems need."""

from __future__ import annotations

import importlib
from typing import Any

from ematix_flow.foundation.errors import MissingDriver


def require_driver(module: str, *, needed_by: str, package: str, extra: str) -> Any:
    """Return the imported module; raise a MissingDriver that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDriver(
            f"{needed_by} needs {package}, which is not installed", hint=f'pip install "ematix-flow-spark[{extra}]"'
        ) from error
