"""Runs as jobs of a real Kubernetes API server. Nobody there runs them: where a test needs that, it plays the part of
the kubelet and of the job controller itself, by the same API."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.executors import (
    DispatchError,
    DispatchHandle,
    KubernetesJobExecutor,
    executor_from_url,
    kubernetes_jobs,
)
from ematix_flow.executors.kubernetes import PodOptions
from ematix_flow.executors.protocol import DispatchRefused
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.urls import from_url
from tests.executors.sample import PEOPLE, people_in, spec_of

client = pytest.importorskip("kubernetes.client", reason="the extra executor-k8s is not installed: make setup")
IMAGE = "registry.example/flow:1"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes, the executor sees in its next look."""
    monkeypatch.setattr(kubernetes_jobs, "LOOK_SECONDS", 0.0)


@pytest.fixture
def jobs(cluster: Any) -> Any:
    return client.BatchV1Api(cluster)


@pytest.fixture
def executor(namespace: str) -> KubernetesJobExecutor:
    """As a scheduler makes it: the server is found by the kubeconfig."""
    made = executor_from_url(f"k8s://{namespace}?image={IMAGE}")
    assert isinstance(made, KubernetesJobExecutor)
    return made


def test_the_same_run_dispatched_twice_is_one_job(
    executor: KubernetesJobExecutor, jobs: Any, namespace: str, project: Path
) -> None:
    spec = spec_of("people", project, run_id="run-1")
    first, second = executor.dispatch(spec), executor.dispatch(spec)
    assert first == second
    assert [job.metadata.name for job in jobs.list_namespaced_job(namespace).items] == [first.ref]
    other = executor.dispatch(spec_of("people", project, run_id="run-2"))
    assert len({first.ref, other.ref}) == 2
    assert len(jobs.list_namespaced_job(namespace).items) == 2


def test_a_job_has_what_its_worker_needs(namespace: str, jobs: Any, cluster: Any, project: Path) -> None:
    url = f"k8s://{namespace}?image={IMAGE}&sa=loader&env-from-secret=warehouse&env-from-secret=alerts"
    made = executor_from_url(f"{url}&cpu=500m&memory=2Gi&label=team=data&image-pull-policy=Always&ttl=60")
    spec = spec_of(
        "people", project, run_id="run-1", metrics_url="otlp://collector:4317", env={"NOTE": "$(HOME) ${HOME}"}
    )
    name = str(made.dispatch(spec).ref)
    job = jobs.read_namespaced_job(name, namespace)
    pod = job.spec.template.spec
    (worker,) = pod.containers
    assert (worker.command, worker.args[:3]) == (["flow"], ["run", "--module", str(project / "pipelines.py")])
    assert worker.args[-3:] == ["--run-id", "run-1", "people"]
    told = {variable.name: variable.value for variable in worker.env}
    assert told["EMATIX_FLOW_RUN_LOG_URL"] == str(project / "run_log.db")
    assert told["EMATIX_FLOW_METRICS"] == "otlp://collector:4317"
    assert told["NOTE"] == "$$(HOME) ${HOME}"
    assert [source.secret_ref.name for source in worker.env_from] == ["warehouse", "alerts"]
    assert worker.resources.limits == worker.resources.requests == {"cpu": "500m", "memory": "2Gi"}
    assert (worker.image, worker.image_pull_policy) == (IMAGE, "Always")
    assert (pod.service_account_name, pod.restart_policy) == ("loader", "Never")
    assert (job.spec.backoff_limit, job.spec.ttl_seconds_after_finished) == (0, 60)
    assert job.metadata.annotations["ematix-flow/run-id"] == "run-1"
    found = jobs.list_namespaced_job(namespace, label_selector="team=data,ematix-flow/pipeline=people")
    assert [item.metadata.name for item in found.items] == [name]


@pytest.mark.parametrize("outcome", ["Complete", "Failed"])
def test_a_job_has_ended_when_its_conditions_say_so(
    executor: KubernetesJobExecutor, jobs: Any, namespace: str, project: Path, outcome: str
) -> None:
    handle = executor.dispatch(spec_of("people", project, run_id="run-1"))
    assert executor.has_ended(handle) is False
    conclude(jobs, namespace, handle, outcome)
    assert executor.has_ended(handle) is True


