"""Every Python example in docs/ runs, every link leads somewhere, and the generated pages are fresh."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.connections import clear_registry
from ematix_flow.declare import registry
from tests.e2e.samples import parsed_command

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
    clear_registry()


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


def blocks(language: str, *pages: str) -> list[pytest.ParameterSet]:
    """Pages with their blocks of a language."""
    marks = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    found = [(page, marks.findall(page.read_text(encoding="utf-8"))) for page in PAGES]
    named = [(str(page.relative_to(ROOT)), texts) for page, texts in found if texts]
    return [pytest.param(texts, id=name) for name, texts in named if not pages or name.startswith(pages)]


@pytest.mark.parametrize("texts", blocks("sh"))
def test_the_commands_of_a_page_are_what_the_command_line_takes(texts: list[str]) -> None:
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["flow"]:
                parsed_command([word for word in words[1:] if word != "&"])


@pytest.mark.parametrize("texts", blocks("toml", "docs/backends"))
def test_the_connections_of_a_page_are_connections(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ematix_flow.config.resolve import resolve

    for text in texts:
        for name in re.findall(r"\$\{(\w+)\}", text):
            monkeypatch.setenv(name, "value-of-a-docs-variable")
        Path(".ematix-flow.toml").write_text(text, encoding="utf-8")
        for name in re.findall(r"^\[connections\.(\w+)\]$", text, re.MULTILINE):
            found = resolve(name)
            assert ".ematix-flow.toml" in found.origin
            assert found.connection.resolved().label


@pytest.mark.parametrize("texts", blocks("toml", "docs/streaming.md"))
def test_the_files_of_a_page_are_streams(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ematix_flow.config.stream_connections import with_resolved_connections
    from ematix_flow.config.stream_toml import stream_from_text

    monkeypatch.setenv("KAFKA_BOOTSTRAP", "localhost:9092")
    Path(".ematix-flow.toml").write_text(
        '[connections.warehouse]\nurl = "${WAREHOUSE_URL}"\n'
        '[connections.kafka_prod]\nkind = "kafka"\nbootstrap_servers = "${KAFKA_BOOTSTRAP}"\n'
    )
    for text in texts:
        spec = with_resolved_connections(stream_from_text(text))
        assert [spec.sources, spec.targets] != [(), ()]


def test_the_tests_that_prove_the_guarantees_are_there() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page))
    assert len(named) > 10
    missing = [(file, test) for file, test in named if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")]
    assert missing == []


def test_the_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nnext: make docs"
