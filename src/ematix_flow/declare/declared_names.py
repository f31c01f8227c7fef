"""Declarations of one kind by name, each of which is declared at one place of the user's files."""

from __future__ import annotations

from typing import Generic, TypeVar

from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean

_T = TypeVar("_T")


class DeclaredNames(Generic[_T]):
    """The declarations of this process, in their order; `kind` is the word for one of them in errors."""

    def __init__(self, kind: str, *, hint: str, functions_redeclare: bool = False) -> None:
        self._kind = kind
        self._hint = hint
        self._functions_redeclare = functions_redeclare
        self._items: dict[str, _T] = {}
        self._places: dict[str, tuple[Location | None, tuple[int, int] | None]] = {}

    def declare(self, name: str, item: _T, where: Location | None) -> None:
        """Register a declaration; raise DeclarationError if another place declares its name.

        A notebook cell, the same line, an edited file and, where that is allowed, a function may declare a name again.
        """
        stamp = where.stamp() if where else None
        if name in self._places:
            known, then = self._places[name]
            may_redeclare = then != stamp or (self._functions_redeclare and where is not None and where.in_function)
            if not _is_redeclaration(known, where, may_redeclare=may_redeclare):
                other = known or Location("<unknown>", 0)
                what = f"a {self._kind} {name!r} is already declared at {other}"
                raise DeclarationError(what, where=where, hint=self._hint)
        self._places[name] = (where, stamp)
        self._items[name] = item

    def all(self) -> dict[str, _T]:
        """Return all declarations by name, in their order."""
        return dict(self._items)

    def get(self, name: str) -> _T:
        """Return the declaration of that name; raise UnknownName, with the nearest name, if there is none."""
        if name not in self._items:
            raise UnknownName(f"no {self._kind} is called {name!r}", hint=did_you_mean(name, self._items))
        return self._items[name]

    def clear(self) -> None:
        """Remove all declarations; for tests."""
        self._items.clear()
        self._places.clear()


def _is_redeclaration(one: Location | None, other: Location | None, *, may_redeclare: bool) -> bool:
    if one is None or other is None:
        return False
    if "ipykernel" in one.file or one.file.startswith("<"):
        return True
    return one.file == other.file and (one.line == other.line or may_redeclare)
