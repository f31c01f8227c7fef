"""Calls user-defined functions over Arrow arrays and checks the types of arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ematix_flow.declare.udfs import Handle, PythonAggregateUdfHandle, PythonScalarUdfHandle
from ematix_flow.foundation.errors import DataError, DeclarationError, MissingColumn
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.foundation.names import did_you_mean

SPARK_TYPES = {
    "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT", "Int64": "BIGINT", "UInt8": "SMALLINT", "UInt16": "INT",
    "UInt32": "BIGINT", "UInt64": "DECIMAL(20,0)", "Float32": "FLOAT", "Float64": "DOUBLE", "Boolean": "BOOLEAN",
    "Utf8": "STRING", "Binary": "BINARY",
}  # fmt: skip
"""The Spark type that carries each declared type; Spark has no unsigned integers, they use the next wider type."""

_LONGEST_VALUE = 40
_LONGEST_REASON = 200


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of the function's argument or result."""
    types = {"Boolean": pa.bool_(), "Utf8": pa.string(), "Binary": pa.binary()}
    return types[name] if name in types else getattr(pa, name.lower())()


def carrier_type(name: str) -> pa.DataType:
    """Return the Arrow type in which Spark carries the value."""
    wider = {"UInt8": pa.int16(), "UInt16": pa.int32(), "UInt32": pa.int64(), "UInt64": pa.decimal128(20, 0)}
    return wider[name] if name in wider else arrow_type(name)


def to_carrier(array: pa.Array, name: str) -> pa.Array:
    """Cast a result of the function to the type in which Spark carries it."""
    wanted = carrier_type(name)
    return array if array.type == wanted else array.cast(wanted)


