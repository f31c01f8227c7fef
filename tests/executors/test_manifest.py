"""The manifest of a worker's job, without a server."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.executors import (
    DispatchSpec,
    KubernetesJobExecutor,
    LambdaExecutor,
    SparkSubmitExecutor,
    executor_from_url,
)
from ematix_flow.executors.kubernetes import job_name
from ematix_flow.executors.protocol import DispatchRefused
from ematix_flow.foundation import redact


def manifest(**fields: Any) -> dict[str, Any]:
    spec = DispatchSpec(**{"pipeline_name": "people", "module": "pipelines", **fields})
    return KubernetesJobExecutor.build_job_manifest(
        spec=spec, job_name=job_name(spec), namespace="etl", image="flow:1", service_account=None, labels={},
        backoff_limit=0, ttl_seconds_after_finished=None,
    )  # fmt: skip


@given(pipeline=st.text(min_size=1), run_id=st.text())
def test_every_pipeline_and_run_has_a_name_that_kubernetes_takes(pipeline: str, run_id: str) -> None:
    name = job_name(DispatchSpec(pipeline, "pipelines", run_id=run_id, claim_token="t"))
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name == job_name(DispatchSpec(pipeline, "pipelines", run_id=run_id, claim_token="t"))


def test_runs_have_different_names_and_a_run_without_id_has_one_of_its_own() -> None:
    names = {job_name(DispatchSpec("people", "pipelines", run_id=run)) for run in ("r1", "r2", "", "")}
    assert len(names) == 4
    assert job_name(DispatchSpec("people", "m", claim_token="t")) == job_name(
        DispatchSpec("people", "m", claim_token="t")
    )


def test_long_names_differ_although_they_begin_alike() -> None:
    one, other = (job_name(DispatchSpec("p" * 200 + end, "pipelines", run_id="r")) for end in "ab")
    assert one != other
    assert len(one) == 63


@pytest.mark.parametrize(
    "fields",
    [
        {"run_log_url": "postgres://flow:hunter22@db/flow"},
        {"run_log_url": "postgres://db/flow?user=flow&password=hunter22"},
        {"alerter_urls": ("stdout://", "email://ana:hunter22@mail/?to=ops@example.com")},
        {"alerter_urls": ("slack://hooks.slack.com/services/T0/B0/hunter22",)},
        {"alerter_urls": ("https://hooks.slack.com/services/T0/B0/hunter22",)},
        {"alerter_urls": ("pagerduty://hunter22",)},
        {"env": {"WAREHOUSE_PASSWORD": "hunter22"}},
        {"env": {"WAREHOUSE_URL": "mysql://ana:hunter22@db/shop"}},
    ],
)
def test_a_password_in_plain_text_is_refused_with_the_way_out(fields: dict[str, Any]) -> None:
    with pytest.raises(DispatchRefused) as caught:
        manifest(**fields)
    assert "hunter22" not in str(caught.value)
    assert "${VAR}" in str(caught.value)
    assert "as env-from-secret" in str(caught.value)


def test_a_password_is_refused_before_the_first_run() -> None:
    spec = DispatchSpec("people", "pipelines", run_log_url="postgres://flow:hunter22@db/flow")
    for made in (
        KubernetesJobExecutor(namespace="etl", image="flow:1", api_client=object()),
        LambdaExecutor(function_name="flow-worker", client=object()),
        SparkSubmitExecutor(master="yarn", deploy_mode="cluster"),
    ):
        with pytest.raises(DispatchRefused, match=r"\$\{VAR\}"):
            made.check(spec)
    SparkSubmitExecutor(master="yarn").check(spec)  # its driver has the scheduler's own variables


def test_a_secret_that_this_process_knows_is_refused_wherever_it_stands() -> None:
    redact.remember_secret("hunter22-known")
    with pytest.raises(DispatchRefused, match="NOTE"):
        manifest(env={"NOTE": "it is hunter22-known"})


def test_references_are_no_secrets() -> None:
    made = manifest(
        run_log_url="postgres://flow:${RUN_LOG_PASSWORD}@db/flow",
        alerter_urls=("slack://hooks.slack.com/${SLACK_PATH}", "pagerduty://${PAGERDUTY_KEY}", "stdout://"),
        env={"API_TOKEN": "${vault:api#token}"},
    )
    (worker,) = made["spec"]["template"]["spec"]["containers"]
    told = {variable["name"]: variable["value"] for variable in worker["env"]}
    assert told["EMATIX_FLOW_RUN_LOG_URL"] == "postgres://flow:${RUN_LOG_PASSWORD}@db/flow"
    assert told["EMATIX_FLOW_ALERTERS"].split(",")[1] == "pagerduty://${PAGERDUTY_KEY}"
    assert "ttlSecondsAfterFinished" not in made["spec"]


def test_without_the_client_there_is_a_sentence_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(ImportError, match=r"ematix-flow-spark\[executor-k8s\]"):
        executor_from_url("k8s://etl?image=flow:1")
