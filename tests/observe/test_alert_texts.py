"""What an alert says to a person, and what it never says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ematix_flow.alerters.event import KINDS, AlertEvent
from ematix_flow.alerters.sources import failure_alert, lateness_alert, quality_alert, recovery_alert
from ematix_flow.alerters.text import alert_lines, alert_title
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import DeclarationError
from tests.observe.samples import NOON, event, full_event, record


def test_a_failure_says_what_where_since_when_how_often_and_what_shows_more() -> None:
    assert alert_lines(full_event()) == [
        "orders failed (attempt 2 of 3)",
        "  error    Unreachable: no server answers at db:5432",
        "  where    pipelines.py:41",
        "  while    stage",
        "  since    2026-03-01 10:45:00 UTC (1 h 15 min)",
        "  attempts 2 of 3",
        "  next     is the server running?",
        "  more     flow runs show 1a2b3c4d",
    ]


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("failed", {}, "orders failed"),
        ("gave_up", {"attempt_count": 3, "max_attempts": 3}, "orders gave up after 3 attempts"),
        ("gave_up", {"attempt_count": 1, "max_attempts": 1}, "orders gave up after 1 attempt"),
        ("recovered", {"since": NOON - timedelta(days=2, hours=3)}, "orders recovered after 2 d 3 h"),
        ("quality_failed", {}, "orders loaded data that its checks refuse"),
        ("quality_failed", {"error_type": "QualityCheckFailed"}, "orders was not loaded: its checks refuse the data"),
        ("sla_breached", {}, "orders is late"),
        ("brake", {}, "orders was stopped by its brake"),
    ],
)
def test_every_kind_has_a_sentence_of_its_own(kind: str, more: dict[str, object], said: str) -> None:
    assert alert_title(event(kind, **more)) == said


def test_no_kind_is_without_words() -> None:
    assert all(alert_title(event(kind)).startswith("orders ") for kind in KINDS)


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match="failed"):
        AlertEvent("faild", "orders", NOON)


def test_known_secrets_and_passwords_of_urls_are_masked_in_every_field() -> None:
    redact.remember_secret("hunter22")
    told = event(
        error_message="login hunter22 refused by postgres://ana:other99@db/shop",
        hint="psql postgres://ana:other99@db",
        where="hunter22.py:1",
        command="flow runs show 1 --run-log postgres://a:other99@db",
    )
    assert "hunter22" not in repr(told) + str(told.to_dict())
    assert "other99" not in repr(told) + str(told.to_dict())
    assert "login *** refused" in told.error_message


def test_without_a_run_the_command_lists_the_runs() -> None:
    assert event().more == "flow runs list --pipeline orders"


def test_a_very_long_error_is_cut() -> None:
    assert len("\n".join(alert_lines(event(error_message="x" * 90_000)))) < 2000


def test_a_failed_run_becomes_an_alert_with_everything_its_record_knows() -> None:
    error = {"error": "Unreachable", "message": "no server answers", "where": "pipelines.py:41", "hint": "start it"}
    run = record(attempt=2, failed_step="stage", error_summary="no server answers", extras={"error": error})
    told = failure_alert(run, max_attempts=3)
    assert (told.kind, told.error_type, told.where, told.step, told.hint) == (
        "failed", "Unreachable", "pipelines.py:41", "stage", "start it",
    )  # fmt: skip
    assert (told.attempt_count, told.max_attempts, told.run_id) == (2, 3, run.run_id)
    assert told.timestamp == run.finished_at


@pytest.mark.parametrize(
    ("error", "gave_up", "kind"),
    [
        ("Unreachable", False, "failed"),
        ("Unreachable", True, "gave_up"),
        ("Brake", True, "brake"),
        ("QualityCheckFailed", False, "quality_failed"),
    ],
)
def test_the_error_decides_the_kind(error: str, gave_up: bool, kind: str) -> None:
    assert failure_alert(record(extras={"error": {"error": error}}), gave_up=gave_up).kind == kind


def test_late_data_says_how_old_it_is_and_since_when_it_is_late() -> None:
    told = lateness_alert("orders", now=NOON, last_success=NOON - timedelta(hours=5), allowed=timedelta(hours=1))
    assert told.error_message == "its data is 5 h old and may be 1 h"
    assert told.since == NOON - timedelta(hours=4)
    never = lateness_alert("orders", now=NOON, last_success=None, allowed=timedelta(hours=1))
    assert "never succeeded" in never.error_message


def test_refused_data_and_recovery_name_their_run() -> None:
    assert quality_alert(record("succeeded"), checks="2 of 5 checks failed").more == "flow runs show 1a2b3c4d"
    assert recovery_alert(record("succeeded")).kind == "recovered"
