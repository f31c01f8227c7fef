"""Secrets from files, AWS Secrets Manager (moto's server) and Google Secret Manager (a double of its REST interface)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import PostgresConnection
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, MissingSecret
from ematix_flow.secrets import (
    AWSSecretsManagerResolver,
    GCPSecretManagerResolver,
    MissingSecretError,
    expand,
    register_resolver,
    settings,
    unregister_resolver,
)
from ematix_flow.secrets.settings import _CachingResolver, forget_stores
from ematix_flow.secrets.store_answers import StoreUnreachable
from ematix_flow.secrets.trial import try_reference
from tests.observe.doubles import GoogleSecretManagerDouble

# -- files


def test_a_file_is_read_when_it_is_asked_for_and_its_last_newline_does_not_count(project: Path) -> None:
    secret = project / "db_password"
    secret.write_text("geheim-1\n")
    assert expand(f"${{file:{secret}}}") == "geheim-1"
    secret.write_text("geheim-2")
    assert expand("x${file:db_password}y") == "xgeheim-2y"
    assert redact.mask("geheim-1 geheim-2") == "*** ***"


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"x" * 1_100_000])
def test_a_file_that_holds_no_secret_is_an_error_in_words(project: Path, content: bytes | None) -> None:
    if content is not None:
        (project / "secret").write_bytes(content)
    with pytest.raises(MissingSecretError) as caught:
        expand("${file:secret}")
    assert "${file:secret}" in str(caught.value)
    assert isinstance(caught.value, KeyError)


def test_a_folder_for_files_may_be_configured(project: Path) -> None:
    (project / "run").mkdir()
    (project / "run" / "pw").write_text("geheim-3")
    (project / ".ematix-flow.toml").write_text('[secrets.docker]\nkind = "file"\nfolder = "run"\n')
    assert expand("${docker:pw}") == "geheim-3"


def test_a_connection_resolves_its_reference_late(project: Path) -> None:
    (project / "pw").write_text("p@ss/1\n")
    connection = PostgresConnection("wh", url="postgres://ana:${file:pw}@db/shop")
    assert "p@ss" not in repr(connection)
    assert connection.resolved().dsn == "postgresql://ana:p%40ss%2F1@db/shop"
    (project / "pw").write_text("other-pass\n")
    assert connection.resolved().dsn == "postgresql://ana:other-pass@db/shop"


# -- AWS


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    """moto's server: a double of AWS."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(moto_url: str, monkeypatch: pytest.MonkeyPatch, project: Path) -> Any:
    """A client with two secrets behind it, and a file that leads there."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret-key")
    (project / ".ematix-flow.toml").write_text(
        f'[secrets.aws]\nregion = "eu-central-1"\nendpoint_url = "{moto_url}"\ncache_seconds = 0\n'
    )
    client = boto3.client("secretsmanager", region_name="eu-central-1", endpoint_url=moto_url)
    for name, value in (
        ("shop/db", json.dumps({"user": "ana", "password": "aws-geheim-1", "port": 5432})),
        ("plain", "aws-geheim-2"),
    ):
        try:
            client.create_secret(Name=name, SecretString=value)
        except client.exceptions.ResourceExistsException:
            client.put_secret_value(SecretId=name, SecretString=value)
    return client


def test_aws_gives_a_field_of_a_secret_or_all_of_it(aws: Any) -> None:
    assert expand("${aws:shop/db#password}") == "aws-geheim-1"
    assert expand("${aws:shop/db#port}") == "5432"
    assert json.loads(expand("${aws:shop/db}"))["user"] == "ana"
    assert expand("${aws:plain}") == "aws-geheim-2"
    assert redact.mask("with aws-geheim-1") == "with ***"


def test_aws_gives_the_current_version(aws: Any) -> None:
    assert expand("${aws:plain}") == "aws-geheim-2"
    aws.put_secret_value(SecretId="plain", SecretString="aws-geheim-3")
    assert expand("${aws:plain}") == "aws-geheim-3"


def test_aws_binary_secrets_are_text(aws: Any) -> None:
    aws.put_secret_value(SecretId="plain", SecretBinary=b"bin-geheim")
    assert AWSSecretsManagerResolver(aws).resolve("plain") == "bin-geheim"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere", "there is no such secret"),
        ("shop/db#pasword", "did you mean 'password'?"),
        ("plain#x", "no JSON object"),
        ("", "names no secret"),
    ],
)
def test_what_aws_does_not_have_is_an_error_in_words(aws: Any, reference: str, said: str) -> None:
    with pytest.raises(MissingSecret) as caught:
        expand(f"${{aws:{reference}}}")
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_aws_that_is_not_there_is_worth_another_try(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret-key")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    (project / ".ematix-flow.toml").write_text(
        '[secrets.aws]\nregion = "eu-central-1"\nendpoint_url = "http://127.0.0.1:1"\n'
    )
    with pytest.raises(StoreUnreachable) as caught:
        expand("${aws:shop/db}")
    assert caught.value.retryable is True


def test_aws_without_a_login_says_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (project / ".ematix-flow.toml").write_text(
        '[secrets.aws]\nregion = "eu-central-1"\nendpoint_url = "http://127.0.0.1:1"\n'
    )
    with pytest.raises(MissingSecret, match="no login"):
        expand("${aws:shop/db}")


# -- Google


@pytest.fixture
def google(project: Path) -> Iterator[GoogleSecretManagerDouble]:
    with GoogleSecretManagerDouble({("shop-prod", "db-password"): ["gcp-geheim-1", "gcp-geheim-2"]}) as double:
        (project / ".ematix-flow.toml").write_text(
            f'[secrets.gcp]\nproject = "shop-prod"\nendpoint = "{double.url}"\nanonymous = true\ncache_seconds = 0\n'
        )
        yield double


def test_google_gives_the_newest_version_or_the_named_one(google: GoogleSecretManagerDouble) -> None:
    assert expand("${gcp:db-password}") == "gcp-geheim-2"
    assert expand("${gcp:db-password#1}") == "gcp-geheim-1"
    assert expand("${gcp:projects/shop-prod/secrets/db-password}") == "gcp-geheim-2"
    assert expand("${gcp:projects/shop-prod/secrets/db-password/versions/1}") == "gcp-geheim-1"
    assert google.paths[0].startswith("/v1/projects/shop-prod/secrets/db-password/versions/latest:access")
    assert redact.mask("gcp-geheim-1") == "***"


def test_what_google_does_not_have_is_an_error_in_words(google: GoogleSecretManagerDouble) -> None:
    google.forbidden.add("locked")
    with pytest.raises(MissingSecret, match="no such secret or version"):
        expand("${gcp:nowhere}")
    with pytest.raises(MissingSecret, match="may not read it") as caught:
        expand("${gcp:locked}")
    assert "secretAccessor" in str(caught.value)


def test_a_client_of_the_users_own_is_asked_as_googles_is() -> None:
    class Answer:
        class payload:
            data = b"own-geheim"

    class Own:
        def access_secret_version(self, request: dict[str, str]) -> Any:
            self.asked = request["name"]
            return Answer

    own = Own()
    assert GCPSecretManagerResolver(own, "p").resolve("name#3") == "own-geheim"
    assert own.asked == "projects/p/secrets/name/versions/3"
    with pytest.raises(MissingSecret, match="project is not known"):
        GCPSecretManagerResolver(own).resolve("name")


def test_an_old_client_of_the_users_own_that_fails_is_an_error_in_words() -> None:
    class Forbidden(Exception):
        pass

    class Old:
        def access_secret_version(self, request: dict[str, str]) -> Any:
            raise Forbidden("login ana:gcp-geheim-9 refused")

    with pytest.raises(MissingSecret, match=r"the login may not read it \(Forbidden\)") as caught:
        GCPSecretManagerResolver(Old(), "p").resolve("name")
    assert "gcp-geheim-9" not in str(caught.value)


# -- settings


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('[secrets.vault]\ncache_seconds = "a minute"', "cache_seconds of [secrets.vault] is no number"),
        ("[secrets.vault]\ncache_seconds = []", "cache_seconds of [secrets.vault] is no number"),
        ('[secrets.vault]\nkv_version = "two"', "there is no kv_version 'two'"),
    ],
)
def test_a_setting_that_is_no_number_is_refused_with_its_place(project: Path, lines: str, said: str) -> None:
    (project / ".ematix-flow.toml").write_text(f'{lines}\naddress = "http://127.0.0.1:1"\ntoken = "t"\n')
    with pytest.raises(ConfigError) as caught:
        expand("${vault:shop/db#user}")
    assert said in caught.value.what
    assert caught.value.hint
    assert ".ematix-flow.toml" in str(caught.value.where)


def test_a_registered_resolver_comes_before_the_file(google: GoogleSecretManagerDouble) -> None:
    class Own:
        def resolve(self, reference: str) -> str:
            return f"own {reference}"

    register_resolver("gcp", Own())
    try:
        assert expand("${gcp:x}") == "own x"
    finally:
        unregister_resolver("gcp")
    assert expand("${gcp:db-password}") == "gcp-geheim-2"


def test_a_store_is_asked_once_a_minute_at_most() -> None:
    class Counting:
        asked = 0

        def resolve(self, reference: str) -> str:
            self.asked += 1
            return f"{reference} {self.asked}"

    now = 0.0
    counting = Counting()
    store = _CachingResolver(counting, 60, clock=lambda: now)
    assert [store.resolve("a"), store.resolve("a"), store.resolve("b")] == ["a 1", "a 1", "b 2"]
    now = 61.0
    assert store.resolve("a") == "a 3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("secrets = 3\n", "not a table"),
        ("[secrets]\nvault = 3\n", "not a table"),
        ('[secrets.x]\nkind = "valt"\n', "vault"),
        ('[secrets.aws]\nregoin = "x"\n', "region"),
        ('[secrets.vault]\naddress = "https://v"\ntoken = "${vault:x#y}"\n', "refers to itself"),
        ('[secrets.vault]\naddress = "vault:8200"\ntoken = "t0ken-x"\n', "https://"),
        ('[secrets.vault]\naddress = "https://vault:8200"\n', "needs a login"),
        ('[secrets.vault]\ntoken = "t0ken-x"\n', "VAULT_ADDR"),
    ],
)
def test_wrong_settings_of_a_store_are_an_error_with_their_line(project: Path, text: str, said: str) -> None:
    (project / ".ematix-flow.toml").write_text(text)
    prefix = {"x": "x", "a": "aws"}.get(text.partition("secrets.")[2][:1], "vault")
    with pytest.raises(ConfigError) as caught:
        expand(f"${{{prefix}:a#b}}")
    assert said in str(caught.value)
    assert ".ematix-flow.toml:" in str(caught.value)


def test_an_unknown_prefix_names_the_ways_to_make_it_known(project: Path) -> None:
    with pytest.raises(MissingSecret) as caught:
        expand("${keeper:a}")
    assert "[secrets.keeper]" in str(caught.value)
    assert "register_resolver" in str(caught.value)


def test_a_package_that_is_missing_is_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "boto3", None)
    forget_stores()
    with pytest.raises(ImportError) as caught:
        settings.store_for("aws")
    assert 'pip install "ematix-flow-spark[secrets-aws]"' in str(caught.value)


# -- trying a reference out


def test_a_reference_is_tried_with_or_without_its_braces(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_X", "abcdefghijklmnop")
    for written in ("TOKEN_X", "${TOKEN_X}", "env:TOKEN_X"):
        trial = try_reference(written)
        assert (trial.value, trial.masked, trial.store) == ("abcdefghijklmnop", "ab...op", "env")
    (project / "pw").write_text("hunter22")
    trial = try_reference("file:pw")
    assert (trial.store, trial.masked) == ("file", "********")
    (project / "pw").write_text("")
    assert try_reference("file:pw").masked == "<empty>"
    assert "hunter22" not in repr(trial)


@pytest.mark.parametrize("written", ["", "${A}${B}", "a}b", "${A"])
def test_what_is_not_one_reference_is_refused(written: str) -> None:
    with pytest.raises(ConfigError):
        try_reference(written)
