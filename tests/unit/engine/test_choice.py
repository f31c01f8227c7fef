"""Which engine a run gets: the environment over the pipeline over the project's file, and addresses of every kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow import BigInt, ematix
from ematix_flow.config.spark import spark_config
from ematix_flow.declare import registry
from ematix_flow.declare.engine import EngineOptions, engine_options
from ematix_flow.engine.cluster import local_cluster, master_urls
from ematix_flow.engine.session import spark_settings
from ematix_flow.engine.session.engine_choice import choose_engine
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, DeclarationError, FlowError, Unreachable
from ematix_flow.foundation.redact import mask


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder and a home without any configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("EMATIX_FLOW_ENGINE", "EMATIX_FLOW_MASTER", "EMATIX_FLOW_CLUSTER_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    registry.clear()
    redact.forget_secrets()


def write(text: str) -> None:
    Path(".ematix-flow.toml").write_text(f"[spark]\n{text}\n")


def test_without_a_word_the_work_is_done_here_and_a_warm_engine_will_do() -> None:
    found = choose_engine()
    assert (found.engine, found.address, found.may_join) == ("local", "local[*]", True)


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ('peers = ["spark://a:7077", "spark://b:7077"]', "spark://a:7077,b:7077"),
        ('peers = "spark://a:7077"', "spark://a:7077"),
        ('master = "spark://a:7077,b:7078"', "spark://a:7077,b:7078"),
        ('peers = ["sc://a:15002/;token=abcd"]', "sc://a:15002/;token=abcd"),
        ('master = "k8s://https://a:6443"', "k8s://https://a:6443"),
        ('peers = ["dns://localhost:7077"]', "spark://127.0.0.1:7077"),
        ('master = "dns://localhost:7077"', "spark://127.0.0.1:7077"),
    ],
)
def test_a_cluster_that_the_file_names_is_used(said: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_urls, "_addresses", lambda host, port: ("127.0.0.1",))
    write(said)
    found = choose_engine()
    assert (found.engine, found.address, found.may_join) == ("distributed", address, False)
    assert found.reason == "./.ematix-flow.toml says so"


def test_every_address_behind_a_name_is_a_standby_master() -> None:
    master_urls._addresses.cache_clear()
    found = master_urls.engine_address(["dns://localhost:7077"])
    assert "127.0.0.1:7077" in found.removeprefix("spark://").split(",")


def test_the_pipeline_overrules_the_file_and_the_environment_both(monkeypatch: pytest.MonkeyPatch) -> None:
    write('engine = "distributed"\npeers = ["spark://file:7077"]')
    own = engine_options("distributed", ["spark://own:7077"])
    assert choose_engine(own).address == "spark://own:7077"
    assert choose_engine(engine_options("local", None)).engine == "local"
    assert choose_engine(engine_options("auto", None)).address == "spark://file:7077"
    assert choose_engine(engine_options("distributed", None)).address == "spark://file:7077"
    monkeypatch.setenv("EMATIX_FLOW_MASTER", "spark://now:7077")
    assert (choose_engine(own).address, choose_engine(own).reason) == ("spark://now:7077", "EMATIX_FLOW_MASTER says so")
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "auto")
    assert choose_engine(own).address == "spark://now:7077"
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    assert choose_engine(own).engine == "local"
    monkeypatch.delenv("EMATIX_FLOW_MASTER")
    assert choose_engine(own).engine == "local"
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "distributed")
    assert choose_engine(own).address == "spark://own:7077"
    assert choose_engine().address == "spark://file:7077"


def test_a_cluster_without_an_address_is_refused_with_a_next_step() -> None:
    with pytest.raises(ConfigError, match="needs to know where the cluster is") as caught:
        choose_engine(engine_options("distributed", None))
    assert "peers=" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("http://a:1", "is no address of a Spark cluster"),
        ("spark://a", "has no port"),
        ("spark://[::1", "is no address of a cluster"),
        ("spark://", "is no address of a cluster"),
        (7, "is no address of a cluster"),
    ],
)
def test_peers_are_checked_where_they_are_written(said: object, error: str) -> None:
    @ematix.table(schema="s")
    class T:
        n: BigInt

    with pytest.raises(DeclarationError, match=error):
        ematix.pipeline(target=T, target_connection="x", mode="append", peers=[said])(lambda: "SELECT 1")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("peers = 3", "not a list"),
        ("master = 3", "master is not a text"),
        ('master = "yarn"', "no address of a cluster"),
        ("wait = 0", "number of seconds"),
        ("wait = true", "number of seconds"),
        ('secret = ""', "secret is not a text"),
        ('secret = "a"\nsecret_file = "b"', "both secret and secret_file"),
        ('secret_file = "nowhere"', "cannot be read"),
        ("workers = 3", "has no key 'workers'"),
        ('engine = "dist"', "engine='dist' is not known"),
    ],
)
def test_what_the_file_says_wrongly_is_reported_with_its_place(said: str, error: str) -> None:
    write(said)
    with pytest.raises(ConfigError, match=error) as caught:
        spark_config()
    assert caught.value.hint
    assert str(caught.value.where).startswith((".ematix-flow.toml:", str(Path.cwd())))


def test_a_secret_from_the_environment_or_a_file_signs_and_encrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_SECRET", "b3tween-us-and-the-cluster")
    write('peers = ["spark://127.0.0.1:7077"]\nsecret = "${CLUSTER_SECRET}"')
    made = {item.name: item for item in spark_settings.settings((), choice=choose_engine())}
    assert made["spark.authenticate"].value == "true"
    assert made["spark.authenticate.secret"].value == "b3tween-us-and-the-cluster"
    assert made["spark.authenticate.secret"].display_value == "***"
    assert made["spark.network.crypto.enabled"].value == "true"
    assert "b3tween-us" not in mask("it said: b3tween-us-and-the-cluster")
    Path("kept").write_text("another-s3cret-one\n")
    write('peers = ["spark://127.0.0.1:7077"]\nsecret_file = "kept"\n"spark.ssl.rpc.enabled" = true')
    made = {item.name: item for item in spark_settings.settings((), choice=choose_engine())}
    assert made["spark.authenticate.secret"].value == "another-s3cret-one"
    assert "spark.network.crypto.enabled" not in made  # TLS encrypts already


def test_the_environment_may_bring_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    write('peers = ["spark://127.0.0.1:7077"]\nsecret = "of-the-f1le"')
    monkeypatch.setenv("EMATIX_FLOW_CLUSTER_SECRET", "of-th1s-run")
    assert choose_engine().secret == "of-th1s-run"
    assert "of-th1s-run" not in mask("it is of-th1s-run")


def test_passwords_of_tls_are_never_shown() -> None:
    write('peers = ["spark://127.0.0.1:7077"]\n"spark.ssl.rpc.keyStorePassword" = "open-s3same"')
    made = {item.name: item for item in spark_settings.settings((), choice=choose_engine())}
    assert made["spark.ssl.rpc.keyStorePassword"].display_value == "***"
    assert "s3same" not in mask("open-s3same")


def test_a_token_in_an_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hush-hush-hush")
    write('peers = ["sc://a:15002/;use_ssl=true;token=${TOKEN}"]')
    found = choose_engine()
    assert found.address.endswith("token=hush-hush-hush")
    assert found.display == "distributed sc://a:15002"
    assert "hush" not in mask(found.address)


def test_the_secret_of_a_cluster_on_this_machine_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CLUSTER_DIR", str(tmp_path / "cluster"))
    local_cluster.folder(make=True)
    local_cluster.write_private(local_cluster.secret_file(), "of-th1s-machine")
    member = local_cluster.ClusterProcess(f"here:{os.getpid()}:0", "log")
    local_cluster.write_cluster(local_cluster.LocalCluster(member, (), 7077, 8080, 1, "1g", 0.0))
    write('peers = ["spark://127.0.0.1:7077"]')
    assert choose_engine().secret == "of-th1s-machine"
    assert choose_engine(EngineOptions(None, ("spark://127.0.0.1:7078",))).secret is None
    assert (tmp_path / "cluster" / "cluster.json").stat().st_mode & 0o077 == 0


def test_an_address_without_a_server_is_one_quick_sentence_with_the_address() -> None:
    for where in ("spark://127.0.0.1:1", "sc://127.0.0.1:1/;token=abcd", "k8s://https://127.0.0.1:1"):
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer: connection refused") as caught:
            master_urls.require_reachable(where)
        assert caught.value.retryable
        assert caught.value.hint
        assert "abcd" not in str(caught.value)


def test_one_living_master_of_several_is_enough() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        master_urls.require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


def test_an_unknown_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    master_urls._addresses.cache_clear()
    with pytest.raises(ConnectionFailed, match="has no address"):
        master_urls.engine_address(["dns://nobody.invalid:7077"])


def test_several_places_must_be_masters_of_one_cluster() -> None:
    with pytest.raises(ConfigError, match="not masters of one cluster"):
        master_urls.engine_address(["sc://a:1", "sc://b:1"])


def test_kubernetes_without_an_image_is_refused_before_anything_starts(tmp_path: Path) -> None:
    from ematix_flow.engine.cluster import cluster_session

    write('master = "k8s://https://127.0.0.1:1"')

    def never(_: object) -> object:
        raise AssertionError("nothing may start")

    with pytest.raises(FlowError, match="no image is set for the executors"):
        cluster_session.open_cluster_session(set(), choose_engine(), start_jvm=never, log=tmp_path / "log")  # type: ignore[arg-type]


def test_the_users_settings_win_and_say_so() -> None:
    write('spark.sql.shuffle.partitions = 7\n"spark.executor.extraJavaOptions" = "-Xss4m"')
    made = {item.name: item for item in spark_settings.settings(())}
    assert made["spark.sql.shuffle.partitions"] == spark_settings.Setting(
        "spark.sql.shuffle.partitions", "7", "./.ematix-flow.toml says so"
    )
    assert made["spark.executor.extraJavaOptions"].value == f"{spark_settings.IN_UTC} -Xss4m"


def documented() -> list[str]:
    page = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
    return re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", documented(), ids=str)
def test_what_the_documents_say_to_write_is_understood(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLUSTER_SECRET", "STORE_PASSWORD"):
        monkeypatch.setenv(name, "a-d0cumented-secret")
    Path(".ematix-flow.toml").write_text(text)
    found = choose_engine()
    assert found.engine == "distributed"
    assert found.address in ("spark://head:7077", "k8s://https://api:6443")
    if not found.address.startswith("k8s"):
        made = {item.name: item.value for item in spark_settings.settings((), choice=found)}
        assert made.items() >= dict(found.settings).items()
