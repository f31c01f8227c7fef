"""Checks of the values of a stream's keywords, alone and in combination."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.streams.parts import Lookup
from ematix_flow.declare.streams.placement import BROKERS, DELTA, FILES, QUEUES, kind_of
from ematix_flow.declare.streams.spec import DLQ, EXACTLY_ONCE, BadRows, BrokerTarget, StreamTarget
from ematix_flow.declare.udfs import functions_of
from ematix_flow.foundation.errors import DeclarationError, WrongType, check_choice
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.secrets import references_in

if TYPE_CHECKING:
    from ematix_flow.declare.streams.options import StreamOptions

EARLIEST, LATEST = "earliest", "latest"
ONCE = "once"
_NAME = re.compile(r"\w[\w .\-]*")
_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {
    "milliseconds": ("ms", "millisecond"),
    "seconds": ("s", "sec", "second"),
    "minutes": ("min", "minute"),
    "hours": ("h", "hour"),
}
_UNITS = {word: unit for unit, words in _WORDS.items() for word in (unit, *words)}
_INTERVAL = re.compile(rf"(\d{{1,9}})\s*({'|'.join(_UNITS)})")
_STREAM_TABLE = "source"


def stream_name(name: Any) -> str:
    """Return the stream's name, which is also the name of its folder; raise if it is missing or invalid."""
    if name is None:
        raise DeclarationError("the stream has no name", hint='add name="events_to_pg"', keyword="name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{name!r} cannot be the name of a stream",
            hint="it begins with a letter or digit and has only letters, digits, blanks and . _ -",
            keyword="name",
        )
    return name


def choice_option(options: StreamOptions, keyword: str, valid: Sequence[str]) -> str | None:
    """Return one of the valid texts, or None if the keyword is not set."""
    value = getattr(options, keyword)
    if value is None:
        return None
    check_choice(keyword, value, valid, keyword=keyword)
    return str(value)


@overload
def integer_option(options: StreamOptions, keyword: str, *, least: int, most: int | None = None) -> int | None: ...
@overload
def integer_option(
    options: StreamOptions, keyword: str, *, least: int, most: int | None = None, default: int
) -> int: ...
def integer_option(
    options: StreamOptions, keyword: str, *, least: int, most: int | None = None, default: int | None = None
) -> int | None:
    """Return an integer within its bounds, or the default."""
    value = getattr(options, keyword)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise DeclarationError(f"{keyword} is a whole number {bounds}, not {value!r}", keyword=keyword)
    return value


def boolean_option(options: StreamOptions, keyword: str) -> bool:
    """Return a boolean; False if the keyword is not set."""
    value = getattr(options, keyword)
    if value is not None and not isinstance(value, bool):
        raise DeclarationError(f"{keyword} is True or False, not {value!r}", keyword=keyword)
    return bool(value)


def folder_of(checkpoint: Any) -> str | None:
    """Return the checkpoint folder as text."""
    if checkpoint is None:
        return None
    text = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
    if not isinstance(text, str) or not text.strip():
        raise DeclarationError(f"checkpoint is the name of a folder, not {checkpoint!r}", keyword="checkpoint")
    return text


def trigger_of(value: Any) -> str | None:
    """Return `once`, or an interval in Spark's notation.

    >>> trigger_of("5s"), trigger_of("available_now"), trigger_of("10 minutes")
    ('5 seconds', 'once', '10 minutes')
    """
    if value is None:
        return None
    if value in (ONCE, "available_now"):
        return ONCE
    match = _INTERVAL.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise DeclarationError(
            f"trigger={value!r} is no interval", hint='write "5 seconds", "500 ms" or "once"', keyword="trigger"
        )
    return f"{int(match[1])} {_UNITS[match[2]]}"


def start_of(value: Any, sources: Sequence[Source]) -> str:
    """Return `earliest`, `latest` or offsets as JSON; by default the setting of the connections."""
    if value is None:
        return _start_of_connections(sources)
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    if value in (EARLIEST, LATEST):
        return str(value)
    try:
        offsets = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict):
        raise DeclarationError(
            f"start={value!r} is no place to begin at",
            hint='"earliest", "latest", or offsets: {"events": {"0": 1200}}',
            keyword="start",
        )
    return json.dumps(offsets, sort_keys=True)


def _start_of_connections(sources: Sequence[Source]) -> str:
    resets = (getattr(source.connection, "auto_offset_reset", None) for source in sources)
    starts = {place for place in resets if place and not references_in(place)}
    if len(starts) > 1:
        raise DeclarationError(
            "the connections of the sources begin at different places", hint='say start="earliest"', keyword="start"
        )
    return str(starts.pop()) if starts else EARLIEST


