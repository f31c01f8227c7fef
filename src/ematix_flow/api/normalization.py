"""Normalizers of columns and transforms of batches, under their documented names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.normalizers import normalizers
from ematix_flow.declare.normalizers.normalizers import Normalizer, is_normalizer
from ematix_flow.declare.normalizers.pre_transforms import PreTransform

trim, lower, upper, replace = normalizers.Trim, normalizers.Lower, normalizers.Upper, normalizers.Replace
empty_to_null, whitespace_to_null = normalizers.EmptyToNull, normalizers.WhitespaceToNull
email_normalize, phone_normalize = normalizers.EmailNormalize, normalizers.PhoneNormalize
regex_replace, truncate = normalizers.RegexReplace, normalizers.TruncateText
parse_timestamp, parse_date, parse_bool = normalizers.ParseTimestamp, normalizers.ParseDate, normalizers.ParseBool
parse_int, parse_numeric = normalizers.ParseInt, normalizers.ParseNumeric
to_timezone, date_trunc = normalizers.ToTimezone, normalizers.DateTrunc
round, clamp, nullif = normalizers.Round, normalizers.Clamp, normalizers.NullIf  # noqa: A001 - the documented name
default = not_null_or = normalizers.Default
sql, derive = normalizers.Sql, normalizers.Derive


def compose_chain(markers: Sequence[Any], col: str) -> str:
    """Return the PostgreSQL expression of a chain of normalizers on `col`; other markers are skipped.

    >>> from ematix_flow.normalize import empty_to_null, trim
    >>> compose_chain([trim(), empty_to_null()], "name")
    "NULLIF(TRIM(CAST(name AS TEXT)), '')"
    """
    from ematix_flow.sql.expressions import render_chain  # imported here because few callers need SQL

    return render_chain(markers, None, dialect="postgres", column_sql=col)


def apply_normalization(target_cls: Any, base_sql: str, transforms_pre: Sequence[Any] = ()) -> str:
    """Return a source's PostgreSQL query, wrapped in the table's normalizers and the given transforms.

    Without a normalizer on any column, the source's columns are passed through.
    """
    from ematix_flow.sql.expressions import normalized_select

    columns = [(column.name, column.normalizers) for column in target_cls.__columns__]
    if not any(is_normalizer(marker) for _, markers in columns for marker in markers):
        columns = []
    return normalized_select(columns, base_sql, pre_transforms=transforms_pre, dialect="postgres")


def _wrapped(transform: PreTransform, inner: str) -> str:
    from ematix_flow.sql.expressions import normalized_select

    return normalized_select([], inner, pre_transforms=[transform], dialect="postgres")


# Declarations do not import the SQL renderer; this module attaches it for users who import it.
Normalizer.rendered = staticmethod(compose_chain)
PreTransform.wrapped = staticmethod(_wrapped)
