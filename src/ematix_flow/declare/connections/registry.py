"""Connections declared in code: the registry of this process, and the decorator that adds to it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import FunctionType

from ematix_flow.declare.connections.base import Connection, UnquotedLocation
from ematix_flow.declare.connections.entries import fields_from_url
from ematix_flow.declare.connections.kinds import class_of
from ematix_flow.foundation.errors import FlowError, UnknownConnection, UnknownKeyword, WrongType
from ematix_flow.foundation.location import Location, caller
from ematix_flow.foundation.names import nearest_name


@dataclass(frozen=True)
class Registration:
    """A connection and the line that registered it."""

    connection: Connection
    where: Location | None


_register: dict[str, Registration] = {}


def register_connection(conn: Connection) -> Connection:
    """Register a connection by its name in this process and return it; a later one replaces an earlier one."""
    if not isinstance(conn, Connection):
        raise WrongType(
            f"register_connection() takes a connection, not {type(conn).__name__}",
            where=UnquotedLocation.of(caller()),
            hint='for example register_connection(PostgresConnection(name="warehouse", url="${WAREHOUSE_URL}"))',
        )
    _register[conn.name] = Registration(conn, UnquotedLocation.of(caller()))
    return conn


def get_connection(name: str) -> Connection:
    """Return the connection of this name; raise an UnknownConnection (a KeyError) if none is registered."""
    registration = _register.get(name)
    if registration is not None:
        return registration.connection
    near = nearest_name(str(name), _register)
    names = ", ".join(sorted(_register)) or "none"
    raise UnknownConnection(
        f"no connection named {name!r} is registered in this process (registered: {names})",
        hint=f"did you mean {near!r}?" if near else "declare it with @ematix.connection or register_connection(…)",
        name=name,
    )


def registration_of(name: str) -> Registration | None:
    """Return the registration of this name with its location, or None."""
    return _register.get(name)


def registered_connections() -> dict[str, Connection]:
    """Return a copy of the registry, by name."""
    return {name: registered.connection for name, registered in _register.items()}


def clear_registry() -> None:
    """Remove every registered connection."""
    _register.clear()


def connection(cls: type) -> Connection:
    """Turn a class with `kind` and fields into a registered connection; for use as a class decorator.

    >>> @connection
    ... class shop:
    ...     kind = "sqlite"
    ...     path = "data/shop.db"
    >>> shop
    SQLiteConnection(name='shop', kind='sqlite', path='data/shop.db')
    """
    where = UnquotedLocation.of(caller())
    if not isinstance(cls, type):
        raise WrongType(
            f"@ematix.connection decorates a class, not {type(cls).__name__}", where=where, hint="write class name: …"
        )
    body = _class_body(cls)
    if "kind" not in body:
        raise UnknownKeyword(
            f"connection {cls.__name__!r} does not say its kind", where=where, hint='add a line kind = "postgres"'
        )
    try:
        kind = class_of(body.pop("kind"))
        fields = _fields(kind, body)
        name = body.pop("name", cls.__name__)
        _warn_of_misspellings(cls.__name__, kind=kind, unknown=body, where=where)
        declared = kind(name=name, **fields).placed(where)  # type: ignore[arg-type]
    except FlowError as error:
        raise error.at(where) from None
    _register[declared.name] = Registration(declared, where)
    return declared


def _class_body(cls: type) -> dict[str, object]:
    body: dict[str, object] = {}
    for ancestor in reversed(cls.__mro__[:-1]):
        body.update(vars(ancestor))
    methods = (FunctionType, property, staticmethod, classmethod, type)
    return {key: value for key, value in body.items() if not key.startswith("_") and not isinstance(value, methods)}


def _fields(kind: type[Connection], body: dict[str, object]) -> dict[str, object]:
    """Remove the fields of this kind from the class body and return them; a url is expanded into fields."""
    fields = {key: body.pop(key) for key in kind.field_names() if key in body}
    for key in ("url", "dsn"):
        if isinstance(body.get(key), str):
            fields = {**fields_from_url(kind, str(body.pop(key))), **fields}
    return fields


def _warn_of_misspellings(
    name: str, *, kind: type[Connection], unknown: dict[str, object], where: Location | None
) -> None:
    for attribute in unknown:
        near = nearest_name(attribute, kind.field_names())
        if near is not None:
            warnings.warn_explicit(
                f"connection {name!r}: {attribute!r} is no field of {kind.__name__}; did you mean {near!r}?",
                UserWarning,
                filename=where.file if where else "<unknown>",
                lineno=where.line if where else 0,
            )
