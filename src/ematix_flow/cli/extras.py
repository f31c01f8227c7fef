"""The packages of this distribution's extras, from its metadata, and which of them are not installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from ematix_flow.foundation.errors import ConfigError

PACKAGE = "ematix-flow-spark"


def need(extra: str, *, what: str) -> None:
    """Raise ConfigError, with the command that installs the extra, if one of its packages is missing."""
    missing = missing_of(extra)
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}", hint=f'pip install "{PACKAGE}[{extra}]"')


def missing_of(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed; empty where this distribution has no metadata."""
    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError:
        return []
    asked = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    names = [re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in lines if asked.search(line)]
    return [name for name in names if name != PACKAGE and not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
