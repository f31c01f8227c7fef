"""The inspection of a stream's folder: what belongs to which of several sources."""

from __future__ import annotations

from pathlib import Path

from tests.streams.operated import declared

from ematix_flow import PubSubConnection, RabbitMQConnection, Source, SQLiteConnection
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.spool.segments import Segment
from ematix_flow.spool.source import SpoolSource
from ematix_flow.streaming.admin.check_findings import OK, TO_DO
from ematix_flow.streaming.admin.checkpoint_check import ASIDE, check_all, plan_repair
from ematix_flow.streaming.admin.inspection import inspect_checkpoint
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.opening import source_of

WEB = RabbitMQConnection("web", amqp_url="amqp://ana:hunter22@127.0.0.1:9/")
SHOPS = PubSubConnection("shops", project_id="shop", endpoint="127.0.0.1:9")


def stream(folder: Path, *sources: Source) -> StreamSpec:
    target = SQLiteConnection("shop", path=str(folder / "shop.db"))
    spec: StreamSpec = declared(
        name="orders", sources=list(sources), target=target, target_table=("main", "orders"),
        checkpoint=str(folder / "checkpoint"),
    )  # fmt: skip
    CheckpointFolder.of(spec).prepare()
    return spec


def spooled(spec: StreamSpec, number: int, messages: int) -> None:
    """Messages of one source that wait on disk."""
    source, read, _ = source_of(spec, number, CheckpointFolder.of(spec), once=False)
    assert isinstance(source, SpoolSource)
    assert isinstance(read, StreamRead)
    root = source.folder(read).root
    root.mkdir(parents=True)
    (root / Segment(0, 0, messages).name).write_bytes(b"")


def statuses(spec: StreamSpec, about: str) -> list[tuple[str, str]]:
    return [(item.status, item.says) for item in check_all(inspect_checkpoint(spec)) if item.about == about]


def test_the_messages_of_every_source_are_used(tmp_path: Path) -> None:
    """Removing the spool of a source that is read would lose its messages."""
    both = stream(tmp_path, Source(WEB, "web"), Source(SHOPS, "shops-orders"))
    spooled(both, 0, 2)
    spooled(both, 1, 3)
    found = statuses(both, "spool")
    assert sorted(status for status, _ in found) == [OK, OK]
    alone = stream(tmp_path, Source(WEB, "web"))
    assert sorted(status for status, _ in statuses(alone, "spool")) == [OK, TO_DO]


def test_a_damaged_schema_is_found_at_any_source(tmp_path: Path) -> None:
    both = stream(tmp_path, Source(WEB, "web"), Source(SHOPS, "shops-orders"))
    folder = CheckpointFolder.of(both)
    (folder.root / "schema-1.json").write_text("{")
    seen = inspect_checkpoint(both)
    assert seen.schema_problems == {"schema-1.json": "cannot be read"}
    assert [step.paths for step in plan_repair(seen) if step.kind == ASIDE] == [("schema-1.json",)]
