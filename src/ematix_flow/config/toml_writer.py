"""Values as TOML text: keys, strings, tables and arrays of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def toml_key(name: str) -> str:
    """Return a key, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(thing: object) -> str:
    """Return a value on one line."""
    if isinstance(thing, bool):
        return "true" if thing else "false"
    if isinstance(thing, (int, float)):
        return repr(thing)
    if isinstance(thing, (datetime, date, time)):
        return thing.isoformat()
    if isinstance(thing, (list, tuple)):
        return f"[{', '.join(toml_value(inner) for inner in thing)}]"
    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{toml_key(name)} = {toml_value(inner)}' for name, inner in thing.items())}}}"
    return json.dumps(str(thing), ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_document(data: Mapping[str, Any]) -> str:
    """Return a whole document: plain values first, then tables and arrays of tables; long texts stay multi-line.

    >>> print(toml_document({"name": "a", "source": {"kind": "kafka"}}), end="")
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
    header = form.format(".".join(map(toml_key, path)))
    below = _blocks(path, table)
    # A header is omitted if only tables are below it; the members of an array are counted by their headers.
    return [f"{header}\n{_pairs(own)}", *below] if own or not below or form.startswith("[[") else below


def _pairs(values: Mapping[str, Any]) -> str:
    return "".join(f"{toml_key(name)} = {_long(item)}\n" for name, item in values.items())


def _long(item: object) -> str:
    readable = isinstance(item, str) and "\n" in item and "'''" not in item and not _ODD.search(item)
    if readable and not str(item).endswith("'"):
        return f"'''\n{item}'''"
    return toml_value(item)


def _is_table(item: object) -> bool:
    return isinstance(item, Mapping)


def _is_tables(item: object) -> bool:
    return isinstance(item, (list, tuple)) and bool(item) and all(isinstance(one, Mapping) for one in item)
