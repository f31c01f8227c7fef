"""The configured alerters: options, then EMATIX_FLOW_ALERTERS, then `[alerters]` of the project's or user's file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ematix_flow.alerters.dispatch import active_alerters
from ematix_flow.alerters.event import KINDS, Alerter
from ematix_flow.alerters.routing import FilteredAlerter
from ematix_flow.alerters.urls import from_url
from ematix_flow.config import files
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.secrets import expand

VARIABLE = "EMATIX_FLOW_ALERTERS"
TABLE = "alerters"
_KEYS = ("url", "kinds", "pipelines", "headers")


def requested_alerters(urls: Sequence[str] = (), *, warn: Callable[[str], None]) -> tuple[Alerter, ...]:
    """Return the requested alerters and the registered ones; an invalid one causes only a warning."""
    listed = list(urls) or [part.strip() for part in os.environ.get(VARIABLE, "").split(",") if part.strip()]
    alerters: list[Alerter | None] = [_make_or_warn(partial(from_url, url), warn) for url in listed]
    if not listed:
        try:
            alerters = [_make_or_warn(make, warn) for make in _entries()]
        except FlowError as error:
            warn(_error_text(error))
    return (*(alerter for alerter in alerters if alerter is not None), *active_alerters())


def configured_alerters() -> list[Alerter]:
    """Return the alerters of `[alerters]` in the project's, else the user's file; raise a ConfigError with its line."""
    return [make() for make in _entries()]


def _entries() -> list[Callable[[], Alerter]]:
    for file in files.configuration_files():
        table = file.table(TABLE, hint='write [alerters] and below it slack = "slack://…"')
        if table is not None:
            return [partial(_entry, file, name, entry) for name, entry in table.items()]
    return []


def _entry(file: files.ConfigFile, name: str, entry: Any) -> Alerter:
    """Return the alerter of `name = "url"`, or of a table with url and optionally kinds, pipelines and headers."""
    try:
        fields = {"url": entry} if isinstance(entry, str) else dict(entry)
        return _make_alerter(fields)
    except FlowError as error:
        where = file.place((TABLE, name))
        raise ConfigError(f"{file.shown}: alerter {name!r}: {error.what}", where=where, hint=error.hint) from None
    except (TypeError, ValueError):
        raise ConfigError(
            f"{file.shown}: alerter {name!r} is neither a URL nor a table",
            where=file.place((TABLE, name)),
            hint=f'write {name} = "slack://…", or [alerters.{name}] and below it url = "…"',
        ) from None


def _make_alerter(fields: Mapping[str, Any]) -> Alerter:
    for key in fields:
        if key not in _KEYS:
            raise ConfigError(f"there is no key {key!r}", hint=did_you_mean(key, _KEYS))
    for kind in _texts(fields, "kinds"):
        if kind not in KINDS:
            raise ConfigError(f"no alert is of kind {kind!r}", hint=did_you_mean(kind, KINDS))
    url = fields.get("url")
    if not isinstance(url, str) or not url:
        raise ConfigError("url is missing", hint='add url = "slack://…"')
    headers = {str(key): expand(str(value)) for key, value in dict(fields.get("headers") or {}).items()}
    alerter = from_url(url, headers=headers or None)
    kinds, pipelines = _texts(fields, "kinds"), _texts(fields, "pipelines")
    return FilteredAlerter(alerter, kinds, pipelines) if kinds or pipelines else alerter


def _texts(fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = fields.get(key, ())
    return (values,) if isinstance(values, str) else tuple(str(item) for item in values)


def _make_or_warn(make: Callable[[], Alerter], warn: Callable[[str], None]) -> Alerter | None:
    try:
        return make()
    except FlowError as error:
        warn(_error_text(error))
        return None


def _error_text(error: FlowError) -> str:
    where = f" ({error.where})" if error.where else ""
    return f"{error.what}{where}; continuing without that alerter" + (f"; {error.hint}" if error.hint else "")
