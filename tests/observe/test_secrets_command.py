"""`flow secrets test`: an answer without the secret, unless it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ematix_flow.cli import main


def flow(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    written = capsys.readouterr()
    return code, written.out, written.err


@pytest.fixture(autouse=True)
def secret(project: Path) -> Path:
    (project / "db").write_text("canary-geheim-99\n")
    return project / "db"


def test_the_value_is_shown_in_part_with_its_length_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = flow(capsys, "secrets", "test", "${file:db}")
    assert code == 0
    assert out.startswith("ca...99  (16 chars, from file in ")
    assert "canary-geheim-99" not in out + err


def test_the_value_itself_is_shown_when_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert flow(capsys, "secrets", "test", "file:db", "--show") == (0, "canary-geheim-99\n", "")


def test_the_answer_is_json_when_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = flow(capsys, "secrets", "test", "file:db", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["reference"], told["store"], told["length"], told["value"]) == ("file:db", "file", 16, "ca...99")


def test_what_nothing_answers_is_a_failure_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = flow(capsys, "secrets", "test", "NOT_SET_ANYWHERE")
    assert (code, out) == (5, "")
    assert "export NOT_SET_ANYWHERE=…" in err


def test_a_resolver_of_the_projects_module_is_asked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pipelines.py").write_text(
        "from ematix_flow.secrets import register_resolver, unregister_resolver\n"
        "class Shelf:\n"
        "    def resolve(self, reference):\n"
        "        unregister_resolver('shelf')\n"
        "        return 'from-the-shelf'\n"
        "register_resolver('shelf', Shelf())\n"
    )
    code, out, _ = flow(capsys, "secrets", "test", "shelf:x", "--show")
    assert (code, out) == (0, "from-the-shelf\n")


def test_without_a_word_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = flow(capsys, "secrets")
    assert code == 2
    assert "test" in err
