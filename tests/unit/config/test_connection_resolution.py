"""Which connection a name means, and what is said when it means none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow import config
from ematix_flow import connections as c
from ematix_flow.config import files
from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, MissingSecret, UnknownConnection, WrongType


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project with an empty home, and an environment without connections."""
    for variable in list(os.environ):
        if variable.startswith("EMATIX_FLOW_DSN"):
            monkeypatch.delenv(variable)
    (tmp_path / "home" / ".ematix-flow").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    c.clear_registry()
    redact.forget_secrets()
    yield tmp_path / "project"
    c.clear_registry()
    redact.forget_secrets()


@pytest.fixture
def project_toml(project: Path) -> Path:
    return project / ".ematix-flow.toml"


@pytest.fixture
def user_toml(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".ematix-flow" / "connections.toml"


def _database(name: str) -> str:
    connection = resolve(name).connection
    assert isinstance(connection, c.PostgresConnection)
    return connection.resolved().address.database


def test_each_place_wins_over_the_next(monkeypatch: pytest.MonkeyPatch, project_toml: Path, user_toml: Path) -> None:
    c.register_connection(c.PostgresConnection("warehouse", url="postgres://db/from_code"))
    line = _line_above()
    assert _database("warehouse") == "from_code"
    assert resolve("warehouse").origin.startswith("registered at ")
    assert resolve("warehouse").origin.endswith(f"test_connection_resolution.py:{line}")

    user_toml.write_text('# mine\n[connections.warehouse]\nurl = "postgres://db/from_user"\n')
    assert _database("warehouse") == "from_user"
    assert resolve("warehouse").origin == "~/.ematix-flow/connections.toml:2"

    project_toml.write_text('\n\n[connections.warehouse]\nurl = "postgres://db/from_project"\n')
    assert _database("warehouse") == "from_project"
    assert resolve("warehouse").origin == "./.ematix-flow.toml:3"

    monkeypatch.setenv("EMATIX_FLOW_DSN", "postgres://db/not_for_this_name")
    assert _database("warehouse") == "from_project"

    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://db/from_env")
    assert _database("warehouse") == "from_env"
    assert resolve("warehouse").origin == "env EMATIX_FLOW_DSN_WAREHOUSE"


def _line_above() -> int:
    import sys

    return sys._getframe(1).f_lineno - 1


def test_the_default_connection_comes_from_the_plain_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN", "postgres://db/plain")
    assert _database("default") == "plain"
    assert resolve("default").origin == "env EMATIX_FLOW_DSN"
    monkeypatch.setenv("EMATIX_FLOW_DSN_DEFAULT", "postgres://db/named")
    assert _database("default") == "named"
    assert config.resolve_dsn() == "postgres://db/named"


def test_a_name_with_a_dash_has_a_variable_that_a_shell_can_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", "postgres://db/raw")
    assert _database("raw-db") == "raw"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "")
    with pytest.raises(UnknownConnection):
        resolve("warehouse")


def test_a_connection_itself_is_taken_as_it_is() -> None:
    made = c.SQLiteConnection("x", path="a")
    assert resolve(made).connection is made
    assert "made at " in resolve(made).origin
    c.register_connection(made)
    assert "registered at " in resolve(made).origin


def test_something_else_is_refused() -> None:
    with pytest.raises(WrongType, match="not by int"):
        resolve(5)  # type: ignore[arg-type]


def test_files_speak_url_dsn_plain_text_and_typed_fields(project_toml: Path) -> None:
    project_toml.write_text(
        """
[connections]
short = "sqlite:///short.db"

[connections.by_url]
url = "postgres://ana:${WAREHOUSE_PASSWORD}@db/wh"
[connections.by_dsn]
dsn = "mysql://db/wh"
[connections.kafka_prod]
kind = "kafka"
bootstrap_servers = "${KAFKA_BOOTSTRAP}"
group_id = "ematix-flow"
[connections."odd.name"]
kind = "object_store_local"
path = "in"
format = "csv"
"""
    )
    assert resolve("short").connection == c.SQLiteConnection("short", path="short.db")
    assert resolve("by_url").connection.fields == {"url": "postgres://ana:${WAREHOUSE_PASSWORD}@db/wh"}
    assert resolve("by_dsn").connection.kind == "mysql"
    assert resolve("kafka_prod").connection == c.KafkaConnection(
        "kafka_prod", bootstrap_servers="${KAFKA_BOOTSTRAP}", group_id="ematix-flow"
    )
    assert resolve("odd.name").connection.kind == "object_store_local"
    assert resolve("odd.name").origin == "./.ematix-flow.toml:13"
    assert resolve("short").origin == "./.ematix-flow.toml:3"


