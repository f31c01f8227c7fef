"""Transforms of the whole batch between normalization and load: `transforms_pre=[...]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ematix_flow.declare.normalizers import validation as checks
from ematix_flow.declare.normalizers.normalizers import DeclaredStep
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.signatures import at_callers_line


class NotATransform(DeclarationError, TypeError):
    """Raised for a value in transforms_pre that is no transform."""


class PreTransform(DeclaredStep):
    """A step over the normalized rows."""

    wrapped: ClassVar[Callable[[PreTransform, str], str]]
    """The renderer for PostgreSQL, which `ematix_flow.normalize` sets when it is imported."""

    def to_sql_wrap(self, inner: str) -> str:
        """Return the PostgreSQL query that applies this step to another query."""
        return PreTransform.wrapped(self, inner)


@dataclass(frozen=True, repr=False)
class DeduplicateBy(PreTransform):
    """Keep one row for each key: the first by `order_by`."""

    call = "deduplicate_by"
    keys: tuple[str, ...]
    order_by: str | None = None

    def __repr__(self) -> str:
        shown = [repr(key) for key in self.keys]
        if self.order_by is not None:
            shown.append(f"order_by={self.order_by!r}")
        return f"deduplicate_by({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class FilterWhere(PreTransform):
    """Keep the rows for which the SQL condition is true; it refers to the normalized columns."""

    call = "filter_where"
    expr: str

    def _check(self) -> None:
        checks.require_sql(self.expr, of="filter_where")


@dataclass(frozen=True, repr=False)
class Limit(PreTransform):
    """Keep at most `n` rows."""

    call = "limit"
    n: int

    def _check(self) -> None:
        checks.require_integer(self.n, of="limit", low=0, high=2**31 - 1)


@dataclass(frozen=True, repr=False)
class SamplePct(PreTransform):
    """Keep each row with probability `p`, from 0 to 1."""

    call = "sample_pct"
    p: float

    def _check(self) -> None:
        if isinstance(self.p, bool) or not isinstance(self.p, (int, float)) or not 0 <= self.p <= 1:
            raise DeclarationError(f"sample_pct takes a number from 0 to 1, not {self.p!r}", hint="0.1 keeps a tenth")
        self._set(p=float(self.p))


filter_where, limit, sample_pct = FilterWhere, Limit, SamplePct


@at_callers_line
def deduplicate_by(
    *columns: str, keys: str | Sequence[str] | None = None, order_by: str | None = None
) -> DeduplicateBy:
    """Keep one row for each key, the first by `order_by` (without it, or on a tie, any of them).

    >>> deduplicate_by("event_id", order_by="received_at desc")
    deduplicate_by('event_id', order_by='received_at desc')
    >>> deduplicate_by(keys=("event_id",))
    deduplicate_by('event_id')
    """
    named = (keys,) if isinstance(keys, str) else tuple(keys or ())
    wanted = (*columns, *named)
    if not wanted:
        raise DeclarationError("deduplicate_by needs at least one key", hint='write deduplicate_by("event_id")')
    for key in wanted:
        checks.require_sql(key, of="deduplicate_by")
    if order_by is not None:
        checks.require_sql(order_by, of="deduplicate_by(order_by=…)")
    return DeduplicateBy(wanted, order_by)


def is_pipeline_transform(obj: object) -> bool:
    """Return whether an object is a valid element of transforms_pre."""
    return isinstance(obj, PreTransform)


def check_transforms(transforms: Sequence[object]) -> tuple[PreTransform, ...]:
    """Return the transforms as a tuple; raise NotATransform, a TypeError, for anything else."""
    checked = []
    for transform in transforms:
        if not isinstance(transform, PreTransform):
            raise NotATransform(
                f"transforms_pre does not take {transform!r}",
                hint="use deduplicate_by, filter_where, limit or sample_pct",
            )
        checked.append(transform)
    return tuple(checked)
