"""Jobs of a Kubernetes API server, through the official client, with readable errors."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ematix_flow.executors.protocol import DispatchError, DispatchRefused
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.packages import require_package
from ematix_flow.foundation.redact import mask

CONNECT_SECONDS, ANSWER_SECONDS = 5, 30
LOOK_SECONDS = 3.0
"""Seconds for which a state is cached: a scheduler checks its workers several times a second."""
_TIMEOUT = (CONNECT_SECONDS, ANSWER_SECONDS)
_ENDED = ("Complete", "Failed")
_CONFLICT, _MISSING = 409, 404
_NEXT = {
    400: "look at the options of k8s://… (docs/executors.md)",
    401: "log in again: kubectl cluster-info; inside a pod, its service account needs a token",
    403: "let the scheduler's service account create, get and delete jobs there: deploy/kubernetes/scheduler.yaml",
    404: "create the namespace, or correct it in k8s://<namespace>?image=…",
    422: "look at the options of k8s://… (docs/executors.md)",
}
_TRY_AGAIN = "the API server is busy or restarts; the next round of the scheduler tries again"
_NO_CONTACT = "check the address and the network: kubectl cluster-info"


def require_client() -> Any:
    """Return the client's module; raise an error that names the extra to install if it is missing."""
    return require_package("kubernetes.client", what="k8s://", extra="executor-k8s")


class KubernetesJobs:
    """The jobs of one namespace; the API server is located at the first request."""

    def __init__(self, namespace: str, api_client: Any = None) -> None:
        self._namespace = namespace
        self._api_client = api_client
        self._connected: Any = None
        self._looked: dict[str, tuple[float, bool | None]] = {}
        self._silent_until = 0.0

    def connect(self) -> None:
        """Find the API server's address and the login, without a request."""
        _ = self._api

    def create(self, manifest: dict[str, Any]) -> None:
        """Create the job; a running job of that name is kept, an ended one is replaced."""
        name = manifest["metadata"]["name"]
        if self._created(manifest) or not self._has_ended_now(name):
            return
        self.delete(name)
        if not self._created(manifest):
            raise DispatchError(
                f"the ended job {name} in {self._namespace} is still being deleted",
                hint=f"the next round tries again; if it stays: kubectl delete job {name} -n {self._namespace}",
            )

    def has_ended(self, name: str) -> bool | None:
        """Return whether the job is complete, has failed or is gone, at most `LOOK_SECONDS` ago; None if unknown."""
        now = time.monotonic()
        looked_at, answer = self._looked.get(name, (-LOOK_SECONDS, None))
        if now - looked_at < LOOK_SECONDS:
            return answer
        if now < self._silent_until:
            return None
        answer = self._has_ended_now(name)
        if answer is None:  # other jobs would wait for the same timeout
            self._silent_until = time.monotonic() + LOOK_SECONDS
        elif answer:
            self._looked.pop(name, None)
        else:
            self._looked[name] = (now, answer)
        return answer

    def _has_ended_now(self, name: str) -> bool | None:
        try:
            job = self._api.read_namespaced_job(name, self._namespace, _request_timeout=_TIMEOUT)
        except FlowError:
            raise
        except Exception as error:
            return True if _status(error) == _MISSING else None
        conditions = getattr(job.status, "conditions", None) or ()
        return any(condition.type in _ENDED and condition.status == "True" for condition in conditions)

    def delete(self, name: str) -> None:
        """Delete the job and its pod, which receives SIGTERM first."""
        self._looked.pop(name, None)
        try:
            self._api.delete_namespaced_job(
                name, self._namespace, propagation_policy="Background", _request_timeout=_TIMEOUT
            )
        except FlowError:
            raise
        except Exception as error:
            if _status(error) != _MISSING:
                raise self._to_error(error, f"the job {name} was not deleted") from error

    def _created(self, manifest: dict[str, Any]) -> bool:
        try:
            self._api.create_namespaced_job(self._namespace, manifest, _request_timeout=_TIMEOUT)
        except FlowError:
            raise
        except Exception as error:
            if _status(error) == _CONFLICT:
                return False
            raise self._to_error(error, f"the job {manifest['metadata']['name']} was not created") from error
        return True

    @property
    def _api(self) -> Any:
        if self._connected is None:
            api_client = self._api_client if self._api_client is not None else _client()
            is_batch = hasattr(api_client, "create_namespaced_job")
            self._connected = api_client if is_batch else require_client().BatchV1Api(api_client)
        return self._connected

    def _to_error(self, error: Exception, what: str) -> DispatchError:
        status = _status(error)
        if status is None:
            reason = mask(str(getattr(error, "reason", None) or error))
            return DispatchError(f"{what}: the Kubernetes API server does not answer: {reason}", hint=_NO_CONTACT)
        sentence = f"{what} in {self._namespace}: {_server_message(error)}"
        if status in _NEXT:
            return DispatchRefused(sentence, hint=_NEXT[status])
        return DispatchError(sentence, hint=_TRY_AGAIN)


def _status(error: Exception) -> int | None:
    """Return the HTTP status of the API server's answer; None when there was none."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and status else None


def _server_message(error: Exception) -> str:
    """Return the server's own message, which is inside a JSON document."""
    try:
        message = json.loads(getattr(error, "body", None) or "{}")["message"]
    except (ValueError, KeyError, TypeError):
        message = getattr(error, "reason", None) or type(error).__name__
    return mask(str(message))


def _client() -> Any:
    """Return a client for the cluster that this pod belongs to, or else for that of the kubeconfig."""
    client = require_client()
    config = require_package("kubernetes.config", what="k8s://", extra="executor-k8s")
    configuration = client.Configuration()
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
        else:
            # Passed explicitly, because the client reads the variable only once, when it is imported.
            config.load_kube_config(
                config_file=os.environ.get("KUBECONFIG") or None, client_configuration=configuration
            )
    except (config.ConfigException, OSError) as error:
        raise DispatchRefused(
            f"no Kubernetes cluster is known here: {mask(str(error))}",
            hint="set KUBECONFIG, or run the scheduler in the cluster (deploy/kubernetes/scheduler.yaml)",
        ) from None
    configuration.retries = 1  # the scheduler's next polling cycle is the retry
    return client.ApiClient(configuration)
