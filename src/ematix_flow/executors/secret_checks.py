"""Checks that keep secrets out of what others can read: a job's manifest, an event, an application's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ematix_flow.executors.protocol import DispatchRefused
from ematix_flow.foundation.redact import is_secret_name, mask

_REFERENCES_ONLY = re.compile(r"(?:\$\{[^{}]*\})+")
# URLs that are secrets themselves: knowing one is enough to write there.
_BEARER = re.compile(r"(?:slack|pagerduty)://(?!\s*$)|https://hooks\.slack\.com/", re.IGNORECASE)


def refuse_plain_secrets(variables: Mapping[str, str], *, seen_in: str, give: str) -> None:
    """Raise DispatchRefused if a variable contains a secret; `${VAR}` is allowed, because the worker expands it.

    >>> refuse_plain_secrets({"RUN_LOG": "postgres://flow:${PW}@db/flow"}, seen_in="the job", give="give it to the pod")
    """
    for name, value in variables.items():
        if _contains_secret(name, value):
            raise DispatchRefused(
                f"{name} holds a secret in plain text, and every reader of {seen_in} would see it",
                hint=f"write the secret part as ${{VAR}} (on a command line in single quotes, such as "
                f"'postgres://flow:${{RUN_LOG_PASSWORD}}@db/flow') and {give}",
            )


def _contains_secret(name: str, value: str) -> bool:
    if mask(value) != value:
        return True
    if is_secret_name(name):
        return bool(value) and not _REFERENCES_ONLY.fullmatch(value)
    return any(_BEARER.match(part.strip()) and "${" not in part for part in value.split(","))
