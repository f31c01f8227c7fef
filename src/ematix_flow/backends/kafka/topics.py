"""The topics that a stream reads: one, several separated by commas, or all whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ematix_flow.foundation.errors import PlanError

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class TopicSelection:
    """A selection of topics: names, or a pattern."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of(cls, query: str) -> TopicSelection:
        """Return the topics of a stream's query; raise PlanError for an invalid one.

        >>> TopicSelection.of("orders, payments").names, TopicSelection.of("events-.*").pattern, TopicSelection.of("/a|b/").pattern
        (('orders', 'payments'), 'events-.*', 'a|b')
        """
        text = query.strip()
        if len(text) > 2 and text.startswith("/") and text.endswith("/"):
            return cls(pattern=_checked(text[1:-1]))
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if names and all(_NAME.fullmatch(name) for name in names):
            return cls(names=tuple(dict.fromkeys(names)))
        if not re.search(r"[*+?\[\](){}|^$\\]", text):
            raise PlanError(
                f"{query!r} names no topic of Kafka",
                hint='write a topic, several with commas between, or a pattern such as "events-.*"',
            )
        return cls(pattern=_checked(text))

    @property
    def option(self) -> tuple[str, str]:
        """Return the option of Spark's connector, which matches parts of names unless the pattern is anchored."""
        return ("subscribePattern", f"^(?:{self.pattern})$") if self.pattern else ("subscribe", ",".join(self.names))

    def among(self, existing: Iterable[str]) -> list[str]:
        """Return the selected topics among the existing ones."""
        if self.pattern is None:
            return sorted(set(self.names) & set(existing))
        return sorted(name for name in existing if re.fullmatch(self.pattern, name))


def _checked(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as exc:
        raise PlanError(
            f"the pattern {pattern!r} cannot be read: {exc}", hint="correct the regular expression"
        ) from exc
    return pattern
