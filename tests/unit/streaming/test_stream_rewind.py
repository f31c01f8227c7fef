"""Where a rewind leads, and what it means for each kind of target."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from ematix_flow.declare.streams.spec import BrokerTarget, StreamSpec, TableTarget
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.streaming.admin.rewind import (
    RewindStep,
    RewindTarget,
    duplicate_reason,
    offsets_by_part,
    rewind_consequences,
)

MOMENT = datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("earliest", RewindTarget(word="earliest")),
        (" latest ", RewindTarget(word="latest")),
        ("2026-01-31T10:00:00Z", RewindTarget(moment=MOMENT)),
        ("2026-01-31 11:00+01:00", RewindTarget(moment=MOMENT)),
        ("2026-01-31 10:00", RewindTarget(moment=MOMENT)),
        ("1769853600000", RewindTarget(moment=MOMENT)),
        ('{"events": {"0": 1200}}', RewindTarget(offsets={"events": {"0": 1200}})),
    ],
)
def test_a_place_is_a_word_a_moment_or_offsets(said: str, meant: RewindTarget) -> None:
    assert RewindTarget.of(said) == meant


@pytest.mark.parametrize("said", ["yesterday", "{}", "12", '["a"]', "2026-13-01", ""])
def test_anything_else_is_refused(said: str) -> None:
    with pytest.raises(DeclarationError, match="no place to rewind to"):
        RewindTarget.of(said)


def test_a_mistyped_word_is_answered_with_the_nearest() -> None:
    with pytest.raises(DeclarationError) as refused:
        RewindTarget.of("earlyest")
    assert refused.value.hint == "did you mean earliest?"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"kind": "timestamp", "ms": 1769853600000}, RewindTarget(moment=MOMENT)),
        ({"kind": "offset", "bytes": '{"a": {"0": 5}}'}, RewindTarget(offsets={"a": {"0": 5}})),
        ({"kind": "offsets", "offsets": {"a": {"0": 5}}}, RewindTarget(offsets={"a": {"0": 5}})),
        ({"kind": "earliest"}, RewindTarget(word="earliest")),
    ],
)
def test_the_same_as_an_object(said: dict[str, Any], meant: RewindTarget) -> None:
    assert RewindTarget.from_dict(said) == meant


def test_an_object_without_a_place_is_refused() -> None:
    with pytest.raises(DeclarationError):
        RewindTarget.from_dict({"kind": "offset"})


def table(mode: str, **options: Any) -> TableTarget:
    return TableTarget("main.orders", None, None, mode=mode, options=options)


@pytest.mark.parametrize(
    ("target", "shows"),
    [
        (table("append"), True),
        (table("merge"), False),
        (table("scd1"), False),
        (table("scd2"), True),
        (table("scd2", event_timestamp_column="at"), False),
        (BrokerTarget("clean", None, "clean"), True),
    ],
)
def test_rows_that_are_read_again_show_where_no_key_tells_them_apart(target: Any, shows: bool) -> None:
    assert (duplicate_reason(target) is not None) is shows


def reasons(
    *rows: int | None, waiting: dict[str, int] | None = None, mode: str = "append", **more: bool
) -> tuple[tuple[str, ...], ...]:
    steps = [RewindStep(f"orders-{number}", None, None, count) for number, count in enumerate(rows)]
    return rewind_consequences(StreamSpec("orders", (), (table(mode),)), steps, waiting=waiting or {}, **more)


def test_what_needs_a_word_is_reported_and_nothing_else() -> None:
    assert reasons(0, 0) == ((), ())
    assert reasons(5, mode="merge")[0] == ()
    assert reasons(5)[0] == ("main.orders is appended to, and gets the rows twice",)
    assert reasons(None)[0] == ("main.orders is appended to, and gets the rows twice",)
    assert reasons(-7, -1)[0] == ("8 rows that were not read yet would never be",)
    assert reasons(None, forward=True)[0] == ("what was not read yet would never be, and the source does not count it",)
    assert reasons(0, half_done=True)[0] == ("main.orders is appended to, and gets the rows twice",)
    assert reasons(0, waiting={"lake": 2})[0] == (
        "lake has not taken 2 micro-batch(es) yet, which stay with the old checkpoint",
    )


def test_offsets_of_one_level_stay_as_they_are() -> None:
    assert offsets_by_part({"a": {"0": 1}, "b": "x"}) == {"a-0": "1", "b": "x"}
