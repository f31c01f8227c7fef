"""Folders whose declaration changed: wider types, other columns, and what outside readers see of them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.orc
import pytest

from ematix_flow import BigInt, Double, Float, Integer, Numeric, SmallInt, Text, Timestamp, TimestampTZ
from ematix_flow.backends.files import orc_limits
from ematix_flow.contract.ddl import ChangeType, ColumnState
from ematix_flow.contract.shape import shape_of
from ematix_flow.declare.strategy import Append, Truncate
from ematix_flow.foundation.errors import DataError, DriftError, Unsupported
from tests.contract.lakes import Files, Lake
from tests.contract.loading import columns, day, declare

pytest_plugins = ("tests.contract.lake_fixtures",)
FORMATS = ("parquet", *(pytest.param(name, marks=pytest.mark.full) for name in ("orc", "csv", "json_lines")))
NARROW = {
    "id": Integer,
    "size": SmallInt | None,
    "share": Float | None,
    "price": Numeric[6, 2] | None,
    "region": Text | None,
}
WIDE = {
    "id": BigInt,
    "size": Numeric[9, 2] | None,
    "share": Double | None,
    "price": Numeric[12, 4] | None,
    "region": Text | None,
}


def tables() -> tuple[Any, Any]:
    narrow = declare(NARROW)
    return narrow, declare(WIDE, schema=narrow.__schema__, name=narrow.__tablename__)


def widen(lake: Lake, narrow: Any, wide: Any) -> None:
    shape = shape_of(wide.spec(), Append())
    steps = [
        ChangeType(column, ColumnState(column.name, str(before.type), before.type, before.nullable))
        for column, before in zip(wide.spec().columns, narrow.spec().columns, strict=True)
        if column.type != before.type
    ]
    lake.backend.ddl(lake.connection).apply(shape, steps)


def row(key: int, region: str | None = "eu", size: Any = 7) -> dict[str, Any]:
    return {"id": key, "size": size, "share": 0.5, "price": Decimal("9999.99"), "region": region}


def wide_row(key: int, region: str | None = "eu") -> dict[str, Any]:
    return row(key, region, Decimal(7))


@pytest.mark.parametrize("partition_by", [None, pytest.param(["region"], marks=pytest.mark.full)])
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_wider_type_is_read_before_and_after_the_load_that_brings_it(
    files: Files, file_format: str, partition_by: list[str] | None
) -> None:
    lake, (narrow, wide) = files(file_format), tables()
    options = {"write_options": {"partition_by": partition_by}} if partition_by else {}
    lake.load(narrow, Append(), [row(1), row(2, None)], **options)
    lake.load(narrow, Append(), [], **options)
    lake.load(narrow, Append(), [row(3)], writer="other", **options)
    widen(lake, narrow, wide)
    names = ("id", "size", "share", "price", "region")
    old = columns([row(1), row(2, None), row(3)], names)
    assert lake.rows(wide) == old
    with pytest.raises(DataError):
        lake.load(wide, Append(), [{**wide_row(4), "id": None}], **options)
    assert lake.rows(wide) == old
    lake.load(wide, Append(), [wide_row(2**40)], **options)
    assert lake.rows(wide) == columns([row(1), row(2, None), row(3), row(2**40)], names)
    lake.load(wide, Append(), [wide_row(5)], writer="other", **options)
    folder = lake.root / wide.__schema__ / wide.__tablename__
    assert len(list(folder.glob("flow_batch=*/_load"))) == 5
    if file_format in ("parquet", "orc"):
        found = pyarrow.dataset.dataset(folder, format=file_format, partitioning="hive").to_table()
        assert sorted(found["id"].to_pylist()) == [1, 2, 3, 5, 2**40]
        kinds = {
            str(pyarrow.dataset.dataset(path, format=file_format).schema.field("price").type)
            for path in folder.rglob(f"*.{file_format}")
        }
        assert kinds == {"decimal128(12, 4)"}
    assert lake.counts(wide, Truncate(), [wide_row(9)], **options) == {"inserted": 1, "deleted": 5}


def test_a_batch_that_is_not_outdated_is_the_same_file_afterwards(files: Files) -> None:
    lake, (narrow, wide) = files("parquet"), tables()
    lake.load(narrow, Append(), [row(1)])
    widen(lake, narrow, wide)
    lake.load(wide, Append(), [wide_row(2)])
    folder: Path = lake.root / wide.__schema__ / wide.__tablename__
    before = {path: path.stat().st_ino for path in folder.rglob("*.parquet")}
    lake.load(wide, Append(), [wide_row(3)])
    after = {path: path.stat().st_ino for path in folder.rglob("*.parquet")}
    assert before.items() <= after.items()


def test_a_lossy_change_is_refused(files: Files) -> None:
    lake, (narrow, wide) = files("parquet"), tables()
    lake.load(wide, Append(), [wide_row(1)])
    with pytest.raises(DriftError, match="cannot be read as"):
        widen(lake, wide, narrow)


def test_orc_shows_others_a_timestamp(files: Files) -> None:
    lake, table = files("orc"), declare({"at": Timestamp, "instant": TimestampTZ})
    lake.load(table, Append(), [{"at": day(3, 12).replace(tzinfo=None), "instant": day(3, 12)}])
    (path,) = (lake.root / table.__schema__ / table.__tablename__).rglob("*.orc")
    found = pyarrow.orc.read_table(path)
    assert str(found.schema.field("at").type).startswith("timestamp")
    assert [str(found[name][0].as_py())[:19] for name in ("at", "instant")] == ["2026-01-03 12:00:00"] * 2


def test_orc_outside_of_utc_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orc_limits, "_UTC", ("nowhere",))
    with pytest.raises(Unsupported, match="zone of Spark's JVM"):
        files("orc").load(declare({"id": BigInt}), Append(), [{"id": 1}])


@pytest.fixture
def numbers(files: Files) -> Lake:
    lake = files("csv")
    lake.root.mkdir(parents=True)
    lake.root.joinpath("n.csv").write_text(
        "many,frac,exp,third,huge,tiny,mixed,big,short,zero,unsigned,specials\n"
        "12345678901234567890123456789012345678,1.5,1e-18,0.3333333333333333,1e400,1e-400,NaN,"
        "1234567890123456789012345678901234567890,1.10,0.000,18446744073709551615,NaN\n"
        "5,0.12345678901234567890,-12345678901234567890.5,0.1,1,1,12345678901234567.25,1,2e3,0,1,-1.7976931348623157e308\n"
    )
    return lake


def test_numbers_of_a_csv_file_are_never_bent(numbers: Lake) -> None:
    source = numbers.backend.batch_source(numbers.connection)
    plan = source.plan("SELECT * FROM n", parallelism=1)
    assert {column.name: str(column.type) for column in plan.columns} == {
        "many": "Numeric[38, 0]", "frac": "Numeric[38, 19]", "exp": "Numeric[38, 18]", "third": "Double", "huge": "Text",
        "tiny": "Text", "mixed": "Text", "big": "Text", "short": "Double", "zero": "Double", "unsigned": "Numeric[38, 0]",
        "specials": "Double",
    }  # fmt: skip
    (first, second) = numbers.query("SELECT many, frac, exp, mixed FROM n ORDER BY frac DESC")
    assert first["many"] == Decimal("12345678901234567890123456789012345678")
    assert (first["exp"], second["exp"]) == (Decimal("1E-18"), Decimal("-12345678901234567890.5"))
    assert (second["frac"], second["mixed"]) == (Decimal("0.1234567890123456789"), "12345678901234567.25")


def test_a_value_that_a_sample_did_not_foretell_is_refused(files: Files) -> None:
    lake = files("csv")
    lake.root.mkdir(parents=True)
    lake.root.joinpath("n.csv").write_text("a,b\n1.5,12345678901234567890\n0.12345678901234567890,5\n")
    assert len(lake.query("SELECT b FROM n", schema_infer_max_records=1)) == 2
    with pytest.raises(Exception, match="is not a DOUBLE, as the first rows are"):
        lake.query("SELECT a FROM n", schema_infer_max_records=1)