def call_scalar(handle: PythonScalarUdfHandle, arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the function's result for one batch."""
    inputs = _arguments(handle, arrays)
    label = f"udf {handle.name}"
    try:
        answer = handle.function(*inputs)
    except Exception as exc:
        raise _failure(handle, label, handle.function, inputs, exc) from exc
    return _checked(answer, handle.returns, length=len(inputs[0]), label=label)


def update_accumulator(handle: PythonAggregateUdfHandle, accumulator: Any, arrays: Sequence[pa.Array]) -> None:
    """Update an accumulator with rows."""
    inputs = _arguments(handle, arrays)
    try:
        accumulator.update_batch(*inputs)
    except Exception as exc:
        label = f"udaf {handle.name}: update_batch()"

        def alone(*part: Any) -> None:
            handle.accumulator().update_batch(*part)

        raise _failure(handle, label, alone, inputs, exc) from exc


def new_accumulator(handle: PythonAggregateUdfHandle) -> Any:
    """Return a new accumulator."""
    return _guarded(handle, "__init__", handle.accumulator)


def accumulator_state(handle: PythonAggregateUdfHandle, accumulator: Any) -> list[pa.Array]:
    """Return the state of an accumulator, as arrays of length one."""
    label = f"udaf {handle.name}: state()"
    answer = _guarded(handle, "state", accumulator.state)
    if not isinstance(answer, (tuple, list)) or len(answer) != len(handle.state):
        description = f"{len(answer)} value(s)" if isinstance(answer, (tuple, list)) else type(answer).__name__
        raise DeclarationError(
            f"{label} returned {description}, and state= declares {len(handle.state)}",
            hint="return a tuple with one array of length 1 for each of them",
        )
    return [_checked(item, name, length=1, label=label) for item, name in zip(answer, handle.state, strict=True)]


def merge_states(handle: PythonAggregateUdfHandle, accumulator: Any, states: Sequence[pa.Array]) -> None:
    """Merge the states of other accumulators into this one."""
    inputs = [_as_type(array, name) for array, name in zip(states, handle.state, strict=True)]
    _guarded(handle, "merge_batch", lambda: accumulator.merge_batch(*inputs))


def evaluate_accumulator(handle: PythonAggregateUdfHandle, accumulator: Any) -> pa.Array:
    """Return the result of a group, as an array of length one."""
    answer = _guarded(handle, "evaluate", accumulator.evaluate)
    return _checked(answer, handle.returns, length=1, label=f"udaf {handle.name}: evaluate()")


def apply_scalar(handle: Any, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result") -> Any:
    """Return the function's result over columns of a batch or table, without Spark."""
    _require(handle, PythonScalarUdfHandle, "@udf", output_column)
    return call_scalar(handle, _columns(handle, batch, arg_columns))


def apply_aggregate(handle: Any, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result") -> Any:
    """Return the aggregate's result over columns of a batch or table, without Spark."""
    _require(handle, PythonAggregateUdfHandle, "@udaf", output_column)
    arrays = _columns(handle, batch, arg_columns)
    accumulator = new_accumulator(handle)
    if len(arrays[0]):
        update_accumulator(handle, accumulator, arrays)
    return evaluate_accumulator(handle, accumulator)


def failing_row(
    function: Callable[..., Any], arrays: Sequence[pa.Array], cause: Exception
) -> tuple[int | None, Exception]:
    """Find by bisection a row on which the function fails alone; return its index and exception.

    The index is None when the function fails only for several rows together.
    """
    low, high = 0, len(arrays[0])
    while high - low > 1:
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            exception = _exception_of(function, [array.slice(start, end - start) for array in arrays])
            if exception is not None:
                low, high, cause = start, end, exception
                break
        else:
            return None, cause
    return (low, cause) if high - low == 1 else (None, cause)


def _exception_of(function: Callable[..., Any], arrays: Sequence[Any]) -> Exception | None:
    try:
        function(*arrays)
    except Exception as exc:
        return exc
    return None


def _failure(
    handle: Handle, label: str, function: Callable[..., Any], arrays: Sequence[pa.Array], cause: Exception
) -> DataError:
    row, cause = failing_row(function, arrays, cause)
    if row is None:
        where = f"for {len(arrays[0])} row(s) together, and for none of them alone"
    else:
        pairs = zip(_parameters(handle), arrays, strict=True)
        where = "row: " + ", ".join(f"{name}={_value_text(array[row])}" for name, array in pairs)
    return DataError(
        f"{label} failed: {type(cause).__name__}: {_reason(cause)}; {where}",
        hint=f"look at that row and at {_line(handle, cause)}",
        function=handle.name,
    )


def _guarded(handle: PythonAggregateUdfHandle, method: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as exc:
        raise DataError(
            f"udaf {handle.name}: {method}() failed: {type(exc).__name__}: {_reason(exc)}",
            hint=f"look at {_line(handle, exc)}",
            function=handle.name,
        ) from exc


def _arguments(handle: Handle, arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the arrays in the types that the function declares."""
    converted = []
    for number, (array, name) in enumerate(zip(arrays, handle.args, strict=True)):
        try:
            converted.append(_as_type(array, name))
        except Exception as exc:  # for example a negative number for an unsigned type
            row, _ = failing_row(lambda part, name=name: _as_type(part, name), [array], exc)
            example = f": {_value_text(array[row])}" if row is not None else ""
            raise DataError(
                f"{handle.name}: argument {number + 1} is not of type {name}{example}",
                hint="leave such rows out, or declare another type",
                function=handle.name,
            ) from exc
    return converted


def _as_type(array: pa.Array, name: str) -> pa.Array:
    wanted = arrow_type(name)
    return array if array.type == wanted else array.cast(wanted)


def _checked(answer: Any, name: str, *, length: int, label: str) -> pa.Array:
    """Return the result of the user's function if it has the declared type and length, otherwise raise."""
    wanted = arrow_type(name)
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if not isinstance(answer, pa.Array):
        raise DeclarationError(
            f"{label} returned {type(answer).__name__}, not a pyarrow Array",
            hint=f"wrap it: pa.array(values, type={_constructor(name)})",
        )
    if len(answer) != length:
        raise DeclarationError(
            f"{label} returned an array of length {len(answer)}, not of length {length}",
            hint="return one value for each row" if length != 1 else "return an array with one value",
        )
    if answer.type == wanted:
        return answer
    if _same_family(answer.type, wanted):
        return answer.cast(wanted)
    raise DeclarationError(
        f"{label} returned the dtype {answer.type}, and {name} is declared",
        hint=f"build it as declared: pa.array(values, type={_constructor(name)})",
    )


def _same_family(actual: Any, wanted: Any) -> bool:
    """Return whether two types hold the same values in different layouts; an all-NULL array fits every type."""
    kinds = pa.types
    if kinds.is_null(actual):
        return True
    if kinds.is_string(wanted):
        return bool(kinds.is_large_string(actual) or kinds.is_string_view(actual))
    return bool(kinds.is_binary(wanted) and (kinds.is_large_binary(actual) or kinds.is_fixed_size_binary(actual)))


def _constructor(name: str) -> str:
    special = {"Boolean": "pa.bool_()", "Utf8": "pa.string()", "Binary": "pa.binary()"}
    return special.get(name, f"pa.{name.lower()}()")


def _columns(handle: Handle, batch: Any, names: Sequence[str]) -> list[pa.Array]:
    wanted = [names] if isinstance(names, str) else list(names)
    if len(wanted) != len(handle.args):
        raise DeclarationError(f"{handle.name} takes {len(handle.args)} argument(s), and {len(wanted)} are named")
    columns = batch.schema.names
    arrays = []
    for name in wanted:
        if name not in columns:
            raise MissingColumn(f"the batch has no column {name!r}", hint=did_you_mean(name, columns))
        column = batch.column(name)
        joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        arrays.append(joined)
    return arrays


def _require(handle: Any, kind: type, decorator: str, output_column: str) -> None:
    if not isinstance(handle, kind):
        raise DeclarationError(f"{handle!r} is not decorated with {decorator}")
    if not output_column:
        raise DeclarationError("output_column is empty")


def _parameters(handle: Handle) -> list[str]:
    decorated = handle.function if isinstance(handle, PythonScalarUdfHandle) else handle.accumulator.update_batch  # type: ignore[attr-defined]
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        names = [name for name, item in inspect.signature(decorated).parameters.items() if item.kind in plain]
    except (TypeError, ValueError):
        names = []
    own = names if isinstance(handle, PythonScalarUdfHandle) else names[1:]
    count = len(handle.args)
    return [own[place] if place < len(own) else f"argument {place + 1}" for place in range(count)]


def _value_text(value: Any) -> str:
    try:
        text = repr(value.as_py())
    except Exception:  # a timestamp that Python cannot represent
        text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _reason(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[0][:_LONGEST_REASON] if lines else "no reason given"


def _line(handle: Handle, exc: BaseException) -> str:
    """Return the line of the user's file that raised, otherwise where the function is declared."""
    own = handle.where.file if handle.where is not None else None
    line = None
    trace = exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == own:
            line = trace.tb_lineno
        trace = trace.tb_next
    if handle.where is None:
        return f"the function {handle.name}"
    return str(handle.where) if line is None else str(type(handle.where)(handle.where.file, line))
