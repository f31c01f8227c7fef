"""The `[spark]` table of the project's file: engine, peers and any setting of Spark's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.config import files
from ematix_flow.declare.engine import EngineWish, wish
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import is_secret_name
from ematix_flow.foundation.secrets import expand

TABLE = "spark"
ENGINE_VARIABLE = "EMATIX_FLOW_ENGINE"
MASTER_VARIABLE = "EMATIX_FLOW_MASTER"
_OWN = ("engine", "peers", "master")


@dataclass(frozen=True, repr=False)
class SparkConfig:
    """What a file says; `settings` have their references filled in, so they stay out of sight."""

    wish: EngineWish = field(default_factory=EngineWish)
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""


def spark_config() -> SparkConfig:
    """What the project's file says, else the user's."""
    return _in_file(files.read_project()) or _in_file(files.read_user()) or SparkConfig()


def said_for_this_run() -> SparkConfig | None:
    """What the environment says, over every file and declaration; None when it says nothing."""
    engine, master = (os.environ.get(name, "").strip() for name in (ENGINE_VARIABLE, MASTER_VARIABLE))
    if not engine and not master:
        return None
    try:
        said = wish(engine.lower() or None, None)
    except FlowError as error:
        raise ConfigError(f"{ENGINE_VARIABLE}={engine} is not known", hint=error.hint) from None
    return SparkConfig(said, master or None, origin=MASTER_VARIABLE if master else ENGINE_VARIABLE)


def _in_file(file: files.ConfigFile | None) -> SparkConfig | None:
    if file is None or TABLE not in file.data:
        return None
    table = file.data[TABLE]
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file.shown}: {TABLE} is not a table", where=file.place((TABLE,)), hint="write [spark]")
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
        settings.update(_flat(name, value))
    try:
        said = wish(table.get("engine"), table.get("peers"))
    except FlowError as error:
        raise ConfigError(f"{file.shown}: {error.what}", where=file.place((TABLE,)), hint=error.hint) from None
    return SparkConfig(said, table.get("master"), settings, file.shown)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """`spark.sql.x = 1` is a table of tables in TOML."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
        return
    text = str(value).lower() if isinstance(value, bool) else str(value)
    yield name, expand(text, secret=is_secret_name(name))
