"""What a run did, one line per target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ematix_flow.cli.amounts import pace
from ematix_flow.cli.names import system_of
from ematix_flow.declare.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ematix_flow.engine.result import Result, TargetResult

_ALWAYS = {"append": (), "truncate": (), "merge": ("updated",), "scd2": ("closed",)}
_LONG_SECONDS = 5.0
_COUNTED = ("inserted", "updated", "closed", "deleted", "unchanged")


def lines(result: Result, spec: PipelineSpec, *, width: int = 0, verbose: bool = False) -> list[str]:
    """The lines of one pipeline; names are padded to `width`."""
    if result.value is not None or not result.targets:
        told_by_it = str((result.value or {}).get("note") or result.status)
        return [f"  {result.pipeline.ljust(width)}  {told_by_it}   {seconds(result.seconds)}"]
    told: list[str] = []
    for number, target in enumerate(result.targets):
        name = result.pipeline if number == 0 else ""
        took = target.seconds if len(result.targets) > 1 else result.seconds
        line = f"  {name.ljust(width)}  {target_line(target, route(target, spec, number))}   {seconds(took)}"
        told.append(", ".join([line, *_pace(target, verbose=verbose)]))
        told += [f"  {' ' * width}    {note}" for note in target.notes if verbose or not note.startswith("+ create ")]
    return told


def _pace(target: TargetResult, *, verbose: bool) -> list[str]:
    """How fast the rows came in; what lasted only a moment says nothing about it."""
    lasted = target.load_seconds or 0.0
    if target.error or (lasted < _LONG_SECONDS and not verbose):
        return []
    return pace(target.rows_read, target.bytes_staged, lasted)


def target_line(target: TargetResult, way: str) -> str:
    """Mode, way and counts of one target, in columns."""
    if target.error:
        return f"{target.mode:<8}  {way:<17}  failed: {target.error}"
    arrived = f"{target.rows_read:,} {'row' if target.rows_read == 1 else 'rows'} in"
    return f"{target.mode:<8}  {way:<17}  {arrived:>15}   {counts(target):<32}"


def route(target: TargetResult, spec: PipelineSpec, number: int) -> str:
    """From which system to which, in two words."""
    there = system_of(spec.loads[number].connection if number < len(spec.loads) else None, target.target_kind)
    here = system_of(spec.source_connection, target.source_kind)
    return f"{here} → {there}" if here else there


def counts(target: TargetResult) -> str:
    """What happened to the rows, and where the load ended.

    Counts of nothing are left out, except those a reader expects of the mode.
    """
    expected = ("inserted", *_ALWAYS.get(target.mode, ()))
    found = [(word, int(getattr(target, f"rows_{word}"))) for word in _COUNTED]
    told = ", ".join(f"{number:,} {word}" for word, number in found if number or word in expected)
    if target.watermark:
        told += f" (watermark {target.watermark.removesuffix('.000000')})"
    if target.path == "same_db":
        told += f" (inside {title_of(target.target_kind)})"
    return told


def summary(*, succeeded: int, failed: int, skipped: int, engine_seconds: float | None) -> str:
    """The last line: how many, how long the engine took to start, where to look."""
    parts = [f"{succeeded} ok"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{skipped} skipped"] if skipped else []
    parts += [f"engine started in {seconds(engine_seconds)}"] if engine_seconds else []
    return " · ".join(parts)


def seconds(value: float) -> str:
    """A duration as people say it.

    >>> seconds(0.123), seconds(75)
    ('0.1 s', '1 min 15 s')
    """
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def widest(names: Sequence[str]) -> int:
    """The width of the longest name."""
    return max((len(name) for name in names), default=0)


def title_of(backend_name: str) -> str:
    """How a backend writes itself."""
    from ematix_flow.backends.catalog import all_backends

    return next((backend.title for backend in all_backends() if backend.name == backend_name), backend_name)
