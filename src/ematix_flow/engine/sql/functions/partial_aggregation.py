"""Partial aggregation: a statement becomes one over rows, whose tasks emit states, and one that merges the states."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from ematix_flow.dataplane.arrow_udfs import SPARK_TYPES
from ematix_flow.declare.udfs import PythonAggregateUdfHandle
from ematix_flow.engine.sql.functions.calls import Call, Calls, Write
from ematix_flow.engine.sql.functions.clauses import SelectClauses, clauses_of
from ematix_flow.engine.sql.functions.tasks import PartialCall, PartialTask
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.sql.spark_text import quote
from ematix_flow.sql.tokens import Span

PREFIX, MERGING = "flow_", "_merge"
"""The prefix of function names in a session, and the suffix of those that merge states."""
_KEY, _ARGUMENT, _STATE = "flow_k", "flow_a", "flow_s"
_ENDS = ("", "L_PAREN", "R_PAREN", "COMMA", "ALIAS", "HAVING", "ORDER_BY", "AND", "OR", "DESC", "ASC")
_PLAIN = (
    "Alias", "Identifier", "Column", "Literal", "Null", "Boolean", "Paren", "Add", "Sub", "Mul", "Div", "Mod", "Neg",
    "And", "Or", "Not", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between", "Case", "If", "Coalesce",
    "Nullif", "Round", "Abs", "Cast", "TryCast", "DataType", "DataTypeParam", "Ordered", "Order", "Having", "Limit", "Struct",
    "PropertyEQ", "DPipe", "Concat", "Greatest", "Least",
)  # fmt: skip
_ATOMIC = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "boolean", "date", "timestamp",
    "timestamp_ntz", "binary",
)  # fmt: skip


@dataclass(frozen=True)
class PartialPlan:
    """The two statements: `inner` returns keys and arguments per row, `outer` reads the view of the states."""

    inner: str
    keys: int
    calls: tuple[PythonAggregateUdfHandle, ...]
    before: str
    after: str

    def outer(self, view: str) -> str:
        """Return the statement over the states."""
        return f"{self.before} FROM {quote(view)} {self.after}".rstrip()

    def task(self) -> PartialTask:
        """Return the task that turns rows into states."""
        calls, place = [], self.keys
        for handle in self.calls:
            calls.append(PartialCall(handle, tuple(range(place, place + len(handle.args)))))
            place += len(handle.args)
        return PartialTask(self.keys, tuple(calls), tuple(self._names()))

    def schema(self, key_types: list[str]) -> str:
        """Return the schema of the task's output as DDL."""
        types = [*key_types, *(SPARK_TYPES[name] for handle in self.calls for name in handle.state)]
        return ", ".join(f"{name} {kind}" for name, kind in zip(self._names(), types, strict=True))

    def _names(self) -> Iterator[str]:
        yield from (f"{_KEY}{place}" for place in range(self.keys))
        for number, handle in enumerate(self.calls):
            yield from (f"{_STATE}{number}_{place}" for place in range(len(handle.state)))


def is_atomic(kind: str) -> bool:
    """Return whether values of this Spark type can also be group keys in Python."""
    return kind.split("(")[0] in _ATOMIC


def partial_plan(calls: Calls, tree: Any, *, write: Write, merging: dict[Any, str],
                 columns: Container[str] | None) -> PartialPlan | None:  # fmt: skip
    """Return the plan; None for every statement whose result might differ when it is evaluated in two steps.

    `columns` are the names that FROM provides, where they are known: a key with another name is an alias.
    """
    clauses = clauses_of(calls.tokens, tree)
    aggregates = [call for call in calls.all_calls.values() if call.is_aggregate]
    if clauses is None or not aggregates or not _is_simple(clauses, calls, aggregates):
        return None
    keys = _keys(clauses, columns)
    if keys is None or any(call.span[0] in range(*key) for call in aggregates for key in keys):
        return None
    return _Rewriting(calls, clauses, keys, aggregates, write, merging).plan()


def _is_simple(clauses: SelectClauses, calls: Calls, aggregates: list[Call]) -> bool:
    tree, tokens = clauses.tree, calls.tokens
    group = tree.args.get("group")
    used = {name for name, value in group.args.items() if value} if group is not None else set()
    outside = [*(item.span for item in clauses.items), clauses.rest]
    placed = all(call.is_plain and any(low <= call.span[0] < high for low, high in outside) for call in aggregates)
    sets = group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None
    if any(item.is_star for item in clauses.items) or used - {"expressions"} or sets or not placed:
        return False
    if any(tokens.kind(number) in ("SELECT", "WITH") for span in outside for number in range(*span)):
        return False
    if any(tree.args.get(name) for name in ("qualify", "windows", "sort", "cluster", "distribute")):
        return False
    return not any(isinstance(node, exp.Window) for node in tree.walk())


def _keys(clauses: SelectClauses, columns: Container[str] | None) -> list[Span] | None:
    """Return the expressions of GROUP BY: a number refers to a result column, a name may do so; None if unclear."""
    tokens, keys = clauses.tokens, []
    aliases = {item.alias.lower(): item.span for item in clauses.items if item.alias}
    for low, high in tokens.parts(clauses.group):
        alone = high - low == 1
        if alone and tokens.kind(low) == "NUMBER":
            place = int(tokens.word(low)) if tokens.word(low).isdecimal() else 0
            if not 1 <= place <= len(clauses.items):
                return None
            keys.append(clauses.items[place - 1].span)
        elif alone and tokens.word(low) in aliases:
            if columns is None:
                return None
            keys.append((low, high) if tokens.word(low) in columns else aliases[tokens.word(low)])
        else:
            keys.append((low, high))
    return keys


