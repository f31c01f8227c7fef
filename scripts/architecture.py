"""The diagrams of ARCHITECTURE.md: the packages from the layers in pyproject.toml, the data flow from the steps in the code."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "ematix_flow"
WIDTH = 14
"""Characters of one step in the diagram of the data flow."""


def architecture() -> str:
    """Return ARCHITECTURE.md with its diagrams written anew."""
    from ematix_flow.foundation.steps import MICRO_BATCH_STEPS, RUN_STEPS

    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for name, lines in (
        ("packages", packages()),
        ("run", flow(RUN_STEPS)),
        ("micro-batch", flow(MICRO_BATCH_STEPS)),
    ):
        page = _between_markers(page, name, "\n".join(lines))
    return page


def packages() -> Iterator[str]:
    """Yield a line per package, from the top layer to the bottom; packages of one layer are joined by a bracket."""
    contracts = _layers()
    names = [name for layer in contracts[PACKAGE] for name in layer]
    width = max(map(len, names)) + 2
    for layer in contracts[PACKAGE]:
        for place, name in enumerate(layer):
            bracket = "─" if len(layer) == 1 else "┌" if place == 0 else "└" if place == len(layer) - 1 else "├"
            yield f"{bracket} {name:<{width}}{_summary(name)}"
            inner = contracts.get(f"{PACKAGE}.{name}")
            if inner:
                yield f"  {'':<{width}}{' > '.join(' | '.join(part) for part in inner)}"


def flow(steps: Sequence[Any]) -> Iterator[str]:
    """Yield the steps from left to right, what each does below, and where rows are set aside."""
    yield "".join(f"{step.name} ".ljust(WIDTH - 3, "─") + "─► " for step in steps[:-1]) + steps[-1].name
    columns = [textwrap.wrap(step.does, WIDTH - 2) for step in steps]
    for row in range(max(map(len, columns))):
        yield "".join((column[row] if row < len(column) else "").ljust(WIDTH) for column in columns).rstrip()
    aside = sum(step.sets_rows_aside for step in steps)
    if aside:
        yield "└" + " rows that fail: dead-letter store ".center(aside * WIDTH - 4, "─") + "┘"


def _layers() -> dict[str, list[list[str]]]:
    """Return the layers of every package that a contract divides, each layer with its packages."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    contracts = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0]: [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]
        for contract in contracts
        if contract["type"] == "layers"
    }


def _summary(name: str) -> str:
    """Return the first sentence of the docstring of a package."""
    source = (ROOT / "src" / PACKAGE / name / "__init__.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return text.split("\n\n")[0].replace("\n", " ").removesuffix(".")


def _between_markers(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: made by `make docs` -->\n", f"<!-- /{name} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"ARCHITECTURE.md has no markers for {name!r}: {begin.strip()} … {end}")
    return f"{before}{begin}```\n{text}\n```\n{end}{rest.partition(end)[2]}"
