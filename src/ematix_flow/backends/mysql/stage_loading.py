"""Writes rows into a stage from a Spark task: LOAD DATA LOCAL from a file, or INSERT statements of many rows."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from typing import Any

from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.backends.mysql.errors import translate
from ematix_flow.backends.mysql.row_text import chunks, rows_as_text
from ematix_flow.backends.mysql.session import MySqlLogin, open_connection
from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation.errors import BadValue, RunFailed

ATTEMPT = "_flow_attempt"
_FILE_BYTES = 64 * 1024 * 1024
_STATEMENT_BYTES = 1024 * 1024
_DIALECT = MySqlDialect()


class StageLoader(ABC):
    """A task's connection to its stage."""

    def __init__(self, data: MySqlLogin, *, relation: str, columns: list[tuple[str, ColumnType]], attempt: int) -> None:
        self._relation = relation
        self._columns = columns
        self._attempt = attempt
        self._raw = open_connection(data, local_infile=True)

    @abstractmethod
    def add(self, batch: Any) -> None:
        """Add a batch; its rows may not be in the stage yet when this returns."""

    @abstractmethod
    def finish(self) -> None:
        """Write all rows added so far to the stage."""

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()

    def _execute(self, statement: str | bytes) -> tuple[int, int]:
        """Execute a statement; return the rows affected and the number of warnings."""
        with self._raw.cursor() as cursor:
            cursor.execute(statement)
            return cursor.rowcount, cursor.warning_count


class InsertLoader(StageLoader):
    """A loader by INSERT, for servers that do not accept LOCAL files, which is the default of MySQL 8."""

    def __init__(self, data: MySqlLogin, **stage: Any) -> None:
        super().__init__(data, **stage)
        with self._raw.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            self._largest = min(_STATEMENT_BYTES, int(cursor.fetchone()[0]) // 2)
        names = _DIALECT.names([name for name, _ in self._columns])
        self._head = f"INSERT INTO {self._relation} ({names}, {ATTEMPT}) VALUES ".encode()

    def add(self, batch: Any) -> None:
        rows = rows_as_text(batch, self._columns, begin="(", end=f",{self._attempt}),", hex_mark="x")
        for piece in chunks(rows, self._largest):
            if piece:
                self._execute(self._head + bytes(piece[:-1]))

    def finish(self) -> None:
        return  # every batch is in the stage already


class LocalInfileLoader(StageLoader):
    """A loader by LOAD DATA LOCAL, which turns errors into warnings: a warning or a missing row fails the load."""

    def __init__(self, data: MySqlLogin, **stage: Any) -> None:
        super().__init__(data, **stage)
        self._file = tempfile.NamedTemporaryFile(prefix="ematix-flow-")  # noqa: SIM115 - closed by close()
        self._rows = 0

    def add(self, batch: Any) -> None:
        rows = rows_as_text(batch, self._columns, begin="", end=f",{self._attempt}\n", hex_mark="")
        for piece in chunks(rows, _FILE_BYTES):
            self._file.write(piece)
        self._rows += batch.num_rows
        if self._file.tell() >= _FILE_BYTES:
            self.finish()

    def finish(self) -> None:
        if self._rows == 0:
            return
        self._file.flush()
        loaded, warnings = self._execute(self._statement())
        if warnings:
            level, number, text = next(iter(self._raw.show_warnings()), ("Warning", 0, "a value did not fit"))
            raise translate(_ServerWarning(int(number), str(text))) if number else BadValue(f"{text} ({level})")
        if loaded != self._rows:
            raise RunFailed(f"the server took {loaded} of {self._rows} rows of a stage", hint="see the server's log")
        self._file.seek(0)
        self._file.truncate()
        self._rows = 0

    def _statement(self) -> str:
        holders = [f"@flow_{index}" if kind.kind == "bytes" else _DIALECT.quote(name)
                   for index, (name, kind) in enumerate(self._columns)]  # fmt: skip
        decoded = [f"{_DIALECT.quote(name)} = UNHEX(@flow_{index})"
                   for index, (name, kind) in enumerate(self._columns) if kind.kind == "bytes"]  # fmt: skip
        return (
            f"LOAD DATA LOCAL INFILE {_DIALECT.text_literal(self._file.name)} INTO TABLE {self._relation} "
            "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\\'' ESCAPED BY '\\\\' "
            f"LINES TERMINATED BY '\\n' ({', '.join(holders)}, {ATTEMPT})"
            + (f" SET {', '.join(decoded)}" if decoded else "")
        )

    def close(self) -> None:
        self._file.close()
        super().close()


class _ServerWarning(Exception):
    """A server warning in the form of a driver error."""
