"""The native engine without its packages: a sentence with the command that installs them."""

from __future__ import annotations

import sys

import pytest

from ematix_flow.backends.delta import sail_tables
from ematix_flow.engine.sail import sail_server
from ematix_flow.engine.session.engine_choice import EngineChoice
from ematix_flow.foundation.errors import MissingDriver


def test_a_missing_engine_is_reported_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysail.spark", None)
    with pytest.raises(MissingDriver, match="pysail, which is not installed") as caught:
        sail_server.start_session(EngineChoice("sail", "sail"))
    assert caught.value.hint == 'pip install "ematix-flow-spark[native]"'


def test_a_missing_library_for_delta_is_reported_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDriver, match="deltalake, which is not installed") as caught:
        sail_tables.sail_limitation(None, None)
    assert caught.value.hint == 'pip install "ematix-flow-spark[native]"'


def test_settings_of_a_jvm_are_left_out_and_others_kept() -> None:
    given = {"spark.driver.memory": "4g", "spark.sql.session.timeZone": "UTC", "spark.executor.cores": "2"}
    assert sail_server.own_settings(given) == {"spark.sql.session.timeZone": "UTC"}
