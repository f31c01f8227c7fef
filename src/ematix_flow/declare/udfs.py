"""User-defined functions for SQL: a decorated function or class with its types, checked at the declaration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean, nearest_name
from ematix_flow.foundation.signatures import at_callers_line

TYPES = (
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Boolean", "Utf8",
    "Binary",
)  # fmt: skip
METHODS = ("update_batch", "merge_batch", "evaluate", "state")
_ALIASES = {
    "tinyint": "Int8", "smallint": "Int16", "int": "Int32", "integer": "Int32", "bigint": "Int64", "long": "Int64",
    "float": "Float32", "real": "Float32", "double": "Float64", "bool": "Boolean", "string": "Utf8", "str": "Utf8",
    "text": "Utf8", "largeutf8": "Utf8", "utf8view": "Utf8", "large_string": "Utf8", "bytes": "Binary",
    "largebinary": "Binary", "binaryview": "Binary", "large_binary": "Binary",
}  # fmt: skip
_BY_NAME = {**{name.lower(): name for name in TYPES}, **_ALIASES}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class PythonScalarUdfHandle:
    """A function over PyArrow arrays that SQL calls by its name; it stays callable from Python."""

    name: str
    function: Callable[..., Any]
    args: tuple[str, ...]
    returns: str
    where: Location | None = None

    def __post_init__(self) -> None:
        _copy_metadata(self, self.function)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        return self.function(*arrays, **named)

    def __repr__(self) -> str:
        return f"<udf {self.name}({', '.join(self.args)}) -> {self.returns}>"


@dataclass(frozen=True, eq=False)
class PythonAggregateUdfHandle:
    """A class of accumulators that SQL calls by its name; a call from Python creates an accumulator."""

    name: str
    accumulator: Callable[..., Any]
    args: tuple[str, ...]
    state: tuple[str, ...]
    returns: str
    where: Location | None = None

    def __post_init__(self) -> None:
        _copy_metadata(self, self.accumulator)

    def __call__(self, *value: Any, **named: Any) -> Any:
        return self.accumulator(*value, **named)

    def __repr__(self) -> str:
        return f"<udaf {self.name}({', '.join(self.args)}) -> {self.returns}>"


Handle = PythonScalarUdfHandle | PythonAggregateUdfHandle


@dataclass(frozen=True)
class Functions:
    """The functions that one statement may call; their names are all different."""

    scalars: tuple[PythonScalarUdfHandle, ...] = ()
    aggregates: tuple[PythonAggregateUdfHandle, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.scalars or self.aggregates)

    @property
    def handles(self) -> tuple[Handle, ...]:
        """All functions."""
        return (*self.scalars, *self.aggregates)

    @property
    def by_name(self) -> dict[str, Handle]:
        """The functions by their names in lower case, because SQL names are case-insensitive."""
        return {handle.name.lower(): handle for handle in self.handles}


@at_callers_line
def scalar_udf(function: Callable[..., Any], *, args: Sequence[str], returns: str, name: str | None = None,
               where: Location | None = None) -> PythonScalarUdfHandle:  # fmt: skip
    """Return the handle of a function; raise DeclarationError if it does not fit its types."""
    taken, return_type = type_names(args, option="args"), type_name(returns, option="returns")
    if not callable(function) or isinstance(function, type):
        raise DeclarationError("@udf decorates a function", hint="@udaf is for classes that aggregate")
    named = _function_name(name, function)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(f"udf {named} is a coroutine or generator", hint="return a pyarrow Array")
    _require_arity(function, taken, of=f"udf {named}")
    return PythonScalarUdfHandle(named, function, taken, return_type, where)


@at_callers_line
def aggregate_udf(cls: type, *, args: Sequence[str], state: Sequence[str], returns: str, name: str | None = None,
                  where: Location | None = None) -> PythonAggregateUdfHandle:  # fmt: skip
    """Return the handle of a class of accumulators; raise DeclarationError if it does not fit its types."""
    taken, kept = type_names(args, option="args"), type_names(state, option="state")
    return_type = type_name(returns, option="returns")
    if not isinstance(cls, type):
        raise DeclarationError("@udaf decorates a class", hint="@udf is for functions")
    named = _function_name(name, cls)
    _require_methods(cls, named)
    _require_plain_start(cls, named)
    _require_arity(cls, taken, of=f"udaf {named}", method="update_batch")
    _require_arity(cls, kept, of=f"udaf {named}", method="merge_batch", option="state")
    for method in ("evaluate", "state"):
        _require_arity(cls, (), of=f"udaf {named}", method=method)
    return PythonAggregateUdfHandle(named, cls, taken, kept, return_type, where)


@at_callers_line
def functions_of(udfs: Iterable[Any] | None = (), aggregate_udfs: Iterable[Any] | None = ()) -> Functions:
    """Return the functions of one pipeline; raise DeclarationError for other objects and for duplicate names."""
    scalars = tuple(_checked(item, PythonScalarUdfHandle, option="udfs") for item in _as_tuple(udfs))
    aggregates = tuple(
        _checked(item, PythonAggregateUdfHandle, option="aggregate_udfs") for item in _as_tuple(aggregate_udfs)
    )
    seen: dict[str, Handle] = {}
    for handle in (*scalars, *aggregates):
        other = seen.setdefault(handle.name.lower(), handle)
        if other is not handle:
            raise DeclarationError(
                f"two functions are called {handle.name!r}: {_place(other)} and {_place(handle)}",
                hint='give one of them another name: @udf(..., name="…")',
            )
    return Functions(tuple(dict.fromkeys(scalars)), tuple(dict.fromkeys(aggregates)))


def type_name(value: Any, *, option: str) -> str:
    """Return the documented name of a type; raise DeclarationError for an unsupported one.

    >>> type_name("float64", option="returns"), type_name("String", option="returns")
    ('Float64', 'Utf8')
    """
    text = str(value) if isinstance(value, str) or type(value).__module__.startswith("pyarrow") else None
    name = _BY_NAME.get((text or "").strip().lower())
    if name is not None:
        return name
    raise DeclarationError(
        f"unsupported UDF DataType in {option}: {value!r}", hint=did_you_mean(text, TYPES) if text else _list(TYPES)
    )


def type_names(value: Any, *, option: str) -> tuple[str, ...]:
    """Return the documented names of types; raise DeclarationError if there is none."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(f"{option} takes several type names, not {value!r}", hint=f'{option}=("Float64",)')
    names = tuple(type_name(item, option=option) for item in value)
    if not names:
        raise DeclarationError(f"{option} is empty", hint=f'name at least one type: {option}=("Float64",)')
    return names


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)


