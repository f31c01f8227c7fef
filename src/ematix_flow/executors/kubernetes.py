"""Workers as Kubernetes jobs: one pod for each run."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ematix_flow.executors.kubernetes_jobs import KubernetesJobs
from ematix_flow.executors.protocol import DispatchHandle, DispatchSpec, worker_arguments, worker_environment
from ematix_flow.executors.secret_checks import refuse_plain_secrets
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import did_you_mean

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_OURS = {"app.kubernetes.io/name": "ematix-flow", "app.kubernetes.io/component": "worker"}
_LONGEST = 63
_LABEL_NAME = re.compile(r"(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


@dataclass(frozen=True)
class PodOptions:
    """The settings of a worker's pod besides its image."""

    env_from_secrets: tuple[str, ...] = ()
    """Secrets of the namespace whose entries become environment variables."""
    image_pull_policy: str | None = None
    image_pull_secret: str | None = None
    cpu: str | None = None
    memory: str | None = None
    """`cpu` and `memory` are both the request and the limit."""

    def __post_init__(self) -> None:
        policy = self.image_pull_policy
        if policy is not None and policy not in PULL_POLICIES:
            raise ConfigError(f"there is no image-pull-policy {policy!r}", hint=did_you_mean(policy, PULL_POLICIES))
        for name, amount, example in (("cpu", self.cpu, "500m or 2"), ("memory", self.memory, "512Mi or 4Gi")):
            if amount is not None and not _QUANTITY.fullmatch(amount):
                raise ConfigError(f"{name}={amount} is no amount that Kubernetes knows", hint=f"write {example}")
        for secret in (*self.env_from_secrets, *filter(None, [self.image_pull_secret])):
            if not _DNS_NAME.fullmatch(secret):
                raise ConfigError(
                    f"{secret!r} cannot be the name of a secret in Kubernetes",
                    hint="env-from-secret takes the name of a Secret of the namespace, not what it holds",
                )


