"""Who watches: options before the environment before files, and wrong settings in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.alerters import register_alerter
from ematix_flow.alerters.pagerduty import PagerDutyAlerter
from ematix_flow.alerters.routing import FilteredAlerter
from ematix_flow.alerters.settings import configured_alerters, requested_alerters
from ematix_flow.alerters.slack import SlackAlerter
from ematix_flow.alerters.stdout import StdoutAlerter
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.metrics import InMemorySink, NullSink
from ematix_flow.observe.settings import ObserverOptions, requested_observers

TOML = """
[alerters]
terminal = "stdout://"

[alerters.oncall]
url = "pagerduty://${PAGERDUTY_KEY}"
kinds = ["gave_up", "sla_breached"]
pipelines = ["shop_*"]

[alerters.hook]
url = "https://relay.example.com/flow"
headers = { Authorization = "Bearer ${RELAY_TOKEN}" }
"""


def no_warning(text: str) -> None:
    raise AssertionError(text)


def write(folder: Path, text: str, name: str = ".ematix-flow.toml") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_options_come_before_the_environment_and_that_before_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, '[alerters]\nx = "slack://hooks.slack.com/services/a/b/file-key-1"\n')
    assert [type(one) for one in requested_alerters(warn=no_warning)] == [SlackAlerter]
    monkeypatch.setenv("EMATIX_FLOW_ALERTERS", "pagerduty://KEY1234, stdout://,")
    assert [type(one) for one in requested_alerters(warn=no_warning)] == [PagerDutyAlerter, StdoutAlerter]
    assert [type(one) for one in requested_alerters(["stdout://"], warn=no_warning)] == [StdoutAlerter]


def test_registered_alerters_are_always_called() -> None:
    own = StdoutAlerter()
    register_alerter(own)
    assert requested_alerters(warn=no_warning) == (own,)


def test_the_file_may_name_kinds_pipelines_and_headers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, TOML)
    monkeypatch.setenv("PAGERDUTY_KEY", "R0uTingKey42")
    monkeypatch.setenv("RELAY_TOKEN", "relay-token-1")
    terminal, oncall, hook = configured_alerters()
    assert isinstance(terminal, StdoutAlerter)
    assert isinstance(oncall, FilteredAlerter)
    assert (oncall.kinds, oncall.pipelines) == (("gave_up", "sla_breached"), ("shop_*",))
    assert hook._headers == {"Authorization": "Bearer relay-token-1"}  # type: ignore[attr-defined]


def test_the_users_file_counts_where_the_project_says_nothing(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "home" / ".ematix-flow", '[alerters]\nx = "stdout://"\n', "connections.toml")
    assert len(configured_alerters()) == 1


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[alerters]\nx = "slak://y"\n', 2, "slack://"),
        ('[alerters.x]\nurl = "stdout://"\nkind = ["failed"]\n', 1, "kinds"),
        ('[alerters.x]\nurl = "stdout://"\nkinds = ["fail"]\n', 1, "failed"),
        ("[alerters.x]\nkinds = []\n", 1, "url is missing"),
        ("[alerters]\nx = 3\n", 2, "neither a URL nor a table"),
        ("alerters = 3\n", 1, "not a table"),
    ],
)
def test_a_wrong_entry_is_an_error_with_its_line(project: Path, text: str, line: int, said: str) -> None:
    write(project, text)
    with pytest.raises(ConfigError) as caught:
        configured_alerters()
    assert said in str(caught.value)
    assert f".ematix-flow.toml:{line}" in str(caught.value)


def test_a_wrong_address_is_a_warning_and_the_right_ones_stay() -> None:
    said: list[str] = []
    found = requested_alerters(["slak://x", "stdout://", "slack://hooks.slack.com/${NOT_SET}"], warn=said.append)
    assert [type(one) for one in found] == [StdoutAlerter]
    assert len(said) == 2
    assert "continuing without that alerter" in said[0]
    assert "NOT_SET" in said[1]


def test_without_any_option_there_are_no_observers() -> None:
    found = requested_observers(warn=no_warning)
    assert found.alerts.alerters == ()
    assert isinstance(found.metrics, NullSink)
    assert found.tracer is None
    assert found.lineage is None


def test_metrics_and_lineage_come_from_options_environment_or_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, '[metrics]\nurl = "memory://"\n[lineage]\nurl = "lineage.jsonl"\nnamespace = "shop"\n')
    found = requested_observers(warn=no_warning)
    assert isinstance(found.metrics, InMemorySink)
    assert found.lineage is not None
    assert found.lineage.address.endswith("lineage.jsonl")
    assert found.namespace == "shop"
    monkeypatch.setenv("EMATIX_FLOW_METRICS", "null://")
    assert isinstance(requested_observers(warn=no_warning).metrics, NullSink)
    assert isinstance(requested_observers(ObserverOptions(metrics="memory://"), warn=no_warning).metrics, InMemorySink)


def test_wrong_metrics_and_lineage_are_warnings_and_wrong_traces_an_error() -> None:
    said: list[str] = []
    found = requested_observers(ObserverOptions(metrics="prometeus://:1", lineage="ftp://x"), warn=said.append)
    assert isinstance(found.metrics, NullSink)
    assert found.lineage is None
    assert "prometheus://" in said[0]
    assert "without lineage" in said[1]
    with pytest.raises(ValueError, match="otel://stdout"):
        requested_observers(ObserverOptions(traces="jaeger://x"), warn=no_warning)


def test_a_wrong_key_in_a_table_is_an_error_with_the_nearest(project: Path) -> None:
    write(project, '[metrics]\nurll = "memory://"\n')
    with pytest.raises(ConfigError, match="url"):
        requested_observers(warn=no_warning)
