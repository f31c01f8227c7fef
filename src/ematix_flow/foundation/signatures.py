"""Explicit signatures for functions that take keywords as one value and check them elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def taking(options: type[Any]) -> Callable[[Function], Function]:
    """Return a decorator with which `inspect.signature` and completion show the fields of `options`."""

    def decorate(function: Function) -> Function:
        known = inspect.signature(function)
        own = [item for item in known.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {item.name for item in own}
        keywords = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=field.type,
                              default=None if field.default is MISSING else field.default)
            for field in fields(options)
            if field.name not in names
        ]  # fmt: skip
        function.__signature__ = known.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate
