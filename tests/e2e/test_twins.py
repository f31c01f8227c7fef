"""The twins of the product's documents are complete, speak words of their own, and copy nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e import documents, names
from tests.e2e.test_spec_coverage import NOT_RUN
from tests.e2e.words import PRINTED

PRODUCT = documents.PRODUCT if documents.FOLDER == documents.TWINS else documents.FOLDER
compared = pytest.mark.skipif(
    not documents.file_of(documents.NEWER, PRODUCT).is_file(),
    reason=f"there are no documents of the product in {PRODUCT} to compare the twins with; EMATIX_FLOW_SPEC names them",
)
LONG = 45
"""So many characters without an import are a line that was copied."""
OTHERS = {"Quickstart:sh", "Project file:toml", "Typed stream:sh"}
"""Blocks of the first twin that tests find by what is said in them."""


def words_of(*files: Path) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def lines_of(*files: Path) -> set[str]:
    found = (" ".join(line.split()) for line in words_of(*files).splitlines())
    return {line for line in found if not re.match(r"(?:from|import|#+) ", line)}


TWINS = [documents.file_of(document, documents.TWINS) for document in (documents.NEWER, documents.FIRST)]


@compared
def test_every_sample_of_the_document_has_a_twin() -> None:
    printed, twins = (documents.fenced(documents.NEWER, folder) for folder in (PRODUCT, documents.TWINS))
    assert set(printed) - set(NOT_RUN) == set(twins)


def test_every_sample_of_the_first_document_has_a_twin() -> None:
    assert set(documents.fenced(documents.FIRST, documents.TWINS)) == set(names.EARLY) | OTHERS


@compared
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_no_long_line_is_that_of_a_document(twin: Path) -> None:
    shared = lines_of(twin) & lines_of(*PRODUCT.glob("*.txt"))
    assert [line for line in shared if len(line) > LONG] == []


@compared
def test_every_word_stands_where_the_translation_says_so() -> None:
    twins, printed = words_of(*TWINS), words_of(*PRODUCT.glob("*.txt"))
    assert [word for word in PRINTED if not stands(word, twins)] == []
    assert [word for word in PRINTED.values() if not stands(word, printed)] == []


def test_no_word_of_the_documents_is_a_word_of_the_twins() -> None:
    assert set(PRINTED) & set(PRINTED.values()) == set()


def stands(word: str, text: str) -> bool:
    made_by_a_join = word.removeprefix("left_")
    made_from_a_class = "".join(part.capitalize() for part in word.split("_"))
    return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text) for one in (word, made_by_a_join, made_from_a_class))
