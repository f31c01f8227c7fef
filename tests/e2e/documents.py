"""The product's documents, read at run time: their code blocks by heading, ready to be run.

The folder is named by EMATIX_FLOW_SPEC; without it, `shared/spec/product` beside the repository is used, and without
that the twins: documents of this repository with samples of the same names and shapes in words of their own.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

from tests.e2e.names import EARLY

PRODUCT = Path(__file__).resolve().parents[3] / "shared" / "spec" / "product"
TWINS = Path(__file__).resolve().parent / "twins"
FOLDER = Path(os.environ.get("EMATIX_FLOW_SPEC") or (PRODUCT if PRODUCT.is_dir() else TWINS)).resolve()
NEWER, FIRST = "readme-0.3.0", "readme-0.1.2"
_HEADING = re.compile(r"^(#{1,6}) +(.*)$")
_OPENS_BLOCK = re.compile(r"^(?:class|def|for) .*:\s*(?:#.*)?$")
_STARTS_CODE = re.compile(r"^(?:@|class |def |for |from |import |#|[a-z_0-9]+ = |[a-z_.]+\()")
_IN_CLASS = re.compile(r"^\w+ ?[:=] ")
_ENDS_FUNCTION = re.compile(r"^(?:return|pass)\b")


@dataclass(frozen=True)
class Sample:
    """One block of a document; `name` is the way to it through the headings."""

    file: Path
    line: int
    language: str
    name: str
    text: str

    def compiled(self) -> CodeType:
        """The block as Python code whose lines are those of the document; like a cell, it may declare a name again."""
        name, text = f"<{self.file.name}>", "\n" * (self.line - 1) + self.text
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return compile(text, name, "exec", dont_inherit=True)

    def saying(self, values: Mapping[str, str]) -> Sample:
        """The block with other values: what a reader puts in place of the hosts and ports of the documents."""
        text = self.text
        for printed, value in values.items():
            text = text.replace(printed, value)
        return replace(self, text=text)

    def keyword(self, name: str) -> Any:
        """The value that the block gives to a keyword, worked out from what it says there."""
        import ast

        (said,) = [
            one.value for one in ast.walk(ast.parse(self.text)) if isinstance(one, ast.keyword) and one.arg == name
        ]
        return eval(compile(ast.Expression(said), self.name, "eval"))

    def commands(self) -> list[list[str]]:
        """The `flow` commands of a shell block, as words without their comments."""
        import shlex

        joined = self.text.replace("\\\n", " ")
        words = [shlex.split(line, comments=True) for line in joined.splitlines()]
        return [command[1:] for command in words if command[:1] == ["flow"]]


def file_of(document: str, folder: Path = FOLDER) -> Path:
    """The file of a document: the product's are stored as text, the twins as Markdown."""
    stored = folder / f"{document}.txt"
    return stored if stored.is_file() else folder / f"{document}.md"


def text_of(document: str) -> str:
    """A whole document."""
    return file_of(document).read_text(encoding="utf-8")


def fenced(document: str, folder: Path = FOLDER) -> dict[str, Sample]:
    """Every fenced block by name: `Section/Heading`, `Section/Heading (2)` for the second of its language there."""
    file = file_of(document, folder)
    path: list[tuple[int, str]] = []
    found: dict[str, Sample] = {}
    opened: tuple[str, int] | None = None
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith("```"):
            if opened is None:
                opened = (line[3:].strip(), number + 1)
                continue
            language, first = opened
            _add(found, Sample(file, first, language, _name(path), "\n".join(lines[first - 1 : number - 1]) + "\n"))
            opened = None
        elif opened is None and (heading := _HEADING.match(line)):
            depth = len(heading[1])
            path = [item for item in path if item[0] < depth] + [(depth, heading[2].replace("`", "").strip())]
    return found


def _name(path: list[tuple[int, str]]) -> str:
    return "/".join(title for depth, title in path if depth > 1) or "Start"


def _add(found: dict[str, Sample], sample: Sample) -> None:
    name, number = f"{sample.name}:{sample.language or 'text'}", 1
    while name in found:
        number += 1
        name = f"{sample.name}:{sample.language or 'text'} ({number})"
    found[name] = sample


def early(name: str) -> Sample:
    """A sample of the first document, which has no fences, by the name of its block in the twin."""
    if FOLDER == TWINS:
        return fenced(FIRST)[name]
    place = EARLY[name]
    if place.end:
        return between(FIRST, first=place.first, end=place.end)
    return unindented(FIRST, after=place.after, first=place.first)


def unindented(document: str, *, after: str, first: str) -> Sample:
    """A Python block of a document that lost its indentation, given back by what the lines must mean.

    The block begins with the line `first` below the line `after` and ends where the lines stop being code.
    """
    file, lines = file_of(document), text_of(document).splitlines()
    begin = lines.index(first, lines.index(after))
    text = _indented(lines[begin:])
    return Sample(file, begin + 1, "python", after, text)


def between(document: str, *, first: str, end: str) -> Sample:
    """The lines of a document from `first` to before `end`."""
    file, lines = file_of(document), text_of(document).splitlines()
    begin = lines.index(first)
    return Sample(file, begin + 1, "", first, "\n".join(lines[begin : lines.index(end, begin)]) + "\n")


def _indented(lines: list[str]) -> str:
    """Indent the bodies of classes and functions; inside brackets every indentation is right."""
    done: list[str] = []
    depth, block, body = 0, "", 0
    for line in lines:
        if depth == 0 and block and not _belongs(line, block, body):
            block = ""
        if depth == 0 and not block and not _STARTS_CODE.match(line):
            break
        done.append(("    " if block else "") + line)
        body += 1
        if depth == 0 and not block and _OPENS_BLOCK.match(line):
            block, body = line.split(" ", 1)[0], 0
        elif depth == 0 and block == "def" and _ENDS_FUNCTION.match(line):
            block = ""
        depth += _brackets(line)
    return "\n".join(done) + "\n"


def _belongs(line: str, block: str, body: int) -> bool:
    if line.startswith("#"):
        return body == 0  # a comment opens a body, or announces what follows it
    if block == "for":
        return body == 0
    return block == "def" or bool(_IN_CLASS.match(line))


def _brackets(line: str) -> int:
    code = re.sub(r"\"[^\"]*\"|'[^']*'|#.*$", "", line)
    return sum(code.count(mark) for mark in "([{") - sum(code.count(mark) for mark in ")]}")
