"""Decorators of public functions: signatures with every keyword, and errors at the caller's line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ParamSpec, TypeVar

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import caller

Function = TypeVar("Function", bound=Callable[..., Any])


def with_signature_of(options: type[Any]) -> Callable[[Function], Function]:
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


_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def at_callers_line(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Decorator: add the calling line of the user's code to a DeclarationError that the function raises."""

    @functools.wraps(make)
    def made(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return make(*args, **kwargs)
        except DeclarationError as error:
            error.at(caller())
            raise

    return made
