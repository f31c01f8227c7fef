"""Run records: what they refuse, how they count and what they tell."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from ematix_flow.foundation import redact
from ematix_flow.run_log import RunRecord

BEGUN = datetime(2026, 1, 31, 23, 59, tzinfo=timezone.utc)


def record(**changes: object) -> RunRecord:
    values: dict[str, object] = {"run_id": "r1", "pipeline": "load_orders", "status": "running", "started_at": BEGUN}
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["requested", "running", "paused"])
def test_a_run_that_has_not_ended_has_no_end(status: str) -> None:
    with pytest.raises(ValueError, match="finished_at"):
        record(status=status, finished_at=BEGUN)


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_a_run_that_has_ended_may_have_an_end(status: str) -> None:
    assert record(status=status, finished_at=BEGUN).duration_ms == 0


def test_an_unknown_status_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="succeded") as caught:
        record(status="succeded")
    assert "succeeded" in str(caught.value)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        record(kind="weekly")


def test_the_first_attempt_is_number_one() -> None:
    with pytest.raises(ValueError, match="attempt"):
        record(attempt=0)


def test_a_run_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="run_id"):
        record(run_id="")


def test_duration_is_counted_in_milliseconds_and_is_unknown_while_it_runs() -> None:
    assert record().duration_ms is None
    assert record(status="failed", finished_at=BEGUN + timedelta(seconds=1.5)).duration_ms == 1500


def test_a_clock_that_went_backwards_gives_no_negative_duration() -> None:
    assert record(status="failed", finished_at=BEGUN - timedelta(seconds=3)).duration_ms == 0


def test_times_of_any_zone_are_kept_as_the_same_instant_in_utc() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    kept = record(started_at=BEGUN.astimezone(east))
    assert kept.started_at == BEGUN
    assert kept.to_summary_dict()["started_at"] == "2026-01-31T23:59:00.000000Z"


def test_the_summary_leaves_out_what_only_the_details_tell() -> None:
    told = record(status="failed", finished_at=BEGUN, failed_step="read", error_summary="no", extras={"rows": 3})
    assert set(told.to_detail_dict()) - set(told.to_summary_dict()) == {"failed_watermark", "extras"}
    assert told.to_detail_dict()["extras"] == {"rows": 3}
    assert told.to_summary_dict()["error_summary"] == "no"


def test_a_secret_never_enters_a_record() -> None:
    redact.remember_secret("s3cr3t-value")
    try:
        kept = record(
            status="failed",
            finished_at=BEGUN,
            error_summary="cannot log in with s3cr3t-value at postgres://ana:hunter22@db/shop",
            extras={"targets": [{"error": "s3cr3t-value was refused"}]},
        )
    finally:
        redact.forget_secrets()
    assert "s3cr3t-value" not in str(kept.to_detail_dict())
    assert "hunter22" not in str(kept.to_detail_dict())
    assert kept.extras["targets"][0]["error"] == "*** was refused"
