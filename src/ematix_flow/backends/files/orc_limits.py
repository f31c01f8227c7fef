"""Values that ORC changes: its Java writer uses the Julian calendar for old dates and the JVM's zone for timestamps."""

from __future__ import annotations

from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.declare.types import Column
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.sql.spark_text import quote

MOMENTS = ("timestamp", "timestamp_tz")
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal")
# Days that do not exist in the Julian calendar, and fractions of a second that are read back one second later.
_BENT = {
    "date": (("1582-10-05", "1582-10-15"),),
    "timestamp": (("1582-10-05 00:00:00", "1582-10-15 00:00:00"), ("1969-12-31 23:59:59.001", "1970-01-01 00:00:00")),
}
_LITERALS = {"date": "DATE'{}'", "timestamp": "TIMESTAMP_NTZ'{}'", "timestamp_tz": "TIMESTAMP'{}Z'"}


def refusing_inexact(column: Column) -> str:
    """Return SQL of the column that raises on values that would be read back as other ones."""
    name, kind = quote(column.name), column.type.kind
    literal = _LITERALS.get(kind)
    if literal is None:
        return name
    spans = _BENT.get(kind, _BENT["timestamp"])
    bent = " OR ".join(
        f"({name} >= {literal.format(start)} AND {name} < {literal.format(end)})" for start, end in spans
    )
    refused = raise_bad_value_sql(
        name,
        before=f"column {column.name!r}: ORC cannot hold ",
        after=", its files would say another time; nothing was loaded",
        hint="write to Parquet, declare the column Text, or leave such rows out with filter_where(...)",
    )
    return f"CASE WHEN {bent} THEN {refused} ELSE {name} END"


def require_utc() -> None:
    """Raise Unsupported unless the JVM's zone is UTC: ORC stores wall clock times, ambiguous in other zones."""
    zone = str(
        active_session().sql("SELECT java_method('java.time.ZoneId', 'systemDefault') AS zone").collect()[0]["zone"]
    )
    if zone not in _UTC:
        raise Unsupported(
            f"ORC keeps timestamps in the zone of Spark's JVM, which is {zone}, and only UTC means the same everywhere",
            hint="start Spark with -Duser.timezone=UTC, or by ematix_flow.spark_session()",
        )
