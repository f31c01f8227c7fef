"""Report words that were retired in favour of the terms of the field: file, line, and the term to use.

The words are the table "Retired words" of docs/glossary.md. Checked are the whole text of sources, scripts, examples and
documents, and in tests the names of files, functions and classes. A word is also found as a part of a name, such as
`told_at` or `StateKeeper`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"
HEADING = "## Retired words"
WHOLE = ("src", "scripts", "examples", "docs", "*.md", "Makefile", "pyproject.toml")
NAMES = ("tests/**/*.py",)
# Names in stored files and in documented output, which later versions must read and write as they are.
STORED: Mapping[str, frozenset[str]] = {
    "scripts/words.py": frozenset({"heard", "keeper", "rehearsal", "told", "wish"}),
    "src/ematix_flow/alerters/outages.py": frozenset({"told"}),
    "src/ematix_flow/cli/commands/stream/": frozenset({"told"}),
    "src/ematix_flow/contract/state.py": frozenset({"heard", "told"}),
    "src/ematix_flow/declare/fingerprint.py": frozenset({"wish"}),
    "src/ematix_flow/streaming/admin/": frozenset({"told"}),
    "src/ematix_flow/streaming/runtime/": frozenset({"rehearsal"}),
    "src/ematix_flow/streaming/state/": frozenset({"heard", "told"}),
}
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DEFINITION = re.compile(r"\s*(?:async )?(?:def|class) (\w+)")


def main() -> int:
    """Print every finding; return 1 if there is one."""
    retired = terms_by_word((ROOT / GLOSSARY).read_text(encoding="utf-8"))
    if not retired:
        raise SystemExit(f"{GLOSSARY} has no table under {HEADING!r}")
    findings = [*_in_texts(retired), *_in_names(retired)]
    sys.stdout.write("".join(f"{finding}\n" for finding in findings) or f"{len(retired)} retired words, none in use\n")
    return 1 if findings else 0


def terms_by_word(glossary: str) -> dict[str, str]:
    """Return the term for each retired word, from the table of the glossary."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", glossary.partition(HEADING)[2], re.MULTILINE)
    return {word: term for words, term in rows[1:] if "---" not in words for word in words.split(", ")}


def retired_in(text: str, retired: Mapping[str, str]) -> list[str]:
    """Return the retired words in a text or name, each once.

    >>> retired_in("StateKeeper.told_at() or untold", {"keeper": "state store", "told": "reported"})
    ['keeper', 'told']
    """
    parts = dict.fromkeys(part.lower() for part in _PART.findall(text))
    return [part for part in parts if part in retired]


def _in_texts(retired: Mapping[str, str]) -> Iterator[str]:
    for name in _tracked(*WHOLE):
        if name.startswith("tests/"):
            continue
        stored = next((words for prefix, words in STORED.items() if name.startswith(prefix)), frozenset())
        text = (ROOT / name).read_text(encoding="utf-8", errors="ignore")
        if name == GLOSSARY:
            text = text.partition(HEADING)[0]
        for number, line in enumerate([name, *text.splitlines()]):
            for word in retired_in(line, retired):
                if word not in stored:
                    yield f"{name}:{number or 1}: {word!r} is retired, use: {retired[word]}"


def _in_names(retired: Mapping[str, str]) -> Iterator[str]:
    for name in _tracked(*NAMES):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            definition = _DEFINITION.match(line)
            for word in retired_in(definition[1], retired) if definition else ():
                yield f"{name}:{number}: {word!r} is retired, use: {retired[word]}"
        for word in retired_in(name, retired):
            yield f"{name}:1: {word!r} is retired in names of files, use: {retired[word]}"


def _tracked(*patterns: str) -> list[str]:
    """Return the files of the repository, also new ones that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file() and not name.endswith((".svg", ".png", ".gz"))]


if __name__ == "__main__":
    raise SystemExit(main())
