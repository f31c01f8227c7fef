"""RabbitMQ's errors as FlowErrors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    FlowError,
    MissingTable,
    PermissionDenied,
    RunFailed,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

_UP = "is the server running, and are host and port right? flow connections check NAME"
_LOGIN = "check user and password in amqp_url: flow connections check NAME"
_AGAIN = "run it again: nothing is lost"

_BY_CODE: dict[int, tuple[type[FlowError], str, str]] = {
    311: (BadValue, "a message is larger than {at} takes", "make it smaller, or raise max_message_size of the server"),
    320: (Unreachable, "{at} has closed the connection", _AGAIN),
    402: (PermissionDenied, "{at} refuses the virtual host", "check the path of amqp_url"),
    403: (PermissionDenied, "this login may not use {queue} at {at}", "grant it configure, write and read there"),
    404: (MissingTable, "{queue} is not there at {at}", "check its name, or declare it"),
    405: (ConnectionFailed, "{queue} at {at} belongs to another connection alone", "end its exclusive consumer"),
    406: (Unreachable, "{at} has given up on this channel", _AGAIN),
    501: (ConnectionFailed, "{at} does not speak this protocol", "is the port the one of AMQP?"),
    504: (Unreachable, "{at} has closed the channel", _AGAIN),
    506: (Unreachable, "{at} is short of resources", "look at its memory and disk alarms"),
    530: (ConnectionFailed, "{at} does not know this virtual host, or refuses it", "check the path of amqp_url"),
    541: (Unreachable, "{at} has an internal error", _AGAIN),
}


def translate(exc: BaseException, *, at: str = "RabbitMQ", queue: str | None = None) -> FlowError:
    """Return the FlowError for an exception of pika; `at` is the server's name in the message."""
    if isinstance(exc, FlowError):
        return exc
    import pika.exceptions as broken

    chain = list(_chain(exc))
    message = mask(_message_of(chain[-1]))
    logins = (broken.AuthenticationError, broken.ProbableAuthenticationError)
    if any(isinstance(one, logins) for one in chain) or _is_login(chain[-1], message):
        return ConnectionFailed(f"{at} refuses the login: {message}", hint=_LOGIN)
    if any(isinstance(one, broken.ProbableAccessDeniedError) for one in chain):
        return _by_code(530, message, at, queue)
    code = next((one.reply_code for one in chain if isinstance(getattr(one, "reply_code", None), int)), None)
    if isinstance(code, int) and code in _BY_CODE:
        return _by_code(code, message, at, queue)
    if any(isinstance(one, broken.IncompatibleProtocolError) for one in chain):
        return _by_code(501, message, at, queue)
    if isinstance(exc, (broken.AMQPError, OSError)):
        return Unreachable(f"no server answers at {at}: {message}", hint=_UP)
    return RunFailed(f"{at}: {message}", hint="see the log of RabbitMQ")


def _is_login(exc: Any, message: str) -> bool:
    return getattr(exc, "reply_code", None) == 403 and "login" in message.lower()


def _by_code(code: int, message: str, at: str, queue: str | None) -> FlowError:
    kind, what, hint = _BY_CODE[code]
    place = f"queue {queue!r}" if queue else "the queue"
    return kind(f"{what.format(at=at, queue=place)}: {message}", hint=hint)


def _chain(exc: BaseException) -> Iterator[Any]:
    """Yield the error and those inside it, the outermost first: a failed connection has several."""
    current: Any = exc
    while isinstance(current, BaseException):
        yield current
        inner: Any = getattr(current, "exceptions", None) or getattr(current, "exception", None) or current.args[:1]
        current = (inner[-1] if inner else None) if isinstance(inner, (list, tuple)) else inner


def _message_of(exc: Any) -> str:
    text = getattr(exc, "reply_text", None) or getattr(exc, "strerror", None) or str(exc).strip()
    return str(text) or type(exc).__name__