def test_one_missing_variable_breaks_only_its_own_connection(project_toml: Path) -> None:
    project_toml.write_text(
        '[connections.broken]\nurl = "${NOT_SET_ANYWHERE}"\n'
        '[connections.late]\nurl = "postgres://ana:${NOT_SET_ANYWHERE}@db/x"\n'
        '[connections.good]\nurl = "postgres://db/good"\n'
    )
    assert _database("good") == "good"
    with pytest.raises(MissingSecret, match="NOT_SET_ANYWHERE") as caught:
        resolve("broken")
    assert ".ematix-flow.toml:1" in str(caught.value)
    late = resolve("late").connection
    with pytest.raises(MissingSecret, match="NOT_SET_ANYWHERE") as caught:
        late.resolved()
    assert ".ematix-flow.toml:3" in str(caught.value)


def test_an_unknown_name_says_where_it_was_looked_for_and_the_nearest_one(project_toml: Path) -> None:
    project_toml.write_text('[connections.warehouse]\nurl = "postgres://db/x"\n')
    c.register_connection(c.SQLiteConnection("shop", path="a"))
    with pytest.raises(UnknownConnection) as caught:
        resolve("warehuose")
    shown = str(caught.value)
    for place in (
        "env EMATIX_FLOW_DSN_WAREHUOSE",
        "./.ematix-flow.toml",
        "~/.ematix-flow/connections.toml",
        "registered in this process (shop)",
    ):
        assert place in shown
    assert "did you mean 'warehouse'?" in shown
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, KeyError)
    assert caught.value.exit_code == 5


def test_an_unknown_default_names_both_variables() -> None:
    with pytest.raises(UnknownConnection, match="env EMATIX_FLOW_DSN_DEFAULT or EMATIX_FLOW_DSN,") as caught:
        config.resolve_dsn()
    assert "flow connections set default url=…" in str(caught.value)


def test_a_url_given_as_a_name_does_not_show_its_password() -> None:
    with pytest.raises(UnknownConnection) as caught:
        resolve("postgres://ana:hunter22@db/shop")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("header", ["[warehouse]", "[connection.warehouse]"])
def test_an_entry_in_the_wrong_table_is_pointed_out(project_toml: Path, header: str) -> None:
    project_toml.write_text(f'{header}\nurl = "postgres://db/x"\n')
    with pytest.raises(UnknownConnection) as caught:
        resolve("warehouse")
    assert f"./.ematix-flow.toml has {header}; write [connections.warehouse]" in str(caught.value)


def test_malformed_toml_is_reported_with_file_line_and_parser_message_but_without_the_text(project_toml: Path) -> None:
    project_toml.write_text('[connections.warehouse]\nurl = "postgres://ana:hunter22@db/x\n')
    with pytest.raises(ConfigError) as caught:
        resolve("warehouse")
    shown = str(caught.value)
    assert "./.ematix-flow.toml is not valid TOML: " in shown
    assert "line 2" in shown
    assert ".ematix-flow.toml:2" in shown
    assert "hunter22" not in shown


