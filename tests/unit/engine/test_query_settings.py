"""How joins and shuffles are sized: by this machine, by the rows of a run, and by the user before both."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.engine.session import spark_settings
from ematix_flow.engine.session.engine_choice import choose_engine

BLOOM = "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold"
FIRST = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
HASHED = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
GIGABYTE = 1024**3


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a home without any configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("EMATIX_FLOW_ENGINE", "EMATIX_FLOW_MASTER", spark_settings.MEMORY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def on_a_machine(monkeypatch: pytest.MonkeyPatch, *, cores: int, gigabytes: int) -> dict[str, str]:
    monkeypatch.setattr(spark_settings, "_memory", lambda: gigabytes * GIGABYTE)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    return spark_settings.configuration(())


def test_tables_are_filtered_before_a_join_and_shuffles_are_cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    made = on_a_machine(monkeypatch, cores=4, gigabytes=32)
    assert (made[BLOOM], made["spark.sql.shuffle.partitions"], made[FIRST]) == ("10MB", "4", "32")


@pytest.mark.parametrize(
    ("cores", "gigabytes", "size"),
    [(2, 24, 6 * GIGABYTE // 64), (4, 32, 8 * GIGABYTE // 128), (8, 32, None), (2, 8, None)],
)
def test_hash_tables_are_as_large_as_the_heap_bears_many_times(
    monkeypatch: pytest.MonkeyPatch, cores: int, gigabytes: int, size: int | None
) -> None:
    """Below 64 MB Spark would not look at the setting."""
    found = on_a_machine(monkeypatch, cores=cores, gigabytes=gigabytes).get(HASHED)
    assert found == (None if size is None else str(size))


def test_a_heap_that_the_user_chose_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spark_settings.MEMORY_VARIABLE, "2g")
    assert HASHED not in on_a_machine(monkeypatch, cores=2, gigabytes=24)


def test_who_sets_the_number_of_partitions_gets_that_number() -> None:
    Path(".ematix-flow.toml").write_text("[spark]\nspark.sql.shuffle.partitions = 7\n")
    made = spark_settings.configuration(())
    assert made["spark.sql.shuffle.partitions"] == "7"
    assert FIRST not in made
    assert spark_settings.is_set_by_user(FIRST, choose_engine().settings)


def test_who_sets_the_first_number_too_gets_both() -> None:
    Path(".ematix-flow.toml").write_text(f"[spark]\nspark.sql.shuffle.partitions = 7\n{FIRST} = 9\n")
    made = spark_settings.configuration(())
    assert (made["spark.sql.shuffle.partitions"], made[FIRST]) == ("7", "9")


@pytest.mark.parametrize(("rows", "first"), [(None, "16"), (1_000, "2"), (5_000_000, "10"), (10**9, "200")])
def test_a_run_that_knows_its_rows_cuts_by_them(rows: int | None, first: str) -> None:
    made = {item.name: item for item in spark_settings.run_settings(rows, cores=2)}
    assert made[FIRST].value == first
    assert made[FIRST].reason
