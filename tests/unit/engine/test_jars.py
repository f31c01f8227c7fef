"""Fetching pinned jars with the real Ivy out of a repository in a folder: nothing leaves the machine."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from ematix_flow.engine.session import jars
from ematix_flow.foundation.errors import ConfigError, RunFailed, StorageFull, Unreachable

SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers><{kind} name="here" m2compatible="true">
<ivy pattern="{root}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
<artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</{kind}></resolvers></ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.shop</groupId><artifactId>{name}</artifactId><version>1.0</version>
<dependencies><dependency><groupId>org.shop</groupId><artifactId>never-fetched</artifactId><version>9</version>
</dependency></dependencies></project>"""


class Shop:
    """A jar repository, a cache and a lock file in one folder."""

    def __init__(self, root: Path) -> None:
        self.repository = root / "repository"
        self.cache = root / "cache"
        self.lock = root / "jars.lock.toml"
        self.sums: dict[str, str] = {}

    def offer(self, name: str, content: bytes) -> None:
        folder = self.repository / "org" / "shop" / name / "1.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name), encoding="utf-8")
        (folder / f"{name}-1.0.jar").write_bytes(content)
        self.sums.setdefault(name, hashlib.sha256(content).hexdigest())

    def write_lock(self) -> None:
        entries = [
            f'{{ group = "org.shop", artifact = "{name}", version = "1.0", sha256 = "{sha256}" }}'
            for name, sha256 in self.sums.items()
        ]
        self.lock.write_text(f"[shop]\njars = [{', '.join(entries)}]\n", encoding="utf-8")

    def ensure(self, said: list[str] | None = None) -> list[Path]:
        self.write_lock()
        return jars.ensure_jars(["shop"], lock=self.lock, on_progress=None if said is None else said.append)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(kind="filesystem", root=shop.repository), encoding="utf-8")
    monkeypatch.setenv("EMATIX_FLOW_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(shop.cache))
    shop.offer("apples", b"a jar of apples")
    shop.offer("pears", b"a jar of pears")
    return shop


def test_missing_jars_are_fetched_once_and_kept(shop: Shop) -> None:
    said: list[str] = []
    paths = shop.ensure(said)
    assert [path.read_bytes() for path in paths] == [b"a jar of apples", b"a jar of pears"]
    assert said == ["fetching 2 jars, once", "got apples 1.0", "got pears 1.0"]
    assert sorted(path.name for path in (shop.cache / "jars").iterdir()) == sorted(path.name for path in paths)
    again: list[str] = []
    assert shop.ensure(again) == paths
    assert again == []


def test_what_is_in_the_cache_comes_along_in_the_order_of_the_lock(shop: Shop) -> None:
    shop.write_lock()
    with shop.lock.open("a", encoding="utf-8") as lock:
        lock.write('[later]\njars = [{ group = "org.shop", artifact = "plums", version = "1.0", sha256 = "0" }]\n')
    assert jars.with_cached_sets([], lock=shop.lock) == []
    assert jars.with_cached_sets(["later"], lock=shop.lock) == ["later"]
    jars.ensure_jars(["shop"], lock=shop.lock)
    assert jars.with_cached_sets([], lock=shop.lock) == ["shop"]
    assert jars.with_cached_sets(["later"], lock=shop.lock) == ["shop", "later"]


def test_a_damaged_jar_is_fetched_again(shop: Shop) -> None:
    apples, _ = shop.ensure()
    apples.write_bytes(b"a jar of app")
    said: list[str] = []
    shop.ensure(said)
    assert said == ["fetching 1 jar, once", "got apples 1.0"]
    assert apples.read_bytes() == b"a jar of apples"


def test_a_jar_with_other_bytes_than_locked_is_refused(shop: Shop) -> None:
    shop.offer("pears", b"a jar of worms")
    with pytest.raises(RunFailed, match=r"pears 1\.0 arrived with other bytes"):
        shop.ensure()
    assert list((shop.cache / "jars").iterdir()) == []


def test_a_jar_that_does_not_exist_is_named(shop: Shop) -> None:
    shop.sums["plums"] = "0" * 64
    with pytest.raises(RunFailed, match=r"does not hold plums 1\.0"):
        shop.ensure()


def test_a_repository_that_does_not_answer_is_worth_a_retry(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = tmp_path / "silent.xml"
    silent.write_text(SETTINGS.format(kind="url", root="http://127.0.0.1:9"), encoding="utf-8")
    monkeypatch.setenv("EMATIX_FLOW_IVY_SETTINGS", str(silent))
    with pytest.raises(Unreachable, match=r"apples 1\.0 and 1 more") as caught:
        shop.ensure()
    assert caught.value.retryable


def test_a_cache_that_cannot_be_written_says_which_variable_to_set(shop: Shop) -> None:
    shop.cache.write_text("a file where a folder should be", encoding="utf-8")
    with pytest.raises(RunFailed) as caught:
        shop.ensure()
    assert "EMATIX_FLOW_CACHE" in str(caught.value.hint)


def test_a_full_disk_is_reported_as_such(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full; run it on Linux")
    monkeypatch.setattr(jars.tempfile, "mkdtemp", lambda **_: Path("/dev/full").write_text("x", encoding="utf-8"))
    with pytest.raises(StorageFull, match="no room left"):
        shop.ensure()


def test_an_unknown_set_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        jars.ensure_jars(["delt"])
    assert caught.value.hint == "did you mean 'delta'?"


def test_two_fetches_at_once_both_end_with_whole_jars(shop: Shop) -> None:
    shop.write_lock()
    found: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: found.append(jars.ensure_jars(["shop"], lock=shop.lock))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert [path.read_bytes() for path in found[0]] == [b"a jar of apples", b"a jar of pears"]


def test_no_locked_jar_is_one_that_pyspark_already_has() -> None:
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    present = {path.name.rsplit("-", 1)[0] for path in Path(spec.origin).parent.glob("jars/*.jar")}
    locked = {jar.artifact for jar_set in jars.read_lock().values() for jar in jar_set}
    assert locked & present == set()
