"""Mistakes in a stream's TOML are told with their line and the nearest valid name."""

from __future__ import annotations

import pytest
from tests.unit.config.stream_texts import (
    SOURCE,
    TARGET,
    TOP,
    failed,
    line_of,
)

from ematix_flow.config.toml_lines import TomlLines
from ematix_flow.foundation.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "line", "said", "near"),
    [
        (TOP + "idle_pause = 5\n" + SOURCE + TARGET, 3, "the file has no key 'idle_pause'", "idle_pause_ms"),
        (TOP + "[sorce]\n" + TARGET, 3, "the file has no key 'sorce'", "source"),
        (TOP + SOURCE + 'groupid = "g"\n' + TARGET, 6, "[source] has no key 'groupid'", "group_id"),
        (TOP + SOURCE + 'qery = "g"\n' + TARGET, 6, "[source] has no key 'qery'", "query"),
        (TOP + SOURCE + TARGET + 'primary_kye = "x"\n', 12, "[target.table] has no key 'primary_kye'", "primary_key"),
        (TOP + SOURCE + '[target]\nconnection = "w"\ntpoic = "t"\n', 8, "[target] has no key 'tpoic'", "topic"),
        (TOP + SOURCE + '[[targets]]\nconnection = "w"\n[[targets]]\nconnection = "w"\ntabel = "t"\n', 10,
         "[targets] has no key 'tabel'", "table"),
        (TOP + SOURCE + '[target]\nkind = "sqlite"\npath = "a"\ntabel = "t"\n', 9, "[target] has no key 'tabel'", "table"),
        (TOP + SOURCE + TARGET + '[transform]\nsqll = "x"\n', 13, "[transform] has no key 'sqll'", "sql"),
        (TOP + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\nduration = 5\n', 14,
         "[transform.window] has no key 'duration'", "duration_ms"),
        (TOP + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\n[[transform.window.aggregations]]\nag = "x"\n',
         15, "[transform.window.aggregations] has no key 'ag'", "agg"),
        (TOP + SOURCE + TARGET + '[transform.cdc]\nenvelop = "debezium"\n', 13,
         "[transform.cdc] has no key 'envelop'", "envelope"),
        (TOP + SOURCE + TARGET + '[transform.lookups.u]\nconnection = "w"\ntabel = "t"\n', 14,
         "[transform.lookups.u] has no key 'tabel'", "table"),
        (TOP + SOURCE + TARGET + "[watermark]\nlatenes_ms = 5\n", 13, "[watermark] has no key 'latenes_ms'", "lateness_ms"),
        (TOP + SOURCE + TARGET + '[state_store]\nkin = "postgres"\n', 13, "[state_store] has no key 'kin'", "kind"),
        (TOP + SOURCE + TARGET + '[dlq]\nstor = "table"\n', 13, "[dlq] has no key 'stor'", "store"),
        (TOP + SOURCE + TARGET + "[restart]\nmax_restart = 1\n", 13, "[restart] has no key 'max_restart'", "max_restarts"),
        (TOP + SOURCE + '[target]\nconnection = "w"\nprefix = "p"\n[target.read_options.cvs]\na = 1\n', 9,
         "[target.read_options] has no key 'cvs'", "csv"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_reported_with_its_line_and_the_nearest(text: str, line: int, said: str, near: str) -> None:
    error = failed(text)
    assert isinstance(error, ConfigError)
    assert isinstance(error, ValueError)
    assert said in error.what
    assert error.hint == f"did you mean {near!r}?"
    assert line_of(error) == line


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (TOP + 'delivery = "twice"\n' + SOURCE + TARGET, 3, "delivery='twice' is not known"),
        (TOP + SOURCE + TARGET + '[dlq]\nstore = "file"\n', 13, "dlq_store='file' is not known"),
        (TOP + SOURCE + TARGET + "[restart]\nmax_restarts = -1\n", 13, "max_restarts is a whole number"),
        (TOP + SOURCE + TARGET + '[transform]\nsql = ""\n', 13, "transform_sql is no statement"),
        (TOP + SOURCE + TARGET + '[transform.lookups.u]\nconnection = "w"\ntable = "t"\n', 12, "lookups= is used by"),
        (TOP + SOURCE + TARGET + "[watermark]\nlateness_ms = -1\n", 13, "Watermark: lateness_ms must be at least 0"),
        (TOP + SOURCE + TARGET + '[state_store]\nkind = "postgres"\n', 12, "StateStore: url is required"),
        (TOP + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\nhop_ms = 5\nduration_ms = 9\n'
         '[[transform.window.aggregations]]\nagg = "count"\nas = "n"\n', 14, "Window: hop_ms goes with"),
        (TOP + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\n[[transform.window.aggregations]]\nagg = "sum"\n'
         'as = ""\n', 16, "Aggregation: as_ is a text"),
        (TOP + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\n[[transform.window.aggregations]]\nagg = "sum"\n',
         14, "does not say as"),
        (TOP + SOURCE + TARGET + '[transform.join]\nkind = "inner"\n', 12, "[transform.join] does not say left_source"),
        (TOP + SOURCE + '[target]\nconnection = "w"\n', 6, "does not say where its rows go"),
        (TOP + SOURCE + '[target]\ntopic = "t"\n', 6, "[target] does not say its connection"),
        (TOP + SOURCE + '[target]\nconnection = 5\ntopic = "t"\n', 7, "connection is the name of one"),
        (TOP + SOURCE + '[target]\nconnection = "w"\n[target.table]\nschema = "s"\n', 8, "the table has no name"),
        (TOP + '[source]\nkind = "kafak"\n' + TARGET, 3, "there is no connection kind 'kafak'"),
        (TOP + '[source]\nkind = "kafka"\n' + TARGET, 3, "bootstrap_servers is required"),
        (TOP + '[source]\nkind = "kafka"\nbootstrap_servers = "h:1"\nauto_offset_reset = "first"\n' + TARGET, 6,
         "auto_offset_reset is not one that exists"),
        (TOP + SOURCE + '[target]\nkind = "kafka"\nbootstrap_servers = "h:1"\n[target.table]\nname = "t"\n', 9,
         "a kafka target has no table"),
        (TOP + 'source = "kafka"\n' + TARGET, 3, "source is not a table"),
        (TOP + "sources = 5\n" + TARGET, 3, "sources is not a list of tables"),
        ('name = "x"\n[[sources]]\nconnection = "k"\n' + TARGET, 2, "a source does not say its query"),
        (TOP + SOURCE + 'query = "events"\n' + TARGET, 6, "source.query says again what source_query says"),
        (TOP + SOURCE + TARGET + '[transform.tls]\nca_cert_pem_path = "x"\n', 12, "does not say how to get into a cluster"),
        ('name = "x"\nname = "y"\n', 2, "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_at_its_line(text: str, line: int, said: str) -> None:
    error = failed(text)
    assert said in error.what
    assert line_of(error) == line


def test_lines_inside_a_statement_are_no_keys() -> None:
    lines = TomlLines(
        '[transform]\nsql = """\nSELECT\nkind = 1\n[source]\n"""\nkind = 2\n[[a]]\n[[a]]\nb.c = 1\n[a.d]\ne = 1\n'
    )
    assert lines.line(("transform", "kind")) == 7
    assert lines.line(("a", 1, "b", "c")) == 10
    assert lines.line(("a", 1, "d", "e")) == 12
    assert lines.line(("a", 0, "nothing")) == 8
    assert lines.line(("nowhere",)) == 1


def test_no_mistake_shows_a_password() -> None:
    error = failed(TOP + SOURCE + '[target]\nkind = "postgres"\nurl = "postgres://ana:sehr-geheim@db/x"\ntpic = "t"\n')
    assert "geheim" not in str(error)
    error = failed(TOP + '[source]\nkind = "rabbitmq"\namqp_url = "http://ana:sehr-geheim@db/x"\n' + TARGET)
    assert "geheim" not in str(error)
