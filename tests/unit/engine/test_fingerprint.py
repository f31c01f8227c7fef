"""The digest of a declaration: the same in every process, another one as soon as the declaration says something else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from ematix_flow import Annotated, BigInt, Text, ematix, pk
from ematix_flow.declare import registry
from ematix_flow.engine.fingerprint import fingerprint
from ematix_flow.normalize import trim

@ematix.connection
class shop:
    kind = "sqlite"
    path = "shop.db"

@ematix.table(schema="main")
class People:
    id: Annotated[BigInt, pk()]
    name: Annotated[Text, trim()]

def tidy(conn):
    pass

@ematix.pipeline(target=People, target_connection="shop", mode="merge", transforms_post=[tidy])
def people(conn):
    return "SELECT id, name FROM raw_people"

print(fingerprint(registry.get_pipeline("people").spec))
"""


def digest_of(folder: Path, text: str) -> str:
    file = folder / "pipelines.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_same_declaration_has_the_same_digest_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    told = digest_of(tmp_path / "a", MODULE)
    assert len(told) == 12
    assert digest_of(tmp_path / "b", f"\n\n{MODULE}") == told


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM raw_people", "FROM raw_people WHERE id > 0"),
        ('mode="merge"', 'mode="append"'),
        ("name: Annotated[Text, trim()]", "name: Text"),
        ("transforms_post=[tidy]", "transforms_post=[]"),
        ('target_connection="shop"', 'target_connection="shop", force_path="cross_db"'),
    ],
)
def test_another_declaration_has_another_digest(tmp_path: Path, old: str, new: str) -> None:
    assert digest_of(tmp_path, MODULE.replace(old, new)) != digest_of(tmp_path, MODULE)
