"""Expansion of `${VAR}` and `${prefix:reference}`; the values are registered for masking."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Protocol, overload, runtime_checkable

from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.foundation.names import did_you_mean

_REFERENCE = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
_TOKEN = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")


@runtime_checkable
class SecretResolver(Protocol):
    """A source of secrets by reference: a vault, a cloud's secret store, the environment."""

    def resolve(self, reference: str) -> str:
        """Return the value of the reference; raise a KeyError if there is none."""
        ...


class EnvResolver:
    """Secrets from environment variables."""

    def resolve(self, reference: str) -> str:
        """Return the current value of the variable; raise a MissingSecret if it is not set."""
        if not _VARIABLE.fullmatch(reference):
            raise _malformed()
        value = os.environ.get(reference)
        if value is None:
            raise MissingSecret(
                f"the environment variable {reference} is not set", hint=f"export {reference}=…", reference=reference
            )
        return value


_resolvers: dict[str, SecretResolver] = {"env": EnvResolver()}
_find: Callable[[str], SecretResolver | None] = lambda _: None  # noqa: E731 - replaced as a whole


def register_resolver(prefix: str, resolver: SecretResolver) -> None:
    """Resolve `${prefix:reference}` with this resolver; a later one replaces an earlier one."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError("a resolver's prefix starts with a letter and has only letters, digits and . _ + -")
    if not callable(getattr(resolver, "resolve", None)):
        raise TypeError(f"a resolver has a method resolve(reference); {type(resolver).__name__} has none")
    _resolvers[prefix] = resolver


def unregister_resolver(prefix: str) -> None:
    """Remove the resolver of this prefix, if there is one."""
    _resolvers.pop(prefix, None)


def find_resolvers_with(find: Callable[[str], SecretResolver | None]) -> None:
    """Set the function that finds the resolver of an unregistered prefix; called only when such a prefix is used."""
    global _find
    _find = find


@overload
def expand(value: str, *, secret: bool = True) -> str: ...
@overload
def expand(value: None, *, secret: bool = True) -> None: ...
def expand(value: str | None, *, secret: bool = True) -> str | None:
    """Return the text with every reference expanded; `$${` is a literal `${`.

    `secret=False` means that the text is not secret as a whole (a host, a path); a variable whose name marks it as a
    secret is masked all the same.

    >>> expand("no reference"), expand("$${literal}")
    ('no reference', '${literal}')
    """
    if value is None:
        return None
    return substitute(value, fill=lambda reference, _position: look_up_secret(reference, secret=secret))


def substitute(value: str, *, fill: Callable[[str, int], str]) -> str:
    """Return the text with every `${reference}` replaced by `fill(reference, position)`."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            raise MissingSecret(
                "a `${` has no closing brace", hint="write `${VARIABLE}`, or `$${` for a literal `${`", reference="${"
            )
        return fill(match[1], match.start())

    return _TOKEN.sub(one, value)


def look_up_secret(reference: str, *, secret: bool = True) -> str:
    """Return the value of `VAR` or `prefix:reference`; raise a MissingSecret if there is none."""
    prefix, colon, rest = reference.partition(":")
    if not colon:
        value = _resolve_with("env", reference, shown=reference, resolver=_resolvers.get("env") or EnvResolver())
    else:
        resolver = _resolvers.get(prefix) or (_find(prefix) if _PREFIX.fullmatch(prefix) else None)
        if resolver is None:
            raise _unknown_prefix(prefix, rest)
        value = _resolve_with(prefix, rest, shown=reference, resolver=resolver)
    from_a_store = bool(colon) and prefix != "env"
    _remember_value(value, secret=secret or from_a_store or redact.is_secret_name(reference))
    return value


def references_in(value: object) -> tuple[str, ...]:
    """Return the references inside a value, as written between the braces.

    >>> references_in("postgres://${PGUSER}:${vault:shop#password}@db")
    ('PGUSER', 'vault:shop#password')
    """
    return tuple(_REFERENCE.findall(value)) if isinstance(value, str) else ()


def _resolve_with(prefix: str, reference: str, *, shown: str, resolver: SecretResolver) -> str:
    try:
        value: object = resolver.resolve(reference)
    except MissingSecret:
        raise
    except Exception as error:
        # The resolver's own message may quote what it read, so only the class of the error is reported.
        raise MissingSecret(
            f"nothing answers ${{{shown}}}: the resolver {prefix!r} raised {type(error).__name__}",
            hint=f"check the reference after {prefix!r}: and the resolver's login",
            reference=shown,
        ) from None
    if value is None:
        raise MissingSecret(
            f"nothing answers ${{{shown}}}: the resolver {prefix!r} found no value",
            hint="check the spelling of the reference",
            reference=shown,
        )
    return value if isinstance(value, str) else json.dumps(value)


def _unknown_prefix(prefix: str, rest: str) -> MissingSecret:
    if not _PREFIX.fullmatch(prefix):
        return _malformed()
    if rest.startswith("-"):
        return MissingSecret(
            f"${{{prefix}:-…}} asks for a default value, which references do not have",
            hint=f"write ${{{prefix}}} and export {prefix}=…",
            reference=prefix,
        )
    return MissingSecret(
        f"no resolver is registered for the prefix of ${{{prefix}:{rest}}}",
        hint=f"{did_you_mean(prefix, _resolvers)} or add [secrets.{prefix}] to .ematix-flow.toml, or call "
        f"register_resolver({prefix!r}, …) first",
        reference=f"{prefix}:{rest}",
    )


def _malformed() -> MissingSecret:
    """Return an error that does not quote the text: an invalid name may be part of a password."""
    return MissingSecret(
        "a `${…}` does not hold a variable's name",
        hint="write `${VARIABLE}` or `${prefix:reference}`, or `$${` for a literal `${`",
        reference="${…}",
    )


def _remember_value(value: str, *, secret: bool) -> None:
    # Only the password of a URL is masked: a message without the host would not help the user.
    if not redact.remember_url_secrets(value) and secret:
        redact.remember_secret(value)
