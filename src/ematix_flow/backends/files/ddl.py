"""DDL of tables of files: the declared columns are stored in a schema file of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ematix_flow.backends.files.layout import BATCH, FileLayout, FileLayouts
from ematix_flow.contract.ddl import (
    AddColumn,
    ChangeType,
    ColumnState,
    CreateTable,
    DdlStep,
    DropNotNull,
    TableState,
    is_lossless,
)
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.connections import ObjectStoreLocalConnection, ObjectStoreS3Connection
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.foundation.errors import DriftError, PlanError
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, LakeRoot

_BY_TEXT = ("csv", "json_lines")
_TEXTS = ("string", "text")


class FilesDdl:
    """Inspection and changes of the schema files of a lake's tables."""

    def __init__(self, connection: ObjectStoreLocalConnection | ObjectStoreS3Connection) -> None:
        resolved = connection.resolved()
        self._place = LakeRoot.of(resolved)
        self._format = resolved.format
        self._layouts = FileLayouts(self._place)

    def inspect(self, shape: TargetShape) -> TableState | None:
        """Return the table from its schema file, None where there is none; raise DriftError for another file format."""
        layout = self._layouts.read(_parts(shape))
        if layout is None:
            return None
        if layout.format != self._format:
            raise DriftError(
                f"{shape.table.qualified} holds {layout.format} files, and this connection is for {self._format}",
                where=shape.declared.where,
                hint=f"use a connection with format = {layout.format!r}, or another table",
            )
        states = tuple(
            ColumnState(column.name, str(column.type), column.type, column.nullable) for column in layout.columns
        )
        return TableState(states, tuple(column.name for column in layout.columns if column.primary_key))

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Return the declared type: the schema file keeps every declared type exactly."""
        return column.type

    def unique_groups(self, shape: TargetShape) -> None:
        """Return None: a lake has no UNIQUE constraints."""

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as SQL comments: files have no DDL language."""
        folder = self._place.table(shape.table.schema, shape.table.name)
        self._changed(shape, steps)
        return [f"-- {self._format} files in {folder}: {step}" for step in steps]

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Write the new schema file."""
        if not steps:
            return
        layout = self._changed(shape, steps)
        folder = self._place.table(shape.table.schema, shape.table.name)
        if isinstance(folder, Path):
            with translated_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
        self._layouts.write(_parts(shape), layout)

    def _changed(self, shape: TargetShape, steps: Sequence[DdlStep]) -> FileLayout:
        layout = self._layouts.read(_parts(shape))
        for step in steps:
            layout = self._step(shape, layout, step)
        return layout or FileLayout(self._format, ())

    def _step(self, shape: TargetShape, layout: FileLayout | None, step: DdlStep) -> FileLayout:
        if isinstance(step, CreateTable):
            if layout is None:
                _refuse_strangers(self._place.table(shape.table.schema, shape.table.name))
            return layout or FileLayout(
                self._format, tuple(replace(column, normalizers=()) for column in step.table.columns)
            )
        if layout is None:
            raise PlanError(f"{shape.table.qualified} is not there", hint="create it first")
        match step:
            case AddColumn(column):
                return replace(layout, columns=(*layout.columns, replace(column, nullable=True, normalizers=())))
            case DropNotNull(state):
                return _with_column(layout, state.name, nullable=True)
            case ChangeType(column, before):
                if not _reads_as(layout, before.type, column.type):
                    raise DriftError(
                        f"{shape.table.qualified}: files with {column.name} as {before.native} cannot be read as {column.type}",
                        where=shape.declared.where,
                        hint="load the table anew under another name, or declare what is there",
                    )
                return _with_column(layout, column.name, type=column.type)


def _parts(shape: TargetShape) -> tuple[str, str]:
    return shape.table.schema, shape.table.name


def _with_column(layout: FileLayout, name: str, **changes: object) -> FileLayout:
    columns = tuple(replace(column, **changes) if column.name == name else column for column in layout.columns)  # type: ignore[arg-type]
    return replace(layout, columns=columns)


def _reads_as(layout: FileLayout, before: ColumnType | None, after: ColumnType) -> bool:
    """Return whether files of the old type can become the new one: text always, others if the change is lossless."""
    if before is None:
        return False
    return layout.format in _BY_TEXT or (before.kind in _TEXTS and after.kind in _TEXTS) or is_lossless(before, after)


def _refuse_strangers(folder: LakePath) -> None:
    """Raise PlanError where the folder contains files that ematix-flow did not write."""
    if not folder.is_dir():
        return
    strangers = [item.name for item in folder.iterdir() if not item.name.startswith((".", "_", f"{BATCH}="))]
    if strangers:
        raise PlanError(
            f"{folder} holds files that ematix-flow did not write: {', '.join(sorted(strangers)[:3])}",
            hint="choose another table name, or move the files away",
        )
