"""Configuration files: TOML, read with the line of every entry."""

from __future__ import annotations

import functools
import importlib
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ematix_flow.config.toml_lines import Path as TomlPath
from ematix_flow.config.toml_lines import TomlLines
from ematix_flow.declare.connections.base import UnquotedLocation
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import did_you_mean

PROJECT_FILE = ".ematix-flow.toml"
USER_FILE = "connections.toml"

_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_CLOCK_NS = 100_000_000
"""Longer than the resolution of file system timestamps."""
_read: dict[Path, tuple[tuple[int, ...], ConfigFile]] = {}
_command: ContextVar[dict[Path, ConfigFile | None] | None] = ContextVar("command", default=None)
"""The files that the current command has read; None outside of `reading_once`."""


@dataclass(frozen=True, repr=False)
class ConfigFile:
    """One file: its path, its path for messages, its text and its parsed data."""

    path: Path
    shown: str
    text: str
    data: Mapping[str, Any]

    @property
    def connections(self) -> Mapping[str, Any]:
        """Return the entries below `[connections]`."""
        return self.table("connections", hint='write [connections.warehouse] and below it url = "…"') or {}

    def entry(self, name: str) -> Mapping[str, object]:
        """Return the entry of one connection; a bare text counts as its url."""
        entry = self.connections[name]
        if isinstance(entry, str):
            return {"url": entry}
        if not isinstance(entry, Mapping):
            raise ConfigError(
                f"{self.shown}: connection {name!r} is neither a table nor a URL",
                where=self.place(("connections", name)),
                hint=f'write [connections.{name}] and below it url = "…"',
            )
        return entry

    def table(self, name: str, *, hint: str) -> Mapping[str, Any] | None:
        """Return a table of the top level, None if there is none; raise ConfigError if the value is no table."""
        table = self.data.get(name)
        if table is not None and not isinstance(table, Mapping):
            raise ConfigError(f"{self.shown}: {name} is not a table", where=self.place((name,)), hint=hint)
        return table

    def check_keys(self, table: Mapping[str, Any], known: Sequence[str], *path: str) -> None:
        """Raise ConfigError, with the line and the nearest name, if the table at the path has an unknown key."""
        for name in table:
            if name not in known:
                what = f"{self.shown}: [{'.'.join(path)}] has no key {name!r}"
                raise ConfigError(what, where=self.place((*path, name)), hint=did_you_mean(name, known))

    def place(self, path: TomlPath) -> UnquotedLocation:
        """Return the location of a table's header or of a key, for an error."""
        return UnquotedLocation(str(self.path), self._lines.line(path))

    @functools.cached_property
    def _lines(self) -> TomlLines:
        return TomlLines(self.text)


def project_file() -> Path:
    """Return the path of the project's configuration in the working directory."""
    return Path.cwd() / PROJECT_FILE


def user_file() -> Path:
    """Return the path of the user's configuration, which applies to every project."""
    return Path.home() / ".ematix-flow" / USER_FILE


def read_project() -> ConfigFile | None:
    """Return the project's file; None if there is none."""
    return read(project_file(), shown=f"./{PROJECT_FILE}")


def read_user() -> ConfigFile | None:
    """Return the user's file; None if there is none."""
    return read(user_file(), shown=f"~/.ematix-flow/{USER_FILE}")


@contextmanager
def reading_once() -> Iterator[None]:
    """Read each file at most once inside the block: the work of one command has one configuration."""
    token = _command.set({})
    try:
        yield
    finally:
        _command.reset(token)


def configuration_files() -> Iterator[ConfigFile]:
    """Yield the project's file, then the user's, each if it exists; a file is read when it is its turn."""
    for read_file in (read_project, read_user):
        file = read_file()
        if file is not None:
            yield file


def read(path: Path, *, shown: str) -> ConfigFile | None:
    """Return a TOML file, None if there is none; raise ConfigError with its line if it is malformed."""
    known = _command.get()
    if known is None:
        return _read_changed(path, shown)
    if path not in known:
        known[path] = _read_changed(path, shown)
    return known[path]


def _read_changed(path: Path, shown: str) -> ConfigFile | None:
    """Return a file, which is parsed again only after a change."""
    try:
        stamp = _stamp(path)
        known = _read.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise ConfigError(f"{shown} is not UTF-8 text", hint="save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{shown} cannot be read: {error.strerror}", hint=f"check the file and its permissions: ls -l {shown}"
        ) from None
    file = ConfigFile(path=path, shown=shown, text=text, data=parse(text, path=path, shown=shown))
    if time.time_ns() - stamp[0] > _CLOCK_NS:  # a newer file may change again within the same timestamp
        _read[path] = (stamp, file)
    return file


def _stamp(path: Path) -> tuple[int, ...]:
    """Return the metadata that changes with a file's content, the modification time first."""
    known = path.stat()
    return (known.st_mtime_ns, known.st_ctime_ns, known.st_size, known.st_ino)


def parse(text: str, *, path: Path, shown: str) -> Mapping[str, Any]:
    """Return the data of TOML text; raise a ConfigError with the line and the parser's message if it is malformed."""
    try:
        data: Mapping[str, Any] = _toml.loads(text)
    except _toml.TOMLDecodeError as error:
        message = str(error)
        match = re.search(r"at line (\d+)", message)
        line = int(match[1]) if match else max(text.count("\n"), 1)
        raise ConfigError(
            f"{shown} is not valid TOML: {message}",
            where=UnquotedLocation(str(path), line),
            hint=f"correct line {line} of {shown}",
        ) from None
    return data
