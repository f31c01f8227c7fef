"""What a module has declared: names, order, circles, and where they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pipeline, pk
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import DeclarationError, UnknownName


@ematix.table(schema="raw")
class Ids:
    id: Annotated[BigInt, pk()]


def declare(name: str, *, after: tuple[str, ...] = (), schedule: str | None = None) -> Any:
    return ematix.pipeline(target=Ids, mode="append", name=name, depends_on=list(after), schedule=schedule)(
        lambda conn: "SELECT 1 AS id"
    )


def declare_in(file: Path, name: str) -> None:
    """Declare a pipeline in another file."""
    code = f'ematix.pipeline(target=Ids, mode="append", name={name!r})(lambda conn: "SELECT 1 AS id")'
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"ematix": ematix, "Ids": Ids, "__name__": "elsewhere"})


def test_pipelines_are_ordered_after_what_they_depend_on() -> None:
    declare("report", after=("clean", "rates"))
    declare("clean", after=("ingest",))
    declare("ingest")
    declare("rates")
    registry.check_graph()
    assert registry.order(registry.pipelines()) == ["ingest", "clean", "rates", "report"]
    assert pipeline.order_for_run_due(["report", "rates", "clean"]) == ["clean", "rates", "report"]


def test_a_pipeline_that_is_left_out_still_orders_the_others() -> None:
    declare("report", after=("clean",))
    declare("clean", after=("ingest",))
    declare("ingest")
    assert pipeline.order_for_run_due(["report", "ingest"]) == ["ingest", "report"]


def test_a_circle_of_dependencies_is_shown_with_its_path_and_a_line() -> None:
    declare("a", after=("c",))
    declare("b", after=("a",))
    declare("c", after=("b",))
    with pytest.raises(ValueError, match="a → c → b → a") as caught:
        registry.check_graph()
    assert isinstance(caught.value, DeclarationError)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_a_pipeline_cannot_wait_for_itself() -> None:
    declare("a", after=("a",))
    with pytest.raises(ValueError, match="a → a"):
        registry.check_graph()


def test_an_unknown_dependency_names_the_nearest_pipeline_and_the_line() -> None:
    declare("ingest_events")
    declare("report", after=("ingest_event",))
    with pytest.raises(ValueError, match="report depends on 'ingest_event'") as caught:
        registry.check_graph()
    assert "did you mean 'ingest_events'?" in str(caught.value)
    assert "test_registry.py:" in str(caught.value)


def test_the_same_name_in_another_file_is_refused(tmp_path: Path) -> None:
    declare("load")
    with pytest.raises(ValueError, match=r"already declared at .*test_registry\.py") as caught:
        declare_in(tmp_path / "other.py", "load")
    assert caught.value.where.file == str(tmp_path / "other.py")  # type: ignore[attr-defined]


def test_a_file_that_is_run_again_replaces_what_it_declared(tmp_path: Path) -> None:
    declare_in(tmp_path / "other.py", "load")
    declare_in(tmp_path / "other.py", "load")
    assert list(registry.pipelines()) == ["load"]


def test_an_unknown_name_is_a_key_error_with_the_nearest() -> None:
    declare("ingest_events")
    with pytest.raises(KeyError) as caught:
        pipeline.get_pipeline("ingest_event")
    assert isinstance(caught.value, UnknownName)
    assert "did you mean 'ingest_events'?" in str(caught.value)
    for asked in (pipeline.depends_on_of, pipeline.retry_policy_of, pipeline.run_pipeline, pipeline.run_transform):
        with pytest.raises(KeyError):
            asked("nothing_like_it")


def test_transforms_are_listed_and_keep_their_function() -> None:
    @ematix.transform(name="update_mart", schedule="0 3 * * *")
    def refresh(conn: Any) -> dict[str, int]:
        return {"rows": 1}

    declare("ingest", schedule="*/5 * * * *")
    assert refresh(None) == {"rows": 1}
    assert pipeline.list_transforms() == [pipeline.RegistryEntry("update_mart", "transform", "0 3 * * *")]
    assert [(entry.name, entry.kind) for entry in pipeline.list_entries()] == [
        ("ingest", "pipeline"), ("update_mart", "transform"),
    ]  # fmt: skip


def test_a_transform_takes_the_connection_and_maybe_its_parent() -> None:
    for wrong in (lambda: None, lambda a, b, c: None):
        with pytest.raises(TypeError, match="arguments"):
            ematix.transform(name="wrong")(wrong)
    with pytest.raises(TypeError, match="takes a name"):
        ematix.transform_ref(3)  # type: ignore[arg-type]
    assert ematix.transform_ref("update_mart").name == "update_mart"


def test_a_plain_function_is_registered_ordered_and_run() -> None:
    declare("ingest")

    @pipeline.register(name="tidy", schedule="0 4 * * *", depends_on=["ingest"], retry={"max_attempts": 2})
    def tidy_up() -> dict[str, int]:
        return {"files": 3}

    assert tidy_up() == {"files": 3}
    assert pipeline.depends_on_of("tidy") == ["ingest"]
    assert pipeline.retry_policy_of("tidy").max_attempts == 2
    assert pipeline.upstream_freshness_secs_of("tidy") is None
    assert pipeline.order_for_run_due(["tidy", "ingest"]) == ["ingest", "tidy"]
    assert [(item.name, item.schedule) for item in pipeline.list_pipelines()] == [
        ("ingest", None), ("tidy", "0 4 * * *"),
    ]  # fmt: skip


def test_a_plain_function_runs_and_its_answer_is_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "runs.db"))

    @pipeline.register(name="tidy", schedule=None)
    def tidy_up() -> dict[str, int]:
        return {"files": 3}

    assert pipeline.run_pipeline("tidy") == {"files": 3}
    assert pipeline.validate("tidy").ok
    with pytest.raises(TypeError, match="no plan"):
        pipeline.preview("tidy")
    with pytest.raises(TypeError, match="no plan"):
        pipeline.dry_run("tidy")


def test_a_plain_function_that_fails_says_which_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "runs.db"))

    @pipeline.register(name="broken", schedule=None)
    def broken() -> None:
        raise OSError("no such folder")

    with pytest.raises(ValueError, match="broken raised OSError: no such folder") as caught:
        pipeline.run_pipeline("broken")
    assert "test_registry.py:" in str(caught.value)


def test_a_plain_function_takes_no_arguments_and_a_real_time_zone() -> None:
    with pytest.raises(TypeError, match="without arguments"):
        pipeline.register(name="wrong", schedule=None)(lambda conn: None)  # type: ignore[arg-type, misc]
    with pytest.raises(ValueError, match="time zone"):
        pipeline.register(name="wrong", schedule=None, timezone="Mars")(lambda: None)
    with pytest.raises(ValueError, match="retry does not know"):
        pipeline.register(name="wrong", schedule=None, retry={"tries": 3})(lambda: None)


def test_a_pipeline_in_plain_data_has_one_fingerprint_for_one_meaning() -> None:
    source, target = pipeline.Source("shop", "SELECT id FROM ids"), pipeline.Target("warehouse", "raw", "ids")
    merge = pipeline.Pipeline("ids", source, target, "merge", ("id",))
    assert merge.to_spec_dict() == {
        "name": "ids",
        "source": {"connection": "shop", "query": "SELECT id FROM ids"},
        "target": {"connection": "warehouse", "schema": "raw", "table": "ids"},
        "mode": "merge",
        "keys": ["id"],
    }
    same = pipeline.Pipeline("ids", source, target, "scd1", ("id",)).to_normalized_dict()
    assert same == merge.to_normalized_dict()
    assert len(same["fingerprint"]) == 32
    assert pipeline.Pipeline("ids", source, target, "append").to_normalized_dict() != same
    with pytest.raises(NotImplementedError, match="did you mean 'append'"):
        pipeline.Pipeline("ids", source, target, "apend")
