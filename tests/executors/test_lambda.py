"""Runs as invocations of AWS Lambda: the executor against moto's server (a double of AWS), the handler for real."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.executors import (
    DispatchError,
    DispatchHandle,
    DispatchSpec,
    LambdaExecutor,
    executor_from_url,
    lambda_handler,
)
from ematix_flow.executors.protocol import DispatchRefused
from ematix_flow.run_log.urls import from_url
from tests.executors.sample import PEOPLE, eventually, people_in, spec_of
from tests.observe.listener import Listener

REGION = "eu-central-1"


@pytest.fixture(scope="module")
def aws_url() -> Iterator[str]:
    """moto's server; without Docker its functions take events and run nothing."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    body = json.dumps({"lambda": {"use_docker": False}}).encode()
    urllib.request.urlopen(
        urllib.request.Request(f"{url}/moto-api/config", data=body, method="POST"), timeout=10
    ).close()
    yield url
    server.stop()


@pytest.fixture
def function(aws_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A function with an alias, and credentials to call it."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret-key")
    asked = {"region_name": REGION, "endpoint_url": aws_url}
    client, roles = boto3.client("lambda", **asked), boto3.client("iam", **asked)
    try:
        role = roles.create_role(RoleName="worker", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    except roles.exceptions.EntityAlreadyExistsException:
        return "flow-worker"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as code:
        code.writestr("handler.py", "")
    client.create_function(
        FunctionName="flow-worker", Runtime="python3.11", Role=role, Code={"ZipFile": archive.getvalue()},
        Handler="ematix_flow.executors.lambda_handler.handler", Publish=True,
    )  # fmt: skip
    client.create_alias(FunctionName="flow-worker", Name="prod", FunctionVersion="1")
    return "flow-worker"


def executor_at(aws_url: str, function: str, more: str = "") -> LambdaExecutor:
    made = executor_from_url(f"lambda://{function}?region={REGION}&endpoint={aws_url}{more}")
    assert isinstance(made, LambdaExecutor)
    return made


@pytest.mark.parametrize("more", ["", "&qualifier=prod"])
def test_lambda_takes_the_event_of_a_run(aws_url: str, function: str, project: Path, more: str) -> None:
    made = executor_at(aws_url, function, more)
    handle = made.dispatch(spec_of("people", project, run_id="run-1"))
    assert (handle.backend, handle.run_id, bool(handle.ref)) == ("lambda", "run-1", True)
    assert made.has_ended(handle) is None
    made.cancel(handle)


def test_the_event_says_what_is_to_be_done(project: Path) -> None:
    spec = spec_of("people", project, run_id="run-1", alerter_urls=("stdout://",), env={"NOTE": "x"})
    event = LambdaExecutor.build_event_payload(spec)
    assert event == json.loads(json.dumps(event))
    assert (event["pipeline_name"], event["run_id"], event["module"]) == ("people", "run-1", spec.module)
    assert event["argv"][0] == "run"
    assert event["argv"][-3:] == ["--run-id", "run-1", "people"]
    assert event["env"] == {
        "NOTE": "x", "EMATIX_FLOW_RUN_LOG_URL": spec.run_log_url, "EMATIX_FLOW_ALERTERS": "stdout://",
    }  # fmt: skip


def test_an_event_never_holds_a_password(project: Path) -> None:
    with pytest.raises(DispatchRefused, match="give the function that variable") as caught:
        LambdaExecutor.build_event_payload(DispatchSpec("people", "m", run_log_url="postgres://flow:hunter22@db/flow"))
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "said", "again"),
    [
        (404, "ResourceNotFoundException", "aws lambda get-function", False),
        (403, "AccessDeniedException", "lambda:InvokeFunction", False),
        (413, "RequestTooLargeException", "fewer variables", False),
        (429, "TooManyRequestsException", "tries again", True),
    ],
)
def test_what_aws_refuses_is_an_error_with_the_next_step(
    function: str, project: Path, status: int, kind: str, said: str, again: bool
) -> None:
    """moto accepts everything, so a listener answers in the words of AWS."""
    with Listener([status], json.dumps({"Message": "no"}), headers={"x-amzn-ErrorType": kind}) as aws:
        with pytest.raises(DispatchError, match=said) as caught:
            executor_at(aws.url, function, "&qualifier=prod").dispatch(spec_of("people", project))
        asked = aws.requests[0]
    assert kind in str(caught.value)
    assert caught.value.retryable is again
    assert asked.path == f"/2015-03-31/functions/{function}/invocations?Qualifier=prod"
    assert asked.headers["X-Amz-Invocation-Type"] == "Event"
    assert asked.json["argv"][-1] == "people"


