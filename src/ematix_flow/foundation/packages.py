"""Imports optional packages and checks the extras of this package."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ematix_flow.foundation.errors import ConfigError, MissingDriver

PACKAGE = "ematix-flow-spark"


def require_package(module: str, *, what: str, extra: str, package: str | None = None) -> Any:
    """Return the imported module; raise MissingDriver with the install command if its package is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        name = package or module.partition(".")[0]
        raise MissingDriver(
            f"{what} needs the package {name}, which is not installed", hint=f'pip install "{PACKAGE}[{extra}]"'
        ) from exc


class LazyModule:
    """A module that is imported when one of its names is first used; it is sent to tasks by its name.

    `needed_by` are the arguments of `require_package`, for a module of an optional package.
    """

    def __init__(self, module: str, **needed_by: str) -> None:
        self._module, self._needed_by = module, needed_by

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever inspects or copies objects must not import it
            raise AttributeError(name)
        needed_by = self._needed_by
        module = require_package(self._module, **needed_by) if needed_by else importlib.import_module(self._module)
        value = getattr(module, name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[Callable[..., LazyModule], tuple[()]]:
        return partial(LazyModule, self._module, **self._needed_by), ()


def require_extra(extra: str, *, what: str) -> None:
    """Raise ConfigError, with the command that installs the extra, if one of its packages is missing."""
    missing = missing_packages(extra)
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}", hint=f'pip install "{PACKAGE}[{extra}]"')


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed; empty where this distribution has no metadata."""
    from importlib.metadata import PackageNotFoundError, requires  # slow to import

    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError:
        return []
    pattern = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    names = [re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in lines if pattern.search(line)]
    return [name for name in names if name != PACKAGE and not _is_installed(name)]


def _is_installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