def _checked(item: Any, kind: Any, *, option: str) -> Any:
    if isinstance(item, kind):
        return item
    if isinstance(item, (PythonScalarUdfHandle, PythonAggregateUdfHandle)):
        other = "aggregate_udfs" if option == "udfs" else "udfs"
        raise DeclarationError(f"{item!r} does not belong into {option}=", hint=f"pass it in {other}=")
    decorator = "@udf" if option == "udfs" else "@udaf"
    raise DeclarationError(
        f"{option}= does not take {getattr(item, '__name__', item)!r}", hint=f"decorate it with {decorator}(...)"
    )


def _place(handle: Handle) -> str:
    return str(handle.where) if handle.where is not None else repr(handle)


def _function_name(name: str | None, decorated: Any) -> str:
    function_name = name if name is not None else str(getattr(decorated, "__name__", ""))
    if not isinstance(function_name, str) or not _NAME.fullmatch(function_name):
        raise DeclarationError(
            f"{function_name!r} is not a name that SQL can call", hint='use letters, digits and _: name="half"'
        )
    return function_name


def _require_methods(cls: type, name: str) -> None:
    for method in METHODS:
        if callable(getattr(cls, method, None)):
            continue
        near = nearest_name(method, [item for item in dir(cls) if item[0] != "_" and callable(getattr(cls, item))])
        hint = f"is it {near}()?" if near else f"it needs {_list(METHODS)}"
        raise DeclarationError(f"udaf {name} has no method {method}()", hint=hint)


def _require_plain_start(cls: type, name: str) -> None:
    try:
        inspect.signature(cls).bind()
    except TypeError as exc:
        raise DeclarationError(
            f"udaf {name} cannot be made without arguments: {exc}", hint="every group begins with a new, empty one"
        ) from exc
    except ValueError:  # no signature to check
        return


def _require_arity(decorated: Any, types: Sequence[str], *, of: str, method: str | None = None,
                   option: str = "args") -> None:  # fmt: skip
    called = decorated if method is None else getattr(decorated, method)
    unbound = method is not None and not isinstance(
        inspect.getattr_static(decorated, method), (staticmethod, classmethod)
    )
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # no signature to check
        return
    try:
        signature.bind(*([None] * (len(types) + unbound)))
    except TypeError as exc:
        shown = f"{of}: {method}{signature}" if method else f"{of}{signature}"
        reason = f"{option}= has {len(types)} type(s)" if types or method is None else "nothing is passed to it"
        raise DeclarationError(f"{shown} does not fit: {reason} ({exc})", hint="name one type per argument") from exc


def _copy_metadata(handle: Any, decorated: Any) -> None:
    """Copy name, documentation and signature of the decorated object to the handle."""
    kept = {name: getattr(decorated, name) for name in ("__doc__", "__name__", "__qualname__", "__module__")
            if hasattr(decorated, name)}  # fmt: skip
    vars(handle).update(kept, __wrapped__=decorated)


def _list(names: Iterable[str]) -> str:
    return "valid: " + ", ".join(names)
