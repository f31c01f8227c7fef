"""The columns of a stream's files: declared, or learned from earlier files and stored beside the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.foundation.lazy_imports import t
from ematix_flow.messages.decoding_state import declared_columns
from ematix_flow.messages.type_widening import nullable_type, widen_structs
from ematix_flow.storage.paths import LakePath, read_text_if_exists, write_atomically

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class LearnedColumns:
    """The columns known so far; written before a row is read, so that a repeated micro-batch has the same columns."""

    path: LakePath
    fields: Mapping[str, str] | None = None

    @property
    def are_declared(self) -> bool:
        """Return whether the stream declares its columns; then no others are read."""
        return bool(self.fields)

    def load(self) -> StructType | None:
        """Return the columns, None before the first file."""
        if self.fields:
            return declared_columns(self.fields)
        kept = read_text_if_exists(self.path)
        return t.StructType.fromJson(json.loads(kept)) if kept else None

    def widened(self, schema: StructType) -> StructType:
        """Return the columns with those of other files added, and store them; different types are widened to one."""
        known = self.load() or t.StructType([])
        if self.are_declared:
            return known
        spelled = {field.name.lower(): field.name for field in known.fields}
        other = t.StructType(
            [
                t.StructField(spelled.get(one.name.lower(), one.name), nullable_type(one.dataType))
                for one in schema.fields
            ]
        )
        wide = widen_structs(known, other)
        if wide != known:
            write_atomically(self.path, wide.json())
        return wide
