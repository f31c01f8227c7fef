"""References are filled in at use, and a missing one says which and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ematix_flow import secrets
from ematix_flow.foundation import redact
from ematix_flow.foundation.secrets import references_in


class Shelf:
    """A resolver over a dictionary."""

    def __init__(self, **values: object) -> None:
        self.values = values

    def resolve(self, reference: str) -> str:
        return self.values[reference]  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    redact.forget_secrets()
    yield
    secrets.unregister_resolver("shelf")
    redact.forget_secrets()


def test_a_variable_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_HOST", "db.example.org")
    assert secrets.expand("postgres://${SHOP_HOST}/${env:SHOP_HOST}") == "postgres://db.example.org/db.example.org"


def test_none_and_text_without_references_stay_as_they_are() -> None:
    assert secrets.expand(None) is None
    assert secrets.expand("a $ b {c} $d") == "a $ b {c} $d"


def test_the_value_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATING", "first")
    assert secrets.expand("${ROTATING}") == "first"
    monkeypatch.setenv("ROTATING", "second")
    assert secrets.expand("${ROTATING}") == "second"


def test_a_value_that_looks_like_a_reference_is_not_expanded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${INNER}")
    assert secrets.expand("${OUTER}") == "${INNER}"


def test_a_doubled_dollar_stands_for_a_literal_reference() -> None:
    assert secrets.expand("a$${B}c") == "a${B}c"


def test_a_missing_variable_is_named_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(secrets.MissingSecretError) as caught:
        secrets.expand("postgres://ana:literal99@${NOT_THERE}")
    assert "NOT_THERE" in str(caught.value)
    assert "export NOT_THERE=…" in str(caught.value)
    assert "literal99" not in str(caught.value)
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 5


def test_a_brace_that_is_never_closed_is_an_error_that_quotes_nothing() -> None:
    with pytest.raises(secrets.MissingSecret, match="no closing brace") as caught:
        secrets.expand("${PASSWORD@host:hunter22")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("text", ["${}", "${1X}", "${hun ter}", "${p@ss:word}"])
def test_braces_that_hold_no_name_are_an_error_that_quotes_nothing(text: str) -> None:
    with pytest.raises(secrets.MissingSecret, match="does not hold a variable's name") as caught:
        secrets.expand(text)
    assert "word" not in str(caught.value).replace("VARIABLE", "")


def test_a_shell_default_is_refused_with_the_plain_form() -> None:
    with pytest.raises(secrets.MissingSecret, match="default value") as caught:
        secrets.expand("${PORT:-5432}")
    assert "${PORT}" in str(caught.value)


def test_a_registered_resolver_answers_its_prefix() -> None:
    shelf = Shelf(**{"shop#password": "geheim-1"})
    secrets.register_resolver("shelf", shelf)
    assert isinstance(shelf, secrets.SecretResolver)
    assert secrets.expand("x${shelf:shop#password}y") == "xgeheim-1y"


def test_a_later_resolver_replaces_an_earlier_one() -> None:
    secrets.register_resolver("shelf", Shelf(a="one"))
    secrets.register_resolver("shelf", Shelf(a="two"))
    assert secrets.expand("${shelf:a}") == "two"


def test_a_structured_answer_becomes_json() -> None:
    secrets.register_resolver("shelf", Shelf(a={"user": "ana"}))
    assert secrets.expand("${shelf:a}") == '{"user": "ana"}'


def test_an_unregistered_prefix_is_an_error_with_the_known_ones() -> None:
    secrets.register_resolver("shelf", Shelf())
    secrets.unregister_resolver("shelf")
    with pytest.raises(secrets.MissingSecret) as caught:
        secrets.expand("${shelf:a}")
    assert "${shelf:a}" in str(caught.value)
    assert "env" in str(caught.value)


def test_a_resolver_that_fails_does_not_get_to_speak() -> None:
    class Talkative:
        def resolve(self, reference: str) -> str:
            raise RuntimeError(f"could not parse hunter22 for {reference}")

    secrets.register_resolver("shelf", Talkative())
    with pytest.raises(secrets.MissingSecret, match="RuntimeError") as caught:
        secrets.expand("${shelf:a}")
    assert "hunter22" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("values", [{}, {"a": None}])
def test_a_resolver_without_an_answer_is_a_missing_secret(values: dict[str, object]) -> None:
    secrets.register_resolver("shelf", Shelf(**values))
    with pytest.raises(secrets.MissingSecret, match="shelf:a"):
        secrets.expand("${shelf:a}")


def test_a_resolver_must_have_the_method_and_a_plain_prefix() -> None:
    with pytest.raises(TypeError, match="resolve"):
        secrets.register_resolver("shelf", object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefix"):
        secrets.register_resolver("a:b", Shelf())


def test_what_was_filled_in_is_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTHING", "geheim-22")
    secrets.expand("${ANYTHING}")
    assert redact.mask("the server refused geheim-22") == "the server refused ***"


def test_of_a_filled_in_url_only_the_password_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY_URL", "postgres://ana:geheim-22@db.example.org/shop")
    secrets.expand("${ANY_URL}")
    assert redact.mask("db.example.org refused geheim-22") == "db.example.org refused ***"


def test_the_references_of_a_text_can_be_listed() -> None:
    assert references_in("${A}-${vault:b#c}-$${D}") == ("A", "vault:b#c")
    assert references_in(5432) == ()
