"""Pub/Sub's errors as FlowErrors."""

from __future__ import annotations

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

_UP = "is the network up, and the endpoint right? flow connections check NAME"
_LOGIN = "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login"
_RIGHTS = "grant this login roles/pubsub.subscriber or roles/pubsub.publisher there, or use another one"

_BY_NAME: dict[str, tuple[type[FlowError], str, str]] = {
    "NotFound": (MissingTable, "{place} is not there at {at}", "check its name and the project, or create it"),
    "PermissionDenied": (PermissionDenied, "this login may not use {place} at {at}", _RIGHTS),
    "Forbidden": (PermissionDenied, "this login may not use {place} at {at}", _RIGHTS),
    "Unauthenticated": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "Unauthorized": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "InvalidArgument": (BadValue, "{at} refuses what it was asked of {place}", "see the sentence above"),
    "FailedPrecondition": (ConnectionFailed, "{place} at {at} cannot be used this way", "is it a pull subscription?"),
    "ResourceExhausted": (Unreachable, "{at} has had too many requests", "a quota is used up: try again later"),
    "TooManyRequests": (Unreachable, "{at} has had too many requests", "a quota is used up: try again later"),
    "DeadlineExceeded": (Unreachable, "{at} did not answer in time", _UP),
    "ServiceUnavailable": (Unreachable, "no server answers at {at}", _UP),
    "RetryError": (Unreachable, "no server answers at {at}", _UP),
    "Cancelled": (Unreachable, "{at} has ended the conversation", _UP),
    "Aborted": (Unreachable, "{at} has ended the conversation", _UP),
    "InternalServerError": (Unreachable, "{at} has an internal error", "try again later"),
    "Unknown": (Unreachable, "{at} has an unknown error", "try again later"),
    "MessageTooLargeError": (BadValue, "a message is larger than {at} takes", "make it smaller than 10 MB"),
    "DefaultCredentialsError": (ConnectionFailed, "there is no login for {at} on this machine", _LOGIN),
    "RefreshError": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "TransportError": (Unreachable, "the login for {at} cannot be renewed", _UP),
}


def translate(exc: BaseException, *, at: str = "Pub/Sub", place: str = "the subscription") -> FlowError:
    """Return the FlowError for an exception of the client library; `at` is the service's name in the message."""
    if isinstance(exc, FlowError):
        return exc
    message = mask(str(getattr(exc, "message", None) or exc).strip() or type(exc).__name__)
    for kind in type(exc).__mro__:
        known = _BY_NAME.get(kind.__name__)
        if known is not None:
            error, what, hint = known
            return error(f"{what.format(at=at, place=place)}: {message}", hint=hint)
    return RunFailed(f"{at}: {message}", hint="see the log of the service")
