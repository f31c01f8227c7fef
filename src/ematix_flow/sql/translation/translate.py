"""Translation of whole statements from other dialects to Spark SQL; differing semantics are rewritten or rejected."""

from __future__ import annotations

from ematix_flow.foundation.errors import SqlError
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.sql.translation.functions import rewrite_functions
from ematix_flow.sql.translation.numeric_types import settle_numeric_types
from ematix_flow.sql.translation.operand_types import TypeAnalysis

READ_AS = {"spark": "spark", "duckdb": "duckdb", "postgres": "postgres", "datafusion": "postgres"}
"""The sqlglot dialect that parses each of our dialects."""


def translate_to_spark(statement: str, dialect: str, spark: TypeAnalysis) -> str:
    """Return a query of a dialect as Spark SQL; `spark` determines operand types where the meaning depends on them.

    >>> translate_to_spark('SELECT "a", 7 / 2 AS half FROM source', "postgres", None)  # no operand of unknown type
    'SELECT `a`, 7 DIV 2 AS half FROM source'
    """
    if dialect == "spark":
        return statement
    tree = settle_numeric_types(rewrite_functions(_parsed(statement, dialect), dialect), dialect, spark)
    try:
        return str(tree.sql(dialect="spark", comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE))
    except sqlglot.errors.SqlglotError as exc:
        raise SqlError(
            f"this SQL of {dialect} has no twin in Spark SQL: {str(exc).splitlines()[0]}", hint="write it in Spark SQL"
        ) from exc


def _parsed(statement: str, dialect: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(statement, read=READ_AS[dialect])
    except sqlglot.errors.ParseError as exc:
        first = exc.errors[0] if exc.errors else {}
        place = f" (line {first.get('line')}, column {first.get('col')})" if first else ""
        raise SqlError(f"the SQL is not that of {dialect}: {first.get('description') or exc}{place}",
                       hint="look at that place") from exc  # fmt: skip
    except sqlglot.errors.SqlglotError as exc:
        raise SqlError(f"the SQL is not that of {dialect}: {exc}", hint="look for an open quote") from exc
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlError("one query is expected", hint="write one SELECT")
    return trees[0]
