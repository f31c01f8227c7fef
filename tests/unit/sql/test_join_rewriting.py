"""Statements with their joins in another order: what changes in the text, and what is left as it is written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow.families.lake.source import parse_query
from ematix_flow.sql.joins import reorder
from ematix_flow.sql.joins.file_statistics import TableFiles
from ematix_flow.sql.joins.reorder import Reordered, reorder_joins

Ask = Callable[[str], Reordered]

TABLES: dict[str, dict[str, Any]] = {
    "big": {"id": range(4000), "mid_id": [it % 400 for it in range(4000)], "word": ["w"] * 4000},
    "mid": {"mid": range(400), "small_id": [it % 20 for it in range(400)], "code": [str(it) for it in range(400)]},
    "small": {"small": range(20), "name": [f"n{it}" for it in range(20)], "s": [{"field": it} for it in range(20)]},
}
WRITTEN = "SELECT id FROM big, mid, small WHERE mid_id = mid AND small_id = small AND name = 'n3'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tables")
    for name, columns in TABLES.items():
        table = pa.table({column: list(values) for column, values in columns.items()})
        pq.write_table(table, made / f"{name}.parquet")
        os.utime(made / f"{name}.parquet", (time.time() - 60, time.time() - 60))
    return made


@pytest.fixture
def ask(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(reorder, "LEAST_BYTES", 0)

    def files_of(table: Any) -> TableFiles | None:
        file = folder / f"{table.name}.parquet"
        if not file.exists():
            return None
        about = file.stat()
        return TableFiles(frozenset({(str(file), about.st_mtime_ns, about.st_size)}), (file,))

    return lambda query: reorder_joins(query, files_of, parse=parse_query, broadcast=lambda: 0)


def test_relations_change_places_and_all_other_text_stays(ask: Ask) -> None:
    found = ask(WRITTEN)
    assert found.query == WRITTEN.replace("big, mid, small", "mid, small, big")
    (reason,) = found.reasons
    assert reason.startswith("mid → small (~20) → big (~200): at most ~20 rows between joins, ~4,000 as written")
    assert ask(found.query) == Reordered(found.query)


def test_comments_aliases_and_quotes_stay_with_their_table(ask: Ask) -> None:
    query = """SELECT `B`.id -- the only column
    FROM big /* large */ AS `B`, -- first
         `lake`.`mid` m,
         small -- last
    WHERE B.mid_id = m.mid AND m.small_id = small.small /* both */ AND small.name = 'n3' -- one, of twenty
    ORDER BY 1"""
    found = ask(query)
    assert "FROM `lake`.`mid` m, -- first\n         small,\n         big /* large */ AS `B` -- last\n" in found.query
    assert found.query.split("WHERE")[1] == query.split("WHERE")[1]


def test_conditions_of_on_move_into_where(ask: Ask) -> None:
    query = (
        "SELECT id FROM big b JOIN mid m ON b.mid_id = m.mid AND b.word = 'w' "
        "INNER JOIN small ON (small_id = small) WHERE name = 'n3' OR name = 'n4' GROUP BY id"
    )
    assert ask(query).query == (
        "SELECT id FROM mid m, small, big b WHERE (b.mid_id = m.mid AND b.word = 'w') AND ((small_id = small)) "
        "AND (name = 'n3' OR name = 'n4') GROUP BY id"
    )
    bare = "SELECT id FROM big JOIN mid ON mid_id = mid JOIN small ON small_id = small AND name = 'n3' ORDER BY id"
    assert ask(bare).query == (
        "SELECT id FROM mid, small, big WHERE (mid_id = mid) AND (small_id = small AND name = 'n3') ORDER BY id"
    )


@pytest.mark.parametrize(
    "around",
    [
        "WITH found AS ({}) SELECT count(*) FROM found",
        "SELECT count(*) FROM ({}) AS found",
        "SELECT word FROM big WHERE id IN ({})",
        "{} UNION ALL {}",
        "SELECT 1 WHERE EXISTS ({})",
        "SELECT count(*), (SELECT max(id) FROM ({}) x) FROM big",
    ],
)
def test_every_select_has_its_own_order(ask: Ask, around: str) -> None:
    better = WRITTEN.replace("big, mid, small", "mid, small, big")
    assert ask(around.replace("{}", WRITTEN)).query == around.replace("{}", better)


def test_a_query_inside_a_condition_stays_and_may_change_itself(ask: Ask) -> None:
    inner = (
        "SELECT id FROM big, mid, small WHERE mid_id = mid AND small_id = small AND name = 'n3' AND mid = outside.mid"
    )
    query = f"SELECT outside.mid FROM mid outside WHERE EXISTS ({inner})"
    assert ask(query).query == query.replace("big, mid, small", "mid, small, big")


def test_beside_a_subquery_the_gain_must_be_large(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    both = f"{WRITTEN} AND id IN ({WRITTEN})"
    assert len(ask(both).reasons) == 1
    monkeypatch.setattr(reorder, "_GAIN_BESIDE_QUERIES", reorder._GAIN)
    assert ask(both).query == both.replace("big, mid, small", "mid, small, big")


def test_a_table_may_come_twice(ask: Ask) -> None:
    query = (
        "SELECT b.id FROM big b, mid m1, mid m2, small WHERE b.mid_id = m1.mid AND b.id = m2.mid "
        "AND m2.small_id = small AND name = 'n3'"
    )
    assert "FROM mid m2, small, big b, mid m1 WHERE" in ask(query).query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM big, mid, small WHERE mid_id = mid AND small_id = small AND name = 'n3'",
        "SELECT hash(*) FROM big, mid, small WHERE mid_id = mid AND small_id = small AND name = 'n3'",
        WRITTEN.replace("SELECT id", "SELECT /*+ BROADCAST(big) */ id"),
        WRITTEN.replace("SELECT id", "SELECT first(id)"),
        WRITTEN.replace("SELECT id", "SELECT collect_list(id)"),
        WRITTEN.replace("SELECT id", "SELECT monotonically_increasing_id()"),
        WRITTEN.replace("SELECT id", "SELECT rand()"),
        WRITTEN.replace("SELECT id", "SELECT row_number() OVER (ORDER BY name)"),
        f"{WRITTEN} LIMIT 3",
        f"SELECT * FROM ({WRITTEN}) LIMIT 3",
        WRITTEN.replace("mid,", "mid TABLESAMPLE (10 PERCENT),"),
        WRITTEN.replace("mid,", "(SELECT * FROM mid) AS mid,"),
        WRITTEN.replace("mid,", "mid AS m (mid, small_id, code),"),
        WRITTEN.replace("mid,", "mid VERSION AS OF 3,"),
        WRITTEN.replace("mid,", "mid, LATERAL (SELECT mid AS x),"),
        WRITTEN.replace("mid,", "absent,"),
        WRITTEN.replace("WHERE", "LATERAL VIEW explode(array(1)) AS x WHERE"),
        "SELECT id FROM big NATURAL JOIN mid, small WHERE small_id = small AND name = 'n3'",
        "SELECT id FROM big JOIN mid USING (id), small WHERE small_id = small AND name = 'n3'",
        "SELECT id FROM big LEFT JOIN mid ON mid_id = mid, small WHERE small_id = small AND name = 'n3'",
        "SELECT id FROM big JOIN mid ON mid_id = mid LEFT SEMI JOIN small ON small_id = small AND name = 'n3'",
        "SELECT id FROM big, mid JOIN small ON mid_id = mid AND small_id = small AND name = 'n3'",
        "SELECT id FROM big JOIN mid ON mid_id = mid AND name = 'n3' JOIN small ON small_id = small",
        "SELECT id FROM big JOIN (mid JOIN small ON small_id = small AND name = 'n3') ON mid_id = mid",
        "WITH mid AS (SELECT * FROM lake.mid) " + WRITTEN,
        f"{WRITTEN} AND CAST(code AS INT) > 3",
        f"{WRITTEN} AND code > 3",
        f"{WRITTEN} AND code = id",
        f"{WRITTEN} AND id / mid > 1",
        f"{WRITTEN} AND unknown_column = 3",
        f"{WRITTEN} AND small.s.field = 3",
        f"{WRITTEN} AND lake.small.name = 'n3'",
        f"{WRITTEN} AND mine(id) = 3",
        f"{WRITTEN} AND code LIKE name",
        f"{WRITTEN} AND code IN (SELECT id FROM big)",
        "SELECT id FROM big, mid, small WHERE mid_id = mid AND name = 'n3'",
        "SELECT id FROM small, mid, big WHERE mid_id = mid AND small_id = small AND name = 'n3'",
        "SELECT id FROM big, mid WHERE mid_id = mid",
        "SELECT a.id FROM big a, big b, mid, small WHERE mid_id = mid AND small_id = small",
        "SELECT 1",
        "SELECT FROM WHERE",
        "DELETE FROM big",
        "",
    ],
)
def test_what_is_not_clear_stays_as_it_is_written(ask: Ask, query: str) -> None:
    assert ask(query) == Reordered(query)


def test_small_tables_are_not_looked_at(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reorder, "LEAST_BYTES", 10**9)
    assert ask(WRITTEN) == Reordered(WRITTEN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("odd"), RecursionError(), KeyError("x")])
def test_no_failure_of_statistics_reaches_the_query(error: Exception) -> None:
    def failing(_: Any) -> TableFiles | None:
        raise error

    assert reorder_joins(WRITTEN, failing, parse=parse_query, broadcast=lambda: 0) == Reordered(WRITTEN)


def test_a_damaged_file_leaves_the_statement_as_it_is(folder: Path, tmp_path: Path, ask: Ask) -> None:
    broken = folder / "broken.parquet"
    broken.write_bytes(b"PAR1 nothing else PAR1")
    query = WRITTEN.replace("mid,", "broken mid,")
    assert ask(query) == Reordered(query)
    broken.unlink()
