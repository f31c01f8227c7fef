"""Optional packages, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from ematix_flow.foundation.errors import ConfigError


class MissingPackage(ConfigError, ImportError):
    """A required optional package is not installed."""


def need(module: str, *, what: str, extra: str) -> Any:
    """Return the imported module; raise a MissingPackage with the install command if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} needs the package {package}", hint=f'pip install "ematix-flow-spark[{extra}]"'
        ) from None
