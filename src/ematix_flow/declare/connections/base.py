"""The base of all connections: a name, checked fields, a repr without secrets, references expanded at use."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

from ematix_flow.declare.connections import urls
from ematix_flow.foundation import redact, secrets
from ematix_flow.foundation.errors import ConfigError, DeclarationError, MissingSecret, UnknownKeyword
from ematix_flow.foundation.location import Location, caller
from ematix_flow.foundation.names import did_you_mean, valid_names

_C = TypeVar("_C", bound="Connection")
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class UnquotedLocation(Location):
    """A location whose line is never quoted, because a connection's line may contain a password."""

    @property
    def text(self) -> str:
        return ""

    @classmethod
    def of(cls, where: Location | None) -> UnquotedLocation | None:
        """Return the same line as a location that is not quoted."""
        return cls(where.file, where.line) if where else None


@dataclass(frozen=True)
class FieldRules:
    """The validation rules for the fields of a connection kind."""

    required: tuple[str, ...] = ()
    examples: Mapping[str, str] = dataclasses.field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    integers: tuple[str, ...] = ()
    booleans: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    urls: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Fields that hold a URL, and the schemes each accepts."""
    links: tuple[str, ...] = ()
    """Fields that may hold another connection instead of its name."""


@dataclass(frozen=True)
class Connection:
    """One named system, as the user declared it.

    >>> from ematix_flow.declare.connections.databases import PostgresConnection
    >>> PostgresConnection("warehouse", url="postgres://ana:hunter22@db/shop")
    PostgresConnection(name='warehouse', kind='postgres', url='postgres://ana:***@db/shop')
    """

    name: str

    kind: ClassVar[str] = ""
    dialect: ClassVar[str] = "spark"
    """The SQL of queries on it, as the manifest of its backend has it; lakes and files are queried by Spark."""
    default_schema: ClassVar[str] = ""
    """The schema of a table that is named without one; empty where there is none."""
    rules: ClassVar[FieldRules] = FieldRules()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # @dataclass keeps a __repr__ that the class already has, so no subclass can get the default one with secrets.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Connection.__repr__  # type: ignore[method-assign]

    def __new__(cls: type[_C], *_args: object, **value: object) -> _C:
        known = {"name", *cls.field_names()}
        for unknown in sorted(set(value) - known):
            raise UnknownKeyword(
                f"{cls.__name__} has no keyword {unknown!r}", where=caller(), hint=did_you_mean(unknown, known)
            )
        self = object.__new__(cls)
        # Taken here and not in __post_init__: the generated __init__ between would count as the user's frame.
        object.__setattr__(self, "_declared_at", UnquotedLocation.of(caller()))
        object.__setattr__(self, "_is_resolved", False)
        return self

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError(
                f"{type(self).__name__} needs a name", where=self.declared_at, hint='add name="warehouse" or the like'
            )
        for field in self.field_names():
            object.__setattr__(self, field, self._typed(field, getattr(self, field)))
        for field in self.rules.required:
            if not str(getattr(self, field) or "").strip():
                self._wrong(field, "is required")
        for field, valid in self.rules.choices.items():
            self._check_choice(field, valid)
        for field, schemes in self.rules.urls.items():
            self._check_url(field, schemes)
        self._check()
        self._remember_secrets()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A worker process that unpickles this connection must register its secrets to mask them.
        self.__dict__.update(state)
        self._remember_secrets()

    def __repr__(self) -> str:
        shown = {"name": self.name, "kind": self.kind, **self.fields}
        pairs = ", ".join(f"{field}={redact.redact(field, value)!r}" for field, value in shown.items())
        return f"{type(self).__name__}({pairs})"

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the fields that a user may set, apart from the name."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.name != "name")

    @property
    def declared_at(self) -> Location | None:
        """Return the user's line that created this connection."""
        place: Location | None = self.__dict__["_declared_at"]
        return place

    @property
    def is_resolved(self) -> bool:
        """Return whether every reference is expanded."""
        return bool(self.__dict__["_is_resolved"])

    @property
    def fields(self) -> dict[str, Any]:
        """Return every field that was set, as declared: with secrets, references not expanded."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        values = {field: getattr(self, field) for field in self.field_names()}
        return {field: value for field, value in values.items() if value != defaults[field]}

    @property
    def dsn(self) -> str:
        """Return this connection as one URL, password included."""
        raise ConfigError(
            f"a {self.kind} connection has no URL form", hint=f"use the fields of {type(self).__name__} instead"
        )

    @property
    def label(self) -> str:
        """Return a short address without secrets for messages: `sqlite:shop.db`."""
        described = self.describe()
        return f"{self.kind}:{next((described[field] for field in self.rules.required), self.name)}"

    def describe(self) -> dict[str, Any]:
        """Return name, kind and the fields that were set, without secrets, ready for JSON."""
        shown = {
            field: value.describe() if isinstance(value, Connection) else redact.redact(field, value)
            for field, value in self.fields.items()
        }
        return {"name": self.name, "kind": self.kind, **shown}

    def resolved(self: _C) -> _C:
        """Return a copy with every `${…}` expanded now."""
        if self.is_resolved:
            return self
        values = {field: self._filled_in(field, getattr(self, field)) for field in self.field_names()}
        try:
            filled = dataclasses.replace(self, **values)
        except DeclarationError as error:
            references = [name for field in self.field_names() for name in secrets.references_in(getattr(self, field))]
            raise ConfigError(
                f"{error.what} once its references are filled in",
                where=self.declared_at,
                hint=f"look at the values of {', '.join(f'${{{name}}}' for name in references)}",
            ) from None
        filled = filled.placed(self.declared_at)
        object.__setattr__(filled, "_is_resolved", True)
        filled._remember_secrets()
        return filled

    def placed(self: _C, where: Location | None) -> _C:
        """Return the same connection with another location: the line of a configuration file."""
        twin = copy.copy(self)
        object.__setattr__(twin, "_declared_at", UnquotedLocation.of(where))
        return twin

    def _check(self) -> None:
        """Check the conditions of a kind beyond single fields."""

    def _check_choice(self, field: str, valid: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value in (None, "") or value in valid or secrets.references_in(value):
            return
        self._wrong(field, "is not one that exists", hint=valid_names(str(value), valid))

    def _check_url(self, field: str, schemes: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if not value or value.startswith("${"):
            return
        scheme, _, driver = urls.scheme_of(value).partition("+")
        if scheme not in schemes or (driver and not driver.isalnum()):
            self._wrong(field, f"does not begin with {' or '.join(f'{name}://' for name in schemes)}")
        try:
            urls.split(value)
        except urls.UrlError as error:
            self._wrong(field, str(error))

    def _together(self, *fields: str) -> bool:
        """Return whether all of these fields are set; raise a DeclarationError if only some are."""
        missing = [field for field in fields if not getattr(self, field)]
        if missing and len(missing) < len(fields):
            present = next(field for field in fields if field not in missing)
            self._wrong(missing[0], f"is required together with {present}")
        return not missing

    def _wrong(self, field: str, what: str, *, hint: str | None = None) -> NoReturn:
        example = self.rules.examples.get(field)
        raise DeclarationError(
            f"{type(self).__name__} {self.name!r}: {field} {what}",
            where=self.declared_at,
            hint=hint or (f"for example {field} = {example!r}" if example else f"set {field} on {self.name!r}"),
            connection=self.name,
            field=field,
        )

    def _typed(self, field: str, value: Any) -> Any:
        if value is None or secrets.references_in(value):
            return value
        if field in self.rules.integers:
            return self._integer(field, value)
        if field in self.rules.booleans:
            return self._boolean(field, value)
        if field in self.rules.links and isinstance(value, Connection):
            return value
        if field in self.rules.paths and isinstance(value, os.PathLike):
            return os.fspath(value)
        if not isinstance(value, str):
            self._wrong(field, f"must be text, not {type(value).__name__}")
        return value

    def _integer(self, field: str, value: Any) -> int:
        is_text = isinstance(value, str) and value.isascii() and value.isdigit()
        if not is_text and (isinstance(value, bool) or not isinstance(value, int)):
            self._wrong(field, "must be a whole number")
        return int(value)

    def _boolean(self, field: str, value: Any) -> bool:
        truth = _TRUTH.get(str(value).lower())
        if truth is None:
            self._wrong(field, "must be true or false")
        return truth

    def _filled_in(self, field: str, value: Any) -> Any:
        if isinstance(value, Connection):
            return value.resolved()
        if not isinstance(value, str):
            return value
        try:
            if field in self.rules.urls:
                return urls.expand_url(value)
            filled = secrets.expand(value, secret=redact.is_secret_name(field))
        except MissingSecret as error:
            raise type(error)(  # the class is kept because a store that did not respond is retryable
                f"connection {self.name!r}, field {field}, {error.what}",
                where=self.declared_at,
                hint=error.hint,
                **{"connection": self.name, "field": field, **error.facts},
            ) from None
        return os.path.expanduser(filled) if field in self.rules.paths else filled

    def _remember_secrets(self) -> None:
        for field in self.field_names():
            value = getattr(self, field)
            if not isinstance(value, str) or (secrets.references_in(value) and not self.is_resolved):
                continue
            if redact.is_secret_name(field):
                redact.remember_secret(value)
            else:
                redact.remember_url_secrets(value)
