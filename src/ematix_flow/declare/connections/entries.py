"""Connections from the entries of a configuration file: a URL, or a kind with its fields, or both."""

from __future__ import annotations

from collections.abc import Mapping

from ematix_flow.declare.connections import dsn, urls
from ematix_flow.declare.connections.base import Connection, UnquotedLocation
from ematix_flow.declare.connections.kinds import class_of
from ematix_flow.foundation.errors import ConfigError, DeclarationError, MissingSecret
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.secrets import references_in


def from_url(name: str, url: str, *, where: Location | None = None) -> Connection:
    """Return the connection of a URL.

    >>> from_url("shop", "sqlite:///data/shop.db")
    SQLiteConnection(name='shop', kind='sqlite', path='data/shop.db')
    """
    return from_fields(name, {"url": url}, where=where)


def from_fields(name: str, entry: Mapping[str, object], *, where: Location | None = None) -> Connection:
    """Return the connection of one table of a configuration file.

    >>> from_fields("lake", {"kind": "delta_local", "path": "data/lake"})
    DeltaLocalConnection(name='lake', kind='delta_local', path='data/lake')
    """
    lake_root = UnquotedLocation.of(where)
    try:
        reading = _read(entry)
        _refuse_unknown(reading)
        return reading.kind(name=name, **reading.fields).placed(lake_root)
    except MissingSecret as error:
        raise MissingSecret(
            f"connection {name!r}: {error.what}",
            where=lake_root,
            hint=error.hint,
            **{"connection": name, **error.facts},
        ) from None
    except (ConfigError, DeclarationError) as error:
        what = error.what if repr(name) in error.what else f"connection {name!r}: {error.what}"
        raise ConfigError(what, where=lake_root, hint=error.hint, **{"connection": name, **error.facts}) from None


def fields_from_url(kind: type[Connection], url: str) -> Mapping[str, object]:
    """Return the fields in a URL for a kind that is already known."""
    for field in ("url", "amqp_url"):
        if field in kind.field_names():
            return {field: url}
    reading = _read_url(url)
    if reading.kind is not kind:
        raise ConfigError(
            f"the URL means a {reading.kind.kind} connection, the entry says kind = {kind.kind!r}",
            hint=f"remove kind, or write the fields of {kind.kind}: {', '.join(kind.field_names())}",
        )
    return reading.fields


def _read(entry: Mapping[str, object]) -> dsn.ParsedUrl:
    rest = {key: value for key, value in entry.items() if key not in ("kind", "url", "dsn", "name")}
    url = _url(entry)
    if "kind" not in entry:
        if url is None:
            raise ConfigError("the entry says neither url nor kind", hint='add url = "…" or kind = "…" with its fields')
        reading = _read_url(url)
        return dsn.ParsedUrl(reading.kind, {**reading.fields, **rest})
    kind = class_of(entry["kind"])
    if url is None:
        return dsn.ParsedUrl(kind, rest)
    return dsn.ParsedUrl(kind, {**fields_from_url(kind, url), **rest})


def _url(entry: Mapping[str, object]) -> str | None:
    urls = [entry[key] for key in ("url", "dsn") if key in entry]
    if len(urls) == 2 and urls[0] != urls[1]:
        raise ConfigError("url and dsn say different things", hint="keep one of the two")
    if urls and not isinstance(urls[0], str):
        raise ConfigError(f"url must be text, not {type(urls[0]).__name__}", hint='write url = "…" in quotes')
    return urls[0] if urls and isinstance(urls[0], str) else None


def _read_url(url: str) -> dsn.ParsedUrl:
    if urls.scheme_of(url) or not references_in(url):
        return dsn.parse_url(url)
    # Only the value of the reference reveals the kind; the field keeps the reference, which is expanded again at use.
    reading = dsn.parse_url(urls.expand_url(url))
    kept = next((field for field in ("url", "amqp_url") if field in reading.fields), None)
    return dsn.ParsedUrl(reading.kind, {kept: url}) if kept else reading


def _refuse_unknown(reading: dsn.ParsedUrl) -> None:
    valid = reading.kind.field_names()
    for key in reading.fields:
        if key not in valid:
            raise ConfigError(
                f"a {reading.kind.kind} connection has no field {key!r}",
                hint=did_you_mean(key, (*valid, "url")),
                field=key,
            )
