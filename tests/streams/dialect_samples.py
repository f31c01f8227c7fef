"""Expressions that other systems understand in another way than Spark, over the table `source`."""

from __future__ import annotations

COLUMNS = "a BIGINT, b BIGINT, d {double}, n DECIMAL(10, 2), s {text}, ts TIMESTAMP"
VALUES = (
    "(3, 2, 1.5, 2.5, 'ab', TIMESTAMP '2026-02-01 03:04:05.5'), (7, 0, 2.5, 3.25, NULL, TIMESTAMP '2026-01-05 14:30:12'), "
    "(-7, 3, -3.5, -2.5, 'Abc', NULL)"
)

ROWS = [
    # quotients
    "a/2", "a/2/2", "-a/2", "7/2", "d/2", "n/2", "n/3", "2.0/3", "a/2.0", "a/n", "(a+b)/2", "a/(b+1)/2", "(a::int)/2",
    "coalesce(a,0)/2", "nullif(a,0)/2", "greatest(a,1)/2", "CASE WHEN a>0 THEN a ELSE 0 END/2", "abs(a)/2", "mod(a,4)/2",
    "char_length(s)/2", "position('b' in s)/2", "date_part('month',ts)/2", "extract(year from ts)/3", "ceil(d)/2",
    "floor(n)/2", "trunc(d)/2", "round(d)/2", "sum(a) over ()/2", "row_number() over (order by a)/2",
    "(SELECT max(a)/2 FROM source)", "(ts::date - date '2026-01-01')/2",
    # roundings
    "d::int", "n::int", "2.5::int", "3.5::int", "-2.5::int", "d::bigint/2", "round(d)", "round(n)", "round(n,1)", "trunc(n)",
    "n::numeric", "s::varchar(1)", "true::int",
    # texts
    "substring(s from 0 for 2)", "substring(s from -1 for 3)", "substring(s,b::int,2)", "substr(s,2)", "left(s,-1)",
    "right(s,-1)", "left(s,1)", "left(s,b::int-1)", "concat(s,'x')", "concat(s,a)", "s||'x'", "regexp_replace(s,'b','x','g')",
    "concat_ws('-',s,'x')", "split_part('a,b',',',2)", "a::text", "n::text", "'a\\b'", "lpad(s,4,'x')", "starts_with(s,'a')",
    # numbers and moments
    "log(abs(a))", "ln(abs(a))", "log(2,8)", "power(a,2)", "a^2", "greatest(a,b,NULL)", "extract(dow from ts)",
    "extract(isodow from ts)", "extract(epoch from ts)", "extract(second from ts)", "date_part('dow',ts)", "ts::date + 1",
    "ts::date - date '2026-01-01'", "date '2026-03-31' + interval '1 month'", "to_timestamp(a)", "to_timestamp(1.5)",
    "date_trunc('month',ts)", "ts + interval '1 day'", "a is distinct from 3",
]  # fmt: skip
"""What PostgreSQL and DuckDB both take, and answer in their own ways."""

GROUPS = [
    "sum(a)/count(*)", "sum(a)/2", "sum(b::int)/2", "max(a)/2", "count(*)/2", "avg(a)", "avg(a)::int", "round(avg(b))", "avg(n)",
    "sum(n)/2", "array_agg(s)", "array_agg(s order by a)", "array_agg(a order by s desc, a)", "array_agg(distinct b order by b desc)",
    "array_agg(s) filter (where a>100)", "array_agg(s) filter (where a>0)", "string_agg(s,',' order by a)",
    "string_agg(s,',') filter (where a>100)", "stddev(a)", "percentile_cont(0.25) within group (order by d desc)",
    "percentile_disc(0.5) within group (order by d)", "sum(a) filter (where a>0)/2",
]  # fmt: skip

WHOLE = [
    "SELECT h/2 AS x FROM (SELECT a+0 AS h FROM source) t",
    "WITH t AS (SELECT coalesce(a, 0) AS h FROM source) SELECT h/2 AS x FROM t",
    "SELECT a/2 AS x FROM (SELECT d AS a FROM source) t",
    "SELECT t.h/2 AS x FROM (SELECT * FROM (SELECT sum(a) AS h FROM source) u) t",
    "SELECT a/2 AS x, count(*) AS y FROM source GROUP BY a/2 HAVING sum(b)/2 < 100 ORDER BY x",
    "SELECT b/2 AS x FROM source UNION ALL SELECT d/2 FROM source",
    "SELECT x.a FROM source x JOIN source y ON x.a/2 = y.a/2 WHERE x.b/2 >= 0",
    "SELECT b > 1 AS big, array_agg(s ORDER BY a) AS x FROM source GROUP BY b > 1",
]
"""Statements of more than one level."""
ONLY_WHOLE = {"duckdb": ["SELECT a//2 AS h, h//2 AS x, h/2 AS y FROM source ORDER BY x//2"], "postgres": []}

