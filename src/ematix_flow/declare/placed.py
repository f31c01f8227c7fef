"""A decorator that adds the user's source line to errors of a declaration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import caller

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def placed(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Decorator: add the calling line of the user's code to a DeclarationError that the function raises."""

    @functools.wraps(make)
    def made(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return make(*args, **kwargs)
        except DeclarationError as error:
            error.at(caller())
            raise

    return made
