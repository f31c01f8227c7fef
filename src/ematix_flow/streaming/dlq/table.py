"""The table of dead letters: list, lease to one replay at a time, park, purge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.contract.backend import DdlPlanner, SqlClient, SqlText
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import MissingColumn, MissingTable, UnknownName, Unsupported
from ematix_flow.planning.drift import plan_ddl
from ematix_flow.run_log.records import storable_text
from ematix_flow.streaming.dlq.commit_coverage import id_for
from ematix_flow.streaming.dlq.dead_letter import DeadLetter, LetterSelection, UnfinishedBatches
from ematix_flow.streaming.dlq.letters import LEASED, PARKED, PENDING, RECORDS
from ematix_flow.streaming.dlq.locations import dead_letter_connection
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder

_WHOLE = tuple(name for name in RECORDS.column_names if name != "generation")
"""The columns of a letter; a table of an earlier version has them, too."""
_WITHOUT_BODY = tuple(name for name in _WHOLE if name not in ("message_key", "headers", "payload"))
_AT_ONCE = 500
"""The most ids in one statement."""
ARRIVALS = {"last_1m": 1, "last_5m": 5, "last_15m": 15, "last_60m": 60}


@dataclass(frozen=True)
class ReplayFailure:
    """A letter that failed again: with the same id, or as another one where the stage or the target is new."""

    letter: DeadLetter
    id: str
    stage: str
    error: str
    target: str | None


@dataclass(frozen=True)
class DeadLetterTable:
    """The dead letters of one stream; every call opens and closes a session of its own."""

    pipeline: str
    connect: Callable[[], SqlClient]
    dialect: SqlText
    is_there: Callable[[], bool] = lambda: True
    ddl: DdlPlanner | None = None

    @classmethod
    def of(cls, spec: StreamSpec) -> DeadLetterTable:
        """Return the table of a stream's dead letters."""
        if spec.bad_rows.store == "broker":
            raise Unsupported(
                f"the dead letters of {spec.name} are where its broker puts rejected messages",
                hint='dlq_store="table" keeps them in a table',
            )
        connection = dead_letter_connection(spec, CheckpointFolder.of(spec))
        backend = backend_for(connection)
        sink = backend.batch_sink(connection) if backend.batch_sink is not None else None
        client, sql = backend.client, backend.sql
        if sink is None or client is None or sql is None:
            raise Unsupported(f"{backend.title} keeps no dead letters")
        ddl = backend.ddl(connection) if backend.ddl is not None else None
        return cls(spec.name, lambda: client(connection), sql(connection), sink.has_database, ddl)

    def bring_up_to_date(self) -> None:
        """Add the columns that a table of an earlier version lacks."""
        if self.ddl is None or not self.is_there():
            return
        shape = TargetShape(RECORDS, RECORDS)
        state = self.ddl.inspect(shape)
        if state is not None:
            self.ddl.apply(shape, plan_ddl(shape, state, self.ddl.stored_type).steps)

    def listed(
        self, status: str | None = None, *, limit: int = 50, offset: int = 0, bodies: bool = False
    ) -> list[DeadLetter]:
        """Return letters, the newest first; without `bodies`, keys, headers and payloads are not read."""
        where = f"{self._of_stream} AND {self._has_status(status)}" if status else self._of_stream
        return self._read(
            _WHOLE if bodies else _WITHOUT_BODY,
            where,
            tail=f" ORDER BY failed_at DESC, id LIMIT {int(limit)} OFFSET {int(offset)}",
        )

    def get(self, prefix: str) -> DeadLetter | None:
        """Return the letter with this id, or with the only id that begins so, with its payload; None for no match."""
        if not prefix or not all(letter in "0123456789abcdef" for letter in prefix):
            return None
        text = self.dialect.text_literal(f"{prefix}%")
        letters = self._read(_WHOLE, f"{self._of_stream} AND id LIKE {text}", tail=" ORDER BY id LIMIT 6")
        if len(letters) > 1:
            raise UnknownName(
                f"several dead letters begin with {prefix!r}",
                hint="write more of it: " + ", ".join(letter.id[: len(prefix) + 8] for letter in letters[:5]),
            )
        return letters[0] if letters else None

    def with_full_ids(self, selection: LetterSelection) -> LetterSelection:
        """Return the same selection with full ids; users may shorten them."""
        letters = [(letter_id, self.get(letter_id)) for letter_id in selection.ids]
        unknown = [letter_id for letter_id, letter in letters if letter is None]
        if unknown:
            raise UnknownName(
                f"{self.pipeline} has no dead letter {unknown[0]!r}", hint=f"flow dlq list {self.pipeline}"
            )
        return replace(selection, ids=tuple(letter.id for _, letter in letters if letter is not None))

    def stats(self, at: datetime | None = None) -> dict[str, Any]:
        """Return letter counts by status, by stage, and by recent arrival."""
        moment = at or now()
        depth, by_stage = {PENDING: 0, LEASED: 0, PARKED: 0}, dict[str, int]()
        status = f"CASE WHEN {self._has_status(PENDING)} THEN '{PENDING}' ELSE status END"
        for shown_status, stage, count in self._rows(
            f"SELECT {status}, stage, COUNT(*) FROM {self.table} WHERE {self._of_stream} GROUP BY 1, 2"
        ):
            depth[str(shown_status)] = depth.get(str(shown_status), 0) + int(count)
            by_stage[str(stage)] = by_stage.get(str(stage), 0) + int(count)
        arrivals = {
            name: sum(int(row[0]) for row in self._rows(self._since(moment - timedelta(minutes=minutes))))
            for name, minutes in ARRIVALS.items()
        }
        return {
            "depth": depth,
            "by_stage": by_stage,
            "arrivals": arrivals,
            "scanned": sum(depth.values()),
            "truncated": False,
        }

    def _since(self, moment: datetime) -> str:
        return (
            f"SELECT COUNT(*) FROM {self.table} WHERE {self._of_stream} AND failed_at >= {self.dialect.instant(moment)}"
        )

    # For a replay ------------------------------------------------------------------------------------------------

    def waiting(
        self, selection: LetterSelection, unfinished: UnfinishedBatches | None = None
    ) -> list[tuple[str, str | None]]:
        """Return ids and targets of the selected free letters, the oldest first; parked ones only if selected by id."""
        states = (PENDING, PARKED) if selection.ids else (PENDING,)
        where = f"{self._of_stream} AND status IN ({', '.join(map(repr, states))}){self._chosen(selection)}"
        if unfinished is not None:
            where += f" AND {self._is_finished(unfinished)}"
        tail = f" LIMIT {selection.first}" if selection.first is not None else ""
        rows = self._rows(f"SELECT id, target FROM {self.table} WHERE {where} ORDER BY failed_at, id{tail}")
        return [(str(one), None if target is None else str(target)) for one, target in rows]

    def lease(self, ids: Sequence[str], until: datetime) -> list[DeadLetter]:
        """Lease these letters, and count an attempt; return those that no other process had leased."""
        moment = self.dialect.instant(until)
        for some in _batched_ids(ids):
            self._execute(
                f"UPDATE {self.table} SET status = '{LEASED}', leased_until = {moment}, attempt = attempt + 1 "
                f"WHERE {self._of_stream} AND {self._among(some)} AND status IN ('{PENDING}', '{PARKED}')"
            )
        return self._leased_until(until)

    def expired_leases(self) -> list[datetime]:
        """Return the ends of expired leases: each identifies a group that a replay left, and that stays a group."""
        rows = self._rows(
            f"SELECT DISTINCT leased_until FROM {self.table} WHERE {self._of_stream} AND {self._is_over} ORDER BY 1"
        )
        return [moment for row in rows if (moment := DeadLetter.moment(row[0])) is not None]

    def take_over(self, old: datetime, until: datetime) -> list[DeadLetter]:
        """Lease an abandoned group; no attempt is counted, because the result of the last one is unknown."""
        before, after = self.dialect.instant(old), self.dialect.instant(until)
        self._execute(
            f"UPDATE {self.table} SET leased_until = {after} "
            f"WHERE {self._of_stream} AND status = '{LEASED}' AND leased_until = {before} AND {self._is_over}"
        )
        return self._leased_until(until)

    def renew(self, old: datetime, until: datetime) -> bool:
        """Extend the lease of a group; return False when another process has it by now."""
        before, after = self.dialect.instant(old), self.dialect.instant(until)
        changed = self._execute(
            f"UPDATE {self.table} SET leased_until = {after} "
            f"WHERE {self._of_stream} AND status = '{LEASED}' AND leased_until = {before}"
        )
        return changed > 0

    def mark_done(self, letters: Sequence[DeadLetter]) -> None:
        """Delete letters that are in their targets."""
        self._execute_all(
            [
                f"DELETE FROM {self.table} WHERE {self._among(some)}"
                for some in _batched_ids([item.id for item in letters])
            ]
        )

    def return_failed(
        self, failures: Sequence[ReplayFailure], most_attempts: int, also_taken: Collection[str] = ()
    ) -> int:
        """Store letters that failed again, in one transaction; return how many had their last attempt and are parked.

        Letters that are `also_taken` by other targets stay leased until those have them.
        """
        statements, parked = list[str](), 0
        for letter in {item.letter.id: item.letter for item in failures}.values():
            again = [item for item in failures if item.letter.id == letter.id]
            is_parked = letter.attempt >= most_attempts
            parked += len(again) * is_parked
            statements += self._back(letter, again, PARKED if is_parked else PENDING, stays=letter.id in also_taken)
        self._execute_all(statements)
        return parked

    def _back(self, letter: DeadLetter, failures: Sequence[ReplayFailure], status: str, *, stays: bool) -> list[str]:
        """Return statements that turn one letter into as many as there are targets that refuse it."""
        d, statements = self.dialect, list[str]()
        old = f"id = {d.text_literal(letter.id)}"
        end = [] if stays else [f"DELETE FROM {self.table} WHERE {old}"]
        for item in failures:
            new = self._news(item, status)
            if item.id == letter.id:
                sets = ", ".join(f"{d.quote(name)} = {value}" for name, value in new.items())
                end = [f"UPDATE {self.table} SET {sets} WHERE {old}"]
                continue
            statements += self._copied(letter.id, new)
        return statements + end

    def _copied(self, letter: str, new: Mapping[str, str]) -> list[str]:
        """Return statements that copy a letter to another id, with these columns instead of its own."""
        d, columns = self.dialect, self._columns
        values = ", ".join(new.get(name, d.quote(name)) for name in columns)
        copy = f"SELECT {values} FROM {self.table} WHERE id = {d.text_literal(letter)}"
        return [
            f"DELETE FROM {self.table} WHERE id = {new['id']}",
            f"INSERT INTO {self.table} ({d.names(columns)}) {copy}",
        ]

    @cached_property
    def _columns(self) -> list[str]:
        """Return all columns of the table: a load adds some, an earlier version had fewer."""
        with self._session() as client:
            return client.query(f"SELECT * FROM {self.table} WHERE 1 = 0")[0]

    def _news(self, item: ReplayFailure, status: str) -> Mapping[str, str]:
        text = self.dialect.text_literal
        return {
            "id": text(item.id),
            "stage": text(item.stage),
            "error": text(storable_text(item.error)),
            "target": "NULL" if item.target is None else text(item.target),
            "failed_at": self.dialect.instant(now()),
            "status": text(status),
            "leased_until": "NULL",
        }

    # For a retried micro-batch -----------------------------------------------------------------------------------

    def of_batch(self, generation: str, batch: int, target: str | None = None) -> list[DeadLetter]:
        """Return the letters of one micro-batch, or of one target in it, without payloads."""
        text = self.dialect.text_literal
        where = f"{self._of_stream} AND generation = {text(generation)} AND batch = {int(batch)}"
        try:
            return self._read(_WITHOUT_BODY, where + (f" AND target = {text(target)}" if target is not None else ""))
        except MissingColumn:  # a table of a version without generations
            return []

    def rearrange(self, gone: Sequence[str], handed: Mapping[str, Sequence[str]]) -> None:
        """Delete letters, and split others into one for each of these targets; in one transaction."""
        text = self.dialect.text_literal
        statements = [f"DELETE FROM {self.table} WHERE {self._among(some)}" for some in _batched_ids(gone)]
        for letter, targets in handed.items():
            for name in targets:
                statements += self._copied(letter, {"id": text(id_for(letter, name)), "target": text(name)})
            statements.append(f"DELETE FROM {self.table} WHERE id = {text(letter)}")
        self._execute_all(statements)

    # For users ---------------------------------------------------------------------------------------------------

    def park(self, selection: LetterSelection) -> int:
        """Exclude letters from replays; return how many."""
        return self._execute(
            f"UPDATE {self.table} SET status = '{PARKED}', leased_until = NULL "
            f"WHERE {self._of_stream} AND {self._has_status(PENDING)}{self._chosen(selection)}"
        )

    def purge(self, selection: LetterSelection) -> int:
        """Delete letters, except those that a replay holds; return how many."""
        free = f"({self._has_status(PENDING)} OR status = '{PARKED}')"
        return self._execute(f"DELETE FROM {self.table} WHERE {self._of_stream} AND {free}{self._chosen(selection)}")

    # Queries -----------------------------------------------------------------------------------------------------

    @property
    def table(self) -> str:
        """Return the table's full name."""
        return self.dialect.relation(RECORDS.schema, RECORDS.name)

    @property
    def _of_stream(self) -> str:
        return f"pipeline_name = {self.dialect.text_literal(self.pipeline)}"

    @property
    def _is_over(self) -> str:
        return f"(status = '{LEASED}' AND leased_until <= {self.dialect.instant(now())})"

    def _has_status(self, status: str) -> str:
        """Return the condition for a status; a letter with an expired lease is pending."""
        if status == PENDING:
            return f"(status = '{PENDING}' OR {self._is_over})"
        if status == LEASED:
            return f"(status = '{LEASED}' AND NOT {self._is_over})"
        return f"status = {self.dialect.text_literal(status)}"

    def _is_finished(self, unfinished: UnfinishedBatches) -> str:
        text = self.dialect.text_literal
        tests = [f"batch <= {unfinished.after}"] + [
            f"NOT (coalesce(target, '') = {text(name)} AND batch IN ({', '.join(map(str, batches))}))"
            for name, batches in unfinished.behind.items()
            if batches
        ]
        return f"(coalesce(generation, '') <> {text(unfinished.generation)} OR ({' AND '.join(tests)}))"

    def _chosen(self, selection: LetterSelection) -> str:
        condition = ""
        if selection.ids:
            condition += f" AND {self._among(selection.ids)}"
        if selection.older_than is not None:
            condition += f" AND failed_at < {self.dialect.instant(now() - selection.older_than)}"
        return condition

    def _among(self, ids: Sequence[str]) -> str:
        return f"id IN ({', '.join(self.dialect.text_literal(one) for one in ids)})"

    def _leased_until(self, until: datetime) -> list[DeadLetter]:
        where = f"{self._of_stream} AND status = '{LEASED}' AND leased_until = {self.dialect.instant(until)}"
        return self._read(_WHOLE, where, tail=" ORDER BY id")

    def _read(self, columns: Sequence[str], where: str, *, tail: str = "") -> list[DeadLetter]:
        rows = self._rows(f"SELECT {self.dialect.names(columns)} FROM {self.table} WHERE {where}{tail}")
        return [DeadLetter.of(dict(zip(columns, row, strict=True))) for row in rows]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the result rows; none where no letter was ever stored."""
        if not self.is_there():
            return []
        try:
            with self._session() as client:
                return client.query(sql)[1]
        except MissingTable:
            return []

    def _execute(self, sql: str) -> int:
        if not self.is_there():
            return 0
        try:
            with self._session() as client:
                return client.execute(sql)
        except MissingTable:
            return 0

    def _execute_all(self, statements: Sequence[str]) -> None:
        if statements:
            with self._session() as client:
                client.execute_all(statements)

    @contextmanager
    def _session(self) -> Iterator[SqlClient]:
        client = self.connect()
        try:
            yield client
        finally:
            client.close()


def _batched_ids(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]
