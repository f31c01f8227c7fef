"""Packages that only some installations have, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from ematix_flow.foundation.errors import ConfigError


class MissingPackage(ConfigError, ImportError):
    """An optional package is asked for and not installed."""


def need(module: str, *, what: str, extra: str) -> Any:
    """The module; without it a sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} needs the package {package}", hint=f'pip install "ematix-flow-spark[{extra}]"'
        ) from None
