"""Small Delta tables are written anew instead of merged into: the same rows, counts, errors, and one commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import (
    JSONB,
    BigInt,
    Bytes,
    Date,
    Double,
    Integer,
    Numeric,
    Text,
    Timestamp,
    TimestampTZ,
    natural_key,
    pk,
)
from ematix_flow.backends.delta import snapshot
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Append, Deletes, Merge, Scd2, Strategy
from ematix_flow.foundation.errors import Brake, DuplicateKeys, FlowError, LeaseHeld
from tests import full
from tests.contract import native
from tests.contract.lakes import Lake, Row, merging, people, person
from tests.contract.loading import day, declare

pytest_plugins = ("tests.contract.lake_fixtures",)
pytestmark = pytest.mark.skipif(native.is_native(), reason="the native engine commits through the library alone")
KEYS = ("a", "b")
VALUES = ("text", "amount", "ratio", "at", "moment", "day", "raw", "doc")
TEXTS = (None, "", "x", "y")
MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "text": lambda chance: chance.choice(TEXTS),
    "amount": lambda chance: chance.choice([None, Decimal("1.10"), Decimal("-99999.99")]),
    "ratio": lambda chance: chance.choice([None, 0.0, -0.0, float("nan"), 1e300]),
    "at": lambda chance: chance.choice([None, datetime(1500, 1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 123456)]),
    "moment": lambda chance: chance.choice([None, day(1), day(2)]),
    "day": lambda chance: chance.choice([None, date(1500, 1, 1), date(2026, 1, 1)]),
    "raw": lambda chance: chance.choice([None, b"", b"\x00\xff"]),
    "doc": lambda chance: chance.choice([None, '{"a": 1, "b": 2}', '{"b":2,"a":1}', "[]"]),
}
ALL = {"keys": KEYS, "compare": VALUES}
STRATEGIES: dict[str, Strategy] = {
    "merge": Merge(**ALL, update=VALUES),
    "merge_hard": Merge(**ALL, update=VALUES, deletes=Deletes.HARD),
    "merge_soft": Merge(keys=KEYS, compare=("text", "doc"), update=("text", "amount"), deletes=Deletes.SOFT),
    "scd2": Scd2(KEYS, ("text", "amount", "doc")),
    "scd2_hard": Scd2(KEYS, VALUES, deletes=Deletes.HARD),
    "scd2_soft_ttl": Scd2(KEYS, ("text", "amount"), ttl=timedelta(days=2), deletes=Deletes.SOFT),
    "scd2_no_ttl": Scd2(KEYS, VALUES, ttl=timedelta()),
}  # fmt: skip


def wide() -> Any:
    return declare({
        "a": Annotated[Integer, natural_key()], "b": Annotated[Text | None, natural_key()], "text": Text | None,
        "amount": Numeric[9, 2] | None, "ratio": Double | None, "at": Timestamp | None, "moment": TimestampTZ | None,
        "day": Date | None, "raw": Bytes | None, "doc": JSONB | None,
    })  # fmt: skip


def some_rows(chance: random.Random) -> list[Row]:
    keys = [(number, text) for number in range(4) for text in (None, "k")]
    chosen = chance.sample(keys, chance.randint(1, len(keys)))
    if chance.random() < 0.15:
        chosen.append(chosen[0])
    return [dict(zip(KEYS, key, strict=True)) | {name: make(chance) for name, make in MAKERS.items()} for key in chosen]


class Pair:
    """The same loads into two tables: one is small, the other is too large by a bound of nothing."""

    def __init__(self, delta: Lake, bounds: pytest.MonkeyPatch, strategy: Strategy) -> None:
        self.delta, self.bounds, self.strategy = delta, bounds, strategy
        self.small, self.large = wide(), wide()

    def load(self, rows: list[Row], number: int) -> None:
        assert self.of(self.small, rows, number) == self.of(self.large, rows, number)

    def of(self, table: Any, rows: list[Row], number: int) -> Any:
        with self.bounds.context() as bound:
            if table is self.large:
                bound.setattr(snapshot, "SMALL_BYTES", -1)
            try:
                told: Any = self.delta.load(table, self.strategy, rows, at=day(number)).counts
            except FlowError as error:
                told = (type(error), error.what.replace(table.spec().qualified, "it"))
        return told, sorted(repr(sorted(row.items())) for row in self.stored(table))

    def stored(self, table: Any) -> list[Row]:
        found = self.delta.query(f"SELECT * FROM {table.spec().qualified}")
        return [{name: value for name, value in row.items() if name != "_batch_id"} for row in found]

    def grow(self) -> None:
        """A column that the declaration lacks, with values."""
        for table in (self.small, self.large):
            relation = f"delta.`{path_of(self.delta, table)}`"
            self.delta.spark.sql(f"ALTER TABLE {relation} ADD COLUMNS (extra MAP<STRING, ARRAY<INT>>)")
            self.delta.spark.sql(f"UPDATE {relation} SET extra = map('a', array(a)) WHERE b IS NULL")

    def operations(self, table: Any) -> set[str]:
        return {row.operation for row in self.delta.history(table)}


def path_of(delta: Lake, table: Any) -> Path:
    return delta.root / table.__schema__ / table.__tablename__


CASES = [
    pytest.param(
        name, seed, marks=() if (name, seed) in {("merge_hard", 1), ("scd2_soft_ttl", 1)} else pytest.mark.full
    )
    for name in STRATEGIES
    for seed in (1, 2)
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_small_table_becomes_what_merge_makes_of_it(
    delta: Lake, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    pair = Pair(delta, monkeypatch, STRATEGIES[name])
    rounds = 5 if full.IS_FULL else 2
    for number in range(1, rounds + 1):
        pair.load(some_rows(chance), number)
        if number == 2:
            pair.grow()
    pair.load([], rounds + 1)
    assert "MERGE" not in pair.operations(pair.small)
    assert "MERGE" in pair.operations(pair.large)
    assert read_by_library(delta, pair.small) == len(pair.stored(pair.small))


def read_by_library(delta: Lake, table: Any) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(str(path_of(delta, table))).to_pyarrow_table().num_rows)


def actions(delta: Lake, table: Any) -> list[str]:
    """What the newest commit does to files."""
    log = sorted((path_of(delta, table) / "_delta_log").glob("*.json"))[-1]
    return [
        kind for line in log.read_text().splitlines() for kind in ("add", "remove") if line.startswith(f'{{"{kind}"')
    ]


def test_rows_that_are_new_are_only_added(delta: Lake) -> None:
    table = people()
    delta.load(table, merging(), [person(1, "a")])
    assert delta.counts(table, merging(), [person(1, "a"), person(2, "b")]) == {"inserted": 1, "unchanged": 1}
    assert actions(delta, table) == ["add"]
    assert delta.counts(table, merging(), [person(2, "b")]) == {"unchanged": 1}
    assert actions(delta, table) == []
    assert delta.counts(table, merging(), [person(2, "c"), person(3, "c")]) == {"inserted": 1, "updated": 1}
    assert sorted(actions(delta, table)) == ["add", "add", "remove", "remove"]
    assert delta.rows(table, "id", "name") == [(1, "a"), (2, "c"), (3, "c")]
    earlier = delta.spark.read.format("delta").option("versionAsOf", 2).load(str(path_of(delta, table)))
    assert sorted((row["id"], row["name"]) for row in earlier.collect()) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("rows", [[person(1, "A")], [person(3, "c")]], ids=["changed", "new"])
def test_a_commit_of_another_writer_is_never_lost(delta: Lake, rows: list[Row]) -> None:
    table = people()
    delta.load(table, merging(), [person(1, "a")])
    load = delta.open(table, merging())
    announce = load.sink.announce

    def announced(*args: Any, **options: Any) -> Any:
        relation = f"delta.`{path_of(delta, table)}`"
        delta.spark.sql(f"INSERT INTO {relation} SELECT 2, 'theirs', note, _loaded_at, _batch_id FROM {relation}")
        return announce(*args, **options)

    load.sink.announce = announced
    with pytest.raises(LeaseHeld, match="another writer changed"):
        load.run(rows)
    assert delta.rows(table, "id", "name") == [(1, "a"), (2, "theirs")]
    assert not list(path_of(delta, table).glob(f"part-flow-{load.job.run_id}-*"))
    assert delta.load(table, merging(), [person(1, "A")]).counts == Counts(read=1, updated=1)


def test_what_is_wrong_with_the_rows_is_reported_as_ever(delta: Lake) -> None:
    table = people()
    delta.load(table, merging(), [person(number, "a") for number in range(150)])
    with pytest.raises(DuplicateKeys, match=r"1 key\(s\) of .* \(2 rows\): id=1"):
        delta.load(table, merging(), [person(1, "a"), person(1, "a")])
    with pytest.raises(Brake, match="149 of 150 rows"):
        delta.load(table, merging(deletes=Deletes.HARD), [person(1, "a")])
    assert len(delta.rows(table)) == 150


def test_a_key_that_the_table_has_twice_is_left_to_merge(delta: Lake) -> None:
    table = people()
    delta.load(table, Append(), [person(1, "a"), person(1, "b"), person(2, "c")])
    assert delta.counts(table, merging(), [person(2, "C")]) == {"updated": 1}
    with pytest.raises(FlowError):
        delta.load(table, merging(), [person(1, "d")])
    assert delta.rows(table, "id", "name") == [(1, "a"), (1, "b"), (2, "C")]


def test_a_column_of_the_table_that_takes_no_null_gets_none(delta: Lake) -> None:
    strict = declare({"id": Annotated[BigInt, pk()], "name": Text})
    delta.load(strict, merging(compare=("name",), update=("name",)), [{"id": 1, "name": "a"}])
    spec = strict.spec()
    loose = declare({"id": Annotated[BigInt, pk()], "name": Text | None}, schema=spec.schema, name=spec.name)
    with pytest.raises(FlowError):
        delta.load(loose, merging(compare=("name",), update=("name",)), [{"id": 1, "name": None}])
    assert delta.rows(strict, "id", "name") == [(1, "a")]


def test_columns_keep_the_types_of_the_table(delta: Lake) -> None:
    large = declare({"id": Annotated[BigInt, pk()], "n": BigInt})
    merged = merging(compare=("n",), update=("n",))
    delta.load(large, merged, [{"id": 1, "n": 2**40}, {"id": 2, "n": 2}])
    spec = large.spec()
    narrow = declare({"id": Annotated[Integer, pk()], "n": Integer}, schema=spec.schema, name=spec.name)
    assert delta.counts(narrow, merged, [{"id": 2, "n": 3}, {"id": 3, "n": 3}]) == {"inserted": 1, "updated": 1}
    stored = delta.spark.read.format("delta").load(str(path_of(delta, large)))
    assert [field.dataType.simpleString() for field in stored.schema.fields[:2]] == ["bigint", "bigint"]
    assert sorted((row["id"], row["n"]) for row in stored.collect()) == [(1, 2**40), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("'delta.enableChangeDataFeed' = 'true'", marks=pytest.mark.full("another feature is by default")),
        "'delta.enableDeletionVectors' = 'true'",
    ],
)  # fmt: skip
def test_tables_with_features_are_merged_into(delta: Lake, setting: str) -> None:
    table = people()
    delta.load(table, merging(), [person(1, "a"), person(2, "b")])
    delta.spark.sql(f"ALTER TABLE delta.`{path_of(delta, table)}` SET TBLPROPERTIES ({setting})")
    assert delta.counts(table, merging(), [person(1, "A")]) == {"updated": 1}
    assert delta.history(table)[0].operation == "MERGE"
    assert delta.rows(table, "id", "name") == [(1, "A"), (2, "b")]


@pytest.mark.parametrize("strategy", [Append(), merging()], ids=["append", "merge"])
def test_a_check_of_the_table_itself_holds(delta: Lake, strategy: Strategy) -> None:
    table = people()
    delta.load(table, merging(), [person(1, "a")])
    delta.spark.sql(f"ALTER TABLE delta.`{path_of(delta, table)}` ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(FlowError):
        delta.load(table, strategy, [person(-1, "b")])
    assert delta.rows(table, "id", "name") == [(1, "a")]
