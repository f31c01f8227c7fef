"""All keywords of a stream, and their conversion into a `StreamSpec`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.engine import EngineOptions, engine_options
from ematix_flow.declare.pipeline import DRIFT_POLICIES, as_tuple
from ematix_flow.declare.streams import rules
from ematix_flow.declare.streams.parts import CDC, Join, Lookup, StateStore, Watermark, Window
from ematix_flow.declare.streams.placement import READ_FORMATS, check_read_options, check_source
from ematix_flow.declare.streams.spec import (
    DELIVERIES,
    DIALECTS,
    DLQ,
    DLQ_STORES,
    ERROR_POLICIES,
    FAIL,
    PAYLOADS,
    BadRows,
    Restarts,
    StreamSpec,
)
from ematix_flow.declare.streams.targets import declared_targets, in_list_position, stream_targets
from ematix_flow.foundation.errors import DeclarationError, UnknownKeyword, WrongType, located
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import nearest_name

ALIASES = {"continue_on_failure": "continue_on_target_failure", "payload_format": "payload", "pipeline_name": "name"}
_IN_PROCESS = "datafusion"  # the value that other products use for an in-process engine


class StreamError(DeclarationError, TypeError):
    """Missing keywords, or a function that cannot be a stream."""


@dataclass(frozen=True)
class StreamOptions:
    """The keywords of `run_streaming_pipeline` and `@ematix.streaming_pipeline`."""

    name: str | None = None
    source: Any = None
    source_query: Any = None
    sources: Sequence[Source] | None = None
    target: Any = None
    target_connection: Any = None
    target_table: Any = None
    target_topic: str | None = None
    target_queue: str | None = None
    target_partition_key_prefix: str | None = None
    target_prefix: str | None = None
    target_message_key_column: str | None = None
    target_partition_by: Sequence[str] | None = None
    target_primary_key: Sequence[str] | None = None
    targets: Sequence[Any] | None = None
    mode: str | None = None
    keys: Sequence[str] | None = None
    update_columns: Sequence[str] | None = None
    compare_columns: Sequence[str] | None = None
    event_timestamp_column: str | None = None
    column_map: Mapping[str, str] | None = None
    transform_sql: str | None = None
    dialect: str | None = None
    lookups: Mapping[str, Lookup] | None = None
    udfs: Sequence[Any] | None = None
    aggregate_udfs: Sequence[Any] | None = None
    window: Window | None = None
    join: Join | None = None
    cdc: CDC | None = None
    state_store: StateStore | None = None
    watermark: Watermark | None = None
    transform_on_error: str | None = None
    dead_letter_topic: str | None = None
    dlq_store: str | None = None
    dlq_max_attempts: int | None = None
    max_bad_fraction: float | None = None
    delivery: str | None = None
    payload: str | None = None
    fields: Mapping[str, str] | None = None
    start: Any = None
    max_rows_per_batch: int | None = None
    idle_pause_ms: int | None = None
    trigger: str | None = None
    checkpoint: Any = None
    continue_on_target_failure: bool | None = None
    on_drift: str | None = None
    restart_on_error: bool | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None
    max_restarts: int | None = None
    metrics_port: int | None = None
    engine: str | None = None
    peers: Sequence[str] | None = None

    @classmethod
    def parse(cls, keywords: Mapping[str, Any], where: Location | None, *, door: str = "a stream") -> StreamOptions:
        """Return the options of these keywords; raise an UnknownKeyword with the nearest valid name."""
        known = {field.name for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in keywords.items():
            name = ALIASES.get(key, key)
            if name not in known:
                near = nearest_name(key, [*known, *ALIASES])
                hint = f"did you mean {near}=?" if near else "see docs/streaming.md for all of them"
                raise UnknownKeyword(f"{door} has no keyword {key!r}", where=where, hint=hint)
            if values.get(name) is not None and value is not None:
                raise UnknownKeyword(f"{key}= and {name}= are the same keyword", where=where, hint="keep one of them")
            values[name] = value
        return cls(**values)

    def set_options(self) -> dict[str, Any]:
        """Return the keywords that are set."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def stream_from(options: StreamOptions, where: Location | None) -> StreamSpec:
    """Build and check the declaration."""
    with located(where):
        return _build(options, where)


def declared_sources(options: StreamOptions) -> tuple[Source, ...]:
    """Return the declared sources, from whichever keywords were used."""
    if (options.source is None) == (options.sources is None):
        both = options.source is not None
        raise DeclarationError(f"give source= or sources={', not both' if both else ''}", keyword="source")
    if options.sources is None:
        return (_single_source(options),)
    if options.source_query is not None:
        raise DeclarationError("source_query= goes with source=, not with sources=", keyword="source_query")
    listed = as_tuple(options.sources)
    if not listed:
        raise DeclarationError("sources= is empty", hint="name at least one Source", keyword="sources")
    sources: list[Source] = []
    for number, item in enumerate(listed):
        with in_list_position(number):
            source = _checked_source(item, "sources")
            if source in sources:
                raise DeclarationError(f"sources= names {source.query!r} twice", keyword="sources")
            sources.append(source)
    return tuple(sources)


