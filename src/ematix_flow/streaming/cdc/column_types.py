"""The column types of a table that the first changes create: from the schema in the messages, else from the values."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_types import DECLARED
from ematix_flow.messages.json_rows import parts_read
from ematix_flow.messages.json_schema_inference import learned_type
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.cdc.row_images import CHANGE
from ematix_flow.streaming.cdc.values import DAYS, DECIMAL, MOMENTS, VARIABLE_DECIMAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_log = logging.getLogger(__name__)
_LOOKED_AT = 1000
_NESTED = ("array", "map", "struct")
_OWN = {"io.debezium.data.Uuid": "uuid", "io.debezium.data.Json": "jsonb"}
_MOMENT = "abs({0}) BETWEEN 1e11 AND 4.2e12 OR abs({0}) BETWEEN 1e14 AND 4.2e15 OR abs({0}) BETWEEN 1e17 AND 4.2e18"
_BYTES = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def inferred_columns(rows: DataFrame) -> StructType:
    """Return the types of the rows' columns."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    samples = rows.selectExpr(f"{CHANGE}.row_text AS sample", f"{CHANGE}.kinds AS kinds")
    kinds: dict[str, str] = {}
    for row in samples.where("kinds IS NOT NULL").selectExpr("to_json(kinds) AS kinds").distinct().collect():
        kinds |= json.loads(row["kinds"])
    declared = {name: _field(name, kind) for name, kind in kinds.items()}
    own = [name for name in rows.columns if name not in (CHANGE, "_raw", "_source")]
    inferred = (
        learned_type(samples, f.col("sample"), read=parts_read) if set(own) - set(declared) or not declared else None
    )
    learned = {one.name: one.dataType for one in inferred.fields} if inferred is not None else {}
    learned = {name: kind for name, kind in learned.items() if not isinstance(kind, t.NullType)}
    if not kinds:
        _warn(rows, learned)
    order = list(declared) or list(learned)
    own.sort(key=lambda name: order.index(name) if name in order else len(order))
    return t.StructType(
        [declared.get(name) or t.StructField(name, learned.get(name) or t.StringType()) for name in own]
    )


def _field(name: str, kind: str) -> StructField:
    """Return the column that Connect's schema describes: a text stays one, whatever it looks like."""
    from pyspark.sql import types as t

    parts = (kind.split("|") + [""] * 7)[:7]
    declared = _OWN.get(parts[0]) or ("jsonb" if parts[3] in _NESTED and parts[0] != VARIABLE_DECIMAL else None)
    metadata: dict[str, Any] = {DECLARED: {"kind": declared}} if declared else {}
    return t.StructField(name, _type(*parts[:4]), metadata=metadata)


def _type(name: str, scale: str, precision: str, base: str) -> DataType:
    from pyspark.sql import types as t

    if name == DECIMAL:
        return t.DecimalType(min(int(precision or 38), 38), min(int(scale or 0), 38))
    if name == VARIABLE_DECIMAL:
        return t.DecimalType(38, 18)
    plain: dict[str, type[DataType]] = {
        "boolean": t.BooleanType, "float": t.DoubleType, "double": t.DoubleType, "bytes": t.BinaryType,
        "io.debezium.time.ZonedTimestamp": t.TimestampType, "io.debezium.time.IsoDate": t.DateType,
        "io.debezium.time.IsoTimestamp": t.TimestampNTZType,
    }  # fmt: skip
    plain |= dict.fromkeys(DAYS, t.DateType) | dict.fromkeys(MOMENTS, t.TimestampNTZType)
    plain |= dict.fromkeys(("int8", "int16", "int32", "int64"), t.LongType)
    return (plain.get(name) or plain.get(base) or t.StringType)()


def _warn(rows: DataFrame, learned: dict[str, DataType]) -> None:
    """Warn of columns that look wrong: without a schema, moments are numbers, and numbers are bytes in base64."""
    from pyspark.sql import types as t

    columns = set(rows.columns)
    numbers = [name for name, kind in learned.items() if isinstance(kind, t.IntegralType) and name in columns]
    texts = [name for name, kind in learned.items() if isinstance(kind, t.StringType) and name in columns]
    if not numbers and not texts:
        return
    tests = [f"every({_MOMENT.format(f'try_cast({quote(name)} AS DOUBLE)')})" for name in numbers]
    tests += [
        f"every({quote(name)} RLIKE {text_literal(_BYTES)}) AND some(endswith({quote(name)}, '='))" for name in texts
    ]
    answers = rows.limit(_LOOKED_AT).selectExpr(*(f"{test} AS c{at}" for at, test in enumerate(tests))).collect()[0]
    moments = [name for name, is_one in zip(numbers, answers, strict=False) if is_one]
    in_base64 = [name for name, is_one in zip(texts, list(answers)[len(numbers) :], strict=True) if is_one]
    if moments or in_base64:
        looks = [f"{name} looks like a moment" for name in moments] + [
            f"{name} like bytes in base64" for name in in_base64
        ]
        _log.warning(
            "the changes have no schema, and are taken as they are written: %s. Let the connector's converter write schemas "
            "(schemas.enable=true), or set decimal.handling.mode=string and time.precision.mode=isostring",
            ", ".join(looks),
        )
