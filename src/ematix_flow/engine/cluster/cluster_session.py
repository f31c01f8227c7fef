"""Sessions on a cluster: the driver here with executors of a master, or inside a Spark Connect server."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.cluster import master_urls, shipping
from ematix_flow.engine.session import spark_settings
from ematix_flow.engine.session.engine_choice import EngineChoice
from ematix_flow.foundation.errors import ConfigError, FlowError, PermissionDenied, RunFailed, Unreachable, Unsupported
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_IMAGE = "spark.kubernetes.container.image"
_ANSWER_SECONDS = 15.0
# Messages of Spark's transport when the two sides have different secrets, or only one of them has one.
_REFUSED = ("exception while bootstrapping client", "expected saslmessage", "authentication failed")


def open_cluster_session(
    wanted: set[str], choice: EngineChoice, *, start_jvm: Callable[[Mapping[str, str]], SparkSession], log: Path
) -> SparkSession:
    """Return a session on the cluster, and send the modules of this package that its tasks need."""
    _require_settings(choice)
    master_urls.require_reachable(choice.address)
    if choice.is_remote:
        session = _connect_session(choice, wanted)
    else:
        written = log.stat().st_size if log.exists() else 0
        try:
            session = start_jvm(spark_settings.configuration(wanted, choice=choice))
        except FlowError:
            raise
        except Exception as error:
            raise _not_started(error, choice, log, written) from None
    shipping.ship_package(session)
    return session


def leave_session(session: SparkSession) -> None:
    """Clean up after a session of a Spark Connect server, because the next session may be of another kind."""
    if shipping.is_connect(session):
        os.environ.pop(CONNECT_MODE, None)


def _require_settings(choice: EngineChoice) -> None:
    if choice.address.startswith("k8s://") and _IMAGE not in choice.settings:
        raise ConfigError(
            f"{master_urls.shown_address(choice.address)}: no image is set for the executors",
            hint=f'write "{_IMAGE}" = "registry/image:tag" below [spark]; it needs Spark, Python and pyarrow',
        )


def _not_started(error: Exception, choice: EngineChoice, log: Path, written: int) -> FlowError:
    """Return the error for a failed start: Spark tries a master three times for 20 s and reports only a failure."""
    where, message = master_urls.shown_address(choice.address), f"{error}\n{_log_since(log, written)}".lower()
    if any(word in message for word in _REFUSED):
        known = "it has another secret, or none" if choice.secret else "it asks for a secret, and none is named"
        return PermissionDenied(
            f"the cluster at {where} does not take this process in: {known}",
            hint='below [spark], name the one it was started with: secret = "${CLUSTER_SECRET}"',
        )
    if "unresponsive" in message or "giving up" in message:
        return Unreachable(
            f"something listens at {where}, and no Spark master of this version answered within a minute",
            hint=f"it must be Spark {_spark_version()}; if it asks for a secret, name it below [spark]; Spark's own log: {log}",
        )
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return RunFailed(f"no session on {where}: {mask(first[:300])}", hint=f"Spark's own log: {log}")


def _log_since(log: Path, position: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(position)
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def _connect_session(choice: EngineChoice, wanted: set[str]) -> SparkSession:
    """Return a session in a Spark Connect server, with the settings that a running server still accepts."""
    session = _require_server(choice)
    try:
        _require_delta(session, wanted, choice)
        _apply(session, spark_settings.settings(wanted, choice=choice), choice)
    except BaseException:
        session.stop()
        os.environ.pop(CONNECT_MODE, None)
        raise
    return session


def _require_server(choice: EngineChoice) -> SparkSession:
    """Connect to the server: the client alone would retry for ten minutes, but a running server answers at once."""
    from pyspark.sql import SparkSession

    _require_channel(choice)
    try:
        session: SparkSession = SparkSession.builder.remote(choice.address).create()
        session.version  # noqa: B018  the first call to the server
    except Exception as error:
        os.environ.pop(CONNECT_MODE, None)
        raise _no_server(error, choice) from None
    return session


def _require_channel(choice: EngineChoice) -> None:
    """Raise FlowError unless the channel can be opened, with TLS or without, as the address says."""
    from pyspark.errors import PySparkException

    try:
        grpc: Any = importlib.import_module("grpc")
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError:
        raise ConfigError(
            "Spark Connect needs packages that are not installed", hint='pip install "ematix-flow-spark[engine]"'
        ) from None
    try:
        channel = DefaultChannelBuilder(choice.address).toChannel()
    except PySparkException as error:
        what = f"{master_urls.shown_address(choice.address)} is not understood: {mask(str(error))}"
        raise ConfigError(what, hint='write it like "sc://host:15002/;use_ssl=true;token=${CONNECT_TOKEN}"') from None
    try:
        grpc.channel_ready_future(channel).result(timeout=min(_ANSWER_SECONDS, choice.wait_seconds))
    except grpc.FutureTimeoutError:
        raise _no_server(None, choice) from None
    finally:
        channel.close()


def _no_server(error: Exception | None, choice: EngineChoice) -> FlowError:
    where, message = master_urls.shown_address(choice.address), str(error or "")
    if "UNAUTHENTICATED" in message or "PERMISSION_DENIED" in message or "uthentication" in message:
        return PermissionDenied(
            f"the Spark Connect server at {where} does not take this token",
            hint='put the right one into the address: "sc://host:port/;token=${CONNECT_TOKEN}"',
        )
    if error is not None and "UNAVAILABLE" not in message:
        first = next((line for line in message.splitlines() if line.strip()), type(error).__name__)
        return RunFailed(f"no session on {where}: {mask(first[:300])}", hint="check the server's log")
    return Unreachable(
        f"something listens at {where}, and no Spark Connect server answered",
        hint="check the port (15002 unless the server says otherwise), and TLS: with a token, or ;use_ssl=true, "
        "the client speaks TLS to every host but localhost",
    )


def _require_delta(session: SparkSession, wanted: set[str], choice: EngineChoice) -> None:
    if "delta" in wanted and "delta" not in str(session.conf.get("spark.sql.extensions", "")).lower():
        raise Unsupported(
            f"the Spark Connect server at {master_urls.shown_address(choice.address)} has no Delta Lake, which this pipeline needs",
            hint="start the server with the delta-spark jar, its extension and its catalog (docs/clusters.md)",
        )


def _apply(session: SparkSession, settings: Iterable[spark_settings.Setting], choice: EngineChoice) -> None:
    for item in settings:
        if session.conf.isModifiable(item.name):
            session.conf.set(item.name, item.value)
        elif item.name in choice.settings:
            warnings.warn(
                f"{item.name} is fixed since the Spark Connect server started; it stays as it is", stacklevel=2
            )