def message_fields(value: Any) -> dict[str, str]:
    """Return the columns of the messages with their types."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and name and isinstance(kind, str) and kind.strip() for name, kind in value.items()
    ):
        raise DeclarationError(
            "fields maps columns of the messages to types", hint='for example {"id": "BIGINT"}', keyword="fields"
        )
    return dict(value)


def check_dead_letters(store: str | None, topic: Any, sources: Sequence[Source]) -> None:
    """Check the dead-letter store and topic; the topic must be at the source's own broker."""
    if store == "topic" and topic is None:
        raise DeclarationError('dlq_store="topic" needs dead_letter_topic=', keyword="dlq_store")
    kinds = {kind_of(source.connection) for source in sources}
    if store == "broker" and None not in kinds and not kinds <= set(QUEUES):
        raise DeclarationError(
            'dlq_store="broker" is for sources that reject messages: RabbitMQ and Pub/Sub',
            hint='dlq_store="table" keeps bad rows in a table',
            keyword="dlq_store",
        )
    if store == "broker" and len(sources) > 1:
        raise DeclarationError(
            f'dlq_store="broker" rejects messages of one source, and there are {len(sources)}',
            hint='dlq_store="table" keeps bad rows in a table',
            keyword="dlq_store",
        )
    if topic is None:
        return
    if not isinstance(topic, str) or not topic.strip():
        raise DeclarationError(f"dead_letter_topic is the name of a topic, not {topic!r}", keyword="dead_letter_topic")
    if store in ("table", "broker"):
        raise DeclarationError(
            f'dead_letter_topic does not go with dlq_store="{store}"', hint="keep one", keyword="dead_letter_topic"
        )
    if None not in kinds and not kinds & set(BROKERS):
        raise DeclarationError(
            "dead_letter_topic is a topic of the source's broker, and this source has none",
            hint='dlq_store="table" keeps bad rows in a table',
            keyword="dead_letter_topic",
        )


def check_delivery(options: StreamOptions) -> None:
    """Refuse exactly-once with tolerated target failures: a retried batch is no longer partitioned as it was read."""
    if options.delivery == EXACTLY_ONCE and options.continue_on_target_failure:
        raise DeclarationError(
            'delivery="exactly_once" and continue_on_target_failure=True exclude each other: a target that failed would '
            "get its batch later, no longer partitioned as it was read",
            hint="leave out one of them",
            keyword="delivery",
        )


def check_transform(options: StreamOptions) -> None:
    """Check the SQL, and the keywords that only SQL can use."""
    sql = options.transform_sql
    if sql is not None and (not isinstance(sql, str) or not sql.strip()):
        raise DeclarationError("transform_sql is no statement", hint="SELECT … FROM source", keyword="transform_sql")
    for keyword in ("lookups", "udfs", "aggregate_udfs"):
        if getattr(options, keyword) and sql is None:
            raise DeclarationError(
                f"{keyword}= is used by transform_sql=, which is not there", hint="add transform_sql=", keyword=keyword
            )
    _check_lookups(options.lookups)
    try:
        functions_of(options.udfs, options.aggregate_udfs)
    except DeclarationError as error:
        error.facts.setdefault("keyword", "udfs" if options.udfs else "aggregate_udfs")
        raise


def _check_lookups(lookups: Any) -> None:
    if lookups is None:
        return
    if not isinstance(lookups, Mapping):
        raise WrongType("lookups= maps names to Lookup(…)", keyword="lookups")
    for name, lookup in lookups.items():
        if not isinstance(lookup, Lookup):
            raise WrongType(f"lookups[{name!r}] is not a Lookup(…)", keyword="lookups")
        if not isinstance(name, str) or not _SQL_NAME.fullmatch(name):
            raise DeclarationError(f"{name!r} is no name that SQL can use for a lookup", keyword="lookups")
        if name.lower() == _STREAM_TABLE:
            raise DeclarationError(
                "a lookup cannot be called source, which is the stream itself", hint="rename it", keyword="lookups"
            )


def check_processing(
    options: StreamOptions,
    sources: Sequence[Source],
    targets: Sequence[StreamTarget],
    bad: BadRows,
    where: Location | None,
) -> None:
    """Check windows, joins and change data, which exclude each other and require other parts."""
    together = [name for name in ("window", "join", "cdc") if getattr(options, name) is not None]
    if len(together) > 1:
        raise DeclarationError(f"{together[0]}= excludes {together[1]}=", hint="keep one", keyword=together[1])
    if options.join is not None:
        _check_join(options, sources)
    elif len(sources) > 1:
        _check_union(options, sources, targets)
    if options.cdc is not None:
        _check_cdc(options, targets)
    if options.window is not None and options.window.late_data == DLQ and bad.policy != DLQ:
        raise DeclarationError(
            'late_data="dlq" makes dead letters of late rows, and this stream keeps none',
            hint='add transform_on_error="dlq"',
            keyword="window",
        )
    _check_state(options, where)
    _check_unused(options, where)


