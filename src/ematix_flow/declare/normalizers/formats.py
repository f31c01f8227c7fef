"""Date and time formats in PostgreSQL's notation, parsed and checked when they are declared."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

from ematix_flow.foundation.errors import DeclarationError

TOKENS = ("YYYY", "MM", "DD", "HH24", "MI", "SS", "MS", "US", "OF")
VARIABLE_WIDTH = ("MS", "US", "OF")
_NEEDS = {"MM": ("YYYY",), "DD": ("MM",), "MI": ("HH24",), "SS": ("MI",), "MS": ("SS",), "US": ("SS",), "OF": ("HH24",)}
_BARE_LETTERS = "TZ"

DEFAULT_TIMESTAMP_FORMATS = (
    "YYYY-MM-DD HH24:MI:SS.US",
    "YYYY-MM-DD HH24:MI:SS.USOF",
    "YYYY-MM-DD HH24:MI:SSOF",
    "YYYY-MM-DD HH24:MI:SS",
    "YYYY-MM-DDTHH24:MI:SS.USOF",
    "YYYY-MM-DDTHH24:MI:SSOF",
    "YYYY-MM-DDTHH24:MI:SS.US",
    "YYYY-MM-DDTHH24:MI:SS",
    "YYYY-MM-DD",
    "MM/DD/YYYY",
)
DEFAULT_DATE_FORMATS = ("YYYY-MM-DD", "YYYYMMDD", "MM/DD/YYYY")


@dataclass(frozen=True)
class FormatPart:
    """A part of a format: a token such as `YYYY`, or literal text."""

    text: str
    is_token: bool


@lru_cache(maxsize=256)
def parse_format(text: str) -> tuple[FormatPart, ...]:
    """Return the parts of a format; raise DeclarationError for an ambiguous or unsupported one.

    >>> [part.text for part in parse_format("YYYY-MM")]
    ['YYYY', '-', 'MM']
    """
    parts = tuple(_split(text))
    tokens = [part.text for part in parts if part.is_token]
    for token in tokens:
        if tokens.count(token) > 1:
            raise _refusal(text, f"{token} stands in it twice")
        missing = [needed for needed in _NEEDS.get(token, ()) if needed not in tokens]
        if missing:
            raise _refusal(text, f"{token} means nothing without {missing[0]}")
    if "YYYY" not in tokens:
        raise _refusal(text, "it has no YYYY")
    if "MS" in tokens and "US" in tokens:
        raise _refusal(text, "it has both MS and US")
    for left, right in itertools.pairwise(parts):
        if left.text in ("MS", "US") and right.is_token and right.text != "OF":
            raise _refusal(text, f"{left.text} takes a varying number of digits and {right.text} follows at once")
    return parts


def _split(text: str) -> list[FormatPart]:
    parts: list[FormatPart] = []
    position = 0
    while position < len(text):
        token = next((name for name in TOKENS if text.startswith(name, position)), None)
        if token is not None:
            parts.append(FormatPart(token, True))
            position += len(token)
            continue
        character = text[position]
        if character == '"':
            end = text.find('"', position + 1)
            if end < 0:
                raise _refusal(text, "a double quote is never closed")
            parts.extend(FormatPart(quoted, False) for quoted in text[position + 1 : end])
            position = end + 1
        elif character.isalnum() and character not in _BARE_LETTERS:
            raise _refusal(text, f"{_letters_at(text, position)!r} is not a token")
        else:
            parts.append(FormatPart(character, False))
            position += 1
    return parts


def _letters_at(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]


def _refusal(text: str, reason: str) -> DeclarationError:
    return DeclarationError(
        f"the format {text!r} cannot be used: {reason}",
        hint=f"supported: {' '.join(TOKENS)}, separators, the letters T and Z, and text in double quotes",
    )
