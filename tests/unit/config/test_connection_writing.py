"""Storing a connection in the user's file: private, whole, and nothing else touched."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow import config
from ematix_flow.config import connection_writer, files
from ematix_flow.config.resolve import resolve
from ematix_flow.foundation.errors import ConfigError


@pytest.fixture(autouse=True)
def user_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file of an empty home."""
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "project")
    for variable in ("EMATIX_FLOW_DSN", "EMATIX_FLOW_DSN_WAREHOUSE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / ".ematix-flow" / "connections.toml"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_connection_makes_a_private_file(user_toml: Path) -> None:
    assert config.set_connection("warehouse", "postgres://ana:hunter22@db/wh") == user_toml
    assert user_toml.read_text() == '[connections.warehouse]\nurl = "postgres://ana:hunter22@db/wh"\n'
    assert _mode(user_toml) == 0o600
    assert _mode(user_toml.parent) == 0o700
    assert resolve("warehouse").origin == "~/.ematix-flow/connections.toml:1"


def test_a_readable_file_becomes_private(user_toml: Path) -> None:
    user_toml.parent.mkdir()
    user_toml.write_text('[connections.a]\nurl = "sqlite:///a.db"\n')
    user_toml.chmod(0o644)
    config.set_connection("b", "sqlite:///b.db")
    assert _mode(user_toml) == 0o600


def test_every_other_line_stays_as_it_is(user_toml: Path) -> None:
    user_toml.parent.mkdir()
    user_toml.write_text(
        "# my connections\n"
        "[connections.first]   # a comment\n"
        'kind = "kafka"\nbootstrap_servers = "a:9092"\ngroup_id = "g"  # another\n'
        "\n"
        "[connections.warehouse]\n"
        'dsn = "postgres://db/old"\n'
        "\n"
        "# about the last one\n"
        "[connections.last]\n"
        'url = "sqlite:///last.db"\n'
        "[other]\nx = [1, 2]\n"
    )
    config.set_connection("warehouse", "postgres://db/new")
    assert user_toml.read_text() == (
        "# my connections\n"
        "[connections.first]   # a comment\n"
        'kind = "kafka"\nbootstrap_servers = "a:9092"\ngroup_id = "g"  # another\n'
        "\n"
        "[connections.warehouse]\n"
        'url = "postgres://db/new"\n'
        "\n"
        "# about the last one\n"
        "[connections.last]\n"
        'url = "sqlite:///last.db"\n'
        "[other]\nx = [1, 2]\n"
    )


def test_a_new_entry_goes_to_the_end(user_toml: Path) -> None:
    user_toml.parent.mkdir()
    user_toml.write_text('# no newline at the end\n[connections.a]\nurl = "sqlite:///a.db"')
    config.set_connection("b", {"kind": "sqlite", "path": "b.db"})
    assert user_toml.read_text() == (
        '# no newline at the end\n[connections.a]\nurl = "sqlite:///a.db"\n\n'
        '[connections.b]\nkind = "sqlite"\npath = "b.db"\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        '[connections]\nwarehouse = "postgres://db/old"\nother = "sqlite:///o.db"\n',
        'connections.warehouse.url = "postgres://db/old"\nconnections.other.url = "sqlite:///o.db"\n',
        'connections = {warehouse = {url = "postgres://db/old"}, other = {url = "sqlite:///o.db", x = [{y = 1}]}}\n',
        (
            '[connections.warehouse]\nurl = "postgres://db/old"\n[connections.warehouse.extra]\nx = 1\n'
            '[connections.other]\nurl = "sqlite:///o.db"\nwhen = 2026-01-31T10:00:00Z\ny = 1.5\nz = true\n'
        ),
        '[connections.warehouse]\nurl = """\n[connections.fake]\n"""\n[connections.other]\nurl = "sqlite:///o.db"\n',
    ],
)
def test_unusual_shapes_of_a_file_keep_every_other_entry_and_its_keys(user_toml: Path, text: str) -> None:
    user_toml.parent.mkdir()
    user_toml.write_text(text)
    before = files.parse(text, path=user_toml, shown="before")
    config.set_connection("warehouse", "postgres://db/new")
    after = files.parse(user_toml.read_text(), path=user_toml, shown="after")
    assert after["connections"].pop("warehouse") == {"url": "postgres://db/new"}
    before["connections"].pop("warehouse")
    assert after == before