def test_an_answer_other_than_accepted_is_an_error(project: Path) -> None:
    class Busy:
        def invoke(self, **_: Any) -> dict[str, Any]:
            return {"StatusCode": 200}

    with pytest.raises(DispatchError, match="answered 200 and not 202"):
        LambdaExecutor(function_name="flow-worker", client=Busy()).dispatch(spec_of("people", project))


def test_aws_that_does_not_answer_is_worth_another_try(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret-key")
    with pytest.raises(DispatchError) as caught:
        executor_at("http://127.0.0.1:9", "flow-worker").dispatch(spec_of("people", project))
    assert caught.value.retryable
    assert "test-secret-key" not in str(caught.value)


def test_without_region_or_credentials_there_is_a_sentence(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(DispatchRefused, match="name the region"):
        executor_from_url("lambda://flow-worker").dispatch(spec_of("people", project))
    with pytest.raises(DispatchRefused, match="lambda:InvokeFunction"):
        executor_from_url(f"lambda://flow-worker?region={REGION}").dispatch(spec_of("people", project))


def test_without_the_client_there_is_a_sentence_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ImportError, match=r"ematix-flow-spark\[executor-lambda\]"):
        executor_from_url("lambda://flow-worker")


# -- inside the function


class Context:
    """What Lambda tells a handler about its time."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(max(0.0, self._until - time.monotonic()) * 1000)


def test_the_handler_carries_the_run_out(project: Path) -> None:
    event = json.loads(json.dumps(LambdaExecutor.build_event_payload(spec_of("people", project))))
    before = dict(os.environ)
    assert lambda_handler.handler(event, Context(300)) == {"pipeline": "people", "run_id": "", "exit_code": 0}
    assert people_in(project) == PEOPLE
    assert (project / "run_log.db").exists()
    assert dict(os.environ) == before


def test_a_run_that_fails_is_reported_by_its_exit_code(project: Path) -> None:
    event = LambdaExecutor.build_event_payload(spec_of("nobody", project))
    assert lambda_handler.handler(event, Context(300))["exit_code"] == 2


@pytest.mark.full
def test_a_run_is_asked_to_end_before_lambda_ends_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_handler, "GRACE_SECONDS", 50.0)
    event = LambdaExecutor.build_event_payload(spec_of("asleep", project))
    told: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: told.append(lambda_handler.handler(event, Context(60))))
    thread.start()
    eventually(lambda: (project / "asleep").exists())
    worker = int((project / "asleep").read_text())
    thread.join(60)
    assert told[0]["exit_code"] != 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker, signal.SIG_DFL)
    (run,), _ = from_url(str(project / "run_log.db")).list_runs(pipeline="asleep")
    assert run.status in ("failed", "cancelled")
    assert run.finished_at is not None


@pytest.mark.parametrize("event", [{}, {"argv": []}, {"argv": "run people"}, {"argv": ["runs", "list"]}])
def test_an_event_of_another_sender_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="event"):
        lambda_handler.handler(event, Context(300))


def test_cancelling_an_invocation_does_nothing() -> None:
    LambdaExecutor(function_name="f", client=object()).cancel(DispatchHandle("people", "lambda", "x"))