def test_many_looks_at_a_job_are_one_question(
    jobs: Any, namespace: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_jobs, "LOOK_SECONDS", 60.0)

    class Counting(client.BatchV1Api):  # type: ignore[misc,name-defined]
        asked = 0

        def read_namespaced_job(self, *args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return super().read_namespaced_job(*args, **kwargs)

    counting = Counting(jobs.api_client)
    made = KubernetesJobExecutor(namespace=namespace, image=IMAGE, api_client=counting)
    handle = made.dispatch(spec_of("people", project, run_id="run-1"))
    assert [made.has_ended(handle) for _ in range(50)] == [False] * 50
    assert counting.asked == 1
    made.cancel(handle)
    assert made.has_ended(handle) is True


def test_a_cancelled_job_is_gone_and_can_be_cancelled_again(
    executor: KubernetesJobExecutor, jobs: Any, namespace: str, project: Path
) -> None:
    handle = executor.dispatch(spec_of("people", project, run_id="run-1"))
    executor.cancel(handle)
    assert jobs.list_namespaced_job(namespace).items == []
    assert executor.has_ended(handle) is True
    executor.cancel(handle)


def test_a_run_whose_job_failed_before_it_began_gets_a_new_one(
    executor: KubernetesJobExecutor, jobs: Any, namespace: str, project: Path
) -> None:
    spec = spec_of("people", project, run_id="run-1")
    handle = executor.dispatch(spec)
    first = jobs.read_namespaced_job(handle.ref, namespace).metadata.uid
    conclude(jobs, namespace, handle, "Failed")
    assert executor.dispatch(spec) == handle
    assert jobs.read_namespaced_job(handle.ref, namespace).metadata.uid != first
    assert executor.has_ended(handle) is False


def test_what_the_job_says_really_runs_and_only_once(
    executor: KubernetesJobExecutor, jobs: Any, namespace: str, project: Path
) -> None:
    """The test is the kubelet, and starts it twice, as a kubelet may."""
    run_log = from_url(str(project / "run_log.db"))
    run_log.offer_run(RunRecord("run-1", "people", "requested", datetime.now(timezone.utc)))
    handle = executor.dispatch(spec_of("people", project, run_id="run-1"))
    worker = container(jobs.read_namespaced_job(handle.ref, namespace))
    first = play_kubelet(worker)
    assert first.returncode == 0, first.stdout + first.stderr
    assert play_kubelet(worker).returncode != 0
    assert people_in(project) == PEOPLE
    record = run_log.get_run("run-1")
    assert record is not None
    assert record.status == "succeeded"
    conclude(jobs, namespace, handle, "Complete")
    assert executor.has_ended(handle) is True


def test_what_a_scheduler_fires_becomes_a_job_that_leads_back_to_the_run_log(
    jobs: Any, namespace: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flow scheduler` itself; the test is the kubelet."""
    monkeypatch.setenv("RUNS", str(project))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ematix_flow.cli", "scheduler", "--module", str(project / "pipelines.py")),
            *("--executor", f"k8s://{namespace}?image={IMAGE}&env-from-secret=flow", "--max-iterations", "1"),
            *("--poll-interval", "1", "--interval", "120", "--run-log", "sqlite:///${RUNS}/run_log.db"),
        ],
        env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = jobs.list_namespaced_job(namespace, label_selector="ematix-flow/pipeline=ticks").items
    worker = container(job)
    told = {variable.name: variable.value for variable in worker.env}
    assert told["EMATIX_FLOW_RUN_LOG_URL"] == "sqlite:///${RUNS}/run_log.db"
    ran = play_kubelet(worker)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = from_url(str(project / "run_log.db")).get_run(job.metadata.annotations["ematix-flow/run-id"])
    assert record is not None
    assert (record.pipeline, record.status) == ("ticks", "succeeded")


def container(job: Any) -> Any:
    (found,) = job.spec.template.spec.containers
    assert found.command == ["flow"]
    return found


def play_kubelet(worker: Any) -> subprocess.CompletedProcess[str]:
    """Start the container's words with the container's variables."""
    return subprocess.run(
        [sys.executable, "-m", "ematix_flow.cli", *worker.args],
        env={**os.environ, **{variable.name: variable.value for variable in worker.env}},
        cwd="/", capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


# -- what the server refuses


def test_a_namespace_that_is_not_there_is_an_error_with_the_next_step(cluster: Any, project: Path) -> None:
    with pytest.raises(DispatchRefused) as caught:
        executor_from_url(f"k8s://nowhere?image={IMAGE}").dispatch(spec_of("people", project))
    assert 'namespaces "nowhere" not found' in str(caught.value)
    assert "create the namespace" in str(caught.value)


def test_what_the_server_finds_wrong_is_reported_in_its_words(executor: KubernetesJobExecutor, project: Path) -> None:
    with pytest.raises(DispatchRefused, match=r"a=b"):
        executor.dispatch(spec_of("people", project, env={"a=b": "x"}))


def test_for_a_service_account_without_the_right_the_error_names_where_the_rights_are(
    cluster: Any, namespace: str, project: Path
) -> None:
    nobody = as_account(cluster, namespace, "nobody")
    made = KubernetesJobExecutor(namespace=namespace, image=IMAGE, api_client=nobody)
    with pytest.raises(DispatchRefused, match=r"deploy/kubernetes/scheduler\.yaml") as caught:
        made.dispatch(spec_of("people", project))
    assert "cannot create resource" in str(caught.value)
    assert made.has_ended(DispatchHandle("people", "kubernetes", "flow-people-0")) is None


def test_a_server_that_does_not_answer_is_worth_another_try(project: Path) -> None:
    known = client.Configuration(host="http://127.0.0.1:9")
    known.retries = False
    made = KubernetesJobExecutor(namespace="etl", image=IMAGE, api_client=client.ApiClient(known))
    began = time.monotonic()
    with pytest.raises(DispatchError, match="does not answer") as caught:
        made.dispatch(spec_of("people", project))
    assert caught.value.retryable
    assert time.monotonic() - began < 60
    handle = DispatchHandle("people", "kubernetes", "flow-people-0")
    assert made.has_ended(handle) is None
    assert made.has_ended(handle) is None
    with pytest.raises(DispatchError, match="does not answer"):
        made.cancel(handle)


def test_without_a_cluster_there_is_a_sentence(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    made = executor_from_url(f"k8s://etl?image={IMAGE}")
    assert isinstance(made, KubernetesJobExecutor)
    for ask in (made.check, made.dispatch):
        with pytest.raises(DispatchError, match="set KUBECONFIG"):
            ask(spec_of("people", project))


# -- the scheduler's own place in the cluster

DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scheduler.yaml"


def test_the_server_takes_our_deployment_and_its_role_is_enough(
    cluster: Any, jobs: Any, namespace: str, project: Path
) -> None:
    from kubernetes import utils

    documents = place_in(namespace)
    assert {document["kind"] for document in documents} >= {"ServiceAccount", "Role", "RoleBinding", "Deployment"}
    for document in documents:
        utils.create_from_dict(cluster, document)
    scheduler = as_account(cluster, namespace, "flow-scheduler")
    made = KubernetesJobExecutor(namespace=namespace, image=IMAGE, api_client=scheduler)
    handle = made.dispatch(spec_of("people", project, run_id="run-1"))
    assert made.has_ended(handle) is False
    conclude(jobs, namespace, handle, "Failed")
    assert made.dispatch(spec_of("people", project, run_id="run-1")) == handle
    made.cancel(handle)
    assert made.has_ended(handle) is True
    with pytest.raises(client.ApiException) as caught:
        client.CoreV1Api(scheduler).list_namespaced_secret(namespace)
    assert caught.value.status == 403


def test_a_scheduler_in_a_pod_speaks_as_its_service_account(
    cluster: Any, jobs: Any, namespace: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token that the server itself made out; only its place, which a kubelet would mount, is the test's."""
    from kubernetes import utils
    from kubernetes.config import incluster_config

    for document in place_in(namespace):
        utils.create_from_dict(cluster, document)
    wanted = {"spec": {"audiences": ["https://127.0.0.1"]}}
    made_out = client.CoreV1Api(cluster).create_namespaced_service_account_token("flow-scheduler", namespace, wanted)
    token = tmp_path / "token"
    token.write_text(made_out.status.token)
    server = cluster.configuration.host.removeprefix("https://")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.partition(":")[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.partition(":")[2])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", cluster.configuration.ssl_ca_cert)
    monkeypatch.delenv("KUBECONFIG")
    executor = executor_from_url(f"k8s://{namespace}?image={IMAGE}")
    handle = executor.dispatch(spec_of("people", project, run_id="run-1"))
    assert [job.metadata.name for job in jobs.list_namespaced_job(namespace).items] == [handle.ref]
    token.write_text("not a token")
    again = executor_from_url(f"k8s://{namespace}?image={IMAGE}")
    with pytest.raises(DispatchRefused, match="needs a token"):
        again.dispatch(spec_of("people", project, run_id="run-2"))


def place_in(namespace: str) -> list[dict[str, Any]]:
    """The documents of our file, in this test's namespace."""
    import yaml

    found = [document for document in yaml.safe_load_all(DEPLOYMENT.read_text()) if document["kind"] != "Namespace"]
    for document in found:
        document["metadata"]["namespace"] = namespace
        for subject in document.get("subjects", ()):
            subject["namespace"] = namespace
    return found


def as_account(cluster: Any, namespace: str, name: str) -> Any:
    """A client that speaks for a service account: Kubernetes lets an administrator do that."""
    speaker = client.ApiClient(cluster.configuration)
    speaker.set_default_header("Impersonate-User", f"system:serviceaccount:{namespace}:{name}")
    return speaker


def conclude(jobs: Any, namespace: str, handle: DispatchHandle, outcome: str) -> None:
    """What the job controller writes when the pod has ended."""
    began = "2026-11-16T02:00:00Z"
    first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[outcome]
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": began, "lastTransitionTime": began}
        for kind in (first, outcome)
    ]
    ended = {"completionTime": began, "succeeded": 1} if outcome == "Complete" else {"failed": 1}
    status = {"startTime": began, "conditions": conditions, "uncountedTerminatedPods": {}, **ended}
    jobs.patch_namespaced_job_status(handle.ref, namespace, {"status": status})


def test_the_server_of_these_tests_listens_on_loopback_only(cluster: Any) -> None:
    assert listeners(cluster.configuration.host) == {"0100007F"}


def listeners(url: str) -> set[str]:
    port = f"{int(url.rpartition(':')[2]):04X}"
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {words[1].partition(":")[0] for words in lines if words[1].endswith(f":{port}") and words[3] == "0A"}


def test_pod_options_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="image-pull-policy"):
        PodOptions(image_pull_policy="always")
