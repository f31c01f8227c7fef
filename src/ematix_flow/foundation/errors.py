"""Every error that the product raises.

FlowError                       exit  retry
├── DeclarationError (ValueError)   3     an invalid declaration of the user
│   ├── UnknownKeyword (TypeError)  3
│   ├── WrongType (TypeError)       3     a value that is no class, connection or table where one is required
│   └── ModuleFailed                3     the user's module does not import
├── UnknownName (KeyError)          2     no pipeline, transform or run of that name
├── ConfigError (ValueError)        5     a configuration file or value is malformed
│   ├── UnknownConnection (KeyError)
│   ├── MissingSecret (KeyError)
│   └── MissingDriver (ImportError) 5     the package of an extra is not installed
├── ConnectionFailed                5     the system responded with a refusal
│   ├── Unreachable                 5  ✓  the system did not respond
│   └── PermissionDenied            5
├── PlanError (ValueError)          3     the plan cannot work; nothing was run
│   ├── Unsupported (NotImplementedError)
│   ├── SqlError                    3     the source's SQL is invalid
│   ├── MissingTable                3
│   ├── MissingColumn               3
│   └── DriftError                  3     the target differs from its declaration
├── DataError (ValueError)          4     rows that violate the table's declaration; nothing was loaded
│   ├── BadValue                    4     does not fit the column's type
│   ├── NullViolation               4
│   ├── TextTooLong                 4
│   ├── DuplicateKeys               4
│   └── ConstraintViolation         4     a CHECK, a foreign key or a trigger of the target rejects a row
├── QualityError (RuntimeError)     4     the checks that a pipeline declares
│   ├── QualityCheckFailed (DataError)    rows that they reject; nothing was loaded
│   ├── QualityUnrunnable           4     they could not be executed
│   └── QualityDependencyMissing    4     a package that they need is not installed
├── LeaseHeld                       6  ✓  another run of this pipeline is active
├── LeaseLost                       6  ✓  the lease was lost to another process, or expired
├── RunCancelled                  130     the run was cancelled
├── Brake                           7     the load would delete too much
├── StorageFull                     1  ✓
├── RunFailed                       1  ✓  any other end of a run, for which a retry may or may not help
│   ├── UserError                   1  ✓  the user's own function raised
│   └── EngineLost                  1  ✓  the Spark engine ended in the middle of the run
└── PartialFailure                  8  ✓  some targets of a fan-out failed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean, nearest_name
from ematix_flow.foundation.redact import mask


class FlowError(Exception):
    """An error with a message, its location in the user's files, and a hint for the next step."""

    exit_code = 1
    retryable = False

    def __init__(self, what: str, *, where: Location | None = None, hint: str | None = None, **facts: object) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.facts = facts

    @property
    def kind(self) -> str:
        """Return the class name for events, alerts and JSON."""
        return type(self).__name__

    @property
    def message(self) -> str:
        """Return the message for events, alerts and JSON, without secrets."""
        return mask(self.what)

    def at(self, where: Location | None) -> FlowError:
        """Return this error with a location, unless it already has one."""
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  at {self.where}   {self.where.text}".rstrip())
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return mask("\n".join(lines))  # the user's own line may contain a password

    def to_dict(self) -> dict[str, object]:
        """Return the error as one JSON-ready object; facts that are not plain values are left out."""
        plain = {key: mask(str(value)) for key, value in self.facts.items() if isinstance(value, (str, int, float))}
        return {
            "error": self.kind,
            "message": self.message,
            "where": str(self.where) if self.where else None,
            "hint": self.hint,
            "retryable": self.retryable,
            "exit_code": self.exit_code,
            **({"facts": plain} if plain else {}),
        }


@contextmanager
def located(where: Location | None) -> Iterator[None]:
    """Add a location to an error of the block that has none."""
    try:
        yield
    except FlowError as error:
        error.at(where)
        raise


class DeclarationError(FlowError, ValueError):
    """A declaration of the user that is invalid."""

    exit_code = 3


def check_choice(option: str, value: object, valid: Sequence[str], **facts: object) -> None:
    """Raise DeclarationError unless the value of an option is one of the valid texts."""
    if value not in valid:
        *others, last = (f'"{text}"' for text in valid)
        hint = f"use {', '.join(others)} or {last}"
        if len(valid) > 3 or nearest_name(str(value), valid):
            hint = did_you_mean(str(value), valid)
        error = DeclarationError(f"{option}={value!r} is not known", hint=hint)
        error.facts.update(facts)
        raise error


class UnknownKeyword(DeclarationError, TypeError):
    """A keyword that no decorator has; the message names the nearest valid one."""


