"""Telling everybody at once: a broken or slow alerter harms neither the run nor the others."""

from __future__ import annotations

import threading
import time

from ematix_flow.alerters import AlertEvent, active_alerters, clear_alerters, register_alerter
from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.outages import Outage
from ematix_flow.alerters.routing import FilteredAlerter
from ematix_flow.alerters.urls import from_url
from tests.observe.listener import Listener
from tests.observe.samples import NOON, event


class Notebook:
    """An alerter that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[AlertEvent] = []

    def notify(self, told: AlertEvent) -> None:
        self.heard.append(told)


class Broken:
    """An alerter with a fault."""

    def notify(self, told: AlertEvent) -> None:
        raise RuntimeError(f"cannot tell {told.pipeline}")


class Slow:
    """An alerter that takes its time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def notify(self, _: AlertEvent) -> None:
        self.go_on.wait(30)


def test_every_alerter_gets_news_and_none_gets_repetitions() -> None:
    first, second = Notebook(), Notebook()
    alerts = Alerts([first, second])
    assert alerts.notify(event()) is True
    assert alerts.notify(event(minutes=1)) is False
    assert alerts.notify(event("recovered", minutes=2)) is True
    assert [told.kind for told in first.heard] == [told.kind for told in second.heard] == ["failed", "recovered"]


def test_a_broken_alerter_is_named_once_and_the_others_hear_everything() -> None:
    said: list[str] = []
    notebook = Notebook()
    alerts = Alerts([Broken(), notebook], report=said.append)
    alerts.notify(event())
    alerts.notify(event("gave_up"))
    assert len(notebook.heard) == 2
    (line,) = said
    assert "the alerter Broken does not work: RuntimeError: cannot tell orders" in line
    assert "the run goes on" in line


def test_a_slow_alerter_is_left_behind_after_its_time() -> None:
    said: list[str] = []
    slow, notebook = Slow(), Notebook()
    Alerts([slow, slow, slow, slow, notebook], seconds=1, report=said.append).notify(event())
    assert len(notebook.heard) == 1
    assert "no answer within 1 s" in said[0]
    slow.go_on.set()


def test_a_server_that_never_answers_costs_no_more_than_its_time(listener: Listener) -> None:
    listener.seconds = 60
    said: list[str] = []
    began = time.monotonic()
    Alerts([from_url(f"{listener.url}/hook")], seconds=0.3, report=said.append).notify(event())
    assert time.monotonic() - began < listener.seconds
    assert len(said) == 1


def test_outages_of_an_earlier_process_are_not_reported_again() -> None:
    notebook = Notebook()
    alerts = Alerts([notebook], known={"orders": Outage(NOON, ("failed",))})
    alerts.notify(event(minutes=5))
    assert notebook.heard == []
    alerts.notify(event("recovered", minutes=9))
    assert [told.since for told in notebook.heard] == [NOON]
    assert alerts.outages == {}


def test_many_threads_tell_of_one_outage_once() -> None:
    notebook = Notebook()
    alerts = Alerts([notebook])
    threads = [threading.Thread(target=alerts.notify, args=(event(),)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notebook.heard) == 1


def test_a_route_passes_on_its_kinds_and_pipelines_and_the_end_of_what_it_passed_on() -> None:
    notebook, everything = Notebook(), Notebook()
    alerts = Alerts([FilteredAlerter(notebook, kinds=("gave_up",), pipelines=("shop_*",)), everything])
    for told in (
        event("failed", "shop_orders"),
        event("gave_up", "shop_orders"),
        event("recovered", "shop_orders"),
        event("gave_up", "crm_people"),
        event("recovered", "crm_people"),
        event("failed", "shop_orders"),
        event("recovered", "shop_orders"),
    ):
        alerts.notify(told)
    assert [told.kind for told in notebook.heard] == ["gave_up", "recovered"]
    assert len(everything.heard) == 7
    FilteredAlerter(notebook, kinds=("gave_up",)).notify(event("recovered"))
    assert notebook.heard[-1].kind == "recovered"


def test_alerters_can_be_registered_for_the_process() -> None:
    notebook = Notebook()
    register_alerter(notebook)
    assert active_alerters() == [notebook]
    clear_alerters()
    assert active_alerters() == []
