"""The Sail engine: a Spark Connect-compatible server in this process, on loopback, without a JVM."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ematix_flow.contract.backend import Backend
from ematix_flow.dataplane.spark_session import EXACT, is_sail_session, mark_sail_session
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.session import spark_settings
from ematix_flow.engine.session.engine_choice import EngineChoice
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import MissingDriver, RunFailed, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOST = "127.0.0.1"
_WEEK = 7 * 86400
_NOT_TAKEN = ("spark.master", "spark.app.", "spark.driver.", "spark.executor.", "spark.jars", "spark.submit.")


@dataclass
class _SailServer:
    """The Sail server of this process, None before it is started."""

    inner: Any = None


_server = _SailServer()
_others: WeakSet[SparkSession] = WeakSet()


def refuse_unsupported(backend: Backend, connection: Any, load: LoadSpec | None = None) -> None:
    """Raise Unsupported for a read or load that Sail cannot do, before anything runs."""
    lacking = backend.lacks_on_sail(connection, load) if backend.lacks_on_sail else None
    if lacking is not None:
        doing = "read" if load is None else f"load {load.table.qualified} into"
        raise Unsupported(f'engine="sail" cannot {doing} {connection.name!r}: {lacking}', hint='use engine="local"')


def refuse_transforms(spec: PipelineSpec, target: Backend) -> None:
    """Raise Unsupported for SQL that Sail cannot run; post-load SQL would otherwise fail after the load's commit."""
    if spec.transform_sql is not None:
        raise Unsupported('engine="sail" runs no transform_sql', hint='use engine="local"')
    if target.is_lake and any(isinstance(item, str) for item in spec.transforms_post):
        raise Unsupported(
            f'engine="sail" runs no SQL of transforms_post on {target.title}', hint='use engine="local", or a function'
        )


def start_session(choice: EngineChoice) -> SparkSession:
    """Return a session on the server of this process, which is started if necessary."""
    _prepare_environment()
    address = _address(_running())
    wanted: dict[str, Any] = own_settings(spark_settings.configuration((), choice=choice))
    try:
        from pyspark.sql import SparkSession

        session: SparkSession = SparkSession.builder.remote(address).config(map=wanted).create()
    except ImportError as error:
        what = 'engine="sail" needs the client of Spark Connect, which is not installed'
        raise MissingDriver(what, hint='pip install "ematix-flow-spark[native]"') from error
    mark_sail_session(session)
    return session


def detect_sail_session(session: SparkSession) -> bool:
    """Return whether a session that the user created is on Sail; if so, it is registered and configured as one."""
    if is_sail_session(session) or session in _others or not type(session).__module__.startswith("pyspark.sql.connect"):
        return is_sail_session(session)
    version = str(session.sql("SELECT version()").collect()[0][0])  # Spark's versions begin with 3 or 4
    if not version.startswith("0."):
        _others.add(session)
        return False
    mark_sail_session(session)
    for name, value in EXACT.items():
        session.conf.set(name, value)
    return True


def stop_server() -> None:
    """Stop the server; its sessions must have ended."""
    if _server.inner is not None:
        _server.inner.stop()
        _server.inner = None


def _running() -> Any:
    if _server.inner is None:
        server = require_driver(
            "pysail.spark", needed_by='engine="sail"', package="pysail", extra="native"
        ).SparkConnectServer(_HOST, 0)
        server.start(background=True)
        _server.inner = server
        atexit.register(stop_server)
    return _server.inner


def _address(server: Any) -> str:
    until = time.monotonic() + 10
    while server.listening_address is None:
        if time.monotonic() > until:
            raise RunFailed("the native engine does not listen", hint='use engine="local"')
        time.sleep(0.01)
    return f"sc://{_HOST}:{server.listening_address[1]}"


def _prepare_environment() -> None:
    """Set variables that the server reads when it is created; the user's own values are kept."""
    os.environ.setdefault("RUST_LOG", "error")
    # Bounds in Parquet footers do not include NaN: pruning by them drops such rows, or keeps too many.
    os.environ.setdefault("SAIL_EXECUTION__COLLECT_STATISTICS", "false")
    os.environ.setdefault("SAIL_PARQUET__PRUNING", "false")
    # A session that waits for a long write of another process or for a user must not time out.
    os.environ.setdefault("SAIL_SPARK__SESSION_TIMEOUT_SECS", str(_WEEK))


def own_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return all settings except those of a JVM."""
    return {name: value for name, value in settings.items() if not name.startswith(_NOT_TAKEN)}
