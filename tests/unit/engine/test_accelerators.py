"""Accelerators on the class path: found by their plugin, used where they fit, and shown with the reason where not."""

from __future__ import annotations

import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from ematix_flow.engine.session import accelerators, spark_settings
from ematix_flow.engine.session.engine_choice import EngineChoice

SPARK = ".".join(version("pyspark").split(".")[:2])
COMET, GLUTEN, RAPIDS = "org/apache/spark/CometPlugin", "org/apache/gluten/GlutenPlugin", "com/nvidia/spark/SQLPlugin"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of Spark without any jar."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark" / "jars"


def jar(folder: Path, name: str, *classes: str) -> Path:
    with zipfile.ZipFile(folder / name, "w") as made:
        for item in classes:
            made.writestr(f"{item}.class", b"")
    return folder / name


def chosen(**own: str) -> dict[str, spark_settings.Setting]:
    settings = {name.replace("__", "."): value for name, value in own.items()}
    return {
        item.name: item for item in spark_settings.settings((), choice=EngineChoice(settings=settings, origin="a file"))
    }


def test_without_one_no_plugin_is_loaded() -> None:
    assert "spark.plugins" not in chosen()
    assert spark_settings.accelerator(EngineChoice()) is None


@pytest.mark.parametrize(
    ("name", "inside", "plugin", "shuffle"),
    [
        (f"comet-spark-spark{SPARK}_2.13-0.20.0.jar", COMET, "org.apache.spark.CometPlugin", "CometShuffleManager"),
        (f"gluten-velox-bundle-spark{SPARK}_2.13-1.6.0.jar", GLUTEN, "org.apache.gluten.GlutenPlugin", "ColumnarShuffleManager"),
    ],
)  # fmt: skip
def test_one_beside_sparks_own_jars_is_switched_on_with_what_it_needs(
    home: Path, name: str, inside: str, plugin: str, shuffle: str
) -> None:
    jar(home, name, inside)
    made = chosen()
    assert made["spark.plugins"].value == plugin
    assert made["spark.shuffle.manager"].value.endswith(shuffle)
    assert made["spark.memory.offHeap.enabled"].value == "true"
    assert made["spark.memory.offHeap.size"].value == made["spark.driver.memory"].value
    assert name in made["spark.plugins"].reason


def test_jars_that_the_users_settings_name_count_too(tmp_path: Path) -> None:
    found = jar(tmp_path, "comet-spark-own.jar", COMET)
    assert "spark.plugins" in chosen(spark__jars=f"file://{found}")
    assert "spark.plugins" in chosen(spark__driver__extraClassPath=f"/nowhere/*:{tmp_path}/*")


def test_plugins_that_the_user_names_stay_alone(home: Path) -> None:
    jar(home, f"comet-spark-spark{SPARK}.jar", COMET)
    made = chosen(spark__plugins="org.example.Own")
    assert made["spark.plugins"].value == "org.example.Own"
    assert "spark.shuffle.manager" not in made


def test_one_for_another_spark_is_not_used_and_the_reason_is_kept(home: Path) -> None:
    jar(home, "comet-spark-spark3.5_2.12-0.9.0.jar", COMET)
    found = spark_settings.accelerator(EngineChoice())
    assert found is not None
    assert "made for Spark 3.5" in found.obstacle
    assert "spark.plugins" not in chosen()


def test_one_that_fits_is_taken_before_one_that_does_not(home: Path) -> None:
    jar(home, "comet-spark-spark3.5_2.12-0.9.0.jar", COMET)
    jar(home, f"gluten-velox-bundle-spark{SPARK}.jar", GLUTEN)
    assert chosen()["spark.plugins"].value == "org.apache.gluten.GlutenPlugin"


def test_rapids_is_used_only_where_there_is_a_graphics_card(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar(home, "rapids-4-spark_2.13-26.10.0.jar", RAPIDS)
    card = tmp_path / "card"
    known = tuple(
        accelerators.Accelerator(it.title, it.named, it.plugin, it.needs, card if it.device else None)
        for it in accelerators.KNOWN
    )
    monkeypatch.setattr(accelerators, "KNOWN", known)
    assert "spark.plugins" not in chosen()
    card.touch()
    assert chosen()["spark.plugins"].value == "com.nvidia.spark.SQLPlugin"


def test_a_jar_that_only_has_the_name_or_is_damaged_is_passed_over(home: Path) -> None:
    jar(home, f"comet-spark-spark{SPARK}-sources.jar", "org/apache/spark/Other")
    (home / f"gluten-spark{SPARK}.jar").write_bytes(b"half of a downl")
    assert spark_settings.accelerator(EngineChoice()) is None
