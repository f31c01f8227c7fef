"""SQL as tokens with their positions, so that parts of a text can be replaced and the rest stays unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ematix_flow.foundation.errors import SqlError
from ematix_flow.foundation.lazy_imports import sqlglot

Span = tuple[int, int]
"""A half-open range of token numbers."""

_OPENING = ("L_PAREN", "L_BRACKET", "L_BRACE")
CLOSING = ("R_PAREN", "R_BRACKET", "R_BRACE")


class Tokens:
    """The tokens of one statement."""

    def __init__(self, text: str, dialect: str = "spark") -> None:
        self.text = text
        try:
            self._tokens: list[Any] = list(sqlglot.tokenize(text, read=dialect))
        except sqlglot.errors.SqlglotError as exc:
            raise SqlError(
                f"the SQL cannot be read: {str(exc).splitlines()[0]}", hint="look for an open quote"
            ) from exc
        while self._tokens and self.kind(len(self._tokens) - 1) == "SEMICOLON":
            self._tokens.pop()

    def __len__(self) -> int:
        return len(self._tokens)

    def kind(self, number: int) -> str:
        """Return sqlglot's name of a token's type; empty outside of the text."""
        return str(self._tokens[number].token_type.name) if 0 <= number < len(self._tokens) else ""

    def word(self, number: int) -> str:
        """Return a token in lower case, without quotes; empty outside of the text."""
        return str(self._tokens[number].text).lower() if 0 <= number < len(self._tokens) else ""

    def is_name(self, number: int) -> bool:
        """Return whether a token may be a name: neither a string nor a number."""
        return self.kind(number) not in ("", "STRING", "RAW_STRING", "NUMBER") and self.word(number).isidentifier()

    def start(self, number: int) -> int:
        """Return the position of a token's first character."""
        return int(self._tokens[number].start)

    def end(self, number: int) -> int:
        """Return the position after a token's last character."""
        return int(self._tokens[number].end) + 1

    def slice(self, span: Span) -> str:
        """Return the original text of these tokens."""
        low, high = span
        return self.text[self.start(low) : self.end(high - 1)] if high > low else ""

    @cached_property
    def closing(self) -> dict[int, int]:
        """Return the number of the closing bracket by that of its opening one."""
        pairs: dict[int, int] = {}
        open_now: list[int] = []
        for number in range(len(self._tokens)):
            if self.kind(number) in _OPENING:
                open_now.append(number)
            elif self.kind(number) in CLOSING and open_now:
                pairs[open_now.pop()] = number
        return pairs

    def flat(self, span: Span) -> Iterator[int]:
        """Yield the tokens outside of brackets, including the opening brackets themselves."""
        number, high = span
        while number < high:
            yield number
            number = self.closing.get(number, number) + 1

    def parts(self, span: Span) -> list[Span]:
        """Return the spans between the top-level commas."""
        low, high = span
        if low >= high:
            return []
        borders = [number for number in self.flat(span) if self.kind(number) == "COMMA"]
        return list(zip([low, *(border + 1 for border in borders)], [*borders, high], strict=True))

    def same(self, one: Span, other: Span) -> bool:
        """Return whether two spans have equal tokens, apart from white space and the case of names."""
        return one[1] - one[0] == other[1] - other[0] and all(
            self._sense(a) == self._sense(b) for a, b in zip(range(*one), range(*other), strict=True)
        )

    def _sense(self, number: int) -> tuple[str, str]:
        token = self._tokens[number]
        if self.kind(number) in ("STRING", "RAW_STRING", "NUMBER"):
            return self.kind(number), str(token.text)
        return "", self.word(number)