class _Rewriting:
    """The rewriting of one statement into the two of its plan."""

    def __init__(self, calls: Calls, clauses: SelectClauses, keys: list[Span], aggregates: list[Call], write: Write,
                 merging: dict[Any, str]) -> None:  # fmt: skip
        self._calls, self._clauses, self._keys, self._write = calls, clauses, keys, write
        self._merging = merging
        self._distinct: list[Call] = []
        self._number: dict[int, int] = {}
        for call in aggregates:
            self._number[call.span[0]] = self._place(call)

    def _place(self, call: Call) -> int:
        """Return the number of a call's states, which textually equal calls share."""
        for number, other in enumerate(self._distinct):
            if self._calls.tokens.same(call.span, other.span):
                return number
        self._distinct.append(call)
        return len(self._distinct) - 1

    def plan(self) -> PartialPlan | None:
        clauses, tokens = self._clauses, self._calls.tokens
        before = self._items()
        rest = self._over_states(clauses.rest)
        names = [f"{_KEY}{place}" for place in range(len(self._keys))]
        after = (f"GROUP BY {', '.join(names)} " if names else "") + rest
        if not _means_one_thing(f"{before} FROM states {after}"):
            return None
        handles = tuple(call.handle for call in self._distinct if isinstance(call.handle, PythonAggregateUdfHandle))
        prefix = self._calls.written(self._write, (0, clauses.select))
        condition = self._calls.written(self._write, clauses.where)
        read = self._calls.written(self._write, clauses.source)
        inner = f"{prefix} SELECT {self._arguments()} {read}" + (f" WHERE {condition}" if condition else "")
        return PartialPlan(inner.strip(), len(self._keys), handles, before, after.strip()) if len(tokens) else None

    def _arguments(self) -> str:
        selected = [f"{self._calls.written(self._write, key)} AS {_KEY}{place}" for place, key in enumerate(self._keys)]
        place = 0
        for call in self._distinct:
            for span, wanted in zip(call.args, call.handle.args, strict=True):
                text = self._calls.written(self._write, span)
                selected.append(f"CAST({text} AS {SPARK_TYPES[wanted]}) AS {_ARGUMENT}{place}")
                place += 1
        return ", ".join(selected)

    def _items(self) -> str:
        items = []
        for item in self._clauses.items:
            alias = f" AS {quote(item.alias)}" if item.alias else ""
            items.append(f"{self._over_states(item.span)}{alias}")
        return f"SELECT {', '.join(items)}"

    def _over_states(self, span: Span) -> str:
        """Return an expression over keys and arguments rewritten as one over keys and states."""
        tokens, pieces = self._calls.tokens, []
        number, high = span
        while number < high:
            key, call = self._key_at(number, high), self._calls.all_calls.get(number)
            if key is not None:
                pieces.append(f"{_KEY}{key}")
                number += self._keys[key][1] - self._keys[key][0]
            elif call is None:
                pieces.append(tokens.slice((number, number + 1)))
                number += 1
            elif call.is_aggregate:
                pieces.append(self._merged(call))
                number = call.span[1]
            else:  # a scalar function: its arguments are expressions over states, too
                pieces.append(self._write(call, [self._over_states(part) for part in call.args], ""))
                number = call.span[1]
        return " ".join(pieces)

    def _merged(self, call: Call) -> str:
        number = self._number[call.span[0]]
        handle = self._distinct[number].handle
        states = getattr(handle, "state", ())
        fields = ", ".join(f"'s{place}', {_STATE}{number}_{place}" for place in range(len(states)))
        return f"{self._merging[handle]}(collect_list(named_struct({fields})))"

    def _key_at(self, number: int, high: int) -> int | None:
        """Return the index of the longest key whose text begins at this token, None when there is none."""
        tokens = self._calls.tokens
        order = sorted(range(len(self._keys)), key=lambda place: self._keys[place][0] - self._keys[place][1])
        for place in order:
            low, top = self._keys[place]
            end = number + top - low
            if end <= high and tokens.same((low, top), (number, end)) and self._stands_alone((number, end), high):
                return place
        return None

    def _stands_alone(self, span: Span, high: int) -> bool:
        tokens, (low, top) = self._calls.tokens, span
        left, right = tokens.kind(low - 1), tokens.kind(top) if top < high else ""
        if self._is_unit(span):
            return left != "DOT" and right not in ("DOT", "L_PAREN", "L_BRACKET", "DCOLON", "COLON")
        return (left in _ENDS or tokens.kind(low - 1) == "SELECT") and right in _ENDS

    def _is_unit(self, span: Span) -> bool:
        """Return whether the tokens are a name or a function call, which no operator can split."""
        tokens, (low, top) = self._calls.tokens, span
        names = all(tokens.kind(number) == "DOT" or tokens.is_name(number) for number in range(low, top))
        called = tokens.kind(low + 1) == "L_PAREN" and tokens.closing.get(low + 1) == top - 1
        return names or called


def _means_one_thing(statement: str) -> bool:
    """Return whether the statement over the states refers only to groups, and to no single rows."""
    try:
        tree = sqlglot.parse_one(statement, read="spark")
    except sqlglot.errors.SqlglotError:
        return False
    for part in (*tree.expressions, tree.args.get("having"), tree.args.get("order")):
        if part is None:
            continue
        for node in part.walk(prune=_is_merged):
            if not _is_ours(node) and type(node).__name__ not in _PLAIN:
                return False
    return isinstance(tree, exp.Select)


def _is_ours(node: Any) -> bool:
    """Return whether a node calls a user function; its arguments are inspected separately."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower().startswith(PREFIX)


def _is_merged(node: Any) -> bool:
    """Return whether a node calls a function that merges states."""
    return _is_ours(node) and str(node.this).lower().endswith(MERGING)
