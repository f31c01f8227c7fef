"""The line of each table and key in a TOML text, including arrays of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]
"""Keys from the top; a number is an index in an array of tables."""

_ARRAY = re.compile(r"\s*\[\[([^\[\]]+)\]\]")
_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[\w-]+))*)\s*=(.*)")
_LONG_STRING = re.compile(r"\"\"\"|'''")
_KEY_PART = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)")


class TomlLines:
    """The lines of one text.

    >>> TomlLines('[[targets]]\\nkind = "sqlite"\\n').line(("targets", 0, "kind"))
    2
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}
        table: Path = ()
        for number, line in _outside_strings(text):
            array, header, pair = _ARRAY.match(line), _TABLE.match(line), _KEY.match(line)
            if array:
                table = self._next(split_key(array[1]))
            elif header:
                table = self._inside(split_key(header[1]))
            if array or header:
                self._record_line(table, number)
            elif pair:
                self._record_line((*table, *split_key(pair[1])), number)

    def line(self, path: Path) -> int:
        """Return the line of a path, or of its nearest parent that has one."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _record_line(self, path: Path, number: int) -> None:
        """Record a line; a table without a header gets the line of its first key."""
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], number)

    def _inside(self, keys: tuple[str, ...]) -> Path:
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        return path

    def _next(self, keys: tuple[str, ...]) -> Path:
        array: Path = (*self._inside(keys[:-1]), keys[-1])
        self._arrays[array] = self._arrays.get(array, -1) + 1
        return (*array, self._arrays[array])


def split_key(path: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key.

    >>> split_key('connections."raw.db"')
    ('connections', 'raw.db')
    """
    return tuple(next(part for part in parts if part) for parts in _KEY_PART.findall(path) if any(parts))


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, except those inside a multi-line string."""
    closing = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            if closing in line:
                closing = ""
            continue
        yield number, line
        opened = _LONG_STRING.search(line)
        if opened and line.count(opened[0]) % 2 == 1:
            closing = opened[0]
