"""Executors, which start the workers for the runs that a scheduler dispatches."""

from ematix_flow.executors.heartbeat import HeartbeatThread
from ematix_flow.executors.kubernetes import KubernetesJobExecutor, PodOptions
from ematix_flow.executors.lambda_ import LambdaExecutor
from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec, Executor
from ematix_flow.executors.spark_submit import SparkSubmitExecutor
from ematix_flow.executors.subprocess import SubprocessExecutor, python_subprocess_executor
from ematix_flow.executors.urls import executor_from_url

__all__ = [
    "DispatchError",
    "DispatchHandle",
    "DispatchSpec",
    "Executor",
    "HeartbeatThread",
    "KubernetesJobExecutor",
    "LambdaExecutor",
    "PodOptions",
    "SparkSubmitExecutor",
    "SubprocessExecutor",
    "executor_from_url",
    "python_subprocess_executor",
]