class WrongType(DeclarationError, TypeError):
    """A value of another type where a class, a connection or a table is required."""


class ModuleFailed(DeclarationError, ImportError):
    """The user's module does not import."""


class UnknownName(FlowError, KeyError):
    """No pipeline, transform or run of that name."""

    exit_code = 2


class ConfigError(FlowError, ValueError):
    """A configuration file or value is malformed."""

    exit_code = 5


class UnknownConnection(ConfigError, KeyError):
    """No connection of that name is configured anywhere."""


class MissingSecret(ConfigError, KeyError):
    """A `${…}` reference that cannot be resolved."""


class MissingDriver(ConfigError, ImportError):
    """A package that is not installed; the hint names its extra."""


class ConnectionFailed(FlowError, ValueError):
    """The system responded with a refusal."""

    exit_code = 5


class Unreachable(ConnectionFailed):
    """The system did not respond."""

    retryable = True


class PermissionDenied(ConnectionFailed):
    """The login lacks a permission."""


class PlanError(FlowError, ValueError):
    """The plan cannot work; nothing was run."""

    exit_code = 3


class Unsupported(PlanError, NotImplementedError):
    """The backend does not support a feature that the pipeline uses."""


class SqlError(PlanError):
    """The source's SQL is invalid."""


class MissingTable(PlanError):
    """A table does not exist."""


class MissingColumn(PlanError):
    """A column does not exist."""


class DriftError(PlanError):
    """The target table differs from its declaration."""


class DataError(FlowError, ValueError):
    """Rows that violate the table's declaration; nothing was loaded."""

    exit_code = 4


class BadValue(DataError):
    """A value that does not fit its column's type."""


class NullViolation(DataError):
    """NULL in a column that is declared NOT NULL."""


class TextTooLong(DataError):
    """Text longer than its String[n]."""


class DuplicateKeys(DataError):
    """Two rows of one batch, or of batch and table, have the same key."""


class ConstraintViolation(DataError):
    """A CHECK, a foreign key or a trigger of the target rejects a row."""


class QualityError(FlowError, RuntimeError):
    """A problem with the checks that a pipeline declares."""

    exit_code = 4


class QualityCheckFailed(QualityError, DataError):
    """Rows that the declared checks reject; nothing was loaded."""

    def __init__(self, outcome: object, *, where: Location | None = None, hint: str | None = None,
                 **facts: object) -> None:  # fmt: skip
        super().__init__(str(outcome), where=where, hint=hint, **facts)
        self.outcome = outcome

    def to_dict(self) -> dict[str, object]:
        """Return the fields of every error, with the outcome of the checks."""
        to_dict = getattr(self.outcome, "to_dict", None)
        return {**super().to_dict(), **({"quality": to_dict()} if callable(to_dict) else {})}


class QualityUnrunnable(QualityError):
    """The checks could not be executed, and the pipeline does not load without them."""


class QualityDependencyMissing(QualityError):
    """A package that the checks need is not installed."""


class LeaseHeld(FlowError):
    """Another run of this pipeline is active."""

    exit_code = 6
    retryable = True


class LeaseLost(FlowError):
    """The token no longer holds its lease: another process has it, or it expired."""

    exit_code = 6
    retryable = True


class RunCancelled(FlowError):
    """The run was cancelled; nothing more was loaded."""

    exit_code = 130


class Brake(FlowError):
    """The load would delete too much; it stopped before any change."""

    exit_code = 7


class StorageFull(FlowError, OSError):
    """No space left on the storage of the target."""

    retryable = True


class RunFailed(FlowError, ValueError):
    """Any other error that ends a run."""

    retryable = True


class EngineLost(RunFailed):
    """The Spark engine ended in the middle of the run."""


class UserError(RunFailed):
    """The user's own code raised: `raised` is its exception, which events, alerts and JSON name."""

    def __init__(
        self, what: str, *, raised: BaseException, where: Location | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.raised = raised

    @property
    def kind(self) -> str:
        """Return the class name of the user's exception."""
        return type(self.raised).__name__

    @property
    def message(self) -> str:
        """Return the message of the user's exception."""
        return mask(str(self.raised)) or self.kind


def error_facts(error: BaseException) -> tuple[str, str]:
    """Return the class name and the message of any error for events, alerts and records, without secrets."""
    if isinstance(error, FlowError):
        return error.kind, error.message
    return type(error).__name__, mask(str(error))


def assert_never(value: NoReturn) -> NoReturn:
    """Raise AssertionError for a case that a `match` leaves out; the type checker reports it before."""
    raise AssertionError(f"not expected here: {value!r}")


class PartialFailure(FlowError):
    """Some targets of a fan-out failed, the others are loaded."""

    exit_code = 8
    retryable = True
