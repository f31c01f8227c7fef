"""Argument types at a call, taken from Spark's analysis, and their comparison with the function's declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.dataplane.arrow_udfs import SPARK_TYPES
from ematix_flow.engine.sql.functions.calls import Call, Calls, Write
from ematix_flow.foundation.errors import PlanError
from ematix_flow.foundation.lazy_imports import t

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SIGNED = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_UNSIGNED = {"UInt8": 16, "UInt16": 32, "UInt32": 64, "UInt64": 64}
_FLOATS = {"Float32": ("float",), "Float64": ("float", "double")}
_EXACT = {"Boolean": "boolean", "Utf8": "string", "Binary": "binary"}
_FIELD = "a"


def types_at(spark: SparkSession, calls: Calls, call: Call, write: Write) -> list[str] | None:
    """Return the types of a call's arguments at its position; None when Spark does not report them.

    The call is replaced by one that is invalid for all argument types: Spark's analysis error then contains the types,
    for every position where a call can occur, and nothing is executed.
    """

    def probing(one: Call, args: list[str], tail: str) -> str:
        if one is not call:
            return write(one, args, tail)
        wrong = f"map_keys({pack_arguments(args)})"
        return f"any_value({wrong}){tail}" if call.is_aggregate else wrong

    return types_in_error(spark, calls.written(probing), len(call.args))


def types_in_error(spark: SparkSession, text: str, count: int) -> list[str] | None:
    """Return the field types of the struct that makes a statement invalid, from Spark's error; None without it."""
    from pyspark.errors import AnalysisException

    try:
        spark.sql(text).schema  # noqa: B018  a Spark Connect session analyses only on this access
    except AnalysisException as exc:
        return _fields((exc.getMessageParameters() or {}).get("inputType", ""), count)
    return None


@dataclass(frozen=True)
class SparkAnalysis:
    """Spark's analysis of queries that contain the user's names of tables and functions."""

    spark: SparkSession
    place: Callable[[str], str]
    """Replaces the names in a query by those of the session."""

    def types(self, query: str, count: int) -> list[str] | None:
        """Return the field types of the struct that makes a query invalid; None when Spark does not report them."""
        return types_in_error(self.spark, self.place(query), count)

    def check(self, query: str) -> None:
        """Raise Spark's analysis error if a query is invalid."""
        self.spark.sql(self.place(query)).schema  # noqa: B018  a Spark Connect session analyses only on this access


def _fields(text: str, count: int) -> list[str] | None:
    """Return the types of a struct's fields from its text in an error message."""
    from pyspark.errors import PySparkException

    if not text.strip('"').upper().startswith("STRUCT<"):
        return None
    try:
        data_type = t.DataType.fromDDL(text.strip('"'))
    except PySparkException:  # a type that DDL cannot express
        return None
    if not isinstance(data_type, t.StructType) or len(data_type.fields) != count:
        return None
    return [field.dataType.simpleString() for field in data_type.fields]


def pack_arguments(args: list[str]) -> str:
    """Return an SQL struct of the arguments, which is never NULL."""
    return f"named_struct({', '.join(f'{_q(place)}, {arg}' for place, arg in enumerate(args))})"


def _q(place: int) -> str:
    return f"'{_FIELD}{place}'"


def require_types(calls: Calls, call: Call, types: list[str]) -> None:
    """Raise PlanError for arguments that would need a lossy conversion."""
    for place, (span, actual, wanted) in enumerate(zip(call.args, types, call.handle.args, strict=True)):
        text = " ".join(calls.tokens.slice(span).split())
        if not accepts_type(wanted, actual, text):
            shown = text if len(text) <= 60 else text[:59] + "…"
            raise PlanError(
                f"{call.handle.name} takes {wanted} as argument {place + 1}, and {shown} is {actual.upper()}",
                hint=f"convert it: CAST({shown} AS {SPARK_TYPES[wanted]})",
                function=call.handle.name,
            )


def accepts_type(wanted: str, actual: str, text: str = "") -> bool:
    """Return whether every value of a Spark type is one of the declared type, as far as the types show.

    Integers fit into wider integers and into floats, decimals into floats; an integer literal fits if its value does.

    >>> accepts_type("Float64", "bigint"), accepts_type("Int32", "bigint"), accepts_type("Int8", "int", "100"), accepts_type("Utf8", "int")
    (True, False, True, False)
    """
    actual = actual.split(" ")[0]  # drop a collation
    if actual == "void":
        return True
    if wanted in _EXACT:
        return actual == _EXACT[wanted] or (wanted == "Utf8" and actual.startswith(("varchar", "char")))
    if wanted in _FLOATS:
        return actual in _BITS or actual.startswith("decimal") or actual in _FLOATS[wanted]
    if _is_whole(text):
        return _low(wanted) <= int(text.replace(" ", "")) <= _high(wanted)
    if wanted == "UInt64" and actual == "decimal(20,0)":
        return True
    most = _SIGNED.get(wanted) or _UNSIGNED[wanted]
    return _BITS.get(actual, 128) <= most


def _is_whole(text: str) -> bool:
    return text.replace(" ", "").removeprefix("-").isdecimal()


def _low(wanted: str) -> int:
    return -(2 ** (_SIGNED[wanted] - 1)) if wanted in _SIGNED else 0


def _high(wanted: str) -> int:
    return (1 << (_SIGNED[wanted] - 1)) - 1 if wanted in _SIGNED else (1 << int(wanted.removeprefix("UInt"))) - 1


def cast_arguments(call: Call, args: list[str], types: list[str] | None) -> list[str]:
    """Return the arguments cast to the Spark types that carry the declared ones; without a cast where they match."""
    wanted = [SPARK_TYPES[name] for name in call.handle.args]
    kinds = [kind.upper() for kind in types] if types is not None else [""] * len(args)
    return [
        text if kind == carrier else f"CAST({text} AS {carrier})"
        for text, kind, carrier in zip(args, kinds, wanted, strict=True)
    ]
