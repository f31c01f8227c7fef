"""The digest of a declaration: the same in every process, another one as soon as the declaration says something else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from ematix_flow import Annotated, BigInt, Text, ematix, pk
from ematix_flow.declare import registry
from ematix_flow.declare.fingerprint import fingerprint
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


STREAM = """
from ematix_flow import KafkaConnection, SQLiteConnection, ematix, udf
from ematix_flow.declare.fingerprint import stream_fingerprint

@udf(args=["Int64"], returns="Int64")
def doubled(n):
    return n

@ematix.streaming_pipeline(
    source=KafkaConnection("there", bootstrap_servers="h:9092"), source_query="numbers",
    target=SQLiteConnection("here", path="a.db"), target_table=("main", "numbers"),
    transform_sql="SELECT doubled(n) AS n FROM source", udfs=[doubled],
)
def numbers():
    pass

print(stream_fingerprint(numbers.spec))
"""


def test_a_stream_has_a_digest_too(tmp_path: Path) -> None:
    told = digest_of(tmp_path, STREAM)
    assert len(told) == 12
    assert digest_of(tmp_path, f"\n{STREAM}") == told


@pytest.mark.parametrize(
    ("old", "new"),
    [("AS n FROM source", "AS m FROM source"), ("    return n", "    return n + n"), ('"numbers",', '"others",')],
)
def test_another_statement_function_or_topic_is_another_stream(tmp_path: Path, old: str, new: str) -> None:
    assert digest_of(tmp_path, STREAM.replace(old, new)) != digest_of(tmp_path, STREAM)
