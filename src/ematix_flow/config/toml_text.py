"""Values as TOML text: keys, strings, tables and arrays of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def key(name: str) -> str:
    """Return a key, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def value(given: object) -> str:
    """Return a value on one line."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, (int, float)):
        return repr(given)
    if isinstance(given, (datetime, date, time)):
        return given.isoformat()
    if isinstance(given, (list, tuple)):
        return f"[{', '.join(value(inner) for inner in given)}]"
    if isinstance(given, Mapping):
        return f"{{{', '.join(f'{key(name)} = {value(inner)}' for name, inner in given.items())}}}"
    return json.dumps(str(given), ensure_ascii=False).replace("\x7f", "\\u007f")


def document(data: Mapping[str, Any]) -> str:
    """Return a whole document: plain values first, then tables and arrays of tables; long texts stay multi-line.

    >>> print(document({"name": "a", "source": {"kind": "kafka"}}), end="")
    name = "a"
    <BLANKLINE>
    [source]
    kind = "kafka"
    """
    return "\n".join(_blocks((), data))


def _blocks(path: tuple[str, ...], table: Mapping[str, Any]) -> list[str]:
    own = {name: item for name, item in table.items() if not _is_table(item) and not _is_tables(item)}
    blocks = [_pairs(own)] if own and not path else []
    for name, item in table.items():
        inner = (*path, name)
        if _is_table(item):
            blocks += _table(inner, item, "[{}]")
        elif _is_tables(item):
            blocks += [block for one in item for block in _table(inner, one, "[[{}]]")]
    return blocks


def _table(path: tuple[str, ...], table: Mapping[str, Any], form: str) -> list[str]:
    own = {name: item for name, item in table.items() if not _is_table(item) and not _is_tables(item)}
    header = form.format(".".join(map(key, path)))
    below = _blocks(path, table)
    # A header is omitted if only tables are below it; the members of an array are counted by their headers.
    return [f"{header}\n{_pairs(own)}", *below] if own or not below or form.startswith("[[") else below


def _pairs(values: Mapping[str, Any]) -> str:
    return "".join(f"{key(name)} = {_long(item)}\n" for name, item in values.items())


def _long(item: object) -> str:
    readable = isinstance(item, str) and "\n" in item and "'''" not in item and not _ODD.search(item)
    if readable and not str(item).endswith("'"):
        return f"'''\n{item}'''"
    return value(item)


def _is_table(item: object) -> bool:
    return isinstance(item, Mapping)


def _is_tables(item: object) -> bool:
    return isinstance(item, (list, tuple)) and bool(item) and all(isinstance(one, Mapping) for one in item)