def test_malformed_toml_does_not_matter_where_the_environment_answers(
    monkeypatch: pytest.MonkeyPatch, project_toml: Path
) -> None:
    project_toml.write_text("[[[")
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://db/x")
    assert _database("warehouse") == "x"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ('[connections.w]\nkind = "postgres"\nulr = "postgres://a:hunter22@b"\n', "no field 'ulr'", 3),
        ('\n[connections.w]\nkind = "postgress"\n', "no connection kind 'postgress'", 2),
        ("[connections]\nw = 5\n", "neither a table nor a URL", 2),
        ('[connections.w]\nkind = "sqlite"\npath = 5\n', "path must be text", 3),
        ('[connections.w]\nurl = "ftp://a:hunter22@b"\n', "URL scheme 'ftp'", 1),
        ("connections = 5\n", "connections is not a table", 1),
    ],
)
def test_an_entry_that_cannot_be_right_is_shown_with_its_line(
    project_toml: Path, text: str, said: str, line: int
) -> None:
    project_toml.write_text(text)
    with pytest.raises(ConfigError) as caught:
        resolve("w")
    assert said in str(caught.value)
    assert f".ematix-flow.toml:{line}" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_wrong_url_in_a_variable_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_W", "ftp://ana:hunter22@db")
    with pytest.raises(ConfigError, match="from env EMATIX_FLOW_DSN_W") as caught:
        resolve("w")
    assert "hunter22" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_clear_error(project_toml: Path) -> None:
    project_toml.mkdir()
    with pytest.raises(ConfigError, match=r"\./\.ematix-flow\.toml cannot be read"):
        resolve("w")
    project_toml.rmdir()
    project_toml.write_bytes(b"\xff\xfe[connections]")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        resolve("w")


def test_a_byte_order_mark_is_no_problem(project_toml: Path) -> None:
    project_toml.write_text('\ufeff[connections.w]\nurl = "postgres://db/x"\n', encoding="utf-8")
    assert _database("w") == "x"


def test_the_list_shows_every_connection_with_its_origin_and_no_password(
    monkeypatch: pytest.MonkeyPatch, project_toml: Path, user_toml: Path
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_FROM_ENV", "postgres://ana:hunter22@db/env")
    monkeypatch.setenv("EMATIX_FLOW_DSN", "sqlite:///default.db")
    monkeypatch.setenv("EMATIX_FLOW_DSN_BOTH_FILES", "mysql://root:hunter22@db/x")
    project_toml.write_text('[connections."both-files"]\nurl = "postgres://db/project"\n')
    user_toml.write_text(
        '[connections."both-files"]\nurl = "postgres://db/user"\n'
        '[connections.broken]\nurl = "${NOT_SET_ANYWHERE}"\n'
        '[connections.wrong]\nurl = "ftp://ana:hunter22@db/x"\n'
        '[connections.parts]\nkind = "postgres"\nhost = "db"\nuser = "ana"\npassword = "hunter22"\n'
    )
    c.register_connection(c.DeltaLocalConnection("lake", path="data/lake"))
    listed = {entry.name: entry for entry in config.list_entries()}
    assert [*listed] == ["both-files", "broken", "default", "from_env", "lake", "parts", "wrong"]
    assert listed["from_env"].label == "postgres://ana:***@db/env"
    assert listed["from_env"].origin == "env EMATIX_FLOW_DSN_FROM_ENV"
    assert listed["both-files"].label == "mysql://root:***@db/x"
    assert listed["default"].label == "sqlite:default.db"
    assert (listed["lake"].kind, listed["lake"].label) == ("delta_local", "delta:data/lake")
    assert listed["parts"].label == "postgresql://ana:***@db"
    assert listed["broken"].label == "${NOT_SET_ANYWHERE}"
    assert "NOT_SET_ANYWHERE is not set" in str(listed["broken"].problem)
    assert listed["broken"].origin == "~/.ematix-flow/connections.toml:3"
    assert listed["wrong"].problem is not None
    assert "hunter22" not in repr(listed)
    assert config.list_connections() == {name: entry.label for name, entry in listed.items()}


def test_nothing_configured_is_an_empty_list() -> None:
    assert config.list_connections() == {}
    assert list(known_names()) == []


def test_a_dsn_is_filled_in_for_use(monkeypatch: pytest.MonkeyPatch, project_toml: Path) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "p@ss/word")
    project_toml.write_text('[connections.w]\nurl = "postgres://ana:${WAREHOUSE_PASSWORD}@db/wh"\n')
    assert config.resolve_dsn("w") == "postgres://ana:p%40ss%2Fword@db/wh"
    assert "p@ss/word" not in redact.mask("server said p@ss/word")


def test_a_command_has_one_configuration_and_the_next_one_has_the_new_one(project_toml: Path) -> None:
    project_toml.write_text('[connections.warehouse]\nurl = "postgres://db/before"\n')
    with files.reading_once():
        assert _database("warehouse") == "before"
        project_toml.write_text('[connections.warehouse]\nurl = "postgres://db/after"\n')
        assert _database("warehouse") == "before"
    assert _database("warehouse") == "after"
