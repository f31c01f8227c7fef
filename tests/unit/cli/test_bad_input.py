"""Bad input on the command line: one message with its place and a next step, the code of its class, nothing loaded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

SECRET = "hunter22-secret"
TABLE = """

@ematix.table(schema="main")
class Checked:
    id: Annotated[Integer, pk()]
    code: String[3]
    note: Text


@ematix.pipeline(target=Checked, target_connection="{target}", source_connection="shop", mode="append"{more})
def checked(conn):
    return "{sql}"
"""
GOOD = "SELECT id, code, note FROM raw_checked WHERE id = 1"
WRONG: dict[str, tuple[str, int, str, str]] = {
    "missing table": ("SELECT id, code, note FROM nowhere", 3, "nowhere", "flow validate checked"),
    "missing column": ("SELECT id, code, nte FROM raw_checked", 3, "did you mean 'note'?", "flow validate checked"),
    "column not given": ("SELECT id, code AS cod, note FROM raw_checked", 3, "did you mean 'cod'?", "flow validate checked"),
    "syntax": ("SELEC 1 AS id", 3, "SELEC", "flow validate checked"),
    "not null": ("SELECT id, code, note FROM raw_checked WHERE id = 2", 4, "note", "flow preview checked --rows 5"),
    "too long": ("SELECT id, code, note FROM raw_checked WHERE id = 3", 4, "more than 3 characters", "flow preview checked --rows 5"),
    "key twice": ("SELECT id, code, note FROM raw_checked WHERE id = 4", 4, "id", "flow preview checked --rows 5"),
}  # fmt: skip


@pytest.fixture
def load(shop: Path, declare: Callable[[str], None]) -> Callable[..., None]:
    """Declare a pipeline of a source with one good row and several bad ones; types are equal, so no Spark starts."""
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("CREATE TABLE raw_checked (id INT, code VARCHAR(3), note TEXT)")
        bad = [(1, "abc", "n"), (2, "abc", None), (3, "abcd", "n"), (4, "abc", "n"), (4, "abc", "n")]
        database.executemany("INSERT INTO raw_checked VALUES (?, ?, ?)", bad)
    module = shop / "pipelines.py"
    module.write_text(module.read_text().replace("BigInt, Text", "BigInt, Integer, String, Text", 1))

    def add(sql: str, *, target: str = "shop", more: str = "") -> None:
        declare(TABLE.format(sql=sql, target=target, more=more))

    return add


def rows(shop: Path, table: str = "checked") -> list[Any]:
    with closing(sqlite3.connect(shop / "shop.db")) as database:
        there = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone()
        return database.execute(f"SELECT id, code, note FROM {table}").fetchall() if there else []


def one_message(answer: Any, code: int, *said: str) -> None:
    """One ✗ on stderr, nothing on stdout, no traceback, no secret."""
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert answer.err.count("✗") == 1, answer.err
    for word in said:
        assert word in answer.err, answer.err
    assert "Traceback" not in answer.err
    assert SECRET not in answer.err


@pytest.mark.parametrize("what", WRONG)
def test_a_source_or_a_row_that_is_wrong_loads_nothing(
    flow: Any, shop: Path, load: Callable[..., None], what: str
) -> None:
    sql, code, said, command = WRONG[what]
    load(GOOD, more=', name="first"')
    load(sql)
    assert "(inside SQLite)" in flow("run", "first").out
    before = rows(shop)
    assert before == [(1, "abc", "n")]
    one_message(flow("run", "checked"), code, said, "nothing was loaded", "pipelines.py:", f"next: {command}")
    assert rows(shop) == before
    told = flow("run", "checked", "--json")
    assert told.code == code
    assert SECRET not in told.out
    assert "Traceback" not in told.out + told.err


def test_an_unknown_connection_names_the_nearest(flow: Any, shop: Path, load: Callable[..., None]) -> None:
    load(GOOD, target="shpo")
    one_message(flow("run", "checked"), 5, "did you mean 'shop'?", "nothing was loaded", "next: flow connections list")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgres://ana:{SECRET}@127.0.0.1:9/shop?connect_timeout=2", "127.0.0.1"),
        (f"mysql://ana:{SECRET}@127.0.0.1:9/shop", "127.0.0.1"),
        (f"postgres://ana:{SECRET}@${{NOT_SET_ANYWHERE}}/shop", "NOT_SET_ANYWHERE"),
        (f"postgres://ana:{SECRET}@db:notaport/shop", "port"),
        (f"nosuchkind://ana:{SECRET}@db/shop", "nosuchkind"),
    ],
)
def test_a_connection_that_cannot_be_used_says_why_and_keeps_its_password(
    flow: Any, shop: Path, load: Callable[..., None], url: str, said: str
) -> None:
    load(GOOD, target="away")
    (shop / ".ematix-flow.toml").write_text(f'[connections.away]\nurl = "{url}"\n')
    one_message(flow("run", "checked"), 5, said, "nothing was loaded", "next: flow connections ")
    for words in (("run", "checked", "--json"), ("connections", "check", "away"), ("connections", "list", "--json")):
        answer = flow(*words)
        assert SECRET not in answer.out + answer.err
        assert "Traceback" not in answer.err


def test_a_configuration_file_that_cannot_be_read_is_named_with_its_line(
    flow: Any, shop: Path, load: Callable[..., None]
) -> None:
    load(GOOD, target="away")
    (shop / ".ematix-flow.toml").write_text(f'[connections.away]\nurl = "postgres://ana:{SECRET}@db/shop\n')
    one_message(flow("run", "checked"), 5, ".ematix-flow.toml:2")
    assert rows(shop) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (', depends_on=["peple"]', "did you mean 'people'?"),
        (', depends_on=["names", "checked"]', "checked → checked"),
        (", modee=1", "did you mean mode=?"),
    ],
)
def test_a_declaration_that_cannot_be_right_stops_every_command_before_anything_runs(
    flow: Any, shop: Path, load: Callable[..., None], more: str, said: str
) -> None:
    load(GOOD, more=more)
    for words in (("run", "checked"), ("run", "--all"), ("validate", "checked")):
        one_message(flow(*words), 3, said, "pipelines.py:")
    assert rows(shop) == rows(shop, "people") == []


def test_a_circle_of_dependencies_is_shown(flow: Any, shop: Path, load: Callable[..., None]) -> None:
    load(GOOD, more=', name="one", depends_on=["other"]')
    load(GOOD, more=', name="other", depends_on=["one"]')
    one_message(flow("run", "one"), 3, "one → other → one", "pipelines.py:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nowhere_to_be_found\n", "nowhere_to_be_found"),
        ("def broken(:\n", "SyntaxError"),
        (f"raise RuntimeError('postgres://ana:{SECRET}@db/shop')\n", "RuntimeError"),
    ],
)
def test_a_module_that_fails_to_import_runs_nothing(flow: Any, shop: Path, text: str, said: str) -> None:
    (shop / "pipelines.py").write_text(text)
    for words in (("run", "people"), ("run", "--all"), ("run", "--all", "--json")):
        answer = flow(*words)
        assert answer.code == 3
        assert said in answer.err + answer.out
        assert "pipelines.py" in answer.err + answer.out
        assert "Traceback" not in answer.err
        assert SECRET not in answer.err + answer.out
    assert rows(shop, "people") == []
