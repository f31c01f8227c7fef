"""Who watches the runs of a command: those that were asked for, and the history is read for alerters alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.alerters.dispatch import clear_alerters, register_alerter
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.observers import CommandObservers, ObserverFlags
from ematix_flow.run_log.memory import InMemoryRunLog


class Asked(InMemoryRunLog):
    """Counts how often the history is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def list_runs(self, **what: Any) -> Any:
        self.reads += 1
        return super().list_runs(**what)


class Alerter:
    def notify(self, event: object) -> None:
        """Heard."""


@pytest.fixture(autouse=True)
def _no_observers_registered(project: Path) -> Iterator[None]:
    clear_alerters()
    yield
    clear_alerters()


@pytest.mark.parametrize(("flags", "reads"), [(ObserverFlags(), 0), (ObserverFlags(metrics="prometheus://:0"), 0)])
def test_without_alerters_the_history_is_not_read(flags: ObserverFlags, reads: int) -> None:
    log = Asked()
    CommandObservers(flags, Output(), log, "").close()
    assert log.reads == reads


def test_there_are_no_observers_by_default_and_an_alerter_of_the_module_is_one() -> None:
    log = Asked()
    assert CommandObservers(ObserverFlags(), Output(), log, "")._observers is None
    register_alerter(Alerter())
    assert CommandObservers(ObserverFlags(), Output(), log, "")._observers is not None
    assert log.reads == 1
