"""The `[spark]` table of the project's file: engine, cluster addresses, cluster secret, and any Spark setting."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.config import files
from ematix_flow.declare.engine import EngineOptions, check_peer, engine_options
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.secrets import expand

TABLE = "spark"
ENGINE_VARIABLE = "EMATIX_FLOW_ENGINE"
MASTER_VARIABLE = "EMATIX_FLOW_MASTER"
SECRET_VARIABLE = "EMATIX_FLOW_CLUSTER_SECRET"  # noqa: S105  its name
WAIT_SECONDS = 120.0
_OWN = ("engine", "peers", "master", "secret", "secret_file", "stage", "wait")
# Spark writes its settings in camel case: spark.ssl.keyStorePassword.
_SECRET = re.compile(r"secret|passw|passphrase|token|credential", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class SparkConfig:
    """The values of a file; `settings` and `secret` have their references expanded, so do not show them."""

    options: EngineOptions = field(default_factory=EngineOptions)
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    secret: str | None = None
    """The shared secret of all processes of the cluster; with it, traffic is signed and encrypted."""
    stage: str | None = None
    """A folder that this process and all workers share."""
    wait_seconds: float = WAIT_SECONDS
    """The maximum wait for a cluster's executors, in seconds."""


def spark_config() -> SparkConfig:
    """Return the values of the project's file, else of the user's."""
    return next(filter(None, map(_in_file, files.configuration_files())), SparkConfig())


def spark_config_from_environment() -> SparkConfig | None:
    """Return the values of the environment, which override every file and declaration; None if it sets none."""
    engine, master = (os.environ.get(name, "").strip() for name in (ENGINE_VARIABLE, MASTER_VARIABLE))
    if not engine and not master:
        return None
    try:
        options = engine_options(engine.lower() or None, None)
    except FlowError as error:
        raise ConfigError(f"{ENGINE_VARIABLE}={engine} is not known", hint=error.hint) from None
    return SparkConfig(options, master or None, origin=MASTER_VARIABLE if master else ENGINE_VARIABLE)


def secret_from_environment() -> str | None:
    """Return the cluster's secret from the environment; None if it is not set."""
    secret = os.environ.get(SECRET_VARIABLE) or None
    redact.remember_secret(secret)
    return secret


def is_secret_setting(name: str) -> bool:
    """Return whether a Spark setting holds a secret.

    >>> is_secret_setting("spark.ssl.keyStorePassword"), is_secret_setting("spark.executor.memory")
    (True, False)
    """
    return bool(_SECRET.search(name)) or redact.is_secret_name(name)


def _in_file(file: files.ConfigFile) -> SparkConfig | None:
    table = file.table(TABLE, hint="write [spark]")
    if table is None:
        return None
    try:
        return SparkConfig(
            engine_options(table.get("engine"), table.get("peers")),
            _text(table, "master"),
            _settings(file, table),
            file.shown,
            _secret(table),
            _text(table, "stage"),
            _seconds(table),
        )
    except FlowError as error:
        if error.where is None:
            error = ConfigError(f"{file.shown}: {error.what}", where=file.place((TABLE,)), hint=error.hint)
        raise error from None


def _settings(file: files.ConfigFile, table: Mapping[str, Any]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in table.items():
        if name in _OWN:
            continue
        if name.partition(".")[0] != "spark":
            raise ConfigError(
                f"{file.shown}: [spark] has no key {name!r}",
                where=file.place((TABLE, name)),
                hint=did_you_mean(name, (*_OWN, "spark.…")),
            )
        settings.update(_flattened_settings(name, value))
    return settings


def _flattened_settings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield dotted settings; in TOML, `spark.sql.x = 1` is a table of tables."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flattened_settings(f"{name}.{key}", inner)
        return
    is_secret = is_secret_setting(name)
    text = expand(str(value).lower() if isinstance(value, bool) else str(value), secret=is_secret)
    if is_secret:
        redact.remember_secret(text)
    yield name, text


def _text(table: Mapping[str, Any], name: str) -> str | None:
    value = table.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise ConfigError(f"[spark] {name} is not a text", hint=f'write {name} = "…"')
    if name == "master" and value is not None and not value.startswith("local"):
        check_peer(value.partition(",")[0])
    return expand(value, secret=False) if value is not None and name == "stage" else value


def _secret(table: Mapping[str, Any]) -> str | None:
    secret, file = _text(table, "secret"), _text(table, "secret_file")
    if secret is not None and file is not None:
        raise ConfigError("[spark] has both secret and secret_file", hint="keep one of them")
    if file is not None:
        path = Path(expand(file, secret=False)).expanduser()
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(
                f"[spark] secret_file {file} cannot be read: {reason}",
                hint="flow cluster start writes one for a cluster on this machine",
            ) from None
    else:
        value = expand(secret, secret=True) or ""
    if not value and (secret is not None or file is not None):
        raise ConfigError("[spark] the secret is empty", hint="name the one that the cluster was started with")
    redact.remember_secret(value)
    return value or None


def _seconds(table: Mapping[str, Any]) -> float:
    value = table.get("wait", WAIT_SECONDS)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ConfigError("[spark] wait is not a number of seconds", hint="write wait = 120")
    return float(value)
