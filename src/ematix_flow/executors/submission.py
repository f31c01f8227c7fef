"""The call of spark-submit: its arguments, the settings file, and the environment of its process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.config.spark import is_secret_setting
from ematix_flow.executors.application.main import FOLDER_VARIABLE, SETTINGS_FILE
from ematix_flow.executors.protocol import DispatchRefused, DispatchSpec, worker_arguments, worker_environment
from ematix_flow.executors.secret_checks import refuse_plain_secrets
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import remember_secret
from ematix_flow.foundation.secrets import expand

if TYPE_CHECKING:
    from ematix_flow.engine.session.engine_choice import EngineChoice

CLIENT, CLUSTER = "client", "cluster"
DEPLOY_MODES = (CLIENT, CLUSTER)
_MAIN = Path(__file__).with_name("application") / "main.py"
_DRIVER_PYTHON, _JAVA_OPTIONS = "spark.pyspark.driver.python", "spark.driver.extraJavaOptions"
# The settings that set environment variables of a driver inside the cluster.
_VARIABLE_OF = {"yarn": "spark.yarn.appMasterEnv.{}", "k8s": "spark.kubernetes.driverEnv.{}"}
# Valid on this machine only.
_OF_THIS_MACHINE = ("spark.driver.", "spark.sql.warehouse.dir")
# Set by Spark where this process is itself part of an application.
_NOT_FOR_IT = (
    "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET",
)  # fmt: skip


@dataclass(frozen=True)
class SparkSubmission:
    """One application, ready to start. Its settings may contain secrets, so their file is private to this user."""

    words: tuple[str, ...]
    settings: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class SparkApplication:
    """The settings of submitted applications: master, deploy mode, and the user's settings, which override ours."""

    master: str
    deploy_mode: str = CLIENT
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    py_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind = self.master.partition(":")[0]
        if not self.master or kind in ("sc", "dns"):
            raise ConfigError(
                f"spark-submit:// names no master{f', and {kind}:// is none' if self.master else ''}",
                hint="write spark-submit://spark://host:7077, spark-submit://yarn or spark-submit://local[2]",
            )
        if self.deploy_mode not in DEPLOY_MODES:
            raise ConfigError(
                f"there is no deploy-mode {self.deploy_mode!r}", hint=did_you_mean(self.deploy_mode, DEPLOY_MODES)
            )
        if self.deploy_mode == CLUSTER and kind not in _VARIABLE_OF:
            raise ConfigError(
                f"{self.master} runs no Python drivers: deploy-mode=cluster is for YARN and Kubernetes",
                hint="leave deploy-mode out; the driver then runs beside the scheduler",
            )

    def check(self, spec: DispatchSpec) -> None:
        """Raise the configuration errors that are visible from here."""
        if self.deploy_mode == CLUSTER:
            self._for_the_driver(spec)

    def submission(self, spec: DispatchSpec, folder: Path) -> SparkSubmission:
        """Return the application of a run; its settings file will be in `folder`."""
        from ematix_flow.engine.cluster import master_urls
        from ematix_flow.engine.session import jars, spark_settings
        from ematix_flow.engine.session.jvm_environment import properties_file

        choice = self._choice(spec)
        if not choice.is_local:
            master_urls.require_reachable(choice.address)
        sets = choice.submitted_with or frozenset()
        ours = spark_settings.configuration(sets, choice=choice)
        brought = [*map(str, jars.ensure_jars(sets) if sets else []), *ours.pop("spark.jars", "").split(",")]
        environment = _environment(ours)
        if self.deploy_mode == CLUSTER:
            ours = {**_portable(ours, choice.settings), **self._for_the_driver(spec)}
        else:
            ours.setdefault(_DRIVER_PYTHON, sys.executable)
            environment |= {**worker_environment(spec), FOLDER_VARIABLE: str(folder)}
        ours.pop("spark.master", None)
        words = (
            *("--master", choice.address, "--deploy-mode", self.deploy_mode, "--name", f"flow {spec.pipeline_name}"),
            *("--properties-file", str(folder / SETTINGS_FILE), "--load-spark-defaults"),
            *_joined_items("--jars", brought),
            *_joined_items("--py-files", [*self._package(), *self.py_files]),
            *(str(_MAIN), self._described(choice), *worker_arguments(spec)),
        )
        return SparkSubmission(words, properties_file(ours), environment)

    def _choice(self, spec: DispatchSpec) -> EngineChoice:
        from ematix_flow.engine.session.engine_choice import choose_master
        from ematix_flow.engine.session.submitted_application import REASON

        choice = choose_master(self.master, settings=dict(map(_filled_setting, self.conf.items())), reason=REASON)
        return replace(choice, submitted_with=frozenset(jar_sets(spec.pipeline_name)))

    def _described(self, choice: EngineChoice) -> str:
        """Return the settings for the driver as JSON, without secrets, because any user can read a command line."""
        from ematix_flow.engine.session.submitted_application import describe_submission

        shown = {name: "" if is_secret_setting(name) else value for name, value in choice.settings.items()}
        first = self.deploy_mode == CLUSTER and self.master.startswith("yarn")
        return json.dumps({**describe_submission(choice, shown), "session_first": first})

    def _for_the_driver(self, spec: DispatchSpec) -> dict[str, str]:
        variables = worker_environment(spec)
        refuse_plain_secrets(variables, seen_in="the application's settings", give="give the driver that variable")
        pattern = _VARIABLE_OF[self.master.partition(":")[0]]
        return {pattern.format(name): value for name, value in variables.items()}

    def _package(self) -> list[str]:
        """Return the zip of this package for a driver in the cluster, which must have the package's dependencies."""
        from ematix_flow.engine.cluster.shipping import package_zip

        return [str(package_zip())] if self.deploy_mode == CLUSTER else []