ONLY = {
    "postgres": [
        "trunc(d)", "div(a,2)", "a # 2", "(array[1,2,3])[2]", "array_length(array[1,2],1)", "array_position(array[1,3],2)",
        "a||'x'", "n||'x'", "d::numeric", "a::numeric/2", "a::float/2", "a::smallint/2", "1e2::int", "to_hex(a)",
        "extract(year from ts)::int/2", "(extract(year from ts))::text", "to_char(ts,'YYYY-MM-DD HH24:MI:SS')", "s ~ '^a'",
    ],
    "duckdb": [
        "a//2", "d//2", "a/b", "d/b", "n/b", "a/0", "ln(a)", "log(a)", "log2(abs(a))", "try_cast('2.5' as int)", "try_cast(s as int)",
        "dayofweek(ts)", "isodow(ts)", "date_diff('month',ts,timestamp '2026-03-01')", "epoch(ts)", "epoch_ms(a)", "dayname(ts)",
        "date_diff('day',ts,timestamp '2026-03-01')", "datediff('hour',ts,timestamp '2026-03-01')", "a::decimal", "d::text",
        "list_position([1,3],a)", "substr(s,-2,1)", "list_transform([5,2],lambda x: x//2)", "regexp_matches(s,'b')", "sqrt(d)",
        "strftime(ts,'%Y-%m-%d %H:%M:%S')", "{'x':a}.x",
    ],
}  # fmt: skip
ONLY_GROUPS = {
    "postgres": ["mode() within group (order by b)"],
    "duckdb": ["max_by(s,a)", "arg_max(s,b)", "arg_min(s,a)", "list(s)", "median(a)", "quantile_cont(d,0.5)", "any_value(s)",
               "sum(a)/0"],
}  # fmt: skip

DATAFUSION = {
    "a/2": [1, 3, -3], "coalesce(a,0)/2": [1, 3, -3], "CASE WHEN a>0 THEN a ELSE 0 END/2": [1, 3, 0], "d/2": [0.75, 1.25, -1.75],
    "sum(a) over ()/2": [1, 1, 1], "d/b": [0.75, float("inf"), -3.5 / 3], "ceil(d)/2": [1.0, 1.5, -1.5], "a/2.0": [1.5, 3.5, -3.5],
    "d::int": [1, 2, -3], "n::int": [2, 3, -2], "2.5::int": [2, 2, 2], "round(d)": [2, 3, -4], "substr(s,0,2)": ["a", None, "A"],
    "concat(s,'x')": ["abx", "x", "Abcx"], "array_slice(make_array(1,2,3,4),2,3)": [[2, 3]] * 3, "n::decimal": [2.5, 3.25, -2.5],
    "array_element(make_array(1,a),2)": [3, 7, -7], "log(100)": [2, 2, 2], "date_part('dow',ts)": [0, 1, None],
    "array_position(make_array(1,2),3)": [None] * 3, "arrow_cast(a,'Int32')/2": [1, 3, -3],
}  # fmt: skip
"""What DataFusion's documentation says: <https://datafusion.apache.org/user-guide/sql/>."""

REFUSED = [
    ("postgres", "d::text", "d is a double, which PostgreSQL writes in other words"),
    ("postgres", "'x' || d", "writes in other words"),
    ("postgres", "s::char(5)", "a text of a fixed length"),
    ("postgres", "regexp_replace(s, 'a', 'b')", "replaces the first match only"),
    ("postgres", "to_char(ts, 'Day')", "this pattern of dates"),
    ("postgres", "initcap(s)", "no twin"),
    ("duckdb", "strftime(ts, '%Hh%M')", "this pattern of dates"),
    ("duckdb", "format('{}', a)", "gives something else"),
    ("duckdb", "hash(a)", "gives other numbers"),
    ("duckdb", "date_diff('week', ts, ts)", "weeks gives something else"),
    ("duckdb", "arg_max(s, a, 2)", "no twin"),
    ("datafusion", "array_slice(make_array(1), -2, 1)", "two places from 1 on"),
]
