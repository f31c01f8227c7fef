"""Executors by their addresses, and the public names."""

from __future__ import annotations

import pytest

import ematix_flow.executors as public
from ematix_flow.executors import SubprocessExecutor
from ematix_flow.executors.kubernetes import KubernetesJobExecutor
from ematix_flow.executors.lambda_ import LambdaExecutor
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.scheduler.executor_url import executor_from_url


def test_the_reference_names_are_there() -> None:
    assert [name for name in public.__all__ if not hasattr(public, name)] == []
    from ematix_flow.executors.heartbeat import HeartbeatThread
    from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec, Executor

    assert issubclass(DispatchError, RuntimeError)
    assert all((HeartbeatThread, DispatchHandle, DispatchSpec, Executor))


@pytest.mark.parametrize("url", ["subprocess://", "subprocess+python://", " SUBPROCESS:// "])
def test_a_process_of_this_machine_needs_no_more_than_its_scheme(url: str) -> None:
    assert isinstance(executor_from_url(url), SubprocessExecutor)


def test_kubernetes_and_lambda_by_address() -> None:
    pytest.importorskip("kubernetes", reason="the extra executor-k8s is not installed: make setup")
    assert isinstance(
        executor_from_url("k8s://etl?image=registry/flow:1&service-account=loader"), KubernetesJobExecutor
    )
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:loads"
    assert isinstance(executor_from_url(f"lambda://{arn}?qualifier=prod"), LambdaExecutor)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "empty address"),
        ("subproces://", "did you mean subprocess://?"),
        ("subprocess", "did you mean subprocess://?"),
        ("kubernetes://etl", "k8s://etl?image="),
        ("lamda://f", "did you mean lambda://flow-worker?"),
        ("celery://broker", "use one of subprocess://"),
        ("subprocess://here", "nothing belongs behind"),
        ("subprocess://?x=1", "no parameter 'x'"),
        ("lambda://", "names no function"),
        ("lambda://f?qualifer=x", "did you mean 'qualifier'?"),
        ("lambda://f?qualifier=a&qualifier=b", "qualifier twice"),
        ("spark-submit://", "names no master"),
    ],
)
def test_the_error_of_an_unknown_address_names_the_nearest_with_an_example(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        executor_from_url(url)
    assert isinstance(caught.value, ValueError)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("k8s://", "cannot be a namespace"),
        ("k8s://Etl?image=x", "cannot be a namespace"),
        ("k8s://etl", "no image"),
        ("k8s://etl?img=x", "did you mean 'image'?"),
        ("k8s://etl?image=x&memory=lots", "memory=lots"),
        ("k8s://etl?image=x&ttl=soon", "whole number"),
        ("k8s://etl?image=x&label=team", "has no value"),
        ("k8s://etl?image=x&label=te%20am=a", "cannot be a label"),
        ("k8s://etl?image=x&env-from-secret=pg:hunter22", "cannot be the name of a secret"),
        ("k8s://etl?image=x&sa=Me", "service account"),
        ("k8s://etl?image=x&image-pull-policy=always", "did you mean 'Always'?"),
    ],
)
def test_a_wrong_piece_of_a_kubernetes_address_is_named(url: str, said: str) -> None:
    pytest.importorskip("kubernetes", reason="the extra executor-k8s is not installed: make setup")
    with pytest.raises(ConfigError) as caught:
        executor_from_url(url)
    assert said in str(caught.value)
