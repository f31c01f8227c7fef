"""Normalizers of columns and transforms of batches, under their documented names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.formats import DEFAULT_DATE_FORMATS, DEFAULT_TIMESTAMP_FORMATS
from ematix_flow.declare.normalizer_functions import (
    clamp,
    date_trunc,
    default,
    derive,
    email_normalize,
    empty_to_null,
    lower,
    not_null_or,
    nullif,
    parse_bool,
    parse_date,
    parse_int,
    parse_numeric,
    parse_timestamp,
    phone_normalize,
    regex_replace,
    replace,
    round,  # noqa: A004 - the documented name
    sql,
    to_timezone,
    trim,
    truncate,
    upper,
    whitespace_to_null,
)
from ematix_flow.declare.normalizers import Normalizer, OnFailure, is_normalizer
from ematix_flow.declare.pre_transforms import (
    PreTransform,
    deduplicate_by,
    filter_where,
    is_pipeline_transform,
    limit,
    sample_pct,
)

__all__ = [
    "DEFAULT_DATE_FORMATS", "DEFAULT_TIMESTAMP_FORMATS", "OnFailure", "apply_normalization", "clamp", "compose_chain",
    "date_trunc", "deduplicate_by", "default", "derive", "email_normalize", "empty_to_null", "filter_where",
    "is_normalizer", "is_pipeline_transform", "limit", "lower", "not_null_or", "nullif", "parse_bool", "parse_date",
    "parse_int", "parse_numeric", "parse_timestamp", "phone_normalize", "regex_replace", "replace", "round",
    "sample_pct", "sql", "to_timezone", "trim", "truncate", "upper", "whitespace_to_null",
]  # fmt: skip


def compose_chain(markers: Sequence[Any], col: str) -> str:
    """Return the PostgreSQL expression of a chain of normalizers on `col`; other markers are skipped.

    >>> compose_chain([trim(), empty_to_null()], "name")
    "NULLIF(TRIM(CAST(name AS TEXT)), '')"
    """
    from ematix_flow.expressions import render_chain  # imported here because few callers need SQL

    return render_chain(markers, None, dialect="postgres", column_sql=col)


def apply_normalization(target_cls: Any, base_sql: str, transforms_pre: Sequence[Any] = ()) -> str:
    """Return a source's PostgreSQL query, wrapped in the table's normalizers and the given transforms.

    Without a normalizer on any column, the source's columns are passed through.
    """
    from ematix_flow.expressions import normalized_select

    columns = [(column.name, column.normalizers) for column in target_cls.__columns__]
    if not any(is_normalizer(marker) for _, markers in columns for marker in markers):
        columns = []
    return normalized_select(columns, base_sql, pre_transforms=transforms_pre, dialect="postgres")


def _wrapped(transform: PreTransform, inner: str) -> str:
    from ematix_flow.expressions import normalized_select

    return normalized_select([], inner, pre_transforms=[transform], dialect="postgres")


# Declarations do not import the SQL renderer; this module attaches it for users who import it.
Normalizer.rendered = staticmethod(compose_chain)
PreTransform.wrapped = staticmethod(_wrapped)
