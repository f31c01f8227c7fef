"""How fresh pipelines are, and who hears of it: once when one is late, once when it no longer is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pk
from ematix_flow.alerters import AlertEvent
from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.quality import (
    FreshnessEvaluator,
    FreshnessState,
    SlaSpec,
    evaluate_freshness,
    evaluate_freshness_once,
    register_freshness_sla,
    registered_slas,
)
from ematix_flow.run_log import InMemoryRunLog, RunRecord
from ematix_flow.scheduler.freshness import ended_outages, evaluate_all, last_success_in, notify_lateness

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _declared() -> Iterator[None]:
    registry.clear()
    yield
    registry.clear()


class Listener:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[AlertEvent] = []

    def notify(self, event: AlertEvent) -> None:
        self.heard.append(event)


@pytest.mark.parametrize(
    ("age", "state", "lag"),
    [
        (timedelta(minutes=47, seconds=59), "healthy", 2879),
        (timedelta(minutes=48), "warning", 2880),
        (HOUR, "warning", 3600),
        (HOUR + timedelta(seconds=1), "breached", 3601),
        (timedelta(minutes=-5), "healthy", 0),
        (None, "breached", None),
    ],
)
def test_a_pipeline_is_healthy_then_nearly_late_then_late(age: timedelta | None, state: str, lag: int | None) -> None:
    last = None if age is None else NOON - age
    found = evaluate_freshness(pipeline="orders", last_success=last, sla="1h", now=NOON)
    assert found == FreshnessState("orders", 3600, lag, state, last, NOON)
    assert found.to_dict()["evaluated_at"] == "2026-03-01T12:00:00.000000Z"


def test_moments_without_a_zone_are_utc() -> None:
    found = evaluate_freshness(pipeline="o", last_success=datetime(2026, 3, 1, 11, 30), sla=3600, now=NOON)
    assert (found.lag_seconds, found.state) == (1800, "healthy")


def test_slas_are_declared_or_registered_and_may_be_taken_back() -> None:
    @ematix.table(schema="shop")
    class Orders:
        id: Annotated[BigInt, pk()]

    for name, sla in (("orders", "6h"), ("people", "1d"), ("prices", None)):
        ematix.pipeline(target=Orders, mode="append", name=name, freshness_sla=sla)(lambda: "SELECT 1")
    register_freshness_sla("export", 90)
    register_freshness_sla("people", None)
    assert registered_slas() == {"export": SlaSpec("export", 90), "orders": SlaSpec("orders", 21600)}
    with pytest.raises(DeclarationError):
        register_freshness_sla("export", 0)
    with pytest.raises(ValueError, match="length of time"):
        register_freshness_sla("export", "soon")


def test_an_evaluator_calls_back_only_at_the_edges() -> None:
    register_freshness_sla("orders", "1h")
    last: dict[str, datetime] = {}
    called: list[tuple[str, str]] = []
    kept: list[FreshnessState] = []
    evaluator = FreshnessEvaluator(
        last_success_fn=last.get,
        on_breach=lambda state: called.append(("breach", state.pipeline)),
        on_recover=lambda state: called.append(("recover", state.pipeline)),
        store_writer=kept.append,
    )
    evaluator.evaluate_all(NOON)
    evaluator.evaluate_all(NOON)
    last["orders"] = NOON
    evaluator.evaluate_all(NOON)
    evaluator.evaluate_all(NOON + 2 * HOUR)
    assert called == [("breach", "orders"), ("recover", "orders"), ("breach", "orders")]
    assert [state.state for state in kept] == ["breached", "breached", "healthy", "breached"]
    primed = FreshnessEvaluator(last_success_fn=last.get, on_breach=lambda _: called.append(("again", "")))
    primed.prime_state({"orders": "breached"})
    assert primed.evaluate_all(NOON + 2 * HOUR)[0].state == "breached"
    assert ("again", "") not in called


def test_one_check_alerts_every_alerter_of_those_that_are_late() -> None:
    register_freshness_sla("orders", "1h")
    register_freshness_sla("people", "1h")
    listener, kept = Listener(), []
    states = evaluate_freshness_once(
        last_success_fn={"people": NOON}.get, analytics_store=kept.append, alerters=[listener], now=NOON
    )
    assert [(state.pipeline, state.state) for state in states] == [("orders", "breached"), ("people", "healthy")]
    assert kept == states
    assert [(event.kind, event.pipeline) for event in listener.heard] == [("sla_breached", "orders")]


def run(log: InMemoryRunLog, status: str, at: datetime) -> None:
    log.record_run_record(RunRecord(f"{status}-{at.isoformat()}", "orders", status, at, at))
    log.record_run("orders", at, status == "succeeded")


def look(log: InMemoryRunLog, at: datetime) -> list[str]:
    """What somebody hears from one call of the command, which knows nothing of the one before."""
    listener: Any = Listener()
    states = evaluate_all(last_success_in(log), at)
    notify_lateness(states, log, Alerts([listener], known=ended_outages(states, log, {})))
    return [event.kind for event in listener.heard]


def test_a_breach_is_reported_once_by_all_processes_and_so_is_its_end() -> None:
    register_freshness_sla("orders", "1h")
    log = InMemoryRunLog()
    assert [look(log, NOON), look(log, NOON)] == [["sla_breached"], []]
    run(log, "succeeded", NOON)
    assert [look(log, NOON), look(log, NOON)] == [["recovered"], []]
    run(log, "failed", NOON + HOUR)
    assert [look(log, NOON + 2 * HOUR), look(log, NOON + 3 * HOUR)] == [["sla_breached"], []]
    run(log, "succeeded", NOON + 4 * HOUR)  # nobody looks while it is fresh
    assert look(log, NOON + 6 * HOUR) == ["sla_breached"]
    run(log, "succeeded", NOON + 7 * HOUR)
    assert look(log, NOON + 7 * HOUR) == ["recovered"]


def test_the_last_success_is_found_behind_a_failure() -> None:
    log = InMemoryRunLog()
    run(log, "succeeded", NOON)
    run(log, "failed", NOON + HOUR)
    find = last_success_in(log)
    assert (find("orders"), find("nobody")) == (NOON, None)
