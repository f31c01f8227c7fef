"""What a scheduler hands out, and what carries it out: one run, in a process that is not the scheduler's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ematix_flow.foundation.errors import FlowError


class DispatchError(FlowError, RuntimeError):
    """A worker could not be started."""

    retryable = True


@dataclass(frozen=True)
class DispatchSpec:
    """One run to carry out. The worker takes the run out of the run log: a second worker finds it taken."""

    pipeline_name: str
    module: str
    claim_token: str = ""
    """A lease that is already held; without one the worker claims its own."""
    lease_seconds: int = 300
    run_log_url: str = ""
    alerter_urls: Sequence[str] = field(default_factory=list)
    metrics_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""
    """The requested run in the run log; without one the worker begins a run of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "alerter_urls", list(self.alerter_urls))


@dataclass(frozen=True)
class DispatchHandle:
    """A worker on its way; `ref` is what its executor knows it by."""

    pipeline_name: str
    backend: str
    ref: object
    run_id: str = ""


@runtime_checkable
class Executor(Protocol):
    """Starts workers and ends them."""

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start a worker and come back at once; a DispatchError when it cannot be started."""

    def cancel(self, handle: DispatchHandle) -> None:
        """Ask a worker to end; one that has ended is left alone."""

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Whether the worker is over; None when the executor cannot know."""

    def close(self, *, wait: bool) -> None:
        """The scheduler stops: wait for workers that would die with it; others live on."""


def worker_arguments(spec: DispatchSpec) -> list[str]:
    """What follows `flow` on a worker's command line: never a secret, because everybody can read it."""
    arguments = ["run", "--module", spec.module, "--lease-seconds", str(spec.lease_seconds)]
    if spec.claim_token:
        beat = max(1, spec.lease_seconds // 3)
        arguments += ["--claim-token", spec.claim_token, "--heartbeat-interval", str(beat)]
    if spec.run_id:
        arguments += ["--run-id", spec.run_id]
    return [*arguments, spec.pipeline_name]


def worker_environment(spec: DispatchSpec) -> dict[str, str]:
    """Where the worker's run log, alerters and metrics are, and what else it is told."""
    told = dict(spec.env)
    if spec.run_log_url:
        told["EMATIX_FLOW_RUN_LOG_URL"] = spec.run_log_url
    if spec.alerter_urls:
        told["EMATIX_FLOW_ALERTERS"] = ",".join(spec.alerter_urls)
    if spec.metrics_url:
        told["EMATIX_FLOW_METRICS"] = spec.metrics_url
    return told
