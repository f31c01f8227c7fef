"""Secrets from Vault: tokens and AppRole, both versions of the KV engine, and every way it can say no."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hvac
import pytest

from ematix_flow import PostgresConnection
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.secrets import VaultClient, VaultResolver, expand
from ematix_flow.secrets.store_answers import StoreUnreachable
from tests.observe.vaults import VAULTS

SECRET = {"user": "ana", "password": "vault-geheim-1", "port": 5432}


@dataclass(frozen=True)
class Vault:
    """A Vault with KV engines at `secret/` (version 2) and `old/` (version 1), and a role for `secret/shop/*`."""

    address: str
    token: str
    role_id: str
    secret_id: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.address}/v1/{path}", method=method, data=json.dumps(body).encode() if body is not None else None,
            headers={"X-Vault-Token": self.token},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@pytest.fixture(scope="module", params=sorted(VAULTS))
def vault(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with VAULTS[request.param](tmp_path_factory.mktemp("vault")) as (address, token):
        raw = Vault(address, token, "", "")
        raw.ask("POST", "sys/mounts/secret", {"type": "kv", "options": {"version": "2"}})
        raw.ask("POST", "sys/mounts/old", {"type": "kv", "options": {"version": "1"}})
        raw.ask("POST", "sys/auth/approle", {"type": "approle"})
        raw.ask("PUT", "sys/policies/acl/shop", {"policy": 'path "secret/data/shop/*" { capabilities = ["read"] }'})
        raw.ask("POST", "auth/approle/role/shop", {"token_policies": "shop", "token_ttl": "1h"})
        role = raw.ask("GET", "auth/approle/role/shop/role-id")["data"]["role_id"]
        secret = raw.ask("POST", "auth/approle/role/shop/secret-id", {})["data"]["secret_id"]
        yield Vault(address, token, role, secret)


@pytest.fixture(autouse=True)
def filled(vault: Vault) -> None:
    vault.ask("POST", "secret/data/shop/db", {"data": SECRET})
    vault.ask("POST", "secret/data/hr/db", {"data": {"password": "vault-geheim-hr"}})
    vault.ask("PUT", "old/shop/db", SECRET)


def configured(project: Path, vault: Vault, text: str = "", **more: str) -> None:
    lines = [f'{name} = "{value}"' for name, value in more.items()]
    (project / ".ematix-flow.toml").write_text(
        "\n".join(["[secrets.vault]", f'address = "{vault.address}"', "cache_seconds = 0", *lines, text])
    )


def test_a_key_all_keys_and_numbers(project: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_VAULT_TOKEN", vault.token)
    configured(project, vault, token="${MY_VAULT_TOKEN}")
    assert expand("${vault:shop/db#password}") == "vault-geheim-1"
    assert expand("${vault:shop/db#port}") == "5432"
    assert json.loads(expand("${vault:shop/db}")) == SECRET
    assert redact.mask("vault-geheim-1") == "***"
    assert redact.mask(vault.token) == "***"


def test_vault_is_found_by_its_own_variables(
    project: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VAULT_ADDR", vault.address)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".vault-token").write_text(f"{vault.token}\n")
    assert expand("${vault:shop/db#user}") == "ana"


def test_the_current_version_is_given(project: Path, vault: Vault) -> None:
    configured(project, vault, token=vault.token)
    assert expand("${vault:shop/db#password}") == "vault-geheim-1"
    vault.ask("POST", "secret/data/shop/db", {"data": {"password": "vault-geheim-2"}})
    assert expand("${vault:shop/db#password}") == "vault-geheim-2"


def test_the_first_version_of_the_engine(project: Path, vault: Vault) -> None:
    configured(project, vault, "kv_version = 1", token=vault.token, mount_point="old")
    assert expand("${vault:shop/db#password}") == "vault-geheim-1"


def test_a_role_reads_what_it_may_and_nothing_else(project: Path, vault: Vault) -> None:
    configured(project, vault, role_id=vault.role_id, secret_id=vault.secret_id)
    assert expand("${vault:shop/db#user}") == "ana"
    with pytest.raises(MissingSecret, match="may not read it") as caught:
        expand("${vault:hr/db#password}")
    assert "geheim" not in str(caught.value)
    assert vault.secret_id not in str(caught.value)


def test_a_role_logs_in_anew_when_its_token_is_gone(vault: Vault) -> None:
    client = VaultClient(vault.address, role_id=vault.role_id, secret_id=vault.secret_id)
    resolver = VaultResolver(client)
    assert resolver.resolve("shop/db#user") == "ana"
    assert client._token is not None
    vault.ask("POST", "auth/token/revoke", {"token": client._token})
    assert resolver.resolve("shop/db#user") == "ana"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere#x", "there is no such secret"),
        ("shop/db#pasword", "did you mean 'password'?"),
        ("#password", "names no secret"),
    ],
)
def test_what_vault_does_not_have_is_an_error_in_words(project: Path, vault: Vault, reference: str, said: str) -> None:
    configured(project, vault, token=vault.token)
    with pytest.raises(MissingSecret) as caught:
        expand(f"${{vault:{reference}}}")
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert vault.token not in str(caught.value)


def test_a_deleted_secret_is_not_there(project: Path, vault: Vault) -> None:
    configured(project, vault, token=vault.token)
    vault.ask("DELETE", "secret/data/shop/db")
    with pytest.raises(MissingSecret, match="there is no such secret"):
        expand("${vault:shop/db#user}")


def test_a_wrong_token_is_an_error_without_it(project: Path, vault: Vault) -> None:
    configured(project, vault, token="hvs.wrong-geheim-token")
    with pytest.raises(MissingSecret, match="may not read it") as caught:
        expand("${vault:shop/db#user}")
    assert "wrong-geheim-token" not in str(caught.value)


def test_a_wrong_secret_id_is_an_error_without_it(project: Path, vault: Vault) -> None:
    configured(project, vault, role_id=vault.role_id, secret_id="wrong-geheim-id")
    with pytest.raises(MissingSecret, match="may not read it") as caught:
        expand("${vault:shop/db#user}")
    assert "wrong-geheim-id" not in str(caught.value)


def test_a_client_of_hvac_works_as_well(vault: Vault) -> None:
    client = hvac.Client(url=vault.address, token=vault.token)
    assert VaultResolver(client).resolve("shop/db#password") == "vault-geheim-1"
    assert VaultResolver(client, mount_point="old", kv_version=1).resolve("shop/db#user") == "ana"
    with pytest.raises(MissingSecret, match="there is no such secret"):
        VaultResolver(client).resolve("nowhere#x")
    with pytest.raises(MissingSecret, match="may not read it"):
        VaultResolver(hvac.Client(url=vault.address, token="hvs.wrong")).resolve("shop/db#user")


def test_a_vault_that_is_not_there_is_worth_another_try(project: Path) -> None:
    (project / ".ematix-flow.toml").write_text('[secrets.vault]\naddress = "http://127.0.0.1:1"\ntoken = "t0ken-x"\n')
    with pytest.raises(StoreUnreachable, match="cannot be asked") as caught:
        expand("${vault:shop/db#user}")
    assert caught.value.retryable is True
    connection = PostgresConnection("wh", url="postgres://ana:${vault:shop/db#user}@db/shop")
    with pytest.raises(StoreUnreachable, match="connection 'wh', field url") as caught:
        connection.resolved()
    assert caught.value.retryable is True
    with pytest.raises(StoreUnreachable):
        VaultResolver(hvac.Client(url="http://127.0.0.1:1", token="t0ken-x")).resolve("a#b")
