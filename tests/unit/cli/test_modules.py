"""Finding and importing the user's module, and what is said when that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def names(flow: Any, *words: str) -> list[str]:
    answer = flow("list", "--json", *words)
    assert answer.code == 0, answer.err
    return [entry["name"] for entry in answer.document]


def test_pipelines_py_is_found_without_being_named(flow: Any, shop: Path) -> None:
    assert names(flow) == ["names", "people", "tidy"]


@pytest.mark.parametrize("form", ["loads", "loads.py", "./loads.py"])
def test_a_module_is_named_by_name_or_by_path(flow: Any, shop: Path, form: str) -> None:
    (shop / "pipelines.py").rename(shop / "loads.py")
    assert "people" in names(flow, "--module", form)


def test_the_environment_may_name_the_module(flow: Any, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop / "pipelines.py").rename(shop / "loads.py")
    monkeypatch.setenv("EMATIX_FLOW_MODULE", "loads")
    assert "people" in names(flow)


def test_a_file_in_another_folder_imports_its_neighbours(flow: Any, project: Path) -> None:
    elsewhere = project / "etl"
    elsewhere.mkdir()
    (elsewhere / "tables.py").write_text("NAME = 'from_the_neighbour'\n")
    (elsewhere / "loads.py").write_text(
        "from ematix_flow import ematix\nfrom tables import NAME\n@ematix.transform(name=NAME)\ndef one(conn):\n    pass\n"
    )
    assert names(flow, "--module", "etl/loads.py") == ["from_the_neighbour"]


def test_a_file_of_a_package_is_imported_as_part_of_it(flow: Any, project: Path) -> None:
    package = project / "warehouse"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'relative'\n")
    (package / "loads.py").write_text(
        "from ematix_flow import ematix\nfrom .names import NAME\n@ematix.transform(name=NAME)\ndef one(conn):\n    pass\n"
    )
    assert names(flow, "--module", "warehouse/loads.py") == ["relative"]


def test_without_any_module_the_ways_to_name_one_are_reported(flow: Any, project: Path) -> None:
    answer = flow("list")
    assert answer.code == 2
    assert "--module" in answer.err
    assert "EMATIX_FLOW_MODULE" in answer.err


def test_a_module_that_is_not_there_is_reported_with_the_nearest_file(flow: Any, shop: Path) -> None:
    answer = flow("list", "--module", "pipeline")
    assert answer.code == 3
    assert "did you mean 'pipelines'?" in answer.err
    assert flow("list", "--module", "nowhere/loads.py").code == 3


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ny = x +\n", 2, "SyntaxError"),
        ("import json\nimport not_installed_anywhere\n", 2, "not_installed_anywhere"),
        ("def f():\n    return 1 / 0\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('stopped')\n", 2, "SystemExit: stopped"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
    ],
)
def test_a_module_that_fails_is_reported_with_the_users_line(
    flow: Any, project: Path, text: str, line: int, said: str
) -> None:
    (project / "pipelines.py").write_text(text)
    answer = flow("list")
    assert answer.code == 3
    assert said in answer.err
    assert f"pipelines.py:{line} " in answer.err
    assert text.splitlines()[line - 1].strip() in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_verbose_shows_the_traceback_without_secrets(flow: Any, project: Path) -> None:
    (project / "pipelines.py").write_text("raise ValueError('postgres://ana:hunter22@db/shop is down')\n")
    answer = flow("list", "--verbose")
    assert "Traceback" in answer.err
    assert "hunter22" not in answer.err


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ('depends_on=["peple"]', "did you mean 'people'?"),
        ('depends_on=["extra"]', "extra → extra"),
        ("modee='append'", "did you mean mode=?"),
    ],
)
def test_a_declaration_that_cannot_be_right_is_reported_with_its_line(
    flow: Any, shop: Path, declare: Any, keywords: str, said: str
) -> None:
    declare(f'\n@ematix.pipeline(target=People, target_connection="shop", mode="append", {keywords})\n'
            'def extra(conn):\n    return "SELECT 1"\n')  # fmt: skip
    answer = flow("list")
    assert answer.code == 3
    assert said in answer.err
    assert "pipelines.py:" in answer.err


def test_what_a_module_prints_or_warns_of_is_talk(flow: Any, shop: Path, declare: Any) -> None:
    declare("\nimport warnings\nwarnings.warn('this key is odd')\n")
    answer = flow("list")
    assert "the module speaks" in answer.err
    assert "warning: this key is odd (pipelines.py:" in answer.err
    assert "speaks" not in answer.out


def test_a_broken_module_that_was_not_named_does_not_hide_the_connections(flow: Any, project: Path) -> None:
    (project / "pipelines.py").write_text("1 / 0\n")
    (project / ".ematix-flow.toml").write_text('[connections.shop]\nurl = "sqlite:///shop.db"\n')
    answer = flow("connections", "list")
    assert answer.code == 0
    assert answer.out.startswith("shop  sqlite:shop.db")
    assert "warning: pipelines.py cannot be imported" in answer.err
    assert flow("connections", "list", "--module", "pipelines").code == 3


def test_an_empty_module_is_no_failure(flow: Any, project: Path) -> None:
    (project / "pipelines.py").write_text("")
    answer = flow("list")
    assert (answer.code, answer.out) == (0, "")
    assert "declares no pipelines" in answer.err
    assert flow("status").code == 0
    assert flow("run", "--all").code == 2


def test_a_module_of_the_same_name_in_another_folder_is_another_module(
    flow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration = "from ematix_flow import ematix\n@ematix.transform(name={!r})\ndef one(conn):\n    pass\n"
    for folder in ("first", "second"):
        (project / folder).mkdir()
        (project / folder / "loads.py").write_text(declaration.format(f"of_the_{folder}"))
        monkeypatch.chdir(project / folder)
        assert names(flow, "--module", "loads") == [f"of_the_{folder}"]
