"""Redaction of secrets: by field name, by pattern (URLs, `password=…`) and by a list of known values."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

REDACTED = "<redacted>"
MASK = "***"
SHORTEST_SECRET = 4

_SECRET_SEGMENTS = frozenset(
    {"password", "passwd", "passphrase", "pass", "pwd", "pw", "secret", "token", "key", "apikey", "sslpassword"}
)
# A password that is one of these public words reveals nothing when the word occurs in a sentence,
# and masking it would make every message unreadable.
_PUBLIC_WORDS = frozenset(
    {"postgres", "postgresql", "mysql", "mariadb", "sqlite", "duckdb", "delta", "spark", "kafka", "rabbitmq", "pubsub"}
    | {"kinesis", "snowflake", "bigquery", "redshift", "ematix", "flow", "password", "connection", "default"}
)

_REFERENCES_ONLY = re.compile(r"(?:\$\{[^{}]*\})+")
_USER = r"(?:\$\{[^{}]*\}|\$(?!\{[^{}]*\})|[^\s:/?#\"'$])*"
# The first form stops at quotes, so that a URL inside JSON stays inside its string. The second one is for a password
# that itself contains a quote; it does not match `host:8080"`, which is a port.
_URL_PASSWORD = re.compile(
    rf"(://{_USER}:)(?:([^\s\"'<>]*)@|(?!\d{{1,5}}(?:[\"'/,)\]}}\s]|$))(\S*)@)",
)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.|'')*'|[\"'].*"
_BARE = r"(?!\*\*\*|<redacted>|\$\{)[^\s&;,)\]}\"']+"
_PAIR_NAME = r"(?:password|passwd|passphrase|pwd|secret|token|access_key|secret_key|private_key|api_?key)[\w.\-]{0,40}"
_PAIR = re.compile(
    rf"({_PAIR_NAME}\s{{0,9}}=\s{{0,9}}|{_PAIR_NAME}[\"']\s{{0,9}}:\s{{0,9}}|(?:password|passwd|pwd):\s{{0,9}})({_QUOTED}|{_BARE})",
    re.IGNORECASE,
)


class _Memory:
    """The secret values that this process has read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, values: set[str]) -> None:
        with self._lock:
            if not values <= self._values:
                self._values |= values
                longest_first = sorted(self._values, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._pattern = None

    def mask(self, text: str) -> str:
        pattern = self._pattern
        return pattern.sub(MASK, text) if pattern is not None else text


_memory = _Memory()


def is_secret_name(name: str) -> bool:
    """Return whether a field or variable of this name holds a secret.

    >>> is_secret_name("sasl_plain_password"), is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("bucket")
    (True, True, False)
    """
    return not _SECRET_SEGMENTS.isdisjoint(re.split(r"[\W_]+", name.lower()))


def remember_secret(value: str | None) -> None:
    """Mask this value in every text from now on, also in its percent-encoded and quoted spellings."""
    if value is None:
        return
    spellings = {value, quote(value, safe=""), quote(value), unquote(value), repr(value)[1:-1], json.dumps(value)[1:-1]}
    # Messages of other programs quote a multi-line key line by line.
    spellings |= {line.strip() for line in value.splitlines() if len(line.strip()) >= 16 and "-----" not in line}
    _memory.add({text for text in spellings if _worth_masking(text)})


def remember_url_secrets(url: str) -> bool:
    """Mask the passwords in this URL, after the user name or in its parameters; return whether there are any."""
    passwords = [match[2].strip("\"'") for match in _PAIR.finditer(url)]
    for match in _URL_PASSWORD.finditer(url):
        authority = re.split(r"[/?#]", url[match.end(1) :], maxsplit=1)[0]
        exact, at, _ = authority.rpartition("@")
        passwords.append(exact if at else match[2] or match[3] or "")
    passwords = [text for text in passwords if text and not _REFERENCES_ONLY.fullmatch(text)]
    for password in passwords:
        remember_secret(password)
        remember_secret(unquote(password))
    return bool(passwords)


def forget_secrets() -> None:
    """Clear the known secrets; for tests and for long-lived processes that rotate their secrets."""
    _memory.clear()


def mask(text: str) -> str:
    """Return the text without known secrets, passwords inside URLs and the values of `password=…`.

    >>> mask("cannot reach postgres://ana:hunter22@db:5432/shop?sslpassword=abc")
    'cannot reach postgres://ana:***@db:5432/shop?sslpassword=***'
    """
    # Known values first: a pair pattern stops at a blank, and half of a known secret would no longer match.
    return _by_shape(_memory.mask(text))


def redact(field: str, value: Any) -> Any:
    """Return the displayable form of a field's value: secrets redacted, a URL without password, the rest unchanged.

    >>> redact("password", "hunter22"), redact("url", "amqp://guest:hunter22@mq"), redact("password", None)
    ('<redacted>', 'amqp://guest:***@mq', None)
    """
    if value is None:
        return None
    if is_secret_name(field):
        return REDACTED
    if isinstance(value, Mapping):
        return {key: redact(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(redact(field, inner) for inner in value)
    return _by_shape(value) if isinstance(value, str) else value


def record_message(record: logging.LogRecord) -> str:
    """Return the message of a log record; text and arguments that do not match are joined rather than an error."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


class MaskSecrets(logging.Filter):
    """A filter that masks secrets in messages, tracebacks and stacks; add it to a handler, which all records pass."""

    _plain = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask(record_message(record)), None
        if record.exc_info and not record.exc_text:
            record.exc_text = self._plain.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._masked_traceback(record)
        if record.stack_info:
            record.stack_info = mask(record.stack_info)
        return True

    @staticmethod
    def _masked_traceback(record: logging.LogRecord) -> str:
        before = record.exc_text or ""
        masked = mask(before)
        if masked != before and record.exc_info and record.exc_info[1] is not None:
            # A formatter that formats the exception anew would write the secret too.
            kind, value, place = record.exc_info
            record.exc_info = (kind, RuntimeError(mask(str(value))), place)
        return masked


def _worth_masking(text: str) -> bool:
    return len(text) >= SHORTEST_SECRET and bool(text.strip()) and text.lower() not in _PUBLIC_WORDS


def _by_shape(text: str) -> str:
    return _PAIR.sub(_masked_pair, _URL_PASSWORD.sub(_masked_url, text))


def _masked_url(match: re.Match[str]) -> str:
    password = match[2] if match[2] is not None else match[3]
    if not password or _REFERENCES_ONLY.fullmatch(password):
        return match[0]
    return f"{match[1]}{MASK}@"


def _masked_pair(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    quotes = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quotes and len(value) > 1 and value[-1] == quotes else value[len(quotes) :]
    if not inner or inner in (MASK, REDACTED) or _REFERENCES_ONLY.fullmatch(inner):
        return match[0]
    return f"{name}{quotes}{MASK}{quotes}"
