"""The layout of a table's files (format, columns, options), stored in the lake so that every load and read agrees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ematix_flow.declare.types import Column, type_from_spec
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.storage.paths import LakePath, LakeRoot, read_text_if_exists, write_atomically

BATCH = "flow_batch"
LAYOUT_NOTE = "_layout"  # readers skip names that start with an underscore


@dataclass(frozen=True)
class FileLayout:
    """The file format, the columns in the order of the files, and the options the files were written with."""

    format: str
    columns: tuple[Column, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Return the columns whose values are folders below a batch."""
        return tuple(self.options.get("partition_by") or ())

    def with_options(self, options: Mapping[str, Any]) -> FileLayout:
        """Return the layout with other options, without the compression, which makes no difference to a reader."""
        kept = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        kept.pop("parquet_compression", None)
        return replace(self, options=kept)

    def reads_like(self, other: FileLayout) -> bool:
        """Return whether one read is correct for files of both layouts."""
        mine, others = ([(column.name, column.type) for column in item.columns] for item in (self, other))
        return mine == others and dict(self.options) == dict(other.options)

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as JSON-compatible data."""
        return {
            "format": self.format,
            "columns": [column.to_spec() for column in self.columns],
            "options": dict(self.options),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> FileLayout:
        """Return the layout from such data."""
        return cls(str(kept["format"]), tuple(_column(spec) for spec in kept["columns"]), dict(kept["options"]))


def write_layout(folder: LakePath, layout: FileLayout) -> None:
    """Write the layout into a folder of files, because the table's declaration may change before they are read."""
    write_atomically(folder / LAYOUT_NOTE, json.dumps(layout.to_dict()))


def read_layout(folder: LakePath) -> FileLayout | None:
    """Return the recorded layout of the files in a folder, None where it has none."""
    text = read_text_if_exists(folder / LAYOUT_NOTE)
    return FileLayout.from_dict(json.loads(text)) if text is not None else None


@dataclass(frozen=True)
class FileLayouts:
    """The layouts of all tables of one lake."""

    lake_root: LakeRoot

    def path(self, parts: Sequence[str]) -> LakePath:
        """Return the path of a table's layout file."""
        return self.lake_root.state("schemas", ".".join(part for part in parts if part) + ".json")

    def read(self, parts: Sequence[str]) -> FileLayout | None:
        """Return a table's layout, None for files that ematix-flow did not write."""
        text = read_text_if_exists(self.path(parts))
        return FileLayout.from_dict(json.loads(text)) if text is not None else None

    def write(self, parts: Sequence[str], layout: FileLayout) -> None:
        """Write a table's layout."""
        write_atomically(self.path(parts), json.dumps(layout.to_dict(), indent=1))


def _column(spec: Mapping[str, Any]) -> Column:
    kind = type_from_spec(spec["type"])
    if kind is None:
        raise RunFailed(f"column {spec['name']} has a type this version does not know: {spec['type']}",
                        hint="a newer version of ematix-flow wrote this table; install it")  # fmt: skip
    return Column(kind, bool(spec["nullable"]), bool(spec["primary_key"]), str(spec["name"]))
