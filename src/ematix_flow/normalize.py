"""Normalizers of columns and transforms of batches, under their documented names."""

from __future__ import annotations

from ematix_flow.api.normalization import (
    apply_normalization,
    clamp,
    compose_chain,
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
from ematix_flow.declare.normalizers.formats import DEFAULT_DATE_FORMATS, DEFAULT_TIMESTAMP_FORMATS
from ematix_flow.declare.normalizers.normalizers import OnFailure, is_normalizer
from ematix_flow.declare.normalizers.pre_transforms import (
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
