"""Calls of user functions in a statement: their positions, their validation, and their replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ematix_flow.declare.udfs import Functions, Handle, PythonAggregateUdfHandle
from ematix_flow.foundation.errors import SqlError
from ematix_flow.sql.tokens import Span, Tokens
from ematix_flow.sql.translation.translate import READ_AS

_MARK = "flow_udf_"


@dataclass(frozen=True)
class Call:
    """One call: its tokens, its arguments' tokens, and its tail, which is FILTER (…) and OVER (…)."""

    handle: Handle
    span: Span
    args: tuple[Span, ...]
    tail: Span
    distinct: bool = False

    @property
    def is_aggregate(self) -> bool:
        """Return whether the call returns one value for many rows."""
        return isinstance(self.handle, PythonAggregateUdfHandle)

    @property
    def is_plain(self) -> bool:
        """Return whether the call has no DISTINCT, FILTER or OVER, so that it takes all rows."""
        return not self.distinct and self.tail[0] == self.tail[1]


Write = Callable[[Call, list[str], str], str]
"""Returns the text of a call, from the texts of its arguments and of its tail."""


class Calls:
    """A statement and the calls in it."""

    def __init__(self, text: str, by_name: Mapping[str, Handle]) -> None:
        self.tokens = Tokens(text)
        self._by_name = by_name

    @cached_property
    def all_calls(self) -> dict[int, Call]:
        """Return every call by the number of its first token; raise SqlError for an invalid one."""
        return {call.span[0]: call for call in self._scan()}

    def _scan(self) -> Iterator[Call]:
        tokens = self.tokens
        for number in range(len(tokens)):
            called = tokens.kind(number + 1) == "L_PAREN" and tokens.is_name(number)
            handle = self._by_name.get(tokens.word(number)) if called else None
            if handle is not None and tokens.kind(number - 1) != "DOT":
                yield self._call(handle, number)

    def _call(self, handle: Handle, number: int) -> Call:
        tokens = self.tokens
        close = tokens.closing.get(number + 1)
        if close is None:
            raise SqlError(f"the call of {handle.name} has no closing bracket", hint="close it with )")
        first = number + 2
        distinct = tokens.kind(first) == "DISTINCT"
        call = Call(
            handle,
            (number, close + 1),
            tuple(tokens.parts((first + distinct, close))),
            (close + 1, self._tail(close + 1)),
            distinct,
        )
        self._require(call)
        return call

    def _tail(self, number: int) -> int:
        tokens = self.tokens
        for word in ("FILTER", "OVER"):
            if tokens.kind(number) == word and tokens.kind(number + 1) == "L_PAREN":
                number = tokens.closing.get(number + 1, number) + 1
            elif word == "OVER" and tokens.kind(number) == word:
                number += 2
        return number

    def _require(self, call: Call) -> None:
        name, wanted = call.handle.name, len(call.handle.args)
        if len(call.args) != wanted:
            raise SqlError(
                f"{name} takes {wanted} argument(s), and {len(call.args)} are given: {self._call_text(call)}",
                hint=f"call it as {name}({', '.join(call.handle.args)})",
            )
        if not call.is_aggregate and not call.is_plain:
            raise SqlError(
                f"{name} is a function of one row: DISTINCT, FILTER and OVER do not go with it",
                hint="declare it with @udaf to aggregate",
            )
        for span in call.args:
            self._require_expression(call, span)
        if self.tokens.word(call.span[1]) == "within":
            raise SqlError(f"{name} does not know WITHIN GROUP", hint="sort inside the class")

    def _require_expression(self, call: Call, span: Span) -> None:
        kinds = [self.tokens.kind(number) for number in self.tokens.flat(span)]
        wrong = {"FARROW": "arguments by name", "ORDER_BY": "ORDER BY among its arguments"}
        if not kinds or kinds == ["STAR"]:
            raise SqlError(f"{call.handle.name} takes values: {self._call_text(call)}", hint="name the columns")
        for kind, reason in wrong.items():
            if kind in kinds:
                raise SqlError(f"{call.handle.name} does not take {reason}", hint="pass its arguments by position")

    def _call_text(self, call: Call) -> str:
        text = " ".join(self.tokens.slice(call.span).split())
        return text if len(text) <= 60 else text[:59] + "…"

    def written(self, write: Write, span: Span | None = None) -> str:
        """Return the text with every call replaced by the result of `write`, nested calls first."""
        tokens = self.tokens
        low, high = span if span is not None else (0, len(tokens))
        if low >= high:
            return ""
        pieces: list[str] = []
        place, number = tokens.start(low), low
        while number < high:
            call = self.all_calls.get(number)
            if call is None:
                number += 1
                continue
            pieces.append(tokens.text[place : tokens.start(number)])
            tail = self.written(write, call.tail)
            pieces.append(write(call, [self.written(write, part) for part in call.args], f" {tail}" if tail else ""))
            number = call.tail[1]
            place = tokens.end(number - 1)
        return "".join([*pieces, tokens.text[place : tokens.end(high - 1)]])


def mark_functions(text: str, dialect: str, functions: Functions) -> tuple[str, dict[str, Handle]]:
    """Return the text with the functions renamed so that no translation treats them as its own, and the new names."""
    tokens, known = Tokens(text, READ_AS[dialect]), functions.by_name
    for number in reversed(range(len(tokens))):
        handle = known.get(tokens.word(number)) if tokens.kind(number + 1) == "L_PAREN" else None
        if handle is not None and tokens.is_name(number) and tokens.kind(number - 1) != "DOT":
            text = text[: tokens.start(number)] + _MARK + handle.name + text[tokens.end(number) :]
    return text, {_MARK + name: handle for name, handle in known.items()}
