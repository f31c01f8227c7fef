"""Expectations: what the tester takes, what it refuses at once, and where it says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import JSONB, BigInt, Boolean, Date, Float, Numeric, Target, Text, TimestampTZ, ematix, pk
from ematix_flow.declare.quality.checks import Between, Fresh, OneOf, RowCount, Unique, format_duration, parse_duration
from ematix_flow.declare.quality.expectations import QualitySpec
from ematix_flow.foundation.errors import DeclarationError, FlowError, MissingColumn
from ematix_flow.quality import parse_duration as public_parse_duration


@ematix.table(schema="shop")
class Orders:
    id: Annotated[BigInt, pk()]
    email: Text | None
    amount: Numeric[10, 2]
    ratio: Float
    paid: Boolean
    about: JSONB
    day: Date
    at: TimestampTZ


def spec(expectations: Any = None, **options: Any) -> Any:
    decorate = ematix.pipeline(target=Orders, mode="append", expectations=expectations, **options)
    return decorate(lambda: "SELECT 1").spec


def test_every_check_has_the_name_that_reports_give_it() -> None:
    def expectations(t: Any) -> None:
        t.column("id").not_null().unique()
        t.column("email").regex("@").is_in(["a", "b"])
        t.column("amount").between(0, 10)
        t.row_count(at_least=1)
        t.unique(["email", "day"])
        t.freshness("at", within="2h")
        t.column("id").unique()

    (load,) = spec(expectations).loads
    assert [check.name for check in load.checks] == [
        "id.not_null", "id.unique", "email.regex", "email.enum", "amount.between", "row_count",
        "unique_group(email, day)", "freshness(at)",
    ]  # fmt: skip
    assert load.checks[-1] == Fresh("at", timedelta(hours=2))
    assert load.checks[1] == Unique(("id",))
    assert str(load.checks[0].where).endswith(".py:" + str(load.checks[0].where.line))
    assert "not_null" in load.checks[0].where.text


def test_values_become_those_of_the_column() -> None:
    def expectations(t: Any) -> None:
        t.column("day").between("2026-01-01", date(2026, 12, 31))
        t.column("at").between("2026-01-01T01:00:00+01:00", date(2026, 2, 1))
        t.column("ratio").between(0.1, None)
        t.column("id").is_in([3, 3, 4])

    day, at, ratio, numbers = spec(expectations).loads[0].checks
    assert day == Between("day", date(2026, 1, 1), date(2026, 12, 31))
    midnight = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert at == Between("at", midnight, midnight.replace(month=2))
    assert (ratio.low, ratio.high) == (0.10000000149011612, None)
    assert numbers == OneOf("id", (3, 4))


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        (
            lambda t: t.column("emial").not_null(),
            "'emial', which shop.orders does not declare",
            "did you mean 'email'?",
        ),
        (lambda t: t.column("email").not_nul(), "t.column('email') has no check 'not_nul'", "did you mean 'not_null'?"),
        (lambda t: t.rowcount(at_least=1), "t has no check 'rowcount'", "did you mean 'row_count'?"),
        (lambda t: t.unique(["id", "dya"]), "'dya', which shop.orders", "did you mean 'day'?"),
        (lambda t: t.unique([]), "at least one column", "t.unique"),
        (lambda t: t.row_count(), "at_least= or at_most=", ""),
        (lambda t: t.row_count(at_least=3, at_most=1), "at_least=3 is above", ""),
        (lambda t: t.row_count(at_least=-1), "not -1", ""),
        (lambda t: t.column("amount").between(None, None), "needs a bound", ""),
        (lambda t: t.column("amount").between(10, 1), "10 is above 1", ""),
        (lambda t: t.column("amount").between("0", 1), "'0' is no Numeric[10, 2]", ""),
        (lambda t: t.column("amount").between(True, 1), "True is no Numeric", ""),
        (lambda t: t.column("amount").between(float("nan"), 1), "nan is no Numeric", ""),
        (lambda t: t.column("ratio").between(0, 1e39), "1e+39 is no Float", ""),
        (lambda t: t.column("day").between("yesterday", None), "'yesterday' is no Date", ""),
        (lambda t: t.column("paid").between(0, 1), "between goes with numbers", ""),
        (lambda t: t.column("email").regex("("), "the pattern '(' cannot be used", "keep to characters"),
        (lambda t: t.column("email").regex("(?=a)a"), "look around", "several checks"),
        (lambda t: t.column("amount").regex("1"), "regex goes with texts, and amount is a Numeric[10, 2]", ""),
        (lambda t: t.column("email").is_in("ab"), "a list of values", "is_in"),
        (lambda t: t.column("email").is_in([]), "a list of values", "is_in"),
        (lambda t: t.column("id").is_in(["1"]), "'1' is no BigInt", ""),
        (lambda t: t.column("amount").is_in([1]), "is_in goes with texts and whole numbers", ""),
        (lambda t: t.column("about").unique(), "unique goes with columns whose values can be compared", ""),
        (lambda t: t.freshness("email"), "freshness goes with dates and timestamps", ""),
        (lambda t: t.freshness("at", within="soon"), "'soon' is not a length of time", "24h"),
        (lambda t: 1 / 0, "expectations raised ZeroDivisionError", "look at that line"),
    ],
)
def test_what_cannot_be_checked_is_an_error_at_its_own_line(wrong: Callable[[Any], Any], said: str, hint: str) -> None:
    with pytest.raises(FlowError) as caught:
        spec(wrong)
    assert said in caught.value.what
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 3
    assert caught.value.where is not None
    assert caught.value.where.line == wrong.__code__.co_firstlineno


def test_an_unknown_check_is_an_attribute_error_and_tools_may_ask_for_anything() -> None:
    seen = []

    def expectations(t: Any) -> None:
        seen.append((hasattr(t, "__wrapped__"), hasattr(t.column("id"), "_repr_html_")))
        with pytest.raises(AttributeError):
            t.percentile_between("amount", 0, 1)

    spec(expectations)
    assert seen == [(False, False)]


@pytest.mark.parametrize("wrong", ["not_null", lambda: None, lambda t, more: None, [lambda t: None]])
def test_expectations_are_a_function_of_the_tester(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a function of one argument, the tester") as caught:
        spec(wrong)
    assert isinstance(caught.value, DeclarationError)


def test_every_target_of_a_fan_out_must_have_the_columns() -> None:
    @ematix.table(schema="shop")
    class Ids:
        id: Annotated[BigInt, pk()]

    targets = [Target(table=Orders, mode="append"), Target(table=Ids, mode="append")]
    with pytest.raises(MissingColumn, match=r"'email', which shop\.ids does not declare"):
        ematix.pipeline(targets=targets, expectations=lambda t: t.column("email").not_null())(lambda: "SELECT 1")


def test_a_pipeline_says_what_happens_and_how_fresh_it_is() -> None:
    declared = spec(freshness_sla="90m", freshness_column="at", on_quality_failure="fail", alert_on_quality_warn=True)
    assert declared.quality == QualitySpec("fail", True, timedelta(minutes=90), "at")
    assert declared.loads[0].checks == (Fresh("at", timedelta(minutes=90)),)
    assert spec().quality == QualitySpec()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_quality_failure": "stop"}, "on_quality_failure='stop' is not known"),
        ({"freshness_sla": "tomorrow"}, "'tomorrow' is not a length of time"),
        ({"freshness_sla": 0}, "would always be breached"),
        ({"freshness_column": "at"}, "freshness_column needs freshness_sla"),
        ({"freshness_column": "att", "freshness_sla": 60}, "freshness_column names 'att'"),
        ({"freshness_column": "email", "freshness_sla": 60}, "freshness goes with dates"),
    ],
)
def test_keywords_that_do_not_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(FlowError) as caught:
        spec(**options)
    assert said in caught.value.what
    assert caught.value.where is not None


def test_lengths_of_time_are_read_and_shown() -> None:
    assert public_parse_duration is parse_duration
    assert [parse_duration(text) for text in ("90s", "15m", "24h", "7d")] == [
        timedelta(seconds=90), timedelta(minutes=15), timedelta(hours=24), timedelta(days=7),
    ]  # fmt: skip
    assert parse_duration(1.5) == timedelta(seconds=1.5)
    assert parse_duration(timedelta(days=1)) == timedelta(days=1)
    assert [format_duration(parse_duration(text)) for text in ("90s", "120s", "48h", "36h")] == [
        "90s",
        "2m",
        "2d",
        "36h",
    ]
    for wrong in ("", "1.5", "1w", "-1h", "1.5h", -1, timedelta(seconds=-1), float("inf"), True, None, "999999999999d"):
        with pytest.raises(ValueError, match="length of time"):
            parse_duration(wrong)  # type: ignore[arg-type]


def test_checks_say_what_they_want_in_words() -> None:
    assert str(Between("n", Decimal("0.5"), None)) == "n is at least 0.5"
    assert str(Between("n", None, 3)) == "n is at most 3"
    assert str(RowCount(1000, None)) == "at least 1,000 rows"
    assert str(Unique(("a", "b"), is_group=True)) == "a, b are unique"