def test_single_fields_change_an_entry_and_a_url_replaces_it(user_toml: Path) -> None:
    config.set_connection("w", {"kind": "postgres", "host": "db", "database": "a", "password": "${PW}"})
    config.set_connection("w", {"database": "b"})
    assert resolve("w").connection.fields == {"host": "db", "database": "b", "password": "${PW}"}
    config.set_connection("w", {"url": "postgres://db/c"})
    assert resolve("w").connection.fields == {"url": "postgres://db/c"}


def test_a_variable_that_is_not_set_yet_does_not_matter(user_toml: Path) -> None:
    config.set_connection("w", "${NOT_SET_ANYWHERE}")
    assert user_toml.read_text() == '[connections.w]\nurl = "${NOT_SET_ANYWHERE}"\n'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("w", "ftp://ana:hunter22@db"),
        ("w", "hunter22"),
        ("w", {"kind": "sqlite"}),
        ("w", {"kind": "postgres", "url": "postgres://db/x", "passwrd": "hunter22"}),
        ("w", {"path": "a"}),
        ("", "sqlite:///a.db"),
        ("a\nb", "sqlite:///a.db"),
    ],
)
def test_what_cannot_be_right_is_not_written(user_toml: Path, name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        config.set_connection(name, value)
    assert not user_toml.exists()
    assert "hunter22" not in str(caught.value)


def test_a_malformed_file_is_left_alone(user_toml: Path) -> None:
    user_toml.parent.mkdir()
    user_toml.write_text("[connections\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        config.set_connection("w", "sqlite:///a.db")
    assert user_toml.read_text() == "[connections\n"


def test_a_home_that_cannot_be_written_is_one_clear_error(user_toml: Path) -> None:
    user_toml.parent.write_text("a file where a folder belongs")
    with pytest.raises(ConfigError, match=r"connections\.toml cannot be (written|read)"):
        config.set_connection("w", "sqlite:///a.db")


def test_nothing_is_left_behind_when_the_file_cannot_be_replaced(user_toml: Path) -> None:
    (user_toml.parent / "connections.toml").mkdir(parents=True)
    with pytest.raises(ConfigError):
        connection_writer._write_privately(user_toml, "x = 1\n")
    assert [path.name for path in user_toml.parent.iterdir()] == ["connections.toml"]


def test_a_link_to_the_file_is_followed(user_toml: Path, tmp_path: Path) -> None:
    user_toml.parent.mkdir()
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    user_toml.symlink_to(real)
    config.set_connection("w", "sqlite:///a.db")
    assert user_toml.is_symlink()
    assert "sqlite:///a.db" in real.read_text()


_name = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=8).filter(
    lambda text: text.strip() and all(ord(letter) >= 32 and ord(letter) != 127 for letter in text)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(entries=st.dictionaries(_name, st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=4))
def test_any_names_and_values_can_be_stored_and_read_back(user_toml: Path, entries: dict[str, str]) -> None:
    user_toml.unlink(missing_ok=True)
    for name, path in entries.items():
        config.set_connection(name, {"kind": "sqlite", "path": f"p{path}"})
    if entries:
        stored = files.read_user()
        assert stored is not None
        assert stored.connections == {name: {"kind": "sqlite", "path": f"p{path}"} for name, path in entries.items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["warehouse=postgres://u:p@h/db?a=b"], ("warehouse", "postgres://u:p@h/db?a=b")),
        (["warehouse", "postgres://u:p@h/db?a=b"], ("warehouse", "postgres://u:p@h/db?a=b")),
        (["warehouse", "url=postgres://h/db?a=b"], ("warehouse", {"url": "postgres://h/db?a=b"})),
        (["lake", "kind=delta_local", "path=a=b"], ("lake", {"kind": "delta_local", "path": "a=b"})),
    ],
)
def test_the_words_of_a_command_become_a_connection(words: list[str], expected: object) -> None:
    assert config.parse_assignment(words) == expected


@pytest.mark.parametrize(
    "words", [[], ["warehouse"], ["=x"], ["warehouse="], ["warehouse", "hunter22"], ["w", "a=b", "hunter22"]]
)
def test_words_that_set_nothing_are_refused_with_an_example(words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse_assignment(words)
    assert "flow connections set warehouse url=" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_nothing_of_this_loads_an_engine_or_a_driver() -> None:
    import subprocess

    code = (
        "import sys, ematix_flow.config, ematix_flow.connections, ematix_flow.secrets, ematix_flow.warehouses;"
        "heavy = {'pyspark', 'pyarrow', 'sqlglot', 'duckdb', 'psycopg', 'pymysql', 'click', 'rich'};"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    source = str(Path(files.__file__).resolve().parents[2])  # the test stands in another directory
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"
