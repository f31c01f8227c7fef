"""Resolution of a connection name: environment, project file, user file, then the registry of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ematix_flow.config import files
from ematix_flow.declare.connections import (
    Connection,
    from_fields,
    registered_connections,
    registration_of,
)
from ematix_flow.declare.connections.base import UnquotedLocation
from ematix_flow.foundation.errors import ConfigError, FlowError, MissingSecret, UnknownConnection, WrongType
from ematix_flow.foundation.location import Location, caller
from ematix_flow.foundation.names import nearest_name
from ematix_flow.foundation.redact import mask

VARIABLE = "EMATIX_FLOW_DSN"


@dataclass(frozen=True)
class ResolvedConnection:
    """A connection and its origin; its references are still to be expanded by `connection.resolved()`."""

    connection: Connection
    origin: str


@dataclass(frozen=True)
class ListedConnection:
    """One line of a listing; `problem` is the reason why the entry cannot be used."""

    name: str
    kind: str
    label: str
    origin: str
    problem: str | None = None


def resolve(name: str | Connection) -> ResolvedConnection:
    """Return the connection of this name, or the given connection; raise UnknownConnection if none is found."""
    if isinstance(name, Connection):
        return ResolvedConnection(name, _origin_of(name))
    if not isinstance(name, str):
        raise WrongType(
            f"a connection is named by text, not by {type(name).__name__}", where=UnquotedLocation.of(caller())
        )
    for look in (_in_environment, _in_files, _in_process):
        resolved = look(name)
        if resolved is not None:
            return resolved
    raise _unknown(name)


def resolve_dsn(name: str = "default") -> str:
    """Return the URL of a connection with its references expanded; it contains the password, so do not show it."""
    connection = resolve(name).connection.resolved()
    written, separator, _ = str(getattr(connection, "url", "") or "").partition("://")
    # The scheme selects the driver in the user's program, so it stays as it was written.
    return f"{written}://{connection.dsn.partition('://')[2]}" if separator else connection.dsn


def list_connections() -> dict[str, str]:
    """Return every known connection by name, with its address but without its password."""
    return {listed.name: listed.label for listed in list_entries()}


def list_entries() -> list[ListedConnection]:
    """Return every known connection with kind, address and origin, sorted; a broken entry has its `problem` set."""
    return [_listed_connection(name) for name in sorted(set(known_names()))]


def known_names() -> Iterator[str]:
    """Yield the names that `resolve()` finds, from all sources."""
    named = [name for file in files.configuration_files() for name in file.connections] + [*registered_connections()]
    yield from named
    claimed = {variable for name in named for variable in environment_variables(name)}
    for variable, value in os.environ.items():
        if variable == VARIABLE and value:
            yield "default"
        elif variable.startswith(f"{VARIABLE}_") and value and variable not in claimed:
            yield variable.removeprefix(f"{VARIABLE}_").lower()


def environment_variables(name: str) -> tuple[str, ...]:
    """Return the environment variables that may hold this connection, in order.

    >>> environment_variables("raw-db")
    ('EMATIX_FLOW_DSN_RAW-DB', 'EMATIX_FLOW_DSN_RAW_DB')
    """
    upper = name.upper()
    own = dict.fromkeys((f"{VARIABLE}_{upper}", f"{VARIABLE}_{re.sub(r'[^A-Z0-9_]', '_', upper)}"))
    return (*own, VARIABLE) if name == "default" else tuple(own)


def _in_environment(name: str) -> ResolvedConnection | None:
    for variable in environment_variables(name):
        url = os.environ.get(variable)
        if not url:
            continue
        try:
            return ResolvedConnection(from_fields(name, {"url": url}).placed(None), f"env {variable}")
        except MissingSecret:
            raise
        except ConfigError as error:
            what = f"{error.what} (from env {variable})"
            raise ConfigError(what, where=None, hint=error.hint, **error.facts) from None
    return None


def _in_files(name: str) -> ResolvedConnection | None:
    return next((_in_file(file, name) for file in files.configuration_files() if name in file.connections), None)


def _in_file(file: files.ConfigFile, name: str) -> ResolvedConnection:
    place, entry = file.place(("connections", name)), file.entry(name)
    try:
        connection = from_fields(name, entry, where=place)
    except ConfigError as error:
        field = error.facts.get("field")
        error.where = file.place(("connections", name, str(field))) if field in entry else place
        raise
    return ResolvedConnection(connection, f"{file.shown}:{place.line}")


def _in_process(name: str) -> ResolvedConnection | None:
    registration = registration_of(name)
    return ResolvedConnection(registration.connection, _registered_at(registration.where)) if registration else None


def _origin_of(connection: Connection) -> str:
    registration = registration_of(connection.name)
    if registration is not None and registration.connection is connection:
        return _registered_at(registration.where)
    return f"made at {connection.declared_at}" if connection.declared_at else "made in code"


def _registered_at(where: Location | None) -> str:
    return f"registered at {where}" if where else "registered in this process"


def _listed_connection(name: str) -> ListedConnection:
    try:
        resolved = resolve(name)
    except FlowError as error:
        origin, text = _raw_entry(name)
        return ListedConnection(name, kind="?", label=mask(text), origin=origin, problem=error.what)
    connection = resolved.connection
    return ListedConnection(name, kind=connection.kind, label=connection.label, origin=resolved.origin)


def _raw_entry(name: str) -> tuple[str, str]:
    """Return the origin of a broken entry, and its address if it can be read."""
    for variable in environment_variables(name):
        if os.environ.get(variable):
            return f"env {variable}", os.environ[variable]
    for file in files.configuration_files():
        if name in file.connections:
            raw_entry = file.connections[name]
            entry = raw_entry if isinstance(raw_entry, dict) else {"url": raw_entry}
            shown = entry.get("url") or entry.get("dsn") or entry.get("kind") or ""
            return f"{file.shown}:{file.place(('connections', name)).line}", str(shown)
    return "registered in this process", ""


def _unknown(name: str) -> UnknownConnection:
    known = sorted(set(known_names()))
    near = nearest_name(name, known)
    shown = environment_variables(name)[-2] if name == "default" else environment_variables(name)[-1]
    places = (
        f"env {shown}" + (f" or {VARIABLE}" if name == "default" else ""),
        f"./{files.PROJECT_FILE}",
        f"~/.ematix-flow/{files.USER_FILE}",
        f"connections registered in this process ({', '.join(sorted(registered_connections())) or 'none'})",
    )
    next_step = f"flow connections set {name} url=…, or declare it with @ematix.connection"
    return UnknownConnection(
        mask(f"no connection named {name!r}; looked at {', '.join(places)}"),
        hint=_misplaced_table(name) or (f"did you mean {near!r}? Otherwise: {next_step}" if near else mask(next_step)),
        name=name,
        known=", ".join(known),
    )


def _misplaced_table(name: str) -> str | None:
    """Return a hint if a table of that name is in a file, but not below `[connections]`."""
    for file in files.configuration_files():
        for wrong in ((name,), ("connection", name)):
            table: object = file.data
            for key in wrong:
                table = table.get(key) if isinstance(table, Mapping) else None
            if table is not None:
                return f"{file.shown} has [{'.'.join(wrong)}]; write [connections.{name}]"
    return None
