"""Windows of data time: cut by clocks and calendars, merged and taken apart, without a gap and without an overlap."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.declare.windows import (
    DataWindow,
    WindowSize,
    format_instant,
    merge_windows,
    parse_instant,
    subtract_windows,
)
from ematix_flow.foundation.errors import DeclarationError

ZONES = [None, "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "America/Havana", "Asia/Beirut"]
FIRST = datetime(2020, 1, 1, tzinfo=timezone.utc)

instants = st.integers(0, 10 * 365 * 86_400).map(lambda second: FIRST + timedelta(seconds=second))
chunks = st.builds(WindowSize, st.integers(1, 40), st.sampled_from(["h", "d", "w", "mo"])) | st.builds(
    WindowSize, st.integers(30, 900), st.just("min")
)
zones = st.sampled_from(ZONES)


@st.composite
def windows(draw: st.DrawFn, *, longest: int = 60 * 86_400) -> DataWindow:
    start = draw(instants)
    return DataWindow(start, start + timedelta(seconds=draw(st.integers(1, longest))))


def day(text: str) -> datetime:
    return parse_instant(text)


@given(windows(), chunks, zones)
def test_a_cut_window_is_covered_from_end_to_end_by_pieces_that_touch(
    whole: DataWindow, chunk: WindowSize, zone: str | None
) -> None:
    pieces = chunk.cut(whole, zone=zone)
    assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
    assert all(left.end == right.start for left, right in pairwise(pieces))


@given(instants, chunks, zones)
def test_a_boundary_lies_before_its_instant_and_is_its_own_boundary(
    instant: datetime, chunk: WindowSize, zone: str | None
) -> None:
    floor = chunk.floor(instant, zone=zone)
    assert floor <= instant
    assert chunk.floor(floor, zone=zone) == floor


@given(instants, st.sampled_from(["1h", "15min", "1d", "1w", "1mo"]), zones)
def test_the_next_boundary_lies_behind_the_instant(instant: datetime, text: str, zone: str | None) -> None:
    chunk = WindowSize.parse(text)
    assert chunk.after(chunk.floor(instant, zone=zone), 1, zone=zone) > instant


@given(instants, zones)
def test_the_text_of_an_instant_is_read_as_the_same_instant(instant: datetime, zone: str | None) -> None:
    assert parse_instant(format_instant(instant, zone=zone), zone=zone) == instant


@given(windows())
def test_a_window_is_read_back_from_its_text(window: DataWindow) -> None:
    assert DataWindow.parse(str(window)) == window


@given(st.lists(windows(longest=5 * 86_400), max_size=12), st.lists(windows(longest=5 * 86_400), max_size=12))
def test_merging_and_taking_away_keep_exactly_the_instants_they_should(
    some: list[DataWindow], others: list[DataWindow]
) -> None:
    together, rest = merge_windows(some), subtract_windows(some, others)
    edges = {edge for item in (*some, *others) for edge in (item.start, item.end)}
    for instant in edges | {edge - timedelta(microseconds=1) for edge in edges}:
        inside = any(item.start <= instant < item.end for item in some)
        covered = any(item.start <= instant < item.end for item in others)
        assert any(item.start <= instant < item.end for item in together) == inside
        assert any(item.start <= instant < item.end for item in rest) == (inside and not covered)
    assert all(left.end < right.start for left, right in pairwise(together))


def test_a_day_lasts_from_midnight_to_midnight_when_the_clocks_change() -> None:
    spring = DataWindow(
        parse_instant("2026-03-28", zone="Europe/Berlin"), parse_instant("2026-03-31", zone="Europe/Berlin")
    )
    autumn = DataWindow(
        parse_instant("2026-10-24", zone="Europe/Berlin"), parse_instant("2026-10-27", zone="Europe/Berlin")
    )
    hours = [
        [
            (piece.end - piece.start).total_seconds() / 3600
            for piece in WindowSize.parse("1d").cut(whole, zone="Europe/Berlin")
        ]
        for whole in (spring, autumn)
    ]
    assert hours == [[24, 23, 24], [24, 25, 24]]


def test_hours_go_on_as_time_does_when_the_clocks_change() -> None:
    whole = DataWindow(
        parse_instant("2026-03-29", zone="Europe/Berlin"), parse_instant("2026-03-30", zone="Europe/Berlin")
    )
    pieces = WindowSize.parse("1h").cut(whole, zone="Europe/Berlin")
    assert [piece.end - piece.start for piece in pieces] == [timedelta(hours=1)] * 23


def test_months_end_with_the_calendar_and_go_back_to_their_day() -> None:
    pieces = WindowSize.parse("1mo").cut(DataWindow(day("2026-01-31"), day("2026-05-31")))
    assert [format_instant(piece.end) for piece in pieces] == ["2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]


def test_weeks_begin_on_monday_and_quarters_in_january() -> None:
    assert format_instant(WindowSize.parse("1w").floor(day("2026-11-18T09:00"))) == "2026-11-16"
    assert format_instant(WindowSize.parse("3mo").floor(day("2026-11-18T09:00"))) == "2026-10-01"


def test_the_last_piece_may_be_shorter() -> None:
    pieces = WindowSize.parse("6h").cut(DataWindow(day("2026-01-01"), day("2026-01-01T15:00")))
    assert [(piece.end - piece.start).total_seconds() / 3600 for piece in pieces] == [6, 6, 3]


def test_a_clock_time_that_comes_twice_is_shown_in_utc_the_second_time() -> None:
    first, second = day("2026-10-25T00:30Z"), day("2026-10-25T01:30Z")
    assert format_instant(first, zone="Europe/Berlin") == "2026-10-25T02:30"
    assert format_instant(second, zone="Europe/Berlin") == "2026-10-25T01:30:00Z"


@pytest.mark.parametrize("text", ["", "1", "d", "0d", "1 fortnight", "-1d", "1m", "1.5h", None, 3])
def test_a_length_that_is_none_is_refused_with_examples(text: object) -> None:
    with pytest.raises(DeclarationError) as refused:
        WindowSize.parse(text, option="--chunk")
    assert "--chunk" in refused.value.what
    assert "1mo" in (refused.value.hint or "")


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-01-32", "01.02.2026", None, 7])
def test_a_time_that_is_none_is_refused_with_examples(text: object) -> None:
    with pytest.raises(DeclarationError, match="--from"):
        parse_instant(text, option="--from")


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(DeclarationError, match="ends after it starts"):
        DataWindow(day("2026-01-02"), day("2026-01-01"))


def test_too_many_windows_are_refused_before_they_are_made() -> None:
    with pytest.raises(DeclarationError, match="more than 100,000 chunks"):
        WindowSize.parse("1min").cut(DataWindow(day("2020-01-01"), day("2026-01-01")))
