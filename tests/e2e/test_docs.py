"""Every Python example in docs/ runs, every link leads somewhere, and the generated pages are fresh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.declare import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "run_log.db"))
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("WAREHOUSE_URL", "postgresql://nobody@127.0.0.1:1/none")
    yield
    registry.clear()


def examples() -> list[pytest.ParameterSet]:
    """Pages with Python examples; the blocks of a page build on each other."""
    found = [(page, _BLOCK.findall(page.read_text(encoding="utf-8"))) for page in PAGES]
    return [pytest.param(page, blocks, id=str(page.relative_to(ROOT))) for page, blocks in found if blocks]


@pytest.mark.parametrize(("page", "blocks"), examples())
def test_the_examples_of_a_page_run_one_after_the_other(page: Path, blocks: list[str], tmp_path: Path) -> None:
    module = types.ModuleType("documented")
    sys.modules["documented"] = module
    try:
        for number, block in enumerate(blocks):
            file = tmp_path / f"block{number}.py"
            file.write_text(block)
            exec(compile(block, str(file), "exec"), vars(module))
    finally:
        del sys.modules["documented"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nnext: make docs"
