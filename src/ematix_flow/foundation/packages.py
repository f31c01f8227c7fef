"""Imports optional packages, checks the extras of this package, and its version."""

from __future__ import annotations

import importlib
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from ematix_flow.foundation.errors import ConfigError

PACKAGE = "ematix-flow-spark"

try:
    __version__ = version(PACKAGE)
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0.0.0"


class MissingPackage(ConfigError, ImportError):
    """A required optional package is not installed."""


def require_package(module: str, *, what: str, extra: str) -> Any:
    """Return the imported module; raise a MissingPackage with the install command if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} needs the package {package}", hint=f'pip install "ematix-flow-spark[{extra}]"'
        ) from None


def require_extra(extra: str, *, what: str) -> None:
    """Raise ConfigError, with the command that installs the extra, if one of its packages is missing."""
    missing = missing_packages(extra)
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}", hint=f'pip install "{PACKAGE}[{extra}]"')


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed; empty where this distribution has no metadata."""
    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError:
        return []
    pattern = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    names = [re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in lines if pattern.search(line)]
    return [name for name in names if name != PACKAGE and not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
