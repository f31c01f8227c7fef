"""The `[engine]` table of the project's or the user's file: a warm engine, its idle time and warm-up, and the order of joins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ematix_flow.config import files
from ematix_flow.foundation.errors import ConfigError

TABLE = "engine"
KEEP_WARM_VARIABLE = "EMATIX_FLOW_KEEP_WARM"
REORDER_JOINS_VARIABLE = "EMATIX_FLOW_REORDER_JOINS"
WARM_UP_VARIABLE = "EMATIX_FLOW_WARM_UP"
IDLE_SECONDS = 15 * 60.0
_KEYS = ("keep_warm", "idle", "reorder_joins", "warm_up")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_YES, _NO = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


@dataclass(frozen=True)
class EngineConfig:
    """The configured values; `keep_warm` is None if the choice depends on the terminal."""

    keep_warm: bool | None = None
    idle_seconds: float = IDLE_SECONDS
    origin: str = ""
    reorder_joins: bool = True
    """Whether inner joins over lake tables are reordered for the lowest cost by their statistics."""
    join_origin: str = ""
    warm_up: bool = True
    """Whether a new engine runs typical operations while it is idle, so that the first commands are as fast as later ones."""


def engine_config() -> EngineConfig:
    """Return the settings: environment over the project's file over the user's; raise ConfigError for a wrong value."""
    configured = next(filter(None, map(_in_file, files.configuration_files())), EngineConfig())
    keep, reorder = _switch_from_environment(KEEP_WARM_VARIABLE), _switch_from_environment(REORDER_JOINS_VARIABLE)
    if keep is not None:
        configured = replace(configured, keep_warm=keep, origin=KEEP_WARM_VARIABLE)
    if reorder is not None:
        configured = replace(configured, reorder_joins=reorder, join_origin=REORDER_JOINS_VARIABLE)
    warm_up = _switch_from_environment(WARM_UP_VARIABLE)
    return configured if warm_up is None else replace(configured, warm_up=warm_up)


def _switch_from_environment(variable: str) -> bool | None:
    """Return the value of an environment variable; None if it is not set."""
    value = os.environ.get(variable, "").strip().lower()
    if not value:
        return None
    if value not in (*_YES, *_NO):
        raise ConfigError(f"{variable}={value} is not a choice", hint="use 1 or 0")
    return value in _YES


def parse_seconds(text: str) -> float | None:
    """Return the seconds of a duration such as 90s, 15m or 8h; None if the text is not a duration.

    >>> parse_seconds("15m"), parse_seconds("1.5h"), parse_seconds("soon")
    (900.0, 5400.0, None)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    return float(match[1]) * _UNITS[match[2]] if match else None


def _in_file(file: files.ConfigFile) -> EngineConfig | None:
    table = file.table(TABLE, hint="write [engine] and below it keep_warm = false")
    if table is None:
        return None
    file.check_keys(table, _KEYS, TABLE)
    keep, reorder = _switch(file, table, "keep_warm"), _switch(file, table, "reorder_joins")
    return EngineConfig(
        keep,
        _idle(file, table.get("idle")),
        file.shown,
        reorder_joins=reorder is not False,
        join_origin=file.shown if reorder is not None else "",
        warm_up=_switch(file, table, "warm_up") is not False,
    )


def _switch(file: files.ConfigFile, table: Mapping[str, object], name: str) -> bool | None:
    value = table.get(name)
    if value is not None and not isinstance(value, bool):
        where = file.place((TABLE, name))
        raise ConfigError(
            f"{file.shown}: [engine] {name} is not true or false", where=where, hint="write true or false"
        )
    return value


def _idle(file: files.ConfigFile, value: object) -> float:
    if value is None:
        return IDLE_SECONDS
    seconds = (
        parse_seconds(str(value)) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    )
    if not seconds:
        where = file.place((TABLE, "idle"))
        raise ConfigError(f"{file.shown}: [engine] idle is not a duration", where=where, hint='write idle = "15m"')
    return seconds
