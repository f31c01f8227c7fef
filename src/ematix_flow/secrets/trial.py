"""The test of a secret reference: the store, the time that it took, and a masked form of the value."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.secrets import expand

_WHOLE = re.compile(r"\$\{([^{}]+)\}")
_SHOWS_ENDS_FROM = 12


@dataclass(frozen=True, repr=False)
class ResolvedReference:
    """A reference that was resolved."""

    reference: str
    store: str
    value: str
    milliseconds: int

    @property
    def masked(self) -> str:
        """Return enough of the value to recognise it, and too little to use it.

        >>> ResolvedReference("X", "env", "abcdefghijklmnop", 0).masked, ResolvedReference("X", "env", "hunter22", 0).masked
        ('ab...op', '********')
        """
        if not self.value:
            return "<empty>"
        long_enough = len(self.value) >= _SHOWS_ENDS_FROM
        return f"{self.value[:2]}...{self.value[-2:]}" if long_enough else "*" * min(len(self.value), 8)


def try_reference(reference: str) -> ResolvedReference:
    """Resolve `VAR`, `vault:path#key`, or either of them inside `${…}`; raise a MissingSecret if that fails."""
    inner = reference.strip()
    whole = _WHOLE.fullmatch(inner)
    name = whole[1] if whole else inner
    if not name or "${" in name or "}" in name:
        raise ConfigError("this is not one reference", hint="write VAR, vault:path#key or '${vault:path#key}'")
    began = time.monotonic()
    value = expand(f"${{{name}}}")
    prefix, colon, _ = name.partition(":")
    return ResolvedReference(name, prefix if colon else "env", value, round((time.monotonic() - began) * 1000))
