"""Translation of Spark's errors about a user's statement into this package's errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ematix_flow.engine.session import spark_errors
from ematix_flow.families.lake import errors as lake_errors
from ematix_flow.foundation.errors import DataError, FlowError, MissingColumn, RunFailed, SqlError
from ematix_flow.foundation.names import did_you_mean, nearest_name
from ematix_flow.foundation.redact import mask

HINT = 'it is Spark SQL over the table source; dialect="duckdb", "postgres" or "datafusion" translates theirs'
_ROUTINE = re.compile(r"routine `([^`]+)`")


def explained_error(exc: Exception, columns: Sequence[str], functions: Sequence[str]) -> FlowError:
    """Return the error with the nearest name that the statement could have meant."""
    text = str(exc)
    routine = _ROUTINE.search(text)
    if "UNRESOLVED_ROUTINE" in text and routine is not None:
        name = routine[1].replace("`", "")
        near = nearest_name(name, functions)
        hint = f"did you mean {near!r}?" if near else "pass your own functions in udfs= or aggregate_udfs="
        return SqlError(f"no function is called {name!r}", hint=hint)
    known = lake_errors.translate(exc) or spark_errors.translate(exc)
    if isinstance(known, MissingColumn):
        column = str(known.facts.get("column") or _named(known.what)).rpartition(".")[2]
        known.hint = did_you_mean(column, dict.fromkeys(columns))
    elif isinstance(known, (SqlError, RunFailed)) and _is_analysis(exc):
        return SqlError(error_sentence(known.what), hint=HINT)
    return known


def row_error(exc: BaseException) -> FlowError | None:
    """Return the error if a value of some row caused it, None for every other error."""
    if isinstance(exc, FlowError):
        return exc if isinstance(exc, DataError) else None
    known = spark_errors.translate(exc)
    if not isinstance(known, DataError):
        return None
    return DataError(error_sentence(known.what.removesuffix("; nothing was loaded")), hint=known.hint)


def error_sentence(text: str) -> str:
    """Return Spark's message without its error class and SQLSTATE."""
    plain = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text.strip())
    return mask(re.sub(r"\s*SQLSTATE: \w+.*$", "", plain).strip())


def _is_analysis(exc: BaseException) -> bool:
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(exc, (AnalysisException, ParseException))


def _named(text: str) -> str:
    match = re.search(r"column (\S+)", text)
    return match[1].strip("'`") if match else ""
