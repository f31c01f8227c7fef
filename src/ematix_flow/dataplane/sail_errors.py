"""Translates errors of the Sail engine, which has messages where Spark has error conditions."""

from __future__ import annotations

import re
from collections.abc import Callable

from ematix_flow.foundation.errors import BadValue, FlowError, MissingColumn, SqlError
from ematix_flow.foundation.redact import mask

_SPARK_SQL = "lakes and files are queried in Spark SQL"
_ATTRIBUTE = re.compile(r"attribute ObjectName\(\[(.*?)\]\) is missing from the schema")
_IDENTIFIER = re.compile(r'Identifier\("((?:[^"\\]|\\.)*)"\)')


def recognise_sail_error(message: str) -> FlowError | None:
    """Return the error that a message means, None for an unknown message."""
    for pattern, make in _KNOWN:
        match = pattern.search(message)
        if match is not None:
            return make(match)
    return None


def _missing_column(match: re.Match[str]) -> FlowError:
    name = ".".join(_IDENTIFIER.findall(match.group(1))) or "?"
    return MissingColumn(f"column {name} does not exist", hint="check the column name", column=name)


def _syntax(match: re.Match[str]) -> FlowError:
    return SqlError(mask(match.group(0))[:300], hint=_SPARK_SQL)


def _value(match: re.Match[str]) -> FlowError:
    hint = "look at the value in the source, or parse it with a normalizer"
    return BadValue(f"{mask(match.group(0))[:300]}; nothing was loaded", hint=hint)


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], FlowError]], ...] = (
    (_ATTRIBUTE, _missing_column),
    (re.compile(r"found [^\n]{1,80} expected [^\n]+"), _syntax),
    (re.compile(r"unknown function: \S+"), _syntax),
    (re.compile(r"Cannot coerce arithmetic expression[^\n]*"), _syntax),
    (re.compile(r"Cannot cast string [^\n]* to value of \S+ type"), _value),
    (re.compile(r"Can't cast value [^\n]* to type \S+"), _value),
)
