"""How long runs are remembered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.run_log import RunRecord
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.retention import VARIABLE, retire_runs


@pytest.mark.parametrize(("said", "left"), [(None, ["new"]), ("300", ["new", "old"]), ("0", ["new", "old"])])
def test_runs_retire_after_ninety_days_or_as_many_as_are_configured(
    monkeypatch: pytest.MonkeyPatch, said: str | None, left: list[str]
) -> None:
    log = InMemoryRunLog()
    for name, days in (("old", 91), ("new", 89)):
        at = now() - timedelta(days=days)
        log.record_run_record(RunRecord(name, "orders", "succeeded", at, at))
    monkeypatch.delenv(VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)
    retire_runs(log)
    assert [record.run_id for record in log.list_runs()[0]] == left


def test_a_retention_that_is_no_number_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "soon")
    with pytest.raises(ConfigError, match="is not a number of days"):
        retire_runs(InMemoryRunLog())
