"""No secret reaches a reader: by field, by shape, by memory, in logs."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.foundation import redact


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    redact.forget_secrets()
    yield
    redact.forget_secrets()


@pytest.mark.parametrize(
    "field",
    [
        "password",
        "sasl_plain_password",
        "secret",
        "secret_access_key",
        "access_key_id",
        "api_token",
        "private_key",
        "PWD",
    ],
)
def test_a_field_with_a_secret_name_shows_nothing(field: str) -> None:
    assert redact.redact(field, "hunter22") == "<redacted>"


@pytest.mark.parametrize("field", ["url", "amqp_url", "schema_registry_url", "endpoint"])
def test_a_url_field_loses_only_its_password(field: str) -> None:
    assert redact.redact(field, "amqp://ana:hunter22@mq:5672/%2f") == "amqp://ana:***@mq:5672/%2f"


def test_none_and_plain_values_stay_as_they_are() -> None:
    assert redact.redact("password", None) is None
    assert redact.redact("bucket", "raw") == "raw"
    assert redact.redact("port", 5432) == 5432


def test_mappings_and_lists_are_redacted_inside() -> None:
    shown = redact.redact("options", {"password": "hunter22", "urls": ["http://a:hunter22@b"], "host": "db"})
    assert shown == {"password": "<redacted>", "urls": ["http://a:***@b"], "host": "db"}


def test_a_reference_in_a_url_is_no_secret_and_stays_readable() -> None:
    assert redact.redact("url", "postgres://ana:${PGPASSWORD}@db") == "postgres://ana:${PGPASSWORD}@db"
    assert redact.redact("url", "postgres://${env:U}:abc${X}@db") == "postgres://${env:U}:***@db"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://ana:hunter22@db/shop", "postgres://ana:***@db/shop"),
        ("redis://:hunter22@db", "redis://:***@db"),
        ("postgres://ana@tenant:hunter22@db/shop", "postgres://ana@tenant:***@db/shop"),
        ("postgres://ana:hun/ter@22@db/shop", "postgres://ana:***@db/shop"),
        ('postgres://ana:hun"ter22@db/shop', "postgres://ana:***@db/shop"),
        ("at postgres://a:hunter22@x and mysql://b:hunter22@y.", "at postgres://a:***@x and mysql://b:***@y."),
        ("host=db password=hunter22 user=ana", "host=db password=*** user=ana"),
        ("password='hunter 22' user=ana", "password='***' user=ana"),
        ('{"password": "hun\\"ter22", "host": "db"}', '{"password": "***", "host": "db"}'),
        ("{'secret_access_key': 'hunter22'}", "{'secret_access_key': '***'}"),
        ("?user=ana&sslpassword=hunter22&x=1", "?user=ana&sslpassword=***&x=1"),
        ('password = "hunter22', 'password = "***"'),
        ("Password: hunter22", "Password: ***"),
    ],
)
def test_passwords_are_masked_by_their_shape(text: str, masked: str) -> None:
    assert redact.mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8081/subjects",
        '{"url":"http://localhost:8081","mail":"ana@example.org"}',
        "primary_key = id",
        "password authentication failed for user ana",
        "password=<redacted>",
        "password=${PGPASSWORD}",
        "password=''",
        "unexpected token: )",
    ],
)
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert redact.mask(text) == text


def test_a_remembered_value_is_masked_in_every_spelling() -> None:
    secret = "p@ss'w\"ö/rd"
    redact.remember_secret(secret)
    for spelling in (secret, quote(secret, safe=""), json.dumps(secret), repr(secret)):
        assert spelling.strip("'\"") not in redact.mask(f"the server said {spelling} is wrong")


def test_the_lines_of_a_private_key_are_masked_one_by_one() -> None:
    redact.remember_secret("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----")
    assert redact.mask("bad line MIIEvQIBADANBgkqhkiG9w0B") == "bad line ***"


def test_a_value_shorter_than_four_characters_is_not_remembered() -> None:
    redact.remember_secret("abc")
    redact.remember_secret(None)
    assert redact.mask("abc abcd") == "abc abcd"


def test_a_longer_secret_is_masked_before_one_that_it_contains() -> None:
    redact.remember_secret("hunter")
    redact.remember_secret("hunter22")
    assert redact.mask("hunter22") == "***"


def test_a_password_that_is_a_product_word_leaves_sentences_readable() -> None:
    redact.remember_url_secrets("postgres://postgres:postgres@db/shop")
    assert redact.mask("the postgres backend") == "the postgres backend"
    assert redact.mask("postgres://postgres:postgres@db") == "postgres://postgres:***@db"


def test_remembering_a_url_remembers_its_password_encoded_and_decoded() -> None:
    assert redact.remember_url_secrets("postgres://ana:p%40ssw@db/shop?note=a@b&sslpassword=geheim1") is True
    assert redact.mask("p@ssw, p%40ssw and geheim1 but not db/shop") == "***, *** and *** but not db/shop"
    assert redact.remember_url_secrets("postgres://ana:${PW}@db/shop") is False
    assert redact.remember_url_secrets("http://localhost:8081") is False


@given(secret=st.text(min_size=4, max_size=40).filter(lambda text: text.strip() and "*" not in text))
def test_no_remembered_value_survives_masking(secret: str) -> None:
    redact.forget_secrets()
    redact.remember_secret(f"§{secret}")
    shown = redact.mask(f"before §{secret} between §{secret}§{secret} after")
    assert f"§{secret}" not in shown


def test_masking_a_megabyte_without_blanks_takes_no_noticeable_time() -> None:
    redact.remember_secret("hunter22")
    text = "a" * 300_000 + "://" + "b:" * 150_000 + "password" * 30_000
    started = time.process_time()
    redact.mask(text)
    assert time.process_time() - started < 2


class _ExceptionOnly(logging.Formatter):
    """A formatter that writes the exception by itself, as formatters of JSON do."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.getMessage()} RuntimeError: {record.exc_info[1] if record.exc_info else None}"


@pytest.mark.parametrize("formatter", [logging.Formatter(), _ExceptionOnly()])
def test_the_logging_filter_masks_messages_arguments_and_tracebacks(formatter: logging.Formatter) -> None:
    redact.remember_secret("hunter22")
    logger, said = logging.getLogger("test.redact"), io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(formatter)
    handler.addFilter(redact.MaskSecrets())
    logger.addHandler(handler)
    try:
        raise RuntimeError("login hunter22 refused")
    except RuntimeError:
        logger.exception("connecting with %s to %s", "hunter22", "postgres://a:other99@db", stack_info=True)
    finally:
        logger.removeHandler(handler)
    assert "hunter22" not in said.getvalue()
    assert "other99" not in said.getvalue()
    assert "connecting with *** to postgres://a:***@db" in said.getvalue()
    assert "RuntimeError: login *** refused" in said.getvalue()


def test_the_logging_filter_survives_a_message_that_does_not_fit_its_arguments() -> None:
    redact.remember_secret("hunter22")
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "only %s", ("one", "hunter22"), None)
    assert redact.MaskSecrets().filter(record) is True
    assert record.getMessage() == "only %s ('one', '***')"
