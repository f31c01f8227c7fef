"""The result of a run as text, one line per target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.cli.render.names import system_of
from ematix_flow.cli.render.units import format_rate, format_seconds
from ematix_flow.declare.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import Result, TargetResult

_ALWAYS = {"append": (), "truncate": (), "merge": ("updated",), "scd2": ("closed",)}
_LONG_SECONDS = 5.0
_COUNTED = ("inserted", "updated", "closed", "deleted", "unchanged")


def report_lines(result: Result, spec: PipelineSpec, *, width: int = 0, verbose: bool = False) -> list[str]:
    """Return the lines of one pipeline; names are padded to `width`."""
    if result.value is not None or not result.targets:
        note = result.get("note")
        line = f"  {result.pipeline.ljust(width)}  {note or result.status}   {format_seconds(result.seconds)}"
        return [line] if note or result.value is None else [line, json.dumps(result.to_dict()["result"])]
    output: list[str] = []
    for number, target in enumerate(result.targets):
        name = result.pipeline if number == 0 else ""
        took = target.seconds if len(result.targets) > 1 else result.seconds
        line = f"  {name.ljust(width)}  {target_line(target, route(target, spec, number))}   {format_seconds(took)}"
        output.append(", ".join([line, *_pace(target, verbose=verbose)]))
        output += [f"  {' ' * width}    {note}" for note in target.notes if verbose or not note.startswith("+ create ")]
    return output


def _pace(target: TargetResult, *, verbose: bool) -> list[str]:
    """Return the load rates; empty for loads below five seconds, which are too short to measure, unless `verbose`."""
    lasted = target.load_seconds or 0.0
    if target.error or (lasted < _LONG_SECONDS and not verbose):
        return []
    return format_rate(target.rows_read, target.bytes_staged, lasted)


def target_line(target: TargetResult, way: str) -> str:
    """Return mode, route, counts and lane of one target, in columns."""
    if target.error:
        return f"{target.mode:<8}  {way:<17}  failed: {target.error}"
    arrived = f"{target.rows_read:,} {'row' if target.rows_read == 1 else 'rows'} in"
    return f"{target.mode:<8}  {way:<17}  {arrived:>15}   {counts(target):<32}  {lane_of(target):<10}"


def lane_of(target: TargetResult) -> str:
    """Return the lane of the rows; empty when they did not leave their database."""
    return "" if target.path == "same_db" or not target.lane else f"{target.lane} lane"


def route(target: TargetResult, spec: PipelineSpec, number: int) -> str:
    """Return source and target system as one short text."""
    target_system = system_of(spec.loads[number].connection if number < len(spec.loads) else None, target.target_kind)
    here = system_of(spec.source_connection, target.source_kind)
    return f"{here} → {target_system}" if here else target_system


def counts(target: TargetResult) -> str:
    """Return the counts of changed rows, the watermark and where the load ran.

    Counts of 0 are left out, except those that belong to the mode.
    """
    expected = ("inserted", *_ALWAYS.get(target.mode, ()))
    numbers = [(word, int(getattr(target, f"rows_{word}"))) for word in _COUNTED]
    text = ", ".join(f"{number:,} {word}" for word, number in numbers if number or word in expected)
    if target.watermark:
        text += f" (watermark {target.watermark.removesuffix('.000000')})"
    if target.path == "same_db":
        text += f" (inside {title_of(target.target_kind)})"
    return text


def summary(*, succeeded: int, failed: int, skipped: int, engine_seconds: float | None,
            session: Mapping[str, Any] | None = None) -> str:  # fmt: skip
    """Return the last line: how many pipelines succeeded, failed and were skipped, the engine and its start time."""
    parts = [f"{succeeded} ok", f"{failed} failed" if failed else "", f"{skipped} skipped" if skipped else ""]
    return " · ".join(filter(None, [*parts, _engine(session, engine_seconds)]))


def session_of(results: Sequence[Result]) -> Mapping[str, Any] | None:
    """Return the first Spark session of the runs; None when no run had one."""
    sessions = (result.cost.session for result in results if result.cost is not None)
    return next((session for session in sessions if session is not None), None)


def _engine(session: Mapping[str, Any] | None, started: float | None) -> str:
    """Return the engine's name and the seconds it took to start.

    >>> _engine({"kind": "local", "engine": "local[2]"}, 3.14), _engine({"kind": "warm", "pid": 4711}, 0.2)
    ('engine started in 3.1 s (Spark, local[2])', 'warm engine 4711')
    """
    if session is not None and session.get("kind") == "warm":
        return f"warm engine {session.get('pid')}"
    text = f"engine started in {format_seconds(started)}" if started else ""
    name = str(session.get("engine") or "") if session is not None else ""
    named = name if name == "sail" else f"Spark, {name}"
    return f"{text or 'engine'} ({named})" if name else text


def widest_name(names: Sequence[str]) -> int:
    """Return the length of the longest name."""
    return max((len(name) for name in names), default=0)


def title_of(backend_name: str) -> str:
    """Return the display name of a backend."""
    from ematix_flow.backends.catalog import backend_named

    backend = backend_named(backend_name)
    return backend.title if backend is not None else backend_name
