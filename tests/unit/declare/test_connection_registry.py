"""The register of this process and the decorator that fills it."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Iterator

import pytest

from ematix_flow import connections as c
from ematix_flow.declare.connections import registration_of
from ematix_flow.foundation.errors import DeclarationError, FlowError


@pytest.fixture(autouse=True)
def _empty_registry() -> Iterator[None]:
    c.clear_registry()
    yield
    c.clear_registry()


def test_a_registered_connection_is_found_by_name_and_given_back() -> None:
    made = c.register_connection(c.PostgresConnection(name="warehouse", url="postgres://localhost/wh"))
    assert c.get_connection("warehouse") is made
    assert c.registered_connections() == {"warehouse": made}


def test_the_list_of_connections_is_a_copy() -> None:
    c.registered_connections()["x"] = c.SQLiteConnection("x", path="a")
    assert c.registered_connections() == {}


def test_a_later_registration_replaces_an_earlier_one_silently() -> None:
    c.register_connection(c.SQLiteConnection("x", path="a"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c.register_connection(c.SQLiteConnection("x", path="b"))
    assert c.get_connection("x") == c.SQLiteConnection("x", path="b")


def test_an_unknown_name_is_a_key_error_that_lists_the_known_ones() -> None:
    c.register_connection(c.SQLiteConnection("warehouse", path="a"))
    with pytest.raises(KeyError) as caught:
        c.get_connection("warehuose")
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, FlowError)
    assert "registered: warehouse" in str(caught.value)
    assert "did you mean 'warehouse'?" in str(caught.value)


def test_an_empty_register_says_how_to_fill_it() -> None:
    with pytest.raises(KeyError) as caught:
        c.get_connection("warehouse")
    assert "registered: none" in str(caught.value)
    assert "@ematix.connection" in str(caught.value)


def test_only_connections_can_be_registered() -> None:
    with pytest.raises(TypeError) as caught:
        c.register_connection("postgres://u:hunter22@h/db")  # type: ignore[arg-type]
    assert "takes a connection, not str" in str(caught.value)
    assert "test_connection_registry.py:" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_the_decorator_turns_a_class_into_a_registered_connection() -> None:
    @c.connection
    class warehouse:
        kind = "postgres"
        url = "${WAREHOUSE_URL}"

    assert warehouse == c.PostgresConnection("warehouse", url="${WAREHOUSE_URL}")
    assert c.get_connection("warehouse") is warehouse


def test_the_decorator_takes_another_name_and_shared_settings() -> None:
    class Shared:
        kind = "kafka"
        bootstrap_servers = "a:9092"
        group_id = "shared"

    @c.connection
    class anything(Shared):
        name = "kafka_prod"
        group_id = "own"

    assert c.get_connection("kafka_prod") == c.KafkaConnection("kafka_prod", bootstrap_servers="a:9092", group_id="own")


def test_the_decorator_takes_a_url_for_every_kind_that_has_one() -> None:
    @c.connection
    class shop:
        kind = "sqlite"
        url = "sqlite:///shop.db"

    assert shop == c.SQLiteConnection("shop", path="shop.db")


def test_the_decorator_remembers_the_line_of_the_user() -> None:
    @c.connection
    class shop:
        kind = "sqlite"
        path = "a"

    found = registration_of("shop")
    assert found is not None
    assert found.where is not None
    assert found.where.file == __file__
    assert linecache.getline(found.where.file, found.where.line).strip() == "@c.connection"
    assert str(found.connection.declared_at) == str(found.where)


def test_something_that_is_no_class_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates a class, not function"):

        @c.connection  # type: ignore[arg-type]
        def shop() -> None: ...


def test_a_class_without_a_kind_is_refused() -> None:
    with pytest.raises(TypeError) as caught:

        @c.connection
        class shop:
            path = "a"

    assert "connection 'shop' does not say its kind" in str(caught.value)
    assert "test_connection_registry.py:" in str(caught.value)


def test_an_unknown_kind_names_the_nearest_one() -> None:
    with pytest.raises(TypeError) as caught:

        @c.connection
        class shop:
            kind = "postgers"

    assert isinstance(caught.value, ValueError)
    assert "did you mean 'postgres'?" in str(caught.value)
    assert "test_connection_registry.py:" in str(caught.value)


def test_a_field_check_fails_at_the_decorator_and_registers_nothing() -> None:
    with pytest.raises(DeclarationError, match="format is required") as caught:

        @c.connection
        class lake:
            kind = "object_store_local"
            path = "a"

    assert "test_connection_registry.py:" in str(caught.value)
    assert c.registered_connections() == {}


def test_an_attribute_that_looks_like_a_misspelt_field_gives_a_warning_with_the_nearest_name() -> None:
    with pytest.warns(UserWarning, match="'grup_id' is no field of KafkaConnection; did you mean 'group_id'") as seen:

        @c.connection
        class kafka_prod:
            kind = "kafka"
            bootstrap_servers = "a:9092"
            grup_id = "x"

    assert seen[0].filename == __file__


def test_attributes_that_resemble_no_field_are_the_users_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @c.connection
        class shop:
            """The shop's database."""

            kind = "sqlite"
            path = "a"
            owner_team = "data"
            _private = 1

            def describe_me(self) -> str:
                return "mine"

    assert c.registered_connections().keys() == {"shop"}
