"""Functions for SQL: what the decorators take, what they refuse at once, and what a batch gives without Spark."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow import (
    PythonAggregateUdfHandle,
    PythonScalarUdfHandle,
    _core,
    apply_udaf_to_batch,
    apply_udf_to_batch,
    udaf,
    udf,
)
from ematix_flow.dataplane.arrow_udfs import arrow_type, carrier_type, failing_row
from ematix_flow.declare.udfs import TYPES, functions_of
from ematix_flow.foundation.errors import DataError, DeclarationError, MissingColumn


@udf(args=("Int64",), returns="Int64")
def twice(values: Any) -> Any:
    """Two times the number."""
    return pc.multiply(values, 2)


class SumOfSquares:
    def __init__(self) -> None:
        self.total = 0

    def update_batch(self, values: Any) -> None:
        self.total += pc.sum(pc.multiply(values, values)).as_py() or 0

    def merge_batch(self, totals: Any) -> None:
        self.total += pc.sum(totals).as_py() or 0

    def evaluate(self) -> Any:
        return pa.array([self.total], type=pa.int64())

    def state(self) -> Any:
        return (pa.array([self.total], type=pa.int64()),)


squares = udaf(args=("Int64",), state=("Int64",), returns="Int64", name="squares")(SumOfSquares)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def numbers(*values: Any) -> pa.Array:
    return pa.array(values, type=pa.int64())


def test_a_decorated_function_is_a_handle_and_still_a_function() -> None:
    assert isinstance(twice, PythonScalarUdfHandle)
    assert (twice.name, twice.args, twice.returns) == ("twice", ("Int64",), "Int64")
    assert twice(numbers(1, 2)).to_pylist() == [2, 4]
    assert (twice.__name__, twice.__doc__) == ("twice", "Two times the number.")
    assert list(inspect.signature(twice).parameters) == ["values"]
    assert repr(twice) == "<udf twice(Int64) -> Int64>"


def test_a_decorated_class_is_a_handle_and_still_makes_accumulators() -> None:
    assert isinstance(squares, PythonAggregateUdfHandle)
    assert (squares.name, squares.state) == ("squares", ("Int64",))
    accumulator = squares()
    accumulator.update_batch(numbers(3))
    assert accumulator.evaluate().to_pylist() == [9]


def test_the_name_is_the_functions_own_unless_another_is_given() -> None:
    named = udf(args=("Int64",), returns="Int64", name="doubled")(lambda values: values)
    assert named.name == "doubled"
    assert udaf(args=["Int64"], state=["Int64"], returns="Int64")(SumOfSquares).name == "SumOfSquares"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("float64", "Float64"), ("Double", "Float64"), ("string", "Utf8"), ("bool", "Boolean"), ("uint8", "UInt8"),
        ("LargeUtf8", "Utf8"), ("int", "Int32"), (pa.float64(), "Float64"), (pa.bool_(), "Boolean"),
    ],
)  # fmt: skip
def test_types_have_their_usual_other_names(written: Any, meant: str) -> None:
    assert udf(args=(written,), returns=written, name="same")(lambda values: values).returns == meant


@pytest.mark.parametrize("wrong", ["Decimal128", "Float46", "", 7, None])
def test_an_unknown_type_is_refused_where_it_stands(wrong: Any) -> None:
    with pytest.raises(ValueError, match="unsupported UDF DataType") as refused:
        udf(args=(wrong,), returns="Int64")
    assert refused.value.where is not None
    assert refused.value.where.file == __file__
    with pytest.raises(ValueError, match="unsupported UDF DataType"):
        udaf(args=("Int64",), state=(wrong,), returns="Int64")


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(DeclarationError) as refused:
        udf(args=("Float46",), returns="Int64")
    assert refused.value.hint == "did you mean 'Float64'?"


@pytest.mark.parametrize("wrong", ["Float64", (), 3])
def test_arguments_are_several_types_and_at_least_one(wrong: Any) -> None:
    with pytest.raises(DeclarationError):
        udf(args=wrong, returns="Int64")


def test_a_function_that_takes_another_number_of_arguments_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"args= has 2 type"):
        udf(args=("Int64", "Int64"), returns="Int64", name="one")(lambda one: one)
    assert udf(args=("Int64", "Int64"), returns="Int64", name="first")(lambda *several: several[0]).args


@pytest.mark.parametrize("wrong", ["no spaces", "1st", "a.b", "", "drop;"])
def test_a_name_that_sql_could_not_call_is_refused(wrong: str) -> None:
    with pytest.raises(DeclarationError, match="is not a name"):
        udf(args=("Int64",), returns="Int64", name=wrong)(lambda values: values)


def test_coroutines_generators_and_classes_are_no_functions() -> None:
    async def later(values: Any) -> Any:
        return values

    def by_and_by(values: Any) -> Any:
        yield values

    for wrong in (later, by_and_by, SumOfSquares, 7):
        with pytest.raises(DeclarationError):
            udf(args=("Int64",), returns="Int64")(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["update_batch", "merge_batch", "evaluate", "state"])
def test_a_class_without_one_of_the_four_methods_is_refused(missing: str) -> None:
    body = {name: value for name, value in vars(SumOfSquares).items() if name != missing and not name.startswith("__")}
    with pytest.raises(DeclarationError, match=rf"no method {missing}\(\)"):
        udaf(args=("Int64",), state=("Int64",), returns="Int64")(type("Lacking", (), body))


def test_a_method_with_a_slip_in_its_name_is_named() -> None:
    class Slip(SumOfSquares):
        update_batches = SumOfSquares.update_batch
        update_batch = None

    with pytest.raises(DeclarationError) as refused:
        udaf(args=("Int64",), state=("Int64",), returns="Int64")(Slip)
    assert refused.value.hint == "is it update_batches()?"


def test_a_class_that_cannot_begin_empty_or_takes_other_arguments_is_refused() -> None:
    class Needy(SumOfSquares):
        def __init__(self, start: int) -> None:
            self.total = start

    class TwoArguments(SumOfSquares):
        def update_batch(self, one: Any, other: Any) -> None:  # type: ignore[override]
            pass

    with pytest.raises(DeclarationError, match="without arguments"):
        udaf(args=("Int64",), state=("Int64",), returns="Int64")(Needy)
    with pytest.raises(DeclarationError, match="update_batch"):
        udaf(args=("Int64",), state=("Int64",), returns="Int64")(TwoArguments)
    with pytest.raises(DeclarationError, match="merge_batch"):
        udaf(args=("Int64",), state=("Int64", "Int64"), returns="Int64")(SumOfSquares)


def test_two_functions_of_one_name_are_refused_and_both_places_are_reported() -> None:
    other = udf(args=("Int64",), returns="Int64", name="Twice")(lambda values: values)
    with pytest.raises(
        DeclarationError, match=r"two functions are called 'Twice'.*test_udfs.py:\d+ and .*test_udfs.py:\d+"
    ):
        functions_of([twice, other])
    both = udaf(args=("Int64",), state=("Int64",), returns="Int64", name="twice")(SumOfSquares)
    with pytest.raises(DeclarationError, match="two functions"):
        functions_of([twice], [both])
    assert functions_of([twice, twice], squares).handles == (twice, squares)


def test_what_is_no_function_for_sql_is_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        functions_of([squares])
    assert refused.value.hint == "pass it in aggregate_udfs="
    with pytest.raises(DeclarationError) as refused:
        functions_of([len])
    assert refused.value.hint == "decorate it with @udf(...)"


def test_a_batch_gives_the_result_as_an_array() -> None:
    made = apply_udf_to_batch(twice, batch(n=numbers(1, 2, None)), ["n"])
    assert (made.type, made.to_pylist()) == (pa.int64(), [2, 4, None])
    table = pa.table({"n": pa.chunked_array([[1], [2, 3]], type=pa.int64())})
    assert apply_udf_to_batch(twice, table, ["n"], output_column="doubled").to_pylist() == [2, 4, 6]


def test_a_batch_gives_one_value_for_all_its_rows() -> None:
    made = apply_udaf_to_batch(squares, batch(x=numbers(1, 2, 99)), ["x"])
    assert (made.type, made.to_pylist()) == (pa.int64(), [9806])
    assert apply_udaf_to_batch(squares, batch(x=numbers()), ["x"]).to_pylist() == [0]


def test_columns_go_to_the_arguments_in_the_order_they_are_named() -> None:
    @udf(args=("Float64", "Float64"), returns="Float64")
    def minus(one: Any, other: Any) -> Any:
        return pc.subtract(one, other)

    given = batch(a=pa.array([5.0]), b=pa.array([3.0]))
    assert apply_udf_to_batch(minus, given, ["b", "a"]).to_pylist() == [-2.0]
    with pytest.raises(MissingColumn, match="'c'"):
        apply_udf_to_batch(minus, given, ["a", "c"])
    with pytest.raises(DeclarationError, match="takes 2"):
        apply_udf_to_batch(minus, given, ["a"])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1], "returned list, not a pyarrow Array"),
        (np.array([1]), "returned ndarray"),
        (pa.array([1, 2], type=pa.int64()), "length 2, not of length 1"),
        (pa.array([1.0]), "returned the dtype double, and Int64 is declared"),
    ],
)
def test_an_answer_that_was_not_promised_names_the_function(answer: Any, said: str) -> None:
    careless = udf(args=("Int64",), returns="Int64", name="careless")(lambda values: answer)
    with pytest.raises(ValueError, match=f"udf careless.*{said}"):
        apply_udf_to_batch(careless, batch(n=numbers(1)), ["n"])


def test_an_answer_in_another_layout_is_the_same_answer() -> None:
    shout = udf(args=("Utf8",), returns="Utf8", name="shout")(
        lambda texts: pc.utf8_upper(texts).cast(pa.large_string())
    )
    made = apply_udf_to_batch(shout, batch(t=pa.array(["a", None])), ["t"])
    assert (made.type, made.to_pylist()) == (pa.string(), ["A", None])
    nothing = udf(args=("Utf8",), returns="Int32", name="nothing")(lambda texts: pa.nulls(len(texts)))
    assert apply_udf_to_batch(nothing, batch(t=pa.array(["a"])), ["t"]).type == pa.int32()


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("evaluate", pa.array([1.0]), r"evaluate\(\) returned the dtype double"),
        ("evaluate", pa.array([1, 2]), r"evaluate\(\) returned an array of length 2"),
        ("evaluate", 7, r"evaluate\(\) returned int"),
    ],
)
def test_a_class_that_answers_something_else_is_named(method: str, answer: Any, said: str) -> None:
    wrong = type("Wrong", (SumOfSquares,), {method: lambda self: answer})
    handle = udaf(args=("Int64",), state=("Int64",), returns="Int64")(wrong)
    with pytest.raises(ValueError, match=f"udaf Wrong: {said}"):
        apply_udaf_to_batch(handle, batch(x=numbers(1)), ["x"])


def test_an_exception_names_the_function_and_the_row_it_fails_on() -> None:
    @udf(args=("Int64", "Utf8"), returns="Float64")
    def shares(parts: Any, label: Any) -> Any:
        return pa.array([1 / part for part in parts.to_pylist()], type=pa.float64())

    given = batch(
        parts=numbers(*[1] * 700, 0, *[2] * 300), label=pa.array([f"row {n} " + "x" * 50 for n in range(1001)])
    )
    with pytest.raises(DataError) as failed:
        apply_udf_to_batch(shares, given, ["parts", "label"])
    assert failed.value.what.startswith(
        "udf shares failed: ZeroDivisionError: division by zero; row: parts=0, label='row 700 xxxx"
    )
    assert failed.value.what.endswith("…")
    assert failed.value.hint is not None
    assert "test_udfs.py:" in failed.value.hint


def test_the_failing_row_is_found_by_halves() -> None:
    seen: list[int] = []

    def work(part: Any) -> None:
        seen.append(len(part))
        if 613 in part.to_pylist():
            raise KeyError(613)

    row, cause = failing_row(work, [numbers(*range(1000))], ValueError("of the whole"))
    assert (row, type(cause)) == (613, KeyError)
    assert len(seen) <= 20


def test_rows_that_fail_only_together_are_reported_as_such() -> None:
    @udf(args=("Int64",), returns="Int64")
    def lonely(values: Any) -> Any:
        if len(values) > 3:
            raise RuntimeError("too many")
        return values

    with pytest.raises(DataError, match=r"udf lonely failed: RuntimeError: too many; for 4 row\(s\) together"):
        apply_udf_to_batch(lonely, batch(n=numbers(1, 2, 3, 4)), ["n"])


def test_an_aggregate_that_fails_on_a_row_names_it() -> None:
    class Picky(SumOfSquares):
        def update_batch(self, values: Any) -> None:
            if 3 in values.to_pylist():
                raise ValueError("no threes")

    handle = udaf(args=("Int64",), state=("Int64",), returns="Int64")(Picky)
    with pytest.raises(DataError, match=r"udaf Picky: update_batch\(\) failed: ValueError: no threes; row: values=3"):
        apply_udaf_to_batch(handle, batch(x=numbers(1, 2, 3)), ["x"])


def test_every_type_has_arrow_types_for_the_function_and_for_spark() -> None:
    assert [str(arrow_type(name)) for name in TYPES] == [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "bool", "string",
        "binary",
    ]  # fmt: skip
    wider = {name: str(carrier_type(name)) for name in TYPES if name.startswith("U") and name != "Utf8"}
    assert wider == {"UInt8": "int16", "UInt16": "int32", "UInt32": "int64", "UInt64": "decimal128(20, 0)"}


def test_a_value_that_is_none_of_the_declared_type_is_named() -> None:
    small = udf(args=("UInt8",), returns="UInt8", name="small")(lambda values: values)
    with pytest.raises(DataError, match="small: argument 1 is not of type UInt8: -1"):
        apply_udf_to_batch(small, batch(n=numbers(1, -1)), ["n"])


def test_older_names_make_the_same_handles() -> None:
    made = _core.make_python_udf("twice", lambda values: pc.multiply(values, 2), ["Int64"], "Int64")
    assert _core._apply_python_udf_to_batch(made, batch(n=numbers(4)), ["n"]).to_pylist() == [8]
    total = _core.make_python_udaf("squares", SumOfSquares, ["Int64"], ["Int64"], "Int64")
    assert _core._apply_python_udaf_to_batch(total, batch(n=numbers(4)), ["n"]).to_pylist() == [16]
    assert (_core.PythonScalarUdfHandle, _core.PythonAggregateUdfHandle) == (type(made), type(total))


def test_functions_for_a_stream_of_a_file_need_sql_that_calls_them() -> None:
    text = 'name = "copy"\nsource_query = "a"\n[source]\nkind = "kafka"\nbootstrap_servers = "h:1"\n[target]\nkind = "kafka"\nbootstrap_servers = "h:1"\ntopic = "b"\n'  # fmt: skip
    with pytest.raises(DeclarationError, match="stream 'copy' has no SQL that could call functions"):
        _core.run_pipeline_from_toml_str(text, udfs=[twice])
    other = udf(args=("Int64",), returns="Int64", name="TWICE")(lambda values: values)
    with pytest.raises(DeclarationError, match="two functions"):
        _core.run_pipeline_from_toml_str(f'{text}[transform]\nsql = "SELECT 1 AS n FROM source"\n', udfs=[twice, other])
