"""Retry policies, in the documented and in the shipped spelling."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.errors import DeclarationError, FlowError, check_choice
from ematix_flow.foundation.names import did_you_mean

_ALIASES = {"backoff_seconds": "base_secs", "backoff_factor": "factor", "max_backoff_seconds": "max_backoff_secs"}
_KNOWN = ("max_attempts", "backoff", "base_secs", "max_backoff_secs", "factor", *_ALIASES)
_SHAPES = ("fixed", "linear", "exponential")


@dataclass(frozen=True)
class RetryPolicy:
    """The number of attempts of a run, and the waits between them in seconds."""

    max_attempts: int = 1
    backoff: str = "fixed"
    base_secs: float = 0
    max_backoff_secs: float | None = None
    factor: float = 2.0
    explicit: bool = False

    @classmethod
    def parse(cls, keywords: Mapping[str, Any] | RetryPolicy | None) -> RetryPolicy:
        """Return the policy of `retry={...}`; raise DeclarationError, with the nearest name, for unknown keys."""
        if keywords is None:
            return cls()
        if isinstance(keywords, RetryPolicy):
            return keywords
        for key in keywords:
            if key not in _KNOWN:
                raise DeclarationError(f"retry does not know {key!r}", hint=did_you_mean(key, _KNOWN))
        values = {_ALIASES.get(key, key): value for key, value in keywords.items()}
        if "factor" in values and "backoff" not in values:
            values["backoff"] = "exponential"
        policy = cls(**values, explicit=True)
        check_choice("retry backoff", policy.backoff, _SHAPES)
        if policy.max_attempts < 1 or policy.base_secs < 0:
            raise DeclarationError("retry needs max_attempts ≥ 1 and a backoff of 0 seconds or more")
        return policy

    def gives_up(self, attempt: int, error: BaseException) -> bool:
        """Return whether only a new slot or a user restarts the job; without an explicit policy it never gives up."""
        heals = not isinstance(error, FlowError) or error.retryable
        return self.explicit and (attempt >= self.max_attempts or not heals)

    def wait_after(self, attempt: int, *, of: str = "") -> float:
        """Return the seconds to wait after the given attempt (1 is the first).

        With exponential backoff, a named job waits up to a tenth longer, so that jobs that failed together are not
        retried together. The extra time follows from name and attempt, so that all processes compute the same time.
        """
        wait = self._wait_after(attempt)
        if not of or self.backoff != "exponential":
            return wait
        share = zlib.crc32(f"{of}#{attempt}".encode()) % 1000 / 10_000
        longest = self.max_backoff_secs
        if longest is not None and wait * (1 + share) > longest:  # the maximum holds, and waits differ below it
            return longest * (1 - share)
        return wait * (1 + share)

    def _wait_after(self, attempt: int) -> float:
        if self.backoff == "linear":
            wait = self.base_secs * attempt
        elif self.backoff == "exponential":
            wait = self.base_secs * self.factor ** (attempt - 1)
        else:
            wait = self.base_secs
        return wait if self.max_backoff_secs is None else min(wait, self.max_backoff_secs)
