"""One alert for each outage and kind, until the pipeline works again."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.alerters.event import KINDS, OF_RUNS, RECOVERED, SLA_BREACHED
from ematix_flow.alerters.outages import Outage, outages_from_history, update_outages
from ematix_flow.alerters.sources import freshness_recovered_alert, recovery_alert
from ematix_flow.run_log.records import RunRecord
from tests.observe.samples import NOON, event, record


def reported(events: list[object]) -> list[str]:
    """The kinds that are news, in order."""
    known: dict[str, Outage] = {}
    said = []
    for one in events:
        known, news = update_outages(known, one)  # type: ignore[arg-type]
        if news is not None:
            said.append(f"{news.pipeline}:{news.kind}")
    return said


def test_a_second_failure_of_the_same_outage_is_no_news() -> None:
    assert reported([event(), event(minutes=5), event(minutes=10)]) == ["orders:failed"]


def test_giving_up_after_failures_is_news_once() -> None:
    assert reported([event(), event("gave_up"), event("gave_up")]) == ["orders:failed", "orders:gave_up"]


def test_recovery_is_news_only_after_an_outage_and_then_failures_are_news_again() -> None:
    ok = event("recovered")
    assert reported([ok, event(), ok, ok, event()]) == ["orders:failed", "orders:recovered", "orders:failed"]


def test_two_pipelines_have_two_outages() -> None:
    assert reported([event(), event(pipeline="people"), event("recovered", "people")]) == [
        "orders:failed", "people:failed", "people:recovered",
    ]  # fmt: skip


def test_every_alert_of_an_outage_knows_when_it_began() -> None:
    known, _ = update_outages({}, event())
    known, gave_up = update_outages(known, event("gave_up", minutes=30))
    _, recovered = update_outages(known, event("recovered", minutes=60))
    assert gave_up is not None
    assert recovered is not None
    assert gave_up.since == recovered.since == NOON


def test_a_run_that_succeeds_while_its_data_is_late_is_not_yet_good_news() -> None:
    known, _ = update_outages({}, event("failed"))
    known, _ = update_outages(known, event(SLA_BREACHED))
    known, news = update_outages(known, recovery_alert(record("succeeded")))
    assert news is None
    known, news = update_outages(known, freshness_recovered_alert("orders", now=NOON + timedelta(hours=1)))
    assert news is not None
    assert known == {}


def test_a_pipeline_that_is_late_and_fails_anew_is_news_each_time() -> None:
    late = event(SLA_BREACHED)
    assert reported([late, event(), recovery_alert(record("succeeded")), event(minutes=9)]) == [
        "orders:sla_breached", "orders:failed", "orders:failed",
    ]  # fmt: skip


def test_a_recovery_names_everything_that_was_reported() -> None:
    known, _ = update_outages({}, event("failed"))
    known, _ = update_outages(known, event(SLA_BREACHED))
    known, _ = update_outages(known, recovery_alert(record("succeeded")))
    _, news = update_outages(known, freshness_recovered_alert("orders", now=NOON))
    assert news is not None
    assert news.recovers == ("failed", SLA_BREACHED)


def test_a_run_with_failed_checks_does_not_end_their_alert() -> None:
    known, _ = update_outages({}, event("quality_failed"))
    known, news = update_outages(known, recovery_alert(record("succeeded"), quality_passed=False))
    assert news is None
    assert "orders" in known


def test_the_state_is_left_as_it_was() -> None:
    known = {"orders": Outage(NOON, ("failed",))}
    update_outages(known, event("recovered"))
    update_outages(known, event("gave_up"))
    assert known == {"orders": Outage(NOON, ("failed",))}


def test_a_history_tells_the_outage_that_is_still_open() -> None:
    brake = {"error": {"error": "Brake"}}
    runs = [
        record("failed", minutes=0),
        record("succeeded", minutes=10),
        record("failed", minutes=20),
        record("failed", minutes=30, extras=brake),
        record("running", minutes=40),
        record("failed", "people", minutes=0),
        record("succeeded", "people", minutes=1),
    ]
    expected = {"orders": Outage(NOON + timedelta(minutes=20, seconds=2), ("failed", "brake"))}
    assert outages_from_history(runs) == outages_from_history(list(reversed(runs))) == expected


def checked(verdict: str, *, alert: bool = True, minutes: int = 0, status: str = "succeeded") -> RunRecord:
    failed = [{"name": "id.between", "verdict": verdict, "message": "2 rows outside"}]
    quality = {"verdict": verdict, "alert": alert, "assertions": failed}
    return record(status, minutes=minutes, extras={"quality": quality})


def test_a_load_with_refused_data_that_was_reported_is_an_open_outage_of_its_own() -> None:
    runs = [record("failed", minutes=0), checked("fail", minutes=10), checked("fail", minutes=20)]
    outage = Outage(NOON + timedelta(seconds=2), ("quality_failed",), ("failed", "quality_failed"))
    assert outages_from_history(runs) == {"orders": outage}
    assert outages_from_history([*runs, checked("pass", minutes=30)]) == {}
    assert outages_from_history([checked("fail", alert=False)]) == {}


def test_a_failure_after_refused_data_leaves_both_open() -> None:
    runs = [checked("fail", minutes=0), record("failed", minutes=10)]
    assert outages_from_history(runs)["orders"].open == ("quality_failed", "failed")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["a", "b"])), max_size=40))
def test_between_two_recoveries_no_kind_is_reported_twice(steps: list[tuple[str, str]]) -> None:
    since_recovery: dict[str, set[str]] = {"a": set(), "b": set()}
    for said in reported([event(kind, name) for kind, name in steps]):
        name, kind = said.split(":")
        if kind == RECOVERED:
            assert since_recovery[name]
            since_recovery[name] = set()
        else:
            assert kind not in since_recovery[name]
            since_recovery[name].add(kind)
    assert set(OF_RUNS) < set(KINDS)
