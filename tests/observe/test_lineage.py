"""The lineage of declared pipelines, and OpenLineage events that the official client would write the same way."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import pytest
from openlineage.client import event_v2, facet_v2
from openlineage.client.generated import base
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde

from ematix_flow import (
    BigInt,
    BigQueryConnection,
    DeltaLocalConnection,
    DeltaS3Connection,
    DuckDBConnection,
    MySQLConnection,
    Numeric,
    PostgresConnection,
    RedshiftConnection,
    SQLiteConnection,
    Target,
    Text,
    TimestampTZ,
    ematix,
    pk,
    register_connection,
)
from ematix_flow.declare.pipeline import PipelineSpec, plain_pipeline
from ematix_flow.foundation.http import Undelivered
from ematix_flow.lineage import FileEmitter, HttpEmitter, SourceText, from_url, lineage_of, run_event
from ematix_flow.lineage.datasets import dataset_of
from ematix_flow.lineage.declared import Lineage, OutputTable
from ematix_flow.lineage.events import PRODUCER
from ematix_flow.normalize import deduplicate_by, derive, filter_where, lower, parse_numeric, sql, trim
from tests.observe.listener import Listener
from tests.observe.samples import record

SHOP = "postgres://db:5432"


@pytest.fixture(autouse=True)
def connections(project: Path) -> None:
    register_connection(PostgresConnection("shop", url="postgres://ana:geheim99@db:5432/shop"))
    register_connection(MySQLConnection("crm", url="mysql://ana:geheim99@my:3306/crm"))
    register_connection(DuckDBConnection("wh", path="wh.duckdb"))


@ematix.table(schema="marts")
class People:
    person_id: Annotated[BigInt, pk()]
    name: Annotated[Text, trim(), lower()]
    spent: Annotated[Numeric[12, 2] | None, parse_numeric(12, 2)]
    label: Annotated[Text, derive("name || ' ' || coalesce(nick, '')")]


@ematix.table(schema="marts")
class Orders:
    id: Annotated[BigInt, pk()]
    amount: Numeric[12, 2]
    at: TimestampTZ


def spec_of(decorated: Any) -> PipelineSpec:
    spec: PipelineSpec = decorated.spec
    return spec


def shown(output: OutputTable) -> dict[str, set[str]]:
    """Origins in short: `table.column SUBTYPE`."""
    return {
        name: {f"{one.dataset.name.rpartition('.')[2]}.{one.column} {one.subtype}" for one in columns}
        for name, columns in output.origins.items()
    }


def deciding(output: OutputTable) -> set[str]:
    return {f"{one.dataset.name.rpartition('.')[2]}.{one.column} {one.subtype}" for one in output.conditions}


def test_normalizers_derived_columns_and_a_join() -> None:
    @ematix.pipeline(target=People, source_connection="shop", target_connection="wh", mode="merge")
    def people(conn):
        return """SELECT p.id AS person_id, p.name, n.nick, o.total AS spent FROM raw.people p
                  JOIN raw.nicks n ON n.person = p.id
                  LEFT JOIN (SELECT person, sum(amount) AS total FROM raw.orders GROUP BY person) o ON o.person = p.id"""

    found = lineage_of(spec_of(people))
    assert [(one.namespace, one.name) for one in found.inputs] == [
        (SHOP, "shop.raw.people"), (SHOP, "shop.raw.nicks"), (SHOP, "shop.raw.orders"),
    ]  # fmt: skip
    (output,) = found.outputs
    assert output.dataset.namespace.endswith("/wh.duckdb")
    assert output.dataset.name == "marts.people"
    assert shown(output) == {
        "person_id": {"people.id IDENTITY"},
        "name": {"people.name TRANSFORMATION"},
        "spent": {"orders.amount AGGREGATION"},
        "label": {"people.name TRANSFORMATION", "nicks.nick TRANSFORMATION"},
    }
    assert deciding(output) == {
        "people.id JOIN", "nicks.person JOIN", "orders.person JOIN", "orders.person GROUP_BY",
    }  # fmt: skip
    assert found.notes == ()


def test_a_table_with_renamed_columns() -> None:
    @ematix.pipeline(target=Orders, source_connection="crm", target_connection="wh", mode="append",
                     source_table="sales.orders", column_map={"id": "order_id", "at": "created"})  # fmt: skip
    def orders():
        pass

    (output,) = lineage_of(spec_of(orders)).outputs
    assert shown(output) == {
        "id": {"orders.order_id IDENTITY"}, "amount": {"orders.amount IDENTITY"}, "at": {"orders.created IDENTITY"},
    }  # fmt: skip
    assert {one.dataset.name for columns in output.origins.values() for one in columns} == {"sales.orders"}


def test_a_query_whose_columns_are_renamed_afterwards() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append",
                     column_map={"id": "order_id"})  # fmt: skip
    def orders(conn):
        return "SELECT o.nr AS order_id, o.id, o.amount, o.at FROM raw.orders o"

    asked = "SELECT o.nr AS order_id, o.id, o.amount, o.at FROM raw.orders o"
    (output,) = lineage_of(spec_of(orders)).outputs
    assert shown(output)["id"] == {"orders.nr IDENTITY"}
    wrapped = f"SELECT order_id AS id, amount, at FROM ({asked}) AS renamed"
    (output,) = lineage_of(spec_of(orders), source=SourceText(wrapped, renamed=True)).outputs
    assert shown(output)["id"] == {"orders.nr IDENTITY"}


def test_a_star_takes_the_declared_columns_of_the_only_table() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append")
    def orders(conn):
        return "SELECT * FROM raw.orders"

    (output,) = lineage_of(spec_of(orders)).outputs
    assert shown(output) == {name: {f"orders.{name} IDENTITY"} for name in ("id", "amount", "at")}


def test_a_star_over_tables_that_another_pipeline_writes_is_known() -> None:
    @ematix.pipeline(target=Orders, target_connection="shop", mode="append")
    def load_orders(conn):
        return "SELECT id, amount, at FROM raw.orders"

    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append", name="copy")
    def copy(conn):
        return "SELECT * FROM marts.orders o JOIN raw.other x ON x.k = o.id"

    (output,) = lineage_of(spec_of(copy)).outputs
    assert shown(output)["amount"] == {"orders.amount IDENTITY"}


def test_what_cannot_be_determined_is_left_out_and_noted() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append")
    def orders(conn):
        return "SELECT * FROM raw.orders JOIN raw.more ON true"

    found = lineage_of(spec_of(orders))
    assert [one.name for one in found.inputs] == ["shop.raw.orders", "shop.raw.more"]
    assert found.outputs[0].origins == {}
    assert len(found.notes) == 3
    assert "marts.orders.id: its origin cannot be determined" in found.notes[0]
    known = {"raw.orders": ["id", "amount", "at"], "raw.more": ["x"]}
    (output,) = lineage_of(spec_of(orders), source=SourceText("SELECT * FROM raw.orders JOIN raw.more ON true", columns=known)).outputs  # fmt: skip
    assert shown(output)["id"] == {"orders.id IDENTITY"}


def test_pre_transforms_and_the_watermark_decide_about_rows() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append",
                     watermark_column="at",
                     transforms_pre=[filter_where("amount > 0"), deduplicate_by("id", order_by="at desc")])  # fmt: skip
    def orders(conn):
        return "SELECT nr AS id, amount, at FROM raw.orders"

    (output,) = lineage_of(spec_of(orders)).outputs
    assert deciding(output) == {
        "orders.amount FILTER", "orders.nr WINDOW", "orders.at WINDOW", "orders.at FILTER",
    }  # fmt: skip


def test_own_sql_of_a_column_may_use_other_columns() -> None:
    @ematix.table(schema="marts")
    class Named:
        id: Annotated[BigInt, pk()]
        name: Annotated[Text, sql("coalesce(col, nick)")]

    @ematix.pipeline(target=Named, source_connection="shop", target_connection="wh", mode="append")
    def named(conn):
        return "SELECT id, name, nick FROM raw.people"

    (output,) = lineage_of(spec_of(named)).outputs
    assert shown(output)["name"] == {"people.name TRANSFORMATION", "people.nick TRANSFORMATION"}


def test_versions_by_event_time_begin_with_the_event() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="scd2",
                     event_timestamp_column="at")  # fmt: skip
    def orders(conn):
        return "SELECT id, amount, at FROM raw.orders"

    (output,) = lineage_of(spec_of(orders)).outputs
    assert shown(output)["valid_from"] == {"orders.at IDENTITY"}
    assert {"valid_to", "is_current", "row_hash", "_loaded_at", "_batch_id"} < {name for name, _ in output.columns}


def test_every_target_of_a_fan_out_has_its_own_origins() -> None:
    @ematix.pipeline(source_connection="shop", mode="append",
                     targets=[Target(table=Orders, connection="wh"), Target(table=Orders, connection="crm")])  # fmt: skip
    def orders(conn):
        return "SELECT id, amount, at FROM raw.orders"

    found = lineage_of(spec_of(orders))
    assert [one.dataset.namespace.partition(":")[0] for one in found.outputs] == ["duckdb", "mysql"]
    assert all(len(one.origins) == 3 for one in found.outputs)


def test_a_statement_over_several_connections_names_each_table_where_it_is() -> None:
    @ematix.pipeline(target=Orders, source_connection=["shop", "crm"], target_connection="wh", mode="append")
    def orders(conn):
        return "SELECT o.id, o.amount, c.at FROM shop.raw.orders o JOIN crm.sales.calls c ON c.id = o.id"

    found = lineage_of(spec_of(orders))
    assert [(one.namespace, one.name) for one in found.inputs] == [
        (SHOP, "shop.raw.orders"), ("mysql://my:3306", "sales.calls"),
    ]  # fmt: skip
    origin = found.outputs[0].origins["at"][0]
    assert (origin.dataset.namespace, origin.column) == ("mysql://my:3306", "at")


def test_a_function_is_not_called_to_find_out() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append")
    def orders(conn):
        raise AssertionError("called")

    found = lineage_of(spec_of(orders))
    assert found.inputs == ()
    assert found.notes == ("the source is known only when the pipeline runs",)
    assert [name for name, _ in found.outputs[0].columns][:3] == ["id", "amount", "at"]


def test_sql_that_cannot_be_parsed_leaves_the_tables() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append")
    def orders(conn):
        return "SELEC id FRM x"

    found = lineage_of(spec_of(orders))
    assert "cannot be taken apart" in found.notes[0]
    assert len(found.outputs) == 1


@pytest.mark.parametrize(
    ("connection", "parts", "official"),
    [
        (PostgresConnection("x", url="postgres://a:pw99@h/d"), ("s", "t"), naming.Postgres("h", "5432", "d", "s", "t")),
        (PostgresConnection("x", url="postgres://a:pw99@h:1/d"), ("t",), naming.Postgres("h", "1", "d", "public", "t")),
        (MySQLConnection("x", url="mysql://a:pw99@h:3307/d"), ("t",), naming.MySQL("h", "3307", "d", "t")),
        (BigQueryConnection("x", project="p", dataset="d"), ("t",), naming.BigQuery("p", "d", "t")),
        (
            RedshiftConnection("x", host="c.abc.eu-central-1.redshift.amazonaws.com", database="d", user="u", password="pw99"),
            ("s", "t"),
            naming.Redshift("c", "eu-central-1", "5439", "d", "s", "t"),
        ),
        (
            DeltaS3Connection("x", endpoint="https://s", bucket="b", region="r", access_key_id="k", secret_access_key="pw99",
                              prefix="lake"),
            ("s", "t"),
            naming.S3("b", "lake/s/t"),
        ),
        (DeltaLocalConnection("x", path="/data/lake"), ("s", "t"), naming.LocalFileSystem("/data/lake/s/t")),
    ],
)  # fmt: skip
def test_datasets_have_the_names_that_the_official_client_gives(connection: Any, parts: Any, official: Any) -> None:
    found = dataset_of(connection, parts)
    assert (found.namespace, found.name.lstrip("/")) == (official.get_namespace(), official.get_name().lstrip("/"))


def test_a_dataset_never_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSN", "postgres://ana:canary-77@db/shop")
    hidden = PostgresConnection("hidden", url="${DSN}")
    assert dataset_of(hidden, ("s", "t")).namespace == "postgres://db:5432"
    monkeypatch.delenv("DSN")
    assert dataset_of(hidden, ("s", "t")).namespace == "postgres://hidden"
    assert dataset_of(SQLiteConnection("x", path="a.db"), ("t",)).name == "main.t"


# -- events


AT = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
RESULT = {
    "targets": [
        {
            "table": "marts.orders",
            "rows_read": 10,
            "rows_inserted": 7,
            "rows_updated": 2,
            "bytes_staged": 99,
            "bytes_of": "files",
        }
    ]
}


@pytest.fixture
def loading() -> PipelineSpec:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="truncate")
    def orders(conn):
        """Every order, anew."""
        return "SELECT nr AS id, upper(amount) AS amount, at FROM raw.orders WHERE state = 'paid'"

    return spec_of(orders)


def officially(event: dict[str, Any]) -> dict[str, Any]:
    """The same event, built and written by the official client, which refuses what its specification does not know."""
    base.set_producer(PRODUCER)

    def facets(given: dict[str, Any]) -> dict[str, Any]:
        return {name: facet(name, dict(content)) for name, content in given.items()}

    def facet(name: str, content: dict[str, Any]) -> Any:
        said = content.pop("_schemaURL")
        assert content.pop("_producer") == PRODUCER
        module, title = FACETS[name]
        if name == "schema":
            content["fields"] = [facet_v2.schema_dataset.SchemaDatasetFacetFields(**one) for one in content["fields"]]
        if name == "columnLineage":
            content["fields"] = {
                column: facet_v2.column_lineage_dataset.Fields([field(one) for one in made["inputFields"]])
                for column, made in content["fields"].items()
            }
            content["dataset"] = [field(one) for one in content.get("dataset", [])]
        made = getattr(getattr(facet_v2, module), title)(**content)
        assert said == made._get_schema()
        return made

    def field(content: dict[str, Any]) -> Any:
        known = [facet_v2.column_lineage_dataset.Transformation(**one) for one in content["transformations"]]
        return facet_v2.column_lineage_dataset.InputField(**{**content, "transformations": known})

    run, job = event["run"], event["job"]
    return Serde.to_dict(
        event_v2.RunEvent(
            eventType=event_v2.RunState(event["eventType"]),
            eventTime=event["eventTime"],
            run=event_v2.Run(run["runId"], facets(run["facets"])),
            job=event_v2.Job(job["namespace"], job["name"], facets(job["facets"])),
            inputs=[
                event_v2.InputDataset(
                    namespace=one["namespace"],
                    name=one["name"],
                    facets=facets(one["facets"]),
                    inputFacets=facets(one.get("inputFacets", {})),
                )
                for one in event["inputs"]
            ],
            outputs=[
                event_v2.OutputDataset(
                    namespace=one["namespace"],
                    name=one["name"],
                    facets=facets(one["facets"]),
                    outputFacets=facets(one.get("outputFacets", {})),
                )
                for one in event["outputs"]
            ],
            producer=PRODUCER,
        )
    )


FACETS = {
    "schema": ("schema_dataset", "SchemaDatasetFacet"),
    "columnLineage": ("column_lineage_dataset", "ColumnLineageDatasetFacet"),
    "lifecycleStateChange": ("lifecycle_state_change_dataset", "LifecycleStateChangeDatasetFacet"),
    "outputStatistics": ("output_statistics_output_dataset", "OutputStatisticsOutputDatasetFacet"),
    "inputStatistics": ("input_statistics_input_dataset", "InputStatisticsInputDatasetFacet"),
    "jobType": ("job_type_job", "JobTypeJobFacet"),
    "sql": ("sql_job", "SQLJobFacet"),
    "documentation": ("documentation_job", "DocumentationJobFacet"),
    "errorMessage": ("error_message_run", "ErrorMessageRunFacet"),
    "processing_engine": ("processing_engine_run", "ProcessingEngineRunFacet"),
    "nominalTime": ("nominal_time_run", "NominalTimeRunFacet"),
}


def without_empty(value: Any) -> Any:
    """The client writes empty collections that we leave out."""
    if isinstance(value, dict):
        kept = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in ({}, [], None)}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        ("START", None),
        ("COMPLETE", record("succeeded", extras=RESULT)),
        ("FAIL", record("failed", error_summary="no server answers")),
    ],
)
def test_an_event_is_what_the_official_client_would_write(kind: str, run: Any, loading: PipelineSpec) -> None:
    event = run_event(kind, loading, lineage_of(loading), run_id=str(uuid.uuid4()), at=AT, record=run, scheduled_for=AT)
    assert without_empty(officially(json.loads(json.dumps(event)))) == without_empty(event)


def test_a_completed_run_says_how_much_it_read_and_wrote(loading: PipelineSpec) -> None:
    event = run_event("COMPLETE", loading, lineage_of(loading), run_id=str(uuid.uuid4()), at=AT,
                      record=record("succeeded", extras=RESULT))  # fmt: skip
    (read,), (written,) = event["inputs"], event["outputs"]
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 10
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (9, 99)
    assert written["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert event["job"]["facets"]["documentation"]["description"] == "Every order, anew."
    lineage = written["facets"]["columnLineage"]
    assert lineage["fields"]["amount"]["inputFields"] == [
        {"namespace": SHOP, "name": "shop.raw.orders", "field": "amount",
         "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "", "masking": False}]}
    ]  # fmt: skip
    assert [one["field"] for one in lineage["dataset"]] == ["state"]


@ematix.table(schema="marts", name="daily_orders")
class DailyOrders:
    id: Annotated[BigInt, pk()]
    amount: Numeric[12, 2]
    at: TimestampTZ


def test_every_target_has_its_own_counts() -> None:
    """Also where the name of one table ends with that of another, and where two connections have tables of one name."""

    @ematix.pipeline(source_connection="shop", mode="append", targets=[
        Target(table=Orders, connection="wh"),
        Target(table=DailyOrders, connection="wh", mode="truncate"),
        Target(table=Orders, connection="crm"),
    ])  # fmt: skip
    def orders(conn):
        return "SELECT id, amount, at FROM raw.orders"

    counts = [("marts.orders", "wh", 1), ("marts.daily_orders", "wh", 2), ("marts.orders", "crm", 3)]
    found = [{"table": table, "connection": name, "rows_inserted": rows} for table, name, rows in counts]
    spec = spec_of(orders)
    event = run_event("COMPLETE", spec, lineage_of(spec), run_id=str(uuid.uuid4()), at=AT,
                      record=record("succeeded", extras={"targets": found}))  # fmt: skip
    rows = [one["outputFacets"]["outputStatistics"]["rowCount"] for one in event["outputs"]]
    assert rows == [1, 2, 3]
    assert ["lifecycleStateChange" in one["facets"] for one in event["outputs"]] == [False, True, False]


def test_an_event_holds_no_secret(loading: PipelineSpec) -> None:
    source = "SELECT nr AS id, amount, at FROM raw.orders WHERE token = 'geheim99'"
    failed = record("failed", error_summary="postgres://ana:geheim99@db does not answer")
    event = run_event(
        "FAIL", loading, lineage_of(loading, source=source), run_id=str(uuid.uuid4()), at=AT, record=failed
    )
    assert "geheim99" not in json.dumps(event)


def test_events_are_appended_to_a_file_one_a_line(project: Path) -> None:
    emitter = from_url("out/lineage.jsonl")
    emitter.emit({"a": 1})
    from_url(f"file://{project}/out/lineage.jsonl").emit({"a": "ü\n"})
    lines = (project / "out" / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1}, {"a": "ü\n"}]
    (project / "taken").write_text("")
    with pytest.raises(Undelivered, match="cannot be written"):
        FileEmitter("taken/lineage.jsonl").emit({})


def test_events_are_posted_to_a_server_with_its_key(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_KEY", "canary-key-1")
    from_url(f"{listener.url}?api_key=${{LINEAGE_KEY}}").emit({"eventType": "START"})
    HttpEmitter(f"{listener.url}/proxy/lineage").emit({"eventType": "FAIL"})
    first, second = listener.requests
    assert (first.path, first.headers["Authorization"]) == ("/api/v1/lineage", "Bearer canary-key-1")
    assert first.json == {"eventType": "START"}
    assert second.path == "/proxy/lineage"
    assert "Authorization" not in second.headers


def test_a_server_that_was_out_of_reach_is_left_alone_for_a_while() -> None:
    emitter = HttpEmitter("http://127.0.0.1:1")
    with pytest.raises(Undelivered, match="cannot be reached"):
        emitter.emit({})
    with pytest.raises(Undelivered, match="a moment ago"):
        emitter.emit({})


def test_a_plain_function_has_no_lineage() -> None:
    found = lineage_of(plain_pipeline(lambda: {"rows": 1}, name="plain"))
    assert found == Lineage("plain", (), (), notes=("a plain function does its work unseen",))


def test_a_window_in_the_sql_does_not_hide_where_columns_come_from() -> None:
    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append")
    def windowed() -> str:
        return "SELECT id, amount, paid_at AS at FROM raw.orders WHERE paid_at >= {start} AND paid_at < {end}"

    found = lineage_of(spec_of(windowed))
    assert shown(found.outputs[0])["at"] == {"orders.paid_at IDENTITY"}
    assert found.notes == ()