def _check_join(options: StreamOptions, sources: Sequence[Source]) -> None:
    join = options.join
    if join is None:
        return
    if options.transform_sql is not None:
        raise DeclarationError("join= and transform_sql= do not go together", keyword="join")
    queries = [source.query for source in sources]
    for end in ("left_source", "right_source"):
        side = getattr(join, end)
        if queries.count(side) != 1:
            raise DeclarationError(
                f"join= names the source {side!r} as its {end}, and {queries.count(side) or 'no'} source has that query",
                hint=did_you_mean(side, set(queries)),
                keyword="join",
            )
    if len(sources) != 2:
        raise DeclarationError(f"join= takes two sources, and there are {len(sources)}", keyword="join")


def _check_union(options: StreamOptions, sources: Sequence[Source], targets: Sequence[StreamTarget]) -> None:
    """Check several sources without a join, which form one stream of all their rows."""
    if options.cdc is not None:
        raise DeclarationError(
            f"cdc= takes one source, and there are {len(sources)}: which of two changes is later is known within one only",
            hint="declare a stream for each: several may write to one table",
            keyword="cdc",
        )
    if options.delivery == EXACTLY_ONCE and any(isinstance(target, BrokerTarget) for target in targets):
        raise DeclarationError(
            f'delivery="exactly_once" into a broker carries the offsets of one source, and there are {len(sources)}',
            hint="leave delivery= out, or declare a stream for each source",
            keyword="delivery",
        )
    if options.dead_letter_topic is not None and any(item.connection != sources[0].connection for item in sources):
        raise DeclarationError(
            "dead_letter_topic is a topic of one broker, and the sources are of several connections",
            hint='dlq_store="table" keeps bad rows in a table',
            keyword="dead_letter_topic",
        )


def _check_cdc(options: StreamOptions, targets: Sequence[StreamTarget]) -> None:
    if options.transform_sql is not None:
        raise DeclarationError(
            "cdc= and transform_sql= do not go together: the SQL would see envelopes, and not rows",
            hint="mirror the table, and transform it from there",
            keyword="transform_sql",
        )
    for target in targets:
        if not isinstance(target, BrokerTarget) and target.mode != "merge":
            raise DeclarationError(
                f"cdc= writes and deletes rows by key, which mode={target.mode!r} does not",
                hint="leave mode= out",
                keyword="mode",
            )
        kind = kind_of(target.connection)
        if isinstance(target, BrokerTarget) or kind in FILES:
            raise DeclarationError(
                "cdc= changes rows, which brokers and folders of files cannot do",
                hint="use a database or a Delta table",
                keyword="cdc",
            )
        if kind in DELTA and target.load is None and not target.primary_key:
            raise DeclarationError(
                "cdc= into Delta needs the table's key", hint='add target_primary_key=["id"]', keyword="cdc"
            )
        if options.on_drift == "evolve" and target.load is None:
            raise DeclarationError(
                'on_drift="evolve" does not add columns of changes to a table that is not declared',
                hint="add the column to the table, and the stream takes it from then on; or declare the table as a class, "
                "whose new columns are added",
                keyword="on_drift",
            )


def _check_state(options: StreamOptions, where: Location | None) -> None:
    store, window = options.state_store, options.window
    stateful = options.join is not None or (window is not None and window.kind == "session")
    if stateful and store is None:
        raise DeclarationError(
            f"{'join' if options.join is not None else 'a session window'} needs state_store=",
            hint='state_store=StateStore(kind="postgres", url="${STATE_URL}")',
            keyword="state_store",
        )
    if store is not None and window is not None and not stateful:
        raise DeclarationError(
            f"a {window.kind} window takes no state_store=", hint="leave it out", keyword="state_store"
        )
    if store is not None and stateful and store.kind == "in_memory":
        _warn("state_store keeps its state in memory: a restart loses open sessions and joins", where)


def _check_unused(options: StreamOptions, where: Location | None) -> None:
    """Warn about keywords without effect; they are allowed, but the user may expect one."""
    if options.window is not None or options.join is not None:
        return
    for keyword in ("watermark", "state_store"):
        if getattr(options, keyword) is not None:
            _warn(f"{keyword}= is for window= and join=, and does nothing without them", where)


def _warn(what: str, where: Location | None) -> None:
    """Issue a warning at the user's line."""
    place = where or Location("<unknown>", 0)
    warnings.warn_explicit(what, UserWarning, place.file, place.line)
