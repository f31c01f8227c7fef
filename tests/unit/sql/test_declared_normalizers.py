"""What a normalizer accepts when it is declared, and how it reads."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Annotated, Any, get_args

import pytest

from ematix_flow import normalize
from ematix_flow.declare.normalizers.normalizers import check_chain
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.normalize import (
    clamp,
    default,
    derive,
    lower,
    parse_bool,
    parse_date,
    parse_int,
    parse_numeric,
    parse_timestamp,
    regex_replace,
    replace,
    trim,
)

WRONG: list[tuple[Any, str]] = [
    (lambda: parse_timestamp("YYYY", formats=["YYYY"]), "both format and formats"),
    (lambda: parse_timestamp(formats=[]), "no format"),
    (lambda: parse_timestamp(default=datetime(2024, 1, 1)), "belong together"),
    (lambda: parse_timestamp(on_failure="default"), "belong together"),
    (lambda: parse_timestamp(on_failure="error"), "exactly one format"),
    (lambda: parse_timestamp("YYYY-MM-DD", on_failure="skip"), "does not know on_failure"),  # type: ignore[arg-type]
    (lambda: parse_timestamp("YYYY-Mon-DD"), "YYYY MM DD HH24 MI SS MS US OF"),
    (lambda: parse_timestamp("HH12:MI"), "is not a token"),
    (lambda: parse_timestamp("MM-DD"), "without YYYY"),
    (lambda: parse_timestamp("YYYY-DD"), "without MM"),
    (lambda: parse_timestamp("YYYY YYYY"), "twice"),
    (lambda: parse_timestamp("YYYY-MM-DD HH24:MI:SS.MS.US"), "both MS and US"),
    (lambda: parse_timestamp('YYYY "open'), "never closed"),
    (lambda: parse_timestamp("YYYY", on_failure="default", default="yesterday"), "no date and time"),
    (lambda: parse_date("YYYY-MM-DDTHH24OF"), "offset has no meaning"),
    (lambda: parse_date(on_failure="default", default=5), "no date"),
    (lambda: parse_int(default=1), "belong together"),
    (lambda: parse_int(on_failure="default", default=2**63), "whole number"),
    (lambda: parse_int(on_failure="default", default=True), "whole number"),
    (lambda: parse_numeric(39, 0), "from 1 to 38"),
    (lambda: parse_numeric(4, 5), "from 0 to 4"),
    (lambda: parse_numeric(4, 2, on_failure="default", default=99.995), "does not fit"),
    (lambda: parse_numeric(4, 2, on_failure="default", default="many"), "no number"),
    (lambda: parse_bool(truthy=("x",), falsy=("X",)), "both true and false"),
    (lambda: parse_bool(truthy=(), falsy=()), "no words"),
    (lambda: replace("", "x"), "nothing to look for"),
    (lambda: regex_replace("a", "b", "x"), "no flags"),
    (lambda: regex_replace("(", ""), "cannot be used"),
    (lambda: regex_replace("a*", ""), "empty text"),
    (lambda: regex_replace("(a)", r"\2"), "names no group"),
    (lambda: regex_replace(r"\p{L}", ""), "every engine"),
    (lambda: regex_replace("a++", ""), "possessive"),
    (lambda: regex_replace("(?P<n>a)", ""), "not a group"),
    (lambda: normalize.truncate(-1), "whole number"),
    (lambda: normalize.round("2"), "whole number"),  # type: ignore[arg-type]
    (lambda: normalize.date_trunc("decade"), "microseconds, milliseconds"),
    (lambda: normalize.to_timezone("+02:00"), "Europe/Berlin"),
    (lambda: normalize.to_timezone("Mars/Olympus"), "does not know the zone"),
    (lambda: default(None), "cannot use None"),
    (lambda: default(b"x"), "cannot use"),
    (lambda: default(float("nan")), "finite"),
    (lambda: normalize.nullif([1]), "cannot use"),
    (lambda: normalize.nullif("a\0b"), "NUL"),
    (lambda: clamp(5, 1), "wrong way round"),
    (lambda: clamp(date(2024, 1, 1), 5), "cannot compare"),
    (lambda: clamp(None, None), "no bound"),
    (lambda: normalize.sql("  "), "needs an SQL expression"),
    (lambda: check_chain([lower(), derive("1")]), "put derive"),
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_cannot_be_right_is_refused_where_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the message is looked at below
        make()
    assert isinstance(refusal.value, DeclarationError)
    assert says in str(refusal.value)


def test_a_refusal_names_the_line_of_the_declaration() -> None:
    with pytest.raises(DeclarationError) as refusal:
        normalize.truncate(-1)
    assert refusal.value.where is not None
    assert refusal.value.where.file == __file__
    assert refusal.value.where.text == "normalize.truncate(-1)"


def test_a_normalizer_reads_like_the_call_that_made_it() -> None:
    chain = [
        trim(),
        replace("a", "it's"),
        regex_replace("a", ""),
        parse_int(on_failure="default", default=0),
        parse_timestamp(formats=["YYYY"]),
        parse_numeric(10, 2),
        default(Decimal("1.5")),
        clamp(None, 5),
    ]
    assert [repr(marker) for marker in chain] == [
        "trim()",
        """replace('a', "it's")""",
        "regex_replace('a', '')",
        "parse_int(on_failure='default', default=0)",
        "parse_timestamp(formats=('YYYY',))",
        "parse_numeric(10, 2)",
        "default(Decimal('1.5'))",
        "clamp(None, 5)",
    ]


def test_normalizers_are_equal_and_hash_alike_when_they_read_alike() -> None:
    assert {trim(), trim(), lower()} == {trim(), lower()}
    assert parse_int() != parse_int(on_failure="error")
    assert hash(replace("a", "b")) == hash(replace("a", "b"))


def test_one_and_true_stay_different_defaults_in_annotations() -> None:
    numbers, truths = Annotated[int, default(1)], Annotated[int, default(True)]
    assert get_args(numbers)[1].value is not True
    assert get_args(truths)[1].value is True


def test_a_normalizer_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        replace("a", "b").old = "c"  # type: ignore[misc]


def test_defaults_of_parsers_are_read_into_their_type() -> None:
    instant = parse_timestamp("YYYY", on_failure="default", default="2024-01-02T03:04:05Z")
    assert instant.default == datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert parse_date(on_failure="default", default="2024-01-02").default == date(2024, 1, 2)
    assert parse_numeric(4, 2, on_failure="default", default=0.1).default == Decimal("0.1")


def test_markers_that_are_no_normalizers_are_distinguished() -> None:
    assert normalize.is_normalizer(trim())
    assert not normalize.is_normalizer("trim()")
    assert normalize.is_pipeline_transform(normalize.limit(1))
    assert not normalize.is_pipeline_transform(trim())


def test_every_documented_name_is_there() -> None:
    documented = (
        "apply_normalization clamp compose_chain date_trunc deduplicate_by default derive email_normalize empty_to_null"
        " filter_where is_normalizer is_pipeline_transform limit lower not_null_or nullif parse_bool parse_date parse_int"
        " parse_numeric parse_timestamp phone_normalize regex_replace replace round sample_pct sql to_timezone trim truncate"
        " upper whitespace_to_null"
    )
    assert [name for name in documented.split() if not callable(getattr(normalize, name, None))] == []
