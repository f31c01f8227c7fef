"""Code that runs in Python workers: user functions over Arrow arrays, with errors that the driver can report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.dataplane import arrow_udfs as arrow
from ematix_flow.dataplane.task_errors import to_carried_error
from ematix_flow.declare.udfs import PythonAggregateUdfHandle, PythonScalarUdfHandle
from ematix_flow.foundation.errors import DataError, FlowError, RunFailed
from ematix_flow.foundation.lazy_imports import pa

MOST_GROUPS = 100_000
"""The number of groups in one task after which it emits their states and starts again with empty accumulators."""


def scalar_task(handle: PythonScalarUdfHandle) -> Callable[..., Any]:
    """Return a scalar function as a task: arrays in, an array out."""

    def work(arrays: Sequence[pa.Array]) -> pa.Array:
        return arrow.to_carrier(arrow.call_scalar(handle, arrays), handle.returns)

    return lambda *arrays: _with_task_errors(lambda: work(arrays))


def checked_scalar_task(handle: PythonScalarUdfHandle) -> Callable[..., Any]:
    """Return a scalar function as a task whose output is a struct per row: the value, or the reason for its absence."""

    def pieces(arrays: Sequence[pa.Array]) -> list[tuple[pa.Array, list[str | None]]]:
        count = len(arrays[0])
        try:
            return [(arrow.to_carrier(arrow.call_scalar(handle, arrays), handle.returns), [None] * count)]
        except DataError as exc:
            if count <= 1:
                return [(pa.nulls(count, arrow.carrier_type(handle.returns)), [exc.what] * count)]
        middle = count // 2
        first, second = ([array.slice(*edge) for array in arrays] for edge in ((0, middle), (middle,)))
        return pieces(first) + pieces(second)

    def work(arrays: Sequence[pa.Array]) -> pa.Array:
        results = pieces(arrays)
        values = pa.concat_arrays([value for value, _ in results])
        wrong = pa.array([text for _, texts in results for text in texts], type=pa.string())
        return pa.StructArray.from_arrays([values, wrong], names=["value", "wrong"])

    return lambda *arrays: _with_task_errors(lambda: work(arrays))


def aggregate_task(handle: PythonAggregateUdfHandle, *, merges: bool) -> Callable[..., Any]:
    """Return a task that computes the result of each group from all its rows, or from its partial states (`merges`)."""

    def result(values: Any, low: int, high: int) -> pa.Array:
        accumulator = arrow.new_accumulator(handle)
        if high > low:
            columns = [values.field(place).slice(low, high - low) for place in range(values.type.num_fields)]
            (arrow.merge_states if merges else arrow.update_accumulator)(handle, accumulator, columns)
        return arrow.evaluate_accumulator(handle, accumulator)

    def work(lists: Any) -> pa.Array:
        edges = lists.offsets.to_pylist()
        results = [result(lists.values, low, high) for low, high in itertools.pairwise(edges)]
        array = pa.concat_arrays(results) if results else pa.nulls(0, arrow.arrow_type(handle.returns))
        return arrow.to_carrier(array, handle.returns)

    return lambda lists: _with_task_errors(lambda: work(lists))


@dataclass(frozen=True)
class PartialCall:
    """An aggregate call in a partial task, with the column numbers of its arguments."""

    handle: PythonAggregateUdfHandle
    columns: tuple[int, ...]


@dataclass(frozen=True)
class PartialTask:
    """A task that turns the rows of one partition into one row per group: its keys and its accumulators' states."""

    keys: int
    calls: tuple[PartialCall, ...]
    names: tuple[str, ...]
    max_groups: int = MOST_GROUPS

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        groups = _Groups(self)
        try:
            for batch in batches:
                groups.add_batch(batch)
                if len(groups) > self.max_groups:
                    yield groups.states()
                    groups = _Groups(self)
            if len(groups):
                yield groups.states()
        except Exception as exc:
            raise to_carried_error(exc, _unexpected_error) from exc


@dataclass
class _Groups:
    """The accumulators of the groups that a task has read."""

    task: PartialTask
    types: list[Any] = field(default_factory=list)
    known: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.known)

    def add_batch(self, batch: Any) -> None:
        """Add every row to the accumulators of its group."""
        if not batch.num_rows:
            return
        self.types = [batch.column(place).type for place in range(self.task.keys)]
        for key, rows in self._grouped(batch):
            if key not in self.known:
                self.known[key] = [arrow.new_accumulator(call.handle) for call in self.task.calls]
            for call, accumulator in zip(self.task.calls, self.known[key], strict=True):
                columns = [batch.column(place) for place in call.columns]
                arrays = columns if rows is None else [column.take(rows) for column in columns]
                arrow.update_accumulator(call.handle, accumulator, arrays)

    def _grouped(self, batch: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Yield each key with the indexes of its rows; None stands for all rows."""
        count = self.task.keys
        if not count:
            yield (), None
            return
        keys = [_as_numbers(batch.column(place)) for place in range(count)]
        names = [f"k{place}" for place in range(count)]
        table = pa.table([*keys, pa.array(range(batch.num_rows), type=pa.int64())], names=[*names, "row"])
        grouped = table.group_by(names, use_threads=False).aggregate([("row", "list")])
        listed = [grouped.column(name).to_pylist() for name in names]
        rows = grouped.column("row_list").combine_chunks()
        for place, key in enumerate(zip(*listed, strict=True)):
            yield key, rows[place].values

    def states(self) -> Any:
        """Return the keys and states of all groups as one record batch."""
        columns = [
            _from_numbers([key[place] for key in self.known], self.types[place]) for place in range(self.task.keys)
        ]
        for number, call in enumerate(self.task.calls):
            states = [
                arrow.accumulator_state(call.handle, accumulators[number]) for accumulators in self.known.values()
            ]
            for place, name in enumerate(call.handle.state):
                columns.append(arrow.to_carrier(pa.concat_arrays([state[place] for state in states]), name))
        return pa.RecordBatch.from_arrays(columns, names=list(self.task.names))


def _as_numbers(column: Any) -> Any:
    """Return dates and timestamps as integers: Python cannot represent all of them."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _from_numbers(values: list[Any], kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.array(values, type=pa.int64()).cast(kind)
    return pa.array(values, type=pa.int32()).cast(kind) if pa.types.is_date32(kind) else pa.array(values, type=kind)


def _with_task_errors(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as exc:
        raise to_carried_error(exc, _unexpected_error) from exc


def _unexpected_error(exc: Exception) -> FlowError:
    message = str(exc).splitlines()
    return RunFailed(
        f"a function failed: {type(exc).__name__}: {message[0] if message else ''}", hint="look at its log"
    )
