"""Run logs from their addresses."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from ematix_flow.foundation.errors import ConfigError, Unsupported
from ematix_flow.foundation.names import nearest
from ematix_flow.runlog.memory import InMemoryRunLog
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.sqlite import SqliteRunLog

_HERE = ("sqlite", "file", "memory")
_NOT_HERE = (
    "postgres", "postgresql", "mysql", "mariadb", "duckdb", "s3", "gs", "gcs", "azure", "azureblob",
)  # fmt: skip


def from_url(url: str) -> RunLog:
    """The run log at this address: `sqlite:///path`, `file:///path`, a plain path, or `memory://`.

    >>> from_url("memory://").list_runs()
    ([], 0)
    """
    path = sqlite_path(url)
    return SqliteRunLog(path) if path is not None else InMemoryRunLog()


def sqlite_path(url: str) -> Path | None:
    """The file behind an address, None for `memory://`; anything else is refused with a sentence."""
    if not url.strip():
        raise ConfigError("the run log has an empty address", hint="give a path or sqlite:///path/to/run_log.db")
    scheme, separator, rest = url.partition("://")
    if not separator:
        return Path(url).expanduser()
    if scheme not in _HERE:
        raise _refused(scheme)
    if scheme == "memory":
        return None
    path = unquote(rest)
    if scheme == "sqlite" and path.startswith("/") and not _means_absolute(path):
        path = path[1:]
    if not path:
        raise ConfigError(f"{scheme}:// names no file", hint="write sqlite:///path/to/run_log.db")
    return Path(path).expanduser()


def _means_absolute(path: str) -> bool:
    """Four slashes are absolute and three relative, as in connections; but some write three before an absolute path."""
    if path.startswith("//"):
        return False
    parts = Path(path).parts[1:]
    return len(parts) > 1 and Path("/", parts[0]).is_dir() and not Path(parts[0]).exists()


def _refused(scheme: str) -> ConfigError | Unsupported:
    if scheme in _NOT_HERE:
        return Unsupported(
            f"a run log on {scheme}:// is not offered",
            hint="use sqlite:///path/to/run_log.db, a plain path or memory://",
        )
    near = nearest(scheme, (*_HERE, *_NOT_HERE))
    return ConfigError(
        f"no run log has the address {scheme}://",
        hint=(f"did you mean {near}://? " if near else "") + "use sqlite:///path/to/run_log.db or memory://",
    )
