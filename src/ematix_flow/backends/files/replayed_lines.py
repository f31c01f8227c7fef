"""Replays single lines of CSV files, as stored in dead letters: they are read with the columns of their file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ematix_flow.backends.files.external_files import csv_options
from ematix_flow.backends.files.learned_columns import LearnedColumns
from ematix_flow.backends.files.new_file_rows import BROKEN, NewFiles, in_types, no_columns, no_rows, row_errors
from ematix_flow.messages.decode import ERROR, RAW, SOURCE
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("topic", "partition", "offset", "key", "headers", "message_id", "timestamp")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ReplayedLines:
    """Messages with a line as payload and its file as topic; `files.below` is the folder that the stream watches."""

    files: NewFiles
    known: LearnedColumns

    def rows(self, messages: DataFrame) -> DataFrame:
        """Return the rows as the stream would read them from the file; each keeps its line."""
        topics = [str(row["topic"]) for row in messages.select("topic").distinct().collect()]
        names = {topic: self._name(topic) for topic in topics}
        columns = self._columns([name for name in names.values() if name is not None])
        groups: dict[tuple[tuple[str, ...] | None, tuple[tuple[str, str], ...]], list[str]] = {}
        for topic, name in names.items():
            column_names = columns.get(name) if name is not None else None
            groups.setdefault((column_names or self._learned_columns(name), _folders(name)), []).append(topic)
        frames = [
            self._read(messages.where(f"topic IN ({', '.join(map(text_literal, some))})"), fields, dict(folders))
            for (fields, folders), some in groups.items()
        ]
        return reduce(lambda one, other: one.unionByName(other), frames) if frames else no_rows(self.known)

    def _name(self, topic: str) -> str | None:
        """Return the file's name below the folder; None where it is outside."""
        below = unquote(engine_uri(self.files.below)) + "/"
        return unquote(topic).removeprefix(below) if unquote(topic).startswith(below) else None

    def _columns(self, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the columns of the files that still exist, in their order."""
        present = [name for name in names if self.files.below.joinpath(*name.split("/")).exists()]
        return replace(self.files, names=present).columns() if present else {}

    def _learned_columns(self, name: str | None) -> tuple[str, ...] | None:
        """Return the learned columns for a missing file; None where they are declared, which gives no order."""
        kept = None if self.known.are_declared else self.known.load()
        folders = dict(_folders(name))
        return None if kept is None else tuple(one for one in kept.fieldNames() if one not in folders)

    def _read(self, lines: DataFrame, names: Sequence[str] | None, folders: Mapping[str, str]) -> DataFrame:
        place = f"named_struct({', '.join(f'{name!r}, {quote(name)}' for name in _PLACE)}) AS {SOURCE}"
        if not names:
            reason = text_literal("the file of this line is gone, and with it the order of its columns")
            texts = lines.selectExpr(f"{reason} AS {ERROR}", f"value AS {RAW}", place)
            return in_types(texts, self.known.load() or no_columns(), (), keeps_raw=True)
        schema = ", ".join(f"{quote(name)} STRING" for name in (*names, BROKEN))
        csv = {**csv_options(self.files.options), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
        options = ", ".join(
            f"{text_literal(key)}, {text_literal(value)}" for key, value in csv.items() if key != "header"
        )
        read = f"from_csv(CAST(value AS STRING), {text_literal(schema)}, map({options}))"
        fixed = [f"{_constant(value)} AS {quote(name)}" for name, value in folders.items()]
        raw = lines.selectExpr(f"{read} AS _flow_line", "value", place, *fixed).selectExpr(
            "_flow_line.*", "value", SOURCE, *map(quote, folders)
        )
        values, wrong = row_errors(names, self.files.options)
        if self.files.options.get("has_header", True):
            is_header = " AND ".join(f"{quote(name)} <=> {text_literal(name)}" for name in names)
            wrong = f"CASE WHEN {is_header} THEN {text_literal('the line is the header of its file, and no row')} ELSE {wrong} END"
        texts = raw.selectExpr(*values, *map(quote, folders), f"{wrong} AS {ERROR}", f"value AS {RAW}", SOURCE)
        return in_types(texts, self.known.load() or no_columns(), names, keeps_raw=True)


def _folders(name: str | None) -> tuple[tuple[str, str], ...]:
    """Return the partition values in the path of a file, as in `day=2026-01-01/part.csv`."""
    parts = (name or "").split("/")[:-1]
    return tuple((key, value) for key, sign, value in (part.partition("=") for part in parts) if sign)


def _constant(value: str) -> str:
    return "CAST(NULL AS STRING)" if value == _NO_VALUE else text_literal(value)