class KubernetesJobExecutor:
    """One job per run; its name follows from the run, so that a second dispatch does not create a second job."""

    def __init__(
        self,
        *,
        namespace: str,
        image: str,
        service_account: str | None = None,
        api_client: Any = None,
        labels: dict[str, str] | None = None,
        backoff_limit: int = 0,
        ttl_seconds_after_finished: int | None = 3600,
        pod: PodOptions | None = None,
    ) -> None:
        _check(namespace, image, service_account, labels or {})
        self._settings: dict[str, Any] = {
            "namespace": namespace,
            "image": image,
            "service_account": service_account,
            "labels": dict(labels or {}),
            "backoff_limit": backoff_limit,
            "ttl_seconds_after_finished": ttl_seconds_after_finished,
            "pod": pod,
        }
        self._jobs = KubernetesJobs(namespace, api_client)

    def check(self, spec: DispatchSpec) -> None:
        """Build the manifest and connect, so that errors of the configuration are raised before the first run."""
        self._manifest(spec)
        self._jobs.connect()

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Create the run's job, unless it exists."""
        manifest = self._manifest(spec)
        self._jobs.create(manifest)
        return DispatchHandle(spec.pipeline_name, "kubernetes", manifest["metadata"]["name"], spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """Delete the job; its pod receives SIGTERM, rolls back and records the run."""
        self._jobs.delete(str(handle.ref))

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether the job is complete, has failed or is gone; None while the API server does not answer."""
        return self._jobs.has_ended(str(handle.ref))

    def close(self, *, wait: bool) -> None:
        """Do nothing: jobs continue, and the next leader finds their runs in the run log."""

    def _manifest(self, spec: DispatchSpec) -> dict[str, Any]:
        return self.build_job_manifest(spec=spec, job_name=job_name(spec), **self._settings)

    @staticmethod
    def build_job_manifest(
        *,
        spec: DispatchSpec,
        job_name: str,
        namespace: str,
        image: str,
        service_account: str | None,
        labels: dict[str, str],
        backoff_limit: int,
        ttl_seconds_after_finished: int | None,
        pod: PodOptions | None = None,
    ) -> dict[str, Any]:
        """Return the `batch/v1` job for the API server; raise DispatchRefused if it would contain a plain secret."""
        options = pod or PodOptions()
        metadata = _metadata(spec, labels)
        pod_spec = {
            "restartPolicy": "Never",
            "containers": [_container(spec, image, options)],
            **({"serviceAccountName": service_account} if service_account else {}),
            **({"imagePullSecrets": [{"name": options.image_pull_secret}]} if options.image_pull_secret else {}),
        }
        ttl = {} if ttl_seconds_after_finished is None else {"ttlSecondsAfterFinished": ttl_seconds_after_finished}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job_name, "namespace": namespace, **metadata},
            "spec": {"backoffLimit": backoff_limit, **ttl, "template": {"metadata": metadata, "spec": pod_spec}},
        }


def job_name(spec: DispatchSpec) -> str:
    """Return a readable job name that is unique per run, and the same for each dispatch of a run.

    >>> job_name(DispatchSpec("Load Orders!", "pipelines", run_id="r1"))
    'flow-load-orders-81b6b14d730e'
    """
    of = spec.run_id or spec.claim_token or uuid.uuid4().hex
    tail = hashlib.sha256(f"{spec.pipeline_name}|{of}".encode()).hexdigest()[:12]
    word = re.sub(r"[^a-z0-9]+", "-", spec.pipeline_name.lower()).strip("-")
    room = _LONGEST - len(f"flow--{tail}")
    return "-".join(part for part in ("flow", word[:room].strip("-"), tail) if part)


def _metadata(spec: DispatchSpec, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return labels, for selection, with shortened names, and annotations with the full names."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.pipeline_name)[:_LONGEST].strip("-._")
    annotations = {"ematix-flow/pipeline": spec.pipeline_name, "ematix-flow/run-id": spec.run_id}
    own = {"ematix-flow/pipeline": word, "ematix-flow/claim-token-short": spec.claim_token[:8].strip("-._")}
    return {
        "labels": {**_OURS, **{name: text for name, text in own.items() if text}, **labels},
        "annotations": {name: text for name, text in annotations.items() if text},
    }


def _container(spec: DispatchSpec, image: str, options: PodOptions) -> dict[str, Any]:
    variables = worker_environment(spec)
    refuse_plain_secrets(
        variables,
        seen_in="the job",
        give="name the Secret of Kubernetes that has this variable in the executor's address, as env-from-secret",
    )
    resources = {name: amount for name, amount in (("cpu", options.cpu), ("memory", options.memory)) if amount}
    sources = [{"secretRef": {"name": name}} for name in options.env_from_secrets]
    return {
        "name": "worker",
        "image": image,
        "command": ["flow"],
        "args": [_literal(word) for word in worker_arguments(spec)],
        "env": [{"name": name, "value": _literal(value)} for name, value in variables.items()],
        **({"envFrom": sources} if sources else {}),
        **({"imagePullPolicy": options.image_pull_policy} if options.image_pull_policy else {}),
        **({"resources": {"requests": resources, "limits": dict(resources)}} if resources else {}),
    }


def _literal(text: str) -> str:
    """Escape `$(VAR)`, which Kubernetes would expand; `${VAR}` is expanded by the worker."""
    return text.replace("$(", "$$(")


def _check(namespace: str, image: str, account: str | None, labels: Mapping[str, str]) -> None:
    if not _DNS_LABEL.fullmatch(namespace):
        raise ConfigError(
            f"{namespace!r} cannot be a namespace of Kubernetes",
            hint="small letters, digits and - only: k8s://etl?image=registry/flow:1",
        )
    if not image or re.search(r"\s", image):
        raise ConfigError("no image is set for the workers", hint=f"write k8s://{namespace}?image=registry/flow:1")
    if account is not None and not _DNS_NAME.fullmatch(account):
        raise ConfigError(f"{account!r} cannot be a service account of Kubernetes", hint="use its name: sa=flow-worker")
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise ConfigError(
                f"{name}={value} cannot be a label of Kubernetes", hint="write label=team=data, 63 characters at most"
            )
