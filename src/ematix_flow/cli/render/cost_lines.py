"""The lines of `flow runs show` on the cost of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ematix_flow.cli.render.explain import explain_duration, format_percent
from ematix_flow.cli.render.figures import RunFigures
from ematix_flow.cli.render.units import format_bytes, format_rate, format_seconds

_MEASURED = {"arrow": "as Arrow batches", "files": "in files"}


def fact_lines(figures: RunFigures, *, failed: bool, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield pairs of label and text, leaving out what the record does not contain."""
    yield from _steps(figures)
    if figures.rows is not None:
        rate = figures.rows_per_second
        yield "rows", f"{figures.rows:,} in" + (f", {rate:,.0f} rows/s while loading" if rate else "")
    if figures.size is not None:
        rate = figures.bytes_per_second
        amount = f"{format_bytes(figures.size)} {_MEASURED.get(figures.size_of, '')}".rstrip()
        yield "bytes", amount + (f", {format_bytes(rate)}/s while loading" if rate else "")
    if figures.cpu is not None:
        on_average = f": {figures.cores:.1f} cores on average" if figures.cores is not None else ""
        yield "cpu", f"{figures.cpu:,.1f} s{on_average}"
    yield "engine", figures.engine()
    yield from _settings(figures, verbose=verbose)
    yield "versions", ", ".join(f"{name} {text}" for name, text in figures.versions.items())
    yield "declared", figures.declaration
    yield "why", explain_duration(figures, failed=failed)


def target_lines(target: Mapping[str, Any], *, is_one_of_many: bool) -> Iterator[str]:
    """Yield the lines on one target: path, lane and checks, and its size and rate if the run has several targets."""
    for word in ("path", "lane"):
        reason = target.get(f"{word}_reason")
        if target.get(word) and reason:
            yield f"{word} {target[word]} ({reason})"
    yield from quality_lines(target.get("quality"))
    if is_one_of_many and target.get("bytes_staged") is not None:
        rate = format_rate(target.get("rows_read"), target["bytes_staged"], target.get("load_seconds"))
        yield ", ".join(
            [f"{format_bytes(target['bytes_staged'])} {_MEASURED.get(str(target.get('bytes_of')), '')}", *rate]
        )


def quality_lines(quality: Any) -> Iterator[str]:
    """Yield the results of the checks: one line for all, and one for each check that did not pass."""
    if not isinstance(quality, Mapping):
        return
    verdict, total = str(quality.get("verdict")), quality.get("checks_total") or 0
    if verdict == "skipped":
        yield "quality skipped: EMATIX_SKIP_QUALITY was set"
        return
    failed, errored = quality.get("checks_failed") or 0, quality.get("checks_errored") or 0
    passed = f"{total - failed - errored} of {total} checks passed"
    yield f"quality {verdict}: {passed}"
    for item in quality.get("assertions") or ():
        if isinstance(item, Mapping) and item.get("verdict") in ("fail", "error"):
            examples = "; ".join(str(sample) for sample in item.get("samples") or ())
            yield f"  {item.get('name')}: {item.get('message')}" + (f" (for example {examples})" if examples else "")


def format_step_seconds(value: float) -> str:
    """Return a duration with hundredths of a second below 10 s.

    >>> format_step_seconds(0.042), format_step_seconds(75.2)
    ('0.04 s', '1 min 15 s')
    """
    return format_seconds(value, digits=2 if value < 10 else 1)


def _steps(figures: RunFigures) -> Iterator[tuple[str, str]]:
    for number, (step, took) in enumerate(figures.steps.items()):
        yield (
            "steps" if number == 0 else "",
            f"{step:<10}{format_step_seconds(took):>11}  {format_percent(figures.share(step)):>5}",
        )


def _settings(figures: RunFigures, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if not figures.settings:
        return
    if not verbose:
        yield "settings", f"{len(figures.settings)} set, all others as Spark has them (--verbose lists them)"
        return
    for number, (name, value) in enumerate(figures.settings.items()):
        yield "settings" if number == 0 else "", f"{name} = {value}"
