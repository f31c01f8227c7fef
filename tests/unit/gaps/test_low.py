"""Rows L of the comparison with the original (docs/differences.md), and its wording."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.unit.cli.conftest import Flow

from ematix_flow import CDC, BigInt, Source, Target, Text, ematix, natural_key, normalize, pipeline, pk
from ematix_flow.executors.heartbeat import HeartbeatThread
from ematix_flow.executors.kubernetes import KubernetesJobExecutor
from ematix_flow.executors.protocol import DispatchSpec, Executor
from ematix_flow.executors.subprocess import SubprocessExecutor
from ematix_flow.foundation.clock import now
from ematix_flow.quality import parse_duration
from ematix_flow.run_log import InMemoryRunLog, RunRecord
from ematix_flow.run_log.history import InMemoryRunHistory, RunHistoryStore
from ematix_flow.streaming_stats import StreamingStatsRecorder


def test_classes_are_found_where_they_are_looked_for() -> None:
    """gaps L1"""
    from ematix_flow import alerters, metrics, run_log
    from ematix_flow.scheduler import executor_url

    for module, names in {
        alerters: ("SlackAlerter", "StdoutAlerter", "EmailAlerter", "PagerDutyAlerter"),
        metrics: ("PrometheusSink", "OtelSink"),
        run_log: ("PostgresRunLog", "MySQLRunLog", "DuckDBRunLog", "S3RunLog", "GcsRunLog", "AzureBlobRunLog"),
        executor_url: ("DispatchError",),
    }.items():
        for name in names:
            assert getattr(module, name).__name__ == name


def test_alerters_show_what_they_were_given() -> None:
    """gaps L2"""
    from ematix_flow.alerters import EmailAlerter, PagerDutyAlerter, SlackAlerter

    mail = EmailAlerter("mail", 587, username="ana", password="secret", from_addr="a@b.c", to=["x@y.z"])
    assert (mail.host, mail.port, mail.to, mail.username, mail.from_addr, mail.use_starttls) == (
        "mail", 587, ["x@y.z"], "ana", "a@b.c", True,
    )  # fmt: skip
    pager = PagerDutyAlerter("KEY", service_label="shop", default_severity="warning")
    assert (pager.routing_key, pager.service_label, pager.default_severity) == ("KEY", "shop", "warning")
    assert SlackAlerter("https://hooks.slack.com/services/x").webhook_url == "https://hooks.slack.com/services/x"


def test_executors_and_histories_can_be_distinguished_from_others() -> None:
    """gaps L3"""
    assert isinstance(SubprocessExecutor(python="python"), Executor)
    assert isinstance(InMemoryRunHistory(), RunHistoryStore)
    assert not isinstance(object(), Executor)
    spec = DispatchSpec("orders", "pipelines", claim_token="0123456789ab", alerter_urls=("stdout://",))
    assert spec.alerter_urls == ["stdout://"]
    made = KubernetesJobExecutor.build_job_manifest(
        spec=spec, job_name="job", namespace="n", image="i", service_account=None, labels={}, backoff_limit=0,
        ttl_seconds_after_finished=None,
    )  # fmt: skip
    assert made["metadata"]["labels"]["ematix-flow/claim-token-short"] == "01234567"
    beats = HeartbeatThread(InMemoryRunLog(), "token", lease_seconds=60, interval_seconds=60)
    beats.start()
    beats.start()
    beats.stop()
    assert not beats.is_alive()


def test_normalizers_and_transforms_write_their_own_sql() -> None:
    """gaps L9"""
    assert normalize.lower().to_sql("name") == normalize.compose_chain([normalize.lower()], "name")
    assert "LIMIT 3" in normalize.limit(3).to_sql_wrap("SELECT 1")
    assert normalize.parse_timestamp().formats == normalize.DEFAULT_TIMESTAMP_FORMATS
    assert normalize.parse_date("YYYY").formats == ("YYYY",)
    assert repr(normalize.parse_timestamp()) == "parse_timestamp()"


def test_histories_have_a_length_and_summaries_the_step_that_failed(tmp_path: Path) -> None:
    """gaps L11"""
    kept = InMemoryRunHistory()
    assert (len(kept), bool(kept)) == (0, True)
    kept.record_run_record(RunRecord("1", "orders", "failed", now(), now(), failed_step="publish"))
    assert len(kept) == 1
    assert kept.list_runs()[0][0].to_summary_dict()["failed_step"] == "publish"
    kept.clear()
    assert len(kept) == 0
    assert pipeline.RunLog(tmp_path / "runs.db").last_runs() == {}


def test_a_recorder_starts_once_and_outlives_its_run_log() -> None:
    """gaps L12"""

    class Broken:
        def record_run_record(self, record: Any) -> None:
            raise OSError("no room")

    recorder = StreamingStatsRecorder(run_log=Broken(), pipeline_name="orders", metrics_port=1)  # type: ignore[arg-type]
    recorder.start()
    with pytest.raises(RuntimeError, match="already"):
        recorder.start()
    recorder.close(success=True)


@pytest.mark.parametrize(
    ("options", "said"), [({"delimiter": "§"}, "one ASCII character"), ({"has_header": "yes"}, "True or False")]
)
def test_options_of_csv_files_are_looked_at(options: dict[str, Any], said: str) -> None:
    """gaps L14"""
    with pytest.raises(ValueError, match=said):
        Source("lake", "events", csv_read_options=options)
    with pytest.raises(ValueError, match=said):
        Target("lake", prefix="events", csv_read_options=options)


def test_a_number_of_seconds_is_a_length_of_time() -> None:
    """gaps L15"""
    assert parse_duration("3600") == timedelta(hours=1)


def test_a_new_project_can_be_deployed(flow: Flow, project: Path) -> None:
    """gaps L16"""
    assert flow("init", "plain").code == 0
    assert not (project / "plain" / "Dockerfile").exists()
    assert flow("init", "shipped", "--deploy").code == 0
    for name in ("Dockerfile", "flow.service", ".github/workflows/flow.yml"):
        assert "flow" in (project / "shipped" / name).read_text()


def test_a_scheduler_may_look_at_the_clock_all_the_time(flow: Flow, shop: Path) -> None:
    """gaps L17"""
    done = flow("scheduler", "--executor", "inprocess://", "--poll-interval", "0", "--max-iterations", "2")
    assert done.code == 0, done.err


def test_a_schema_of_an_unknown_format_is_refused() -> None:
    """gaps L17"""
    from ematix_flow.connections import GlueSchemaRegistryConnection
    from ematix_flow.glue_schema_registry import fetch_schema_by_uuid

    class Glue:
        def get_schema_version(self, **_: Any) -> dict[str, Any]:
            return {"SchemaVersionId": "1", "DataFormat": "THRIFT", "SchemaDefinition": "", "Status": "AVAILABLE"}

    conn = GlueSchemaRegistryConnection("glue", registry_name="r", region="eu-west-1")
    with pytest.raises(ValueError, match="THRIFT"):
        fetch_schema_by_uuid(conn, "1", _client=Glue())


# The wording -----------------------------------------------------------------------------------------------------------


def test_errors_speak_of_primary_keys_nullable_columns_and_expressions() -> None:
    """gaps wording"""

    class People:
        pass

    People.__annotations__ = {"id": Annotated[BigInt, pk()], "mail": Annotated[Text, natural_key()]}
    table = ematix.table(schema="main", name="people")(People)
    with pytest.warns(UserWarning, match="primary key"):
        ematix.pipeline(target=table, mode="merge", name="warned_of_keys")(lambda: "SELECT 1")
    with pytest.raises(ValueError, match=r"T \| None"):
        normalize.default(None)
    with pytest.raises(ValueError, match=r"sql\("):
        normalize.default([1])
    with pytest.raises(ValueError, match="op_field, after_field, key_field, op_map are required"):
        CDC(envelope="custom")


def test_a_mail_says_recovered_in_its_subject() -> None:
    """gaps wording"""
    from ematix_flow.alerters import AlertEvent, EmailAlerter

    mail = EmailAlerter("mail", to=["x@y.z"]).message(AlertEvent("recovered", "orders", now()))
    assert "recovered" in mail["Subject"]


def test_metrics_on_the_terminal_are_marked() -> None:
    """gaps wording"""
    from ematix_flow.metrics import StdoutSink

    written = io.StringIO()
    sink = StdoutSink(written)
    sink.inc_runs("orders", "success")
    sink.close()
    assert written.getvalue().startswith("METRIC pipeline_runs_total{")
