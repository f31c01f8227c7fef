"""What a scheduler hands out, the protocol of executors, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ematix_flow.foundation.errors import FlowError


class DispatchError(FlowError, RuntimeError):
    """Raised when a worker could not be started."""

    retryable = True


@dataclass(frozen=True)
class DispatchSpec:
    """One run to execute. The worker takes it from the run log, so that a second worker cannot execute it as well."""

    pipeline_name: str
    module: str
    claim_token: str = ""
    """The token of a lease that is held already; without one the worker claims its own."""
    lease_seconds: int = 300
    run_log_url: str = ""
    alerter_urls: Sequence[str] = field(default_factory=list)
    metrics_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""
    """The requested run in the run log; without one the worker starts a new run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "alerter_urls", list(self.alerter_urls))


@dataclass(frozen=True)
class DispatchHandle:
    """A started worker; `ref` is the executor's own reference to it."""

    pipeline_name: str
    backend: str
    ref: object
    run_id: str = ""


@runtime_checkable
class Executor(Protocol):
    """Starts and stops workers."""

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start a worker and return at once; raise DispatchError when it cannot be started."""

    def cancel(self, handle: DispatchHandle) -> None:
        """Request the end of a worker; do nothing if it has ended."""

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether the worker has ended; None when the executor cannot find out."""

    def close(self, *, wait: bool) -> None:
        """Release the executor when the scheduler stops; with `wait`, wait for workers that would end with it."""


def worker_arguments(spec: DispatchSpec) -> list[str]:
    """Return the arguments of `flow` for a worker; they contain no secret, because any user can read a command line."""
    arguments = ["run", "--module", spec.module, "--lease-seconds", str(spec.lease_seconds)]
    if spec.claim_token:
        beat = max(1, spec.lease_seconds // 3)
        arguments += ["--claim-token", spec.claim_token, "--heartbeat-interval", str(beat)]
    if spec.run_id:
        arguments += ["--run-id", spec.run_id]
    return [*arguments, spec.pipeline_name]


def worker_environment(spec: DispatchSpec) -> dict[str, str]:
    """Return the worker's environment variables: run log, alerters, metrics, and those of the dispatch."""
    variables = dict(spec.env)
    if spec.run_log_url:
        variables["EMATIX_FLOW_RUN_LOG_URL"] = spec.run_log_url
    if spec.alerter_urls:
        variables["EMATIX_FLOW_ALERTERS"] = ",".join(spec.alerter_urls)
    if spec.metrics_url:
        variables["EMATIX_FLOW_METRICS"] = spec.metrics_url
    return variables


class DispatchRefused(DispatchError):
    """Raised when a worker could not be started and a retry cannot help without a change by the user."""

    retryable = False
