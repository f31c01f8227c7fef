"""Names: snake case, the nearest valid name for error messages, and public names that are imported when they are used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def snake_case(name: str) -> str:
    """Return a name in snake case: `HTTPServer` becomes `http_server`, `CustomerDim` becomes `customer_dim`.

    >>> snake_case("HTTPServer"), snake_case("A1B")
    ('http_server', 'a1_b')
    """
    parts = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parts)
    return parts.lower()


def nearest_name(name: str, valid: Iterable[str]) -> str | None:
    """Return the most similar valid name; None if none is similar."""
    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def valid_names(value: object, valid: Iterable[str]) -> str:
    """Return a hint with all valid names, and before them the one that is similar to the value.

    >>> valid_names("sums", ("count", "sum")), valid_names(5, ("count", "sum"))
    ("did you mean 'sum'? valid: count, sum", 'valid: count, sum')
    """
    choices = list(valid)
    near = nearest_name(value, choices) if isinstance(value, str) else None
    return (f"did you mean {near!r}? " if near else "") + f"valid: {', '.join(choices)}"


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a hint with the nearest name, or with all names if none is similar."""
    choices = sorted(valid)
    near = nearest_name(name, choices)
    if near is not None:
        return f"did you mean {near!r}?"
    return "valid: " + ", ".join(choices) if choices else "there is none"


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports each name from its module; it raises AttributeError for others."""

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