def spark_home() -> Path:
    """Return SPARK_HOME, else the Spark of the installed pyspark; raise DispatchRefused if it has no spark-submit."""
    own = os.environ.get("SPARK_HOME")
    module_spec = importlib.util.find_spec("pyspark") if not own else None
    home = Path(own) if own else Path(module_spec.origin).parent if module_spec and module_spec.origin else None
    if home is None or not (home / "bin" / "spark-submit").is_file():
        raise DispatchRefused(
            f"there is no spark-submit in {home / 'bin' if home else 'this Python'}",
            hint="set SPARK_HOME to a Spark of this version (flow version), or unset it and install pyspark",
        )
    return home


def jar_sets(pipeline: str) -> set[str]:
    """Return the jar sets of a pipeline; if it cannot be resolved here, those of all backends with a batch sink."""
    from ematix_flow.backends.catalog import all_backends, backend_for
    from ematix_flow.config.resolve import resolve
    from ematix_flow.declare import registry
    from ematix_flow.declare.pipeline import as_tuple

    with suppress(FlowError):
        spec = registry.get_pipeline(pipeline).spec
        named = (*as_tuple(spec.source_connection), *(load.connection for load in spec.loads))
        return {jar for name in named for jar in backend_for(resolve(name).connection).jars}
    return {jar for backend in all_backends() if backend.batch_sink is not None for jar in backend.jars}


def _filled_setting(setting: tuple[str, str]) -> tuple[str, str]:
    name, value = setting
    is_secret = is_secret_setting(name)
    text = expand(value, secret=is_secret)
    if is_secret:
        remember_secret(text)
    return name, text


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    from ematix_flow.engine.session.java import find_java
    from ematix_flow.engine.session.jvm_environment import environment_variables

    kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_IT}
    places = {"SPARK_HOME": str(spark_home()), "JAVA_HOME": str(find_java().parent.parent)}
    return {**kept, **environment_variables(settings), **places}


def _portable(settings: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are valid on any machine, and the user's settings of the driver."""
    from ematix_flow.engine.session.spark_settings import IN_UTC

    kept = {name: value for name, value in settings.items() if not name.startswith(_OF_THIS_MACHINE)}
    own = {name: value for name, value in users.items() if name.startswith(_OF_THIS_MACHINE)}
    return {**kept, **own, _JAVA_OPTIONS: f"{IN_UTC} {own.get(_JAVA_OPTIONS, '')}".strip()}


def _joined_items(option: str, items: Iterable[str]) -> tuple[str, ...]:
    text = ",".join(dict.fromkeys(filter(None, items)))
    return (option, text) if text else ()
