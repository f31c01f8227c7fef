"""Run logs opened by their addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import nearest_name
from ematix_flow.foundation.redact import remember_url_secrets
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.sqlite import SqliteRunLog

_FILES = ("sqlite", "file", "duckdb")
_EXAMPLES = "sqlite:///path/to/run_log.db, postgres://user:password@host/database, s3://bucket/prefix"


def from_url(url: str) -> RunLog:
    """Return the run log at this address: a plain path, or a URL with one of the schemes of docs/run-log.md.

    >>> from_url("memory://").list_runs()
    ([], 0)
    """
    if not url.strip():
        raise ConfigError("the run log has an empty address", hint=f"give a path, or one of {_EXAMPLES}")
    remember_url_secrets(url)
    if "://" not in url:
        return SqliteRunLog(Path(url).expanduser())
    full = urls.expand_url(url)
    remember_url_secrets(full)
    scheme = full.partition("://")[0].lower().partition("+")[0]
    if scheme not in _OPENERS:
        raise _unknown(scheme)
    try:
        return _OPENERS[scheme](full)
    except urls.UrlError as error:
        raise ConfigError(f"the run log's URL {error}", hint=f"write it like {_EXAMPLES}") from None


def file_of(url: str) -> Path | None:
    """Return the file at an address; None if the address is not a file."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return Path(url).expanduser()
    if scheme not in _FILES:
        return None
    path = _path(urls.expand_url(url))
    return None if path == ":memory:" else Path(path)


def _path(url: str) -> str:
    scheme, _, rest = url.partition("://")
    path = unquote(rest.partition("?")[0])
    if scheme in ("sqlite", "duckdb") and path.startswith("/") and not _means_absolute(path):
        path = path[1:]
    if not path:
        raise ConfigError(f"{scheme}:// names no file", hint=f"write {scheme}:///path/to/run_log.db")
    return str(Path(path).expanduser())


def _means_absolute(path: str) -> bool:
    """Return whether a path after three slashes is absolute: its first folder exists at the root, but not here."""
    # Three slashes are relative and four absolute, as in connections; but some users write three for an absolute path.
    if path.startswith("//"):
        return False
    parts = Path(path).parts[1:]
    return len(parts) > 1 and Path("/", parts[0]).is_dir() and not Path(parts[0]).exists()


def _sqlite(url: str) -> RunLog:
    return SqliteRunLog(_path(url))


def _memory(_: str) -> RunLog:
    return InMemoryRunLog()


def _duckdb(url: str) -> RunLog:
    from ematix_flow.run_log.duckdb import DuckDBRunLog

    _, params = urls.rest_of(url)
    return DuckDBRunLog(_path(url), create_tables=_creates(_only(params, "create_tables")))


def _postgres(url: str) -> RunLog:
    from ematix_flow.run_log.postgres import PostgresRunLog

    parts = urls.split(url)
    ours = {name: parts.params[name] for name in ("schema", "create_tables") if name in parts.params}
    theirs = "&".join(pair for pair in url.partition("?")[2].split("&") if unquote(pair.partition("=")[0]) not in ours)
    dsn = url.partition("?")[0] + (f"?{theirs}" if theirs else "")
    return PostgresRunLog(dsn, schema=ours.get("schema") or "public", create_tables=_creates(ours))


def _mysql(url: str) -> RunLog:
    from ematix_flow.run_log.mysql import MySQLRunLog

    params = urls.split(url).params
    return MySQLRunLog(url, table_prefix=params.get("table_prefix", ""), create_tables=_creates(params))


def _s3(url: str) -> RunLog:
    from ematix_flow.run_log.s3 import S3RunLog

    parts = _bucket(url)
    params = _only(parts.params, "region", "endpoint")
    return S3RunLog(parts.host, prefix=parts.path, region=params.get("region"), endpoint=params.get("endpoint"))


def _gcs(url: str) -> RunLog:
    from ematix_flow.run_log.gcs import GcsRunLog

    parts = _bucket(url)
    params = _only(parts.params, "project", "endpoint")
    return GcsRunLog(parts.host, prefix=parts.path, project=params.get("project"), endpoint=params.get("endpoint"))


def _azure(url: str) -> RunLog:
    from ematix_flow.run_log.azure_blob import AzureBlobRunLog

    parts = _bucket(url)
    container, _, prefix = parts.path.partition("/")
    if not container:
        raise ConfigError("the run log's URL names no container", hint="write azureblob://account/container/prefix")
    endpoint = _only(parts.params, "endpoint").get("endpoint")
    account = f"{endpoint.rstrip('/')}/{parts.host}" if endpoint else f"https://{parts.host}.blob.core.windows.net"
    return AzureBlobRunLog(container, account_url=account, prefix=prefix)


_OPENERS: dict[str, Callable[[str], RunLog]] = {
    "sqlite": _sqlite,
    "file": _sqlite,
    "memory": _memory,
    "postgres": _postgres,
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "duckdb": _duckdb,
    "s3": _s3,
    "gs": _gcs,
    "gcs": _gcs,
    "azure": _azure,
    "azureblob": _azure,
}


def _bucket(url: str) -> urls.Url:
    parts = urls.split(url)
    if not parts.host:
        raise ConfigError("the run log's URL names no bucket", hint="write s3://bucket/prefix")
    if parts.user or parts.password:
        raise ConfigError(
            "credentials of an object store do not belong into the run log's URL",
            hint="the environment has them: AWS_ACCESS_KEY_ID, AZURE_STORAGE_KEY, GOOGLE_APPLICATION_CREDENTIALS",
        )
    return parts


def _only(params: Mapping[str, str], *known: str) -> Mapping[str, str]:
    for name in params:
        if name not in known:
            near = nearest_name(name, known)
            suggestion = f"did you mean {near}?" if near else f"it may have {' and '.join(known)}"
            raise ConfigError(f"the run log's URL has an unknown parameter {name!r}", hint=suggestion)
    return params


def _creates(params: Mapping[str, str]) -> bool:
    value = params.get("create_tables", "true").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"create_tables={value} is not understood", hint="say true or false")
    return value == "true"


def _unknown(scheme: str) -> ConfigError:
    near = nearest_name(scheme, _OPENERS)
    return ConfigError(
        f"unknown run log address {scheme}://",
        hint=(f"did you mean {near}://? " if near else "") + f"known are {', '.join(sorted(_OPENERS))}",
    )
