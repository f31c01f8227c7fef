"""Tables: `@ematix.table` and annotated `ManagedTable` classes, and the frozen `TableSpec` that they become."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args, get_origin

from ematix_flow.declare.markers import NaturalKey, Nullable, PrimaryKey
from ematix_flow.declare.normalizers.normalizers import check_chain
from ematix_flow.declare.types import Column, ColumnType, NullableType, Numeric, String
from ematix_flow.foundation.errors import DeclarationError, MissingColumn, located
from ematix_flow.foundation.location import Location, caller
from ematix_flow.foundation.names import did_you_mean, snake_case


class TableError(DeclarationError, TypeError):
    """Raised for a class that cannot become a table."""


@dataclass(frozen=True)
class TableSpec:
    """A table's declaration as a plain value, without classes and annotations."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    merge_keys: tuple[str, ...] | None = None
    where: Location | None = dataclasses.field(default=None, compare=False)

    @property
    def qualified(self) -> str:
        """The name as `schema.table`."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def column_names(self) -> tuple[str, ...]:
        """The column names in order of declaration."""
        return tuple(column.name for column in self.columns)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns marked pk()."""
        return tuple(column.name for column in self.columns if column.primary_key)

    def column(self, name: str) -> Column:
        """Return the column of that name; raise MissingColumn if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise MissingColumn(
            f"{self.qualified} has no column {name!r}", where=self.where, hint=did_you_mean(name, self.column_names)
        )


class ManagedTable:
    """Base of a table class: annotate columns, name schema and table.

    >>> from ematix_flow import ManagedTable, Annotated, BigInt, Text, pk
    >>> class Events(ManagedTable):
    ...     __schema__ = "analytics"
    ...     __tablename__ = "events"
    ...     event_id: Annotated[BigInt, pk()]
    ...     name: Text | None
    >>> Events.spec().qualified
    'analytics.events'
    """

    __schema__: ClassVar[str]
    __tablename__: ClassVar[str]
    __columns__: ClassVar[tuple[Column, ...]] = ()
    __unique_constraints__: ClassVar[tuple[tuple[str, ...], ...]] = ()
    __merge_keys__: ClassVar[tuple[str, ...] | None] = None
    __where__: ClassVar[Location | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("__abstract__"):
            return
        where = cls.__dict__.get("__where__") or caller()
        if not getattr(cls, "__schema__", None):
            raise TableError(f"{cls.__name__} names no schema", where=where, hint='add __schema__ = "analytics"')
        if not cls.__dict__.get("__tablename__"):
            cls.__tablename__ = snake_case(cls.__name__)
        columns, unique = _columns_of(cls, where)
        cls.__columns__ = columns
        cls.__unique_constraints__ = cls.__dict__.get("__unique_constraints__") or unique
        known = {column.name for column in columns}
        for name in (name for group in cls.__unique_constraints__ for name in group):
            if name not in known:
                raise TableError(
                    f"{cls.__name__}: __unique_constraints__ names {name!r}, which is no column of it",
                    where=where, hint=did_you_mean(name, known),
                )  # fmt: skip
        cls.__where__ = where

    @classmethod
    def spec(cls) -> TableSpec:
        """Return the table as a frozen value."""
        keys = cls.__merge_keys__
        return TableSpec(
            schema=cls.__schema__,
            name=cls.__tablename__,
            columns=cls.__columns__,
            unique=tuple(tuple(group) for group in cls.__unique_constraints__),
            merge_keys=tuple(keys) if keys else None,
            where=cls.__where__,
        )

    @classmethod
    def _columns(cls) -> tuple[Column, ...]:
        return cls.__columns__

    @classmethod
    def _primary_keys(cls) -> tuple[str, ...]:
        return cls.spec().primary_key

    @classmethod
    def _unique_constraints(cls) -> tuple[tuple[str, ...], ...]:
        return cls.__unique_constraints__

    @classmethod
    def _to_spec(cls) -> dict[str, Any]:
        return {
            "schema": cls.__schema__,
            "name": cls.__tablename__,
            "columns": [column.to_spec() for column in cls.__columns__],
            "unique_constraints": [list(group) for group in cls.__unique_constraints__],
        }

    @classmethod
    def _to_normalized_spec(cls) -> dict[str, Any]:
        spec = cls._to_spec()
        digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
        return {**spec, "fingerprint": digest[:32]}

    @classmethod
    def ensure(cls, conn: Any, on_drift: str = "error") -> dict[str, Any]:
        """Create or migrate the table on a connection; return what was done."""
        result: dict[str, Any] = conn.ensure_table(cls.spec(), on_drift=on_drift)
        return result


def table(*, schema: str, name: str | None = None) -> Callable[[type], type[ManagedTable]]:
    """Class decorator: declare a table from the annotations; its name defaults to the class name in snake case."""

    def decorate(cls: type) -> type[ManagedTable]:
        where = caller()
        if not isinstance(cls, type):
            raise TableError("@ematix.table goes on a class", where=where)
        if dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") or hasattr(cls, "model_fields"):
            raise TableError(
                f"{cls.__name__} is already a dataclass, attrs or pydantic class",
                where=where,
                hint="declare the table on a plain class",
            )
        body = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
        body["__schema__"] = schema
        body["__tablename__"] = name or snake_case(cls.__name__)
        body["__where__"] = where
        declared: type[ManagedTable] = types.new_class(
            cls.__name__, (ManagedTable,), exec_body=lambda space: space.update(body)
        )
        return declared

    return decorate


def _columns_of(
    cls: type[ManagedTable], where: Location | None
) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    columns: dict[str, Column] = {}
    groups: dict[str, list[str]] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Column):
                columns[name] = dataclasses.replace(value, name=value.name or name)
        for name, annotation in _annotations(base, where).items():
            if name.startswith("__") or get_origin(annotation) is ClassVar:
                continue
            column, group = _column(cls, name, annotation, where)
            columns[name] = column
            if group is not None:
                groups.setdefault(group, []).append(name)
    if not columns:
        raise TableError(
            f"{cls.__name__} has no columns",
            where=where,
            hint="annotate at least one: event_id: Annotated[BigInt, pk()]",
        )
    return tuple(columns.values()), tuple(tuple(groups[group]) for group in sorted(groups))


def _annotations(base: type, where: Location | None) -> dict[str, Any]:
    hints: dict[str, Any] = dict(vars(base).get("__annotations__", {}))
    if not hints and hasattr(base, "__annotate__") and base not in (object, ManagedTable):  # lazy since 3.14
        hints = dict(typing.get_type_hints(base, include_extras=True))
    if base in (object, ManagedTable):
        return {}
    scope = dict(vars(sys.modules[base.__module__])) if base.__module__ in sys.modules else {}
    for name, annotation in hints.items():
        if isinstance(annotation, str):
            try:
                hints[name] = eval(annotation, scope, dict(vars(base)))  # noqa: S307 - the user's own annotation
            except Exception as exc:
                raise TableError(f"{base.__name__}.{name}: cannot read {annotation!r}: {exc}", where=where) from exc
    return hints


def _column(cls: type, name: str, annotation: Any, where: Location | None) -> tuple[Column, str | None]:
    markers: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        markers = tuple(rest)
    column_type, takes_null = _type(cls, name, annotation, where)
    primary = any(isinstance(marker, PrimaryKey) for marker in markers)
    natural = next((marker.group for marker in markers if isinstance(marker, NaturalKey)), None)
    takes_null = takes_null or any(isinstance(marker, Nullable) for marker in markers)
    with located(where):
        chain = check_chain(markers)
    column = Column(type=column_type, nullable=takes_null, primary_key=primary, name=name, normalizers=chain)
    return column, natural


def _type(cls: type, name: str, annotation: Any, where: Location | None) -> tuple[ColumnType, bool]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            inner, _ = _type(cls, name, members[0], where)
            return inner, len(get_args(annotation)) > 1
    if isinstance(annotation, NullableType):
        return annotation.type, True
    if get_origin(annotation) is Annotated:
        return _type(cls, name, get_args(annotation)[0], where)
    if isinstance(annotation, ColumnType):
        return annotation, False
    if isinstance(annotation, type) and issubclass(annotation, ColumnType):
        if annotation in (String, Numeric):
            example = "String[256]" if annotation is String else "Numeric[12, 2]"
            raise TableError(
                f"{cls.__name__}.{name}: {annotation.__name__} needs a size", where=where, hint=f"write {example}"
            )
        return annotation(), False
    raise TableError(
        f"{cls.__name__}.{name}: {annotation!r} is not a column type",
        where=where,
        hint="use the types of ematix_flow.types, for example BigInt, Text, String[256] or TimestampTZ",
    )