def _single_source(options: StreamOptions) -> Source:
    if isinstance(options.source, Source):
        if options.source_query is not None:
            raise DeclarationError("source= is a Source, which says query= itself", keyword="source_query")
        return _checked_source(options.source, "source")
    if options.source_query is None:
        raise DeclarationError(
            "source= needs source_query=", hint='the topic, queue, folder or table: source_query="events"',
            keyword="source_query",
        )  # fmt: skip
    return _checked_source(Source(options.source, options.source_query), "source")


def _checked_source(source: Any, keyword: str) -> Source:
    if not isinstance(source, Source):
        raise WrongType(
            f"{keyword}= takes Source(…), not {source!r}",
            hint='for example Source(connection=kafka_prod, query="events")',
            keyword=keyword,
        )
    check_source(source.connection, keyword=keyword)
    query: Any = source.query
    if isinstance(query, (list, tuple)) and all(isinstance(part, str) for part in query):
        query = ",".join(query)
    if not isinstance(query, str) or not query.strip():
        raise DeclarationError(
            f"a source's query is the name of a topic, queue, folder or table, not {source.query!r}",
            keyword="source_query" if keyword == "source" else keyword,
        )
    check_read_options(source, keyword=keyword)
    options = {name: dict(value) for name in READ_FORMATS if (value := getattr(source, name))}
    return replace(source, query=query.strip(), **{name: options.get(name) for name in READ_FORMATS})


def _build(options: StreamOptions, where: Location | None) -> StreamSpec:
    sources, declared = declared_sources(options), declared_targets(options)
    _check_kinds(options)
    targets = stream_targets(declared, options, where)
    rules.check_delivery(options)
    rules.check_transform(options)
    bad = _bad_rows(options, sources)
    rules.check_processing(options, sources, targets, bad, where)
    return StreamSpec(
        name=rules.stream_name(options.name),
        sources=sources,
        targets=targets,
        transform_sql=options.transform_sql,
        dialect=rules.choice_option(options, "dialect", DIALECTS) or "spark",
        lookups=dict(options.lookups or {}),
        udfs=as_tuple(options.udfs),
        aggregate_udfs=as_tuple(options.aggregate_udfs),
        bad_rows=bad,
        delivery=rules.choice_option(options, "delivery", DELIVERIES) or "auto",
        payload=rules.choice_option(options, "payload", PAYLOADS),
        fields=rules.message_fields(options.fields),
        start=rules.start_of(options.start, sources),
        max_rows_per_batch=rules.integer_option(options, "max_rows_per_batch", least=1),
        idle_pause_ms=rules.integer_option(options, "idle_pause_ms", least=0, default=StreamSpec.idle_pause_ms),
        trigger=rules.trigger_of(options.trigger),
        checkpoint=rules.folder_of(options.checkpoint),
        continue_on_target_failure=rules.boolean_option(options, "continue_on_target_failure"),
        on_drift=rules.choice_option(options, "on_drift", DRIFT_POLICIES) or "evolve",
        restarts=_restarts(options),
        metrics_port=rules.integer_option(options, "metrics_port", least=0, most=65_535),
        window=options.window,
        join=options.join,
        cdc=options.cdc,
        state_store=options.state_store,
        watermark=options.watermark,
        engine=_engine(options),
        where=where,
        captured=options.set_options(),
    )


def _check_kinds(options: StreamOptions) -> None:
    for keyword, kind in {"window": Window, "join": Join, "cdc": CDC, "state_store": StateStore,
                          "watermark": Watermark}.items():  # fmt: skip
        value = getattr(options, keyword)
        if value is not None and not isinstance(value, kind):
            raise WrongType(f"{keyword}= takes {kind.__name__}(…), not {value!r}", keyword=keyword)


def _bad_rows(options: StreamOptions, sources: tuple[Source, ...]) -> BadRows:
    store, topic = rules.choice_option(options, "dlq_store", DLQ_STORES), options.dead_letter_topic
    rules.check_dead_letters(store, topic, sources)
    policy = rules.choice_option(options, "transform_on_error", ERROR_POLICIES)
    # Naming a dead-letter store implies the policy dlq.
    policy = policy or (DLQ if store is not None or topic is not None else FAIL)
    fraction = options.max_bad_fraction
    if fraction is not None:
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise DeclarationError("max_bad_fraction is a share between 0 and 1", keyword="max_bad_fraction")
        fraction = float(fraction)
    return BadRows(
        policy=policy,
        store=store or "auto",
        topic=topic,
        max_attempts=rules.integer_option(options, "dlq_max_attempts", least=1, default=BadRows.max_attempts),
        max_fraction=fraction,
    )


def _restarts(options: StreamOptions) -> Restarts:
    first = rules.integer_option(options, "initial_backoff_ms", least=1, default=Restarts.initial_backoff_ms)
    longest = rules.integer_option(options, "max_backoff_ms", least=1, default=max(first, Restarts.max_backoff_ms))
    if longest < first:
        raise DeclarationError("max_backoff_ms is shorter than initial_backoff_ms", keyword="max_backoff_ms")
    return Restarts(
        on_error=rules.boolean_option(options, "restart_on_error"),
        initial_backoff_ms=first,
        max_backoff_ms=longest,
        max_restarts=rules.integer_option(options, "max_restarts", least=0),
    )


def _engine(options: StreamOptions) -> EngineOptions:
    engine = "local" if options.engine == _IN_PROCESS else options.engine
    try:
        return engine_options(engine, options.peers)
    except DeclarationError as error:
        error.facts.setdefault("keyword", "engine" if options.engine is not None else "peers")
        raise
