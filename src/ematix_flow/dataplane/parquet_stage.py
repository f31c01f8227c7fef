"""Rows of one run as Parquet files beside the target: written by Spark tasks, read by an embedded database."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ematix_flow.contract.lane import TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number, in_tasks
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.dataplane.type_mapping import arrow_schema, pairs
from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import ConfigError, FlowError, PermissionDenied, RunFailed, StorageFull
from ematix_flow.foundation.lazy_imports import pa, pq

ROOT_VARIABLE = "EMATIX_FLOW_STAGE_DIR"
_ROWS_PER_GROUP = 100_000
_BYTES_PER_GROUP = 32 * 1024 * 1024


def stage_dir(run_id: str, owner: str) -> Path:
    """Return the path of the folder of one run and one target; nothing is created yet."""
    return stage_root() / run_id / owner


def make_stage_dir(run_id: str, owner: str) -> Path:
    """Create that folder and return its path."""
    try:
        return _make(stage_dir(run_id, owner))
    except OSError as exc:
        raise translate(exc) from exc


def write_stage(tasks: TaskInput, job: WriteJob, *, owner: str) -> Stage:
    """Write one file per task; only the files of attempts that Spark accepts become the stage."""
    folder = stage_dir(job.run_id, owner)
    columns = pairs(job.shape.declared.columns)
    try:
        attempts, rows = _make(folder / "attempts"), _make(folder / "rows")
        work = staging_task(_writer(str(attempts), columns), translate)
        outcome = in_tasks(tasks, work, "file STRING, rows BIGINT").collect()
        for row in outcome:
            if row["rows"]:
                _adopt_file(attempts / row["file"], rows)
        if not any(row["rows"] for row in outcome):
            _write_empty(rows, columns)
    except OSError as exc:
        raise translate(exc) from exc
    return Stage("", sum(row["rows"] for row in outcome), str(rows))


def drop_stage_dir(run_id: str, owner: str) -> None:
    """Delete the stage of a run if there is one."""
    folder = stage_dir(run_id, owner)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another target of the run may still use it
        folder.parent.rmdir()


def scratch_dir(open_until: ExitStack) -> Path:
    """Create a folder that is deleted when the read ends; delete the folders of dead processes as well."""
    home = stage_root()
    for left in home.glob("read-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder = _make(home / f"read-{os.getpid()}-{secrets.token_hex(8)}")
    except OSError as exc:
        raise translate(exc) from exc
    open_until.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def translate(exc: Exception) -> FlowError:
    """Return the FlowError for a file system error."""
    elsewhere = f"or point {ROOT_VARIABLE} elsewhere"
    number = getattr(exc, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(exc):
        return StorageFull("no space left for the rows of this run", hint=f"free space and run again, {elsewhere}")
    if isinstance(exc, PermissionError):
        return PermissionDenied(
            f"the stage cannot be written: {exc}", hint=f"check the rights on that folder, {elsewhere}"
        )
    return RunFailed(f"the stage cannot be written: {exc}", hint=f"check the folder, {elsewhere}")


class _ConfiguredFolder:
    """The stage folder set in the project file."""

    folder: str | None = None


def set_stage_folder(folder: str | None) -> None:
    """Set the folder of stages, which the environment variable overrides; raise `ConfigError` for a URL."""
    if folder is not None and "://" in folder:
        raise ConfigError(
            f"stages cannot be kept in {folder}: embedded databases read them as files of this machine",
            hint='name a folder that this machine and all workers mount: stage = "/mnt/…" below [spark]',
        )
    _ConfiguredFolder.folder = folder


def stage_root() -> Path:
    """Return the folder of the stages of all runs."""
    configured = os.environ.get(ROOT_VARIABLE) or _ConfiguredFolder.folder
    return Path(configured or tempfile.gettempdir()).expanduser().absolute() / "ematix-flow-stage"


def _make(folder: Path) -> Path:
    """Create the folder, private to this user; the root is shared by all users of the machine."""
    home = stage_root()
    if not home.exists():
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o1777)
    inside = [folder, *folder.parents]
    for part in reversed(inside[: inside.index(home)]):
        part.mkdir(mode=0o700, exist_ok=True)
    return folder


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _adopt_file(file: Path, folder: Path) -> None:
    if not file.exists():
        raise ConfigError(
            f"a task wrote {file.name} on a machine whose files cannot be seen here",
            hint=f"set {ROOT_VARIABLE} to a folder that all workers and this process share",
        )
    file.rename(folder / file.name)


def _write_empty(folder: Path, columns: list[tuple[str, ColumnType]]) -> None:
    pq.write_table(arrow_schema(columns).empty_table(), folder / "empty.parquet")


def _writer(folder: str, columns: list[tuple[str, ColumnType]]) -> Any:
    driver = os.getpid()

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        name = f"part-{attempt_number()}.parquet"
        schema = arrow_schema(columns)
        counted = 0
        with ExitStack() as open_until:
            writer: Any = None
            for group in row_groups(_typed(batches, schema, driver)):
                if writer is None:
                    writer = open_until.enter_context(pq.ParquetWriter(f"{folder}/{name}", schema))
                writer.write_table(group)
                counted += group.num_rows
        yield row_batch({"file": name, "rows": counted})

    return write


def row_groups(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield tables of batches combined to row groups of a worthwhile size."""
    kept: list[Any] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_PER_GROUP or size >= _BYTES_PER_GROUP:
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield pa.Table.from_batches(kept)


def _typed(batches: Iterator[Any], schema: Any, driver: int) -> Iterator[Any]:
    for batch in batches:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        fault.point("mid_stage", victim=driver)
