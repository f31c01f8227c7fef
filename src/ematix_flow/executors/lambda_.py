"""Workers as invocations of an AWS Lambda function."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ematix_flow.executors.protocol import (
    DispatchError,
    DispatchHandle,
    DispatchRefused,
    DispatchSpec,
    worker_arguments,
    worker_environment,
)
from ematix_flow.executors.secret_checks import refuse_plain_secrets
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.packages import require_package
from ematix_flow.foundation.redact import mask

ACCEPTED = 202
_CREDENTIALS = "give credentials that may lambda:InvokeFunction: AWS_ACCESS_KEY_ID …, a profile or a role"
_NEXT = {
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    404: "look at its name, qualifier and region: aws lambda get-function --function-name …",
    413: "an event holds 256 KB; hand the worker fewer variables",
}
_NO_LOGIN = ("NoCredentialsError", "PartialCredentialsError")
_TRY_AGAIN = "the next round of the scheduler tries again"


def require_client() -> Any:
    """Return boto3; raise an error that names the extra to install if it is missing."""
    return require_package("boto3", what="lambda://", extra="executor-lambda")


class LambdaExecutor:
    """One event per run; the function's handler is `ematix_flow.executors.lambda_handler.handler`."""

    def __init__(
        self,
        *,
        function_name: str,
        client: Any = None,
        qualifier: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        if not function_name.strip():
            raise ConfigError("lambda:// names no function", hint="write lambda://my-function")
        self._function = function_name
        self._qualifier = qualifier
        self._client = client
        self._region, self._endpoint = region, endpoint

    def check(self, spec: DispatchSpec) -> None:
        """Build an event and the client, so that errors of the configuration are raised before the first run."""
        self.build_event_payload(spec)
        self._connected()

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Send the event; Lambda only confirms that it received it."""
        event = json.dumps(self.build_event_payload(spec)).encode()
        invocation = {"FunctionName": self._function, "InvocationType": "Event", "Payload": event}
        if self._qualifier:
            invocation["Qualifier"] = self._qualifier
        answer = self._invoke(invocation, spec)
        status = answer.get("StatusCode")
        if status != ACCEPTED:
            raise DispatchError(
                f"Lambda did not take {spec.pipeline_name}: it answered {status} and not {ACCEPTED}",
                hint=f"look at the function {self._function} and at its limits; {_TRY_AGAIN}",
            )
        request = answer.get("ResponseMetadata", {}).get("RequestId", "")
        return DispatchHandle(spec.pipeline_name, "lambda", request, spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """Do nothing: an invocation cannot be ended from outside, and runs until it is done or its time is up."""

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return None: Lambda does not report the end of an invocation; the run log does."""
        return None

    def close(self, *, wait: bool) -> None:
        """Do nothing: invocations continue, and the next leader finds their runs in the run log."""

    @staticmethod
    def build_event_payload(spec: DispatchSpec) -> dict[str, Any]:
        """Return the event: the run to execute, the arguments of `flow`, and the environment variables to set."""
        variables = worker_environment(spec)
        refuse_plain_secrets(variables, seen_in="the event", give="give the function that variable")
        return {**asdict(spec), "env": variables, "argv": worker_arguments(spec)}

    def _invoke(self, request: dict[str, Any], spec: DispatchSpec) -> dict[str, Any]:
        client = self._connected()
        try:
            answer: dict[str, Any] = client.invoke(**request)
        except Exception as error:
            raise self._to_error(error, spec) from error
        return answer

    def _connected(self) -> Any:
        """Return the client; create it at the first call unless one was given."""
        if self._client is None:
            boto3 = require_client()
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError

            settings = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 2, "mode": "standard"})
            try:
                self._client = boto3.session.Session().client(
                    "lambda", region_name=self._region, endpoint_url=self._endpoint, config=settings
                )
            except (BotoCoreError, ValueError) as error:
                raise DispatchRefused(
                    f"Lambda cannot be reached: {mask(str(error))}",
                    hint="name the region: lambda://function?region=eu-central-1, or AWS_REGION",
                ) from error
        return self._client

    def _to_error(self, error: Exception, spec: DispatchSpec) -> DispatchError:
        answer = getattr(error, "response", None) or {}
        status = 401 if type(error).__name__ in _NO_LOGIN else answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        what = f"Lambda did not take {spec.pipeline_name}: {mask(str(error))}"
        return DispatchRefused(what, hint=_NEXT[status]) if status in _NEXT else DispatchError(what, hint=_TRY_AGAIN)
