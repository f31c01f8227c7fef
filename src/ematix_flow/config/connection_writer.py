"""The writer of one connection into the user's file, which leaves every other line as it is."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ematix_flow.config import files
from ematix_flow.config.toml_lines import split_key
from ematix_flow.config.toml_writer import toml_document
from ematix_flow.declare.connections import from_fields
from ematix_flow.foundation.errors import ConfigError, MissingSecret

_HEADER_OF_A_BLOCK = re.compile(r"^\s*\[", re.MULTILINE)


def set_connection(name: str, value: str | Mapping[str, object]) -> Path:
    """Store a connection for every project of this user, as a URL or as fields; return the path of the file.

    A URL, or fields with a url or a kind, replace the whole entry; other fields are changed one by one.
    """
    file = files.read_user()
    entry = _entry(name, value, before=file)
    with contextlib.suppress(MissingSecret):  # a variable may be exported later; everything else must be valid now
        from_fields(name, entry)
    before, data = (file.text, file.data) if file else ("", {})
    wanted = {**data, "connections": {**data.get("connections", {}), name: entry}}
    path = files.user_file()
    text = _edited_text(before, name, entry)
    if not _reads_back(text, wanted):
        text = toml_document(wanted)  # the file cannot be edited line by line
    _write_privately(path, text)
    return path


def parse_assignment(words: Sequence[str]) -> tuple[str, str | dict[str, str]]:
    """Return the name and the value of a command line: `NAME=DSN`, `NAME DSN` or `NAME field=value …`.

    >>> parse_assignment(["shop=sqlite:///shop.db"]), parse_assignment(["lake", "kind=delta_local", "path=data/lake"])
    (('shop', 'sqlite:///shop.db'), ('lake', {'kind': 'delta_local', 'path': 'data/lake'}))
    """
    hint = "flow connections set warehouse url=postgres://user:${PGPASSWORD}@host/database"
    if len(words) == 1:
        name, equals, url = words[0].partition("=")
        if not equals or not name or not url:
            raise ConfigError("the new connection needs a name and a URL", hint=hint)
        return name, url
    if not words:
        raise ConfigError("the new connection needs a name and a URL", hint=hint)
    name, *rest = words
    if len(rest) == 1 and re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", rest[0]):
        return name, rest[0]
    pairs = [word.partition("=") for word in rest]
    if not all(key and equals for key, equals, _ in pairs):
        raise ConfigError(f"the fields of {name!r} must be written field=value", hint=hint)
    return name, {key: text for key, _, text in pairs}


def _entry(name: str, value: str | Mapping[str, object], *, before: files.ConfigFile | None) -> dict[str, object]:
    if not name.strip() or "\n" in name:
        raise ConfigError("a connection needs a name", hint="flow connections set warehouse url=…")
    if isinstance(value, str):
        return {"url": value}
    fields = dict(value)
    if {"url", "dsn", "kind"} & fields.keys() or before is None or name not in before.connections:
        return fields
    return {**before.entry(name), **fields}


def _edited_text(text: str, name: str, entry: Mapping[str, object]) -> str:
    """Return the text with the block of this connection replaced, or with a new block at its end."""
    block = toml_document({"connections": {name: entry}})
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if _is_header(line, name)), None)
    if start is None:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return text + gap + block
    end = next((at for at in range(start + 1, len(lines)) if _HEADER_OF_A_BLOCK.match(lines[at])), len(lines))
    while end > start + 1 and _belongs_below(lines[end - 1]):
        end -= 1
    return "".join(lines[:start]) + block + "".join(lines[end:])


def _is_header(line: str, name: str) -> bool:
    stripped = line.partition("]")[0].strip()
    return stripped.startswith("[") and split_key(stripped.lstrip("[")) == ("connections", name)


def _belongs_below(line: str) -> bool:
    """Return whether a line before a header (blank or comment) is part of the next entry."""
    return not line.strip() or line.lstrip().startswith("#")


def _reads_back(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return files.parse(text, path=files.user_file(), shown="the new file") == wanted
    except ConfigError:
        return False


def _write_privately(path: Path, text: str) -> None:
    """Write the file atomically, readable only by its owner."""
    target = path.resolve()
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".connections-", suffix=".toml")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o600)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigError(
            f"~/.ematix-flow/{files.USER_FILE} cannot be written: {error.strerror}",
            hint="check that your home directory is writable and has room",
        ) from None
