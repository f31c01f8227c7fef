"""Parsing, joining and expansion of URLs with `${…}`, safe for special characters in passwords."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import did_you_mean, nearest_name
from ematix_flow.foundation.redact import MASK
from ematix_flow.foundation.secrets import look_up_secret, references_in, substitute

_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_STAND_IN = re.compile("\x00([0-9]+)\x00")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://)?")
_DOUBLED_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*://(?=[A-Za-z][A-Za-z0-9+.\-]*://)")
_NEEDS_ENCODING = re.compile(r"[@/?#:\[\]\s]|%(?![0-9A-Fa-f]{2})")


class UrlError(ValueError):
    """The reason why a URL cannot be parsed; never quotes the URL."""


@dataclass(frozen=True, repr=False)
class Url:
    """The parts of a URL, decoded; `${…}` inside them is left as it is."""

    scheme: str
    host: str = ""
    port: str = ""
    user: str = ""
    password: str = ""
    path: str = ""
    params: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Url({join(self, password=MASK if self.password else '')!r})"


def scheme_of(url: str) -> str:
    """Return the scheme in lower case; empty if the text has none, for example if it begins with a reference."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def scheme_hint(scheme: str, schemes: Sequence[str], *, use: str | None = None) -> str:
    """Return a hint for an unknown scheme: the similar one, and all of them or the text of `use`."""
    near = nearest_name(scheme, schemes) if scheme else None
    suggestion = f"did you mean {near}://? " if near and near != scheme else ""
    return f"{suggestion}use {use or 'one of ' + ', '.join(f'{name}://' for name in schemes)}"


def rest_of(url: str) -> tuple[str, dict[str, str]]:
    """Return the decoded text after `scheme://` and the parameters, for URLs that are paths, not servers."""
    match = _SCHEME.match(url)
    hidden, hide = _hide_references(url[match.end() :] if match else url)
    path, _, query = hidden.partition("?")
    return _restore_references(unquote(path), hide), _params(query, hide)


def split(url: str) -> Url:
    """Parse `scheme://user:password@host:port/path?name=value`; raise a UrlError if it is malformed."""
    match = _SCHEME.match(url)
    if match is None or not match[0].endswith("://"):
        raise UrlError("is not a URL: it has no scheme://")
    hidden, hide = _hide_references(url[match.end() :])
    authority, slash, tail = _split_authority(hidden)
    userinfo, _, address = authority.rpartition("@")
    user, _, password = userinfo.partition(":")
    host, port = _host_and_port(address)
    if not _port_is_plausible(port):
        raise UrlError("has no port number where one belongs; a password with / ? # or @ in it must be percent-encoded")
    path, _, query = tail.partition("?")
    return Url(
        scheme=match[1].lower(),
        host=_restore_references(unquote(host), hide),
        port=_restore_references(port, hide),
        user=_restore_references(unquote(user), hide),
        password=_restore_references(unquote(password), hide),
        path=_restore_references(unquote(path if slash == "/" else ""), hide),
        params=_params(query if slash == "/" else tail, hide),
    )


def refuse_parameters(url: Url, known: Sequence[str], *, of: str) -> None:
    """Raise ConfigError, with the nearest name, if the URL has another parameter."""
    for name in sorted(set(url.params) - set(known)):
        raise ConfigError(f"{of} has no parameter {name!r}", hint=did_you_mean(name, known))


def join(url: Url, *, scheme: str | None = None, password: str | None = None, literal: bool = False) -> str:
    """Return a URL from its parts, percent-encoded; references stay as they are unless the text is `literal`."""

    def encoded(text: str, safe: str = "") -> str:
        return text if not literal and references_in(text) else quote(text, safe=safe)

    shown = url.password if password is None else password
    userinfo = encoded(url.user) + (f":{encoded(shown, safe='*')}" if shown else "")
    host = url.host if url.host.startswith("[") or "," in url.host else encoded(url.host)
    port = f":{url.port}" if url.port else ""
    query = "&".join(f"{quote(name)}={encoded(value, safe='/:')}" for name, value in url.params.items())
    return "".join(
        (
            f"{scheme or url.scheme}://",
            f"{userinfo}@" if userinfo else "",
            host + port,
            f"/{encoded(url.path, safe='/')}" if url.path else "",
            f"?{query}" if query else "",
        )
    )


def expand_url(template: str) -> str:
    """Expand the references; a raw user name or password is percent-encoded so that the URL stays valid."""
    start, end = _userinfo_span(template)
    has_password = ":" in _REFERENCE.sub("", template[start:end])

    def fill(reference: str, position: int) -> str:
        value = look_up_secret(reference, secret=False)
        if not start <= position < end:
            return value
        if not has_password and ":" in value:  # one variable holds `user:password`
            user, _, password = value.partition(":")
            return f"{_encode_once(user)}:{_encode_once(password)}"
        return _encode_once(value)

    # `postgres://${DSN}` is documented beside `${DSN}`, so a variable with a whole URL must work in both.
    return _DOUBLED_SCHEME.sub("", substitute(template, fill=fill))


def _encode_once(value: str) -> str:
    return quote(value, safe="") if _NEEDS_ENCODING.search(value) else value


def _userinfo_span(template: str) -> tuple[int, int]:
    start = template.find("://") + 3
    if start < 3:
        return 0, 0
    masked = _REFERENCE.sub(lambda match: "x" * len(match[0]), template)
    authority = re.split(r"[/?#]", masked[start:], maxsplit=1)[0]
    return start, start + max(authority.rfind("@"), 0)


def _split_authority(text: str) -> tuple[str, str, str]:
    """Return the authority, the character after it, and the rest."""
    match = re.search(r"[/?]", text)
    return (text[: match.start()], match[0], text[match.end() :]) if match else (text, "", "")


def _host_and_port(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, _, port = address.partition("]")
        return host + "]", port.lstrip(":")
    if "," in address:  # several servers, each with its own port
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def _port_is_plausible(port: str) -> bool:
    return not port or bool(_STAND_IN.search(port)) or (port.isascii() and port.isdigit() and int(port) < 65536)


def _params(query: str, hide: list[str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in query.split("&") if part)
    return {unquote(name): _restore_references(unquote(value), hide) for name, _, value in pairs}


def _hide_references(text: str) -> tuple[str, list[str]]:
    """Replace references by placeholders, because they may contain characters with a meaning in URLs."""
    hide = _REFERENCE.findall(text)
    numbers = iter(range(len(hide)))
    return _REFERENCE.sub(lambda _found: f"\x00{next(numbers)}\x00", text), hide


def _restore_references(text: str, hide: list[str]) -> str:
    return _STAND_IN.sub(lambda match: hide[int(match[1])], text)
