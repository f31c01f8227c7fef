"""How long `flow preview` takes, of the loads of the cases above."""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import on_warm_engine, product
from bench.ends import CsvSource, DuckdbTarget, ParquetTarget, SqliteSource
from bench.model import WARM, Case, Contestant, Goal, Source, Target
from bench.tables import SHOP_ORDERS, TINY, Table


def _case(name: str, title: str, pipeline: str, table: Table, source: Source, target: Target) -> Case:
    ours = _previewing(pipeline)
    return Case(
        name=name,
        title=title,
        table=table,
        source=source,
        target=target,
        is_read_back=False,
        contestants=(ours, on_warm_engine(ours, warmups=5)),
        goals=(Goal(at_most_seconds=0.6, who=WARM),),
    )


def _previewing(pipeline: str) -> Contestant:
    ours = product(pipeline)
    return replace(ours, command=(ours.command[0], "preview", *ours.command[2:]))


CASES = (
    _case("preview", "`flow preview`, SQLite → Parquet", "start", TINY, SqliteSource(), ParquetTarget()),
    _case("preview_csv", "`flow preview`, CSV → DuckDB", "csv_to_duckdb", SHOP_ORDERS, CsvSource(), DuckdbTarget()),
)
