"""Spark settings of our own sessions and of single runs, each with its reason; the user's come on top."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ematix_flow.config.engine import engine_config
from ematix_flow.config.spark import is_secret_setting
from ematix_flow.declare.engine import SAIL
from ematix_flow.engine.cluster import master_urls
from ematix_flow.engine.session import accelerators, class_archive, jars, task_daemon
from ematix_flow.engine.session.engine_choice import EngineChoice, choose_engine
from ematix_flow.foundation.redact import MASK, mask

MEMORY_VARIABLE = "EMATIX_FLOW_DRIVER_MEMORY"
IN_UTC = "-Duser.timezone=UTC"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_GIGABYTE = 1024**3
_LISTS = {
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}
# With one compiler Java reserves 48 MB for compiled code; a session of some minutes fills them, and compiles again and again.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_HEAP_PER_BROADCAST = 128
_USUAL_BROADCAST = 10 * 1024**2
_HEAP_PER_HASH_TABLE = 32
_LEAST_HASH_TABLE = 64 * 1024**2  # Spark's advisory size of a partition: it ignores anything smaller
PARTITIONS_PER_CORE = 8
_PARTITIONS = "spark.sql.shuffle.partitions"
INITIAL_PARTITIONS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
_JOIN_ORDER = "join order"
_BRIEF = {
    "spark.sql.codegen.wholeStage": ("false", "few rows are through before code for them is compiled"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "few rows are through before code for them is compiled"),
}


@dataclass(frozen=True)
class Setting:
    """One setting that differs from Spark's default, with its reason."""

    name: str
    value: str
    reason: str

    @property
    def display_value(self) -> str:
        """Return the value for display, with secrets masked."""
        return MASK if is_secret_setting(self.name) else mask(self.value)


_EXACT = {
    "spark.sql.session.timeZone": ("UTC", "instants mean the same on every machine"),
    "spark.sql.ansi.enabled": ("true", "a bad cast is an error, not a NULL"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("50000", "batches large enough for columnar drivers"),
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MICROS", "timestamps that every reader understands"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED", "old dates are written as they are"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED", "old dates are read as they are"),
    "spark.sql.parquet.int96RebaseModeInWrite": ("CORRECTED", "old dates are written as they are"),
    "spark.executor.extraJavaOptions": (IN_UTC, "ORC and old formats use the JVM's own zone"),
    "spark.redaction.regex": ("(?i)secret|password|token|key|dsn|url", "no secret in Spark's own pages and logs"),
}
_ONE_MACHINE = {
    "spark.ui.enabled": ("false", "an unused web server costs a second"),
    "spark.ui.showConsoleProgress": ("false", "progress is shown by flow"),
    "spark.driver.host": ("127.0.0.1", "nothing listens beyond this machine"),
    "spark.driver.bindAddress": ("127.0.0.1", "nothing listens beyond this machine"),
    "spark.network.timeout": ("86400s", "a laptop that slept is not a lost executor"),
    "spark.executor.heartbeatInterval": ("3600s", "a laptop that slept is not a lost executor"),
    "spark.sql.catalogImplementation": ("in-memory", "tables are found by connection, not in a metastore"),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": ("4", "listing a folder is not a job of 10000 tasks"),
    "spark.databricks.delta.snapshotPartitions": ("1", "a table's log is small on one machine"),
    "spark.databricks.delta.stalenessLimit": ("0", "a read sees the last commit"),
    "spark.shuffle.compress": ("false", "what is shuffled stays on this machine"),
    "spark.python.daemon.module": (task_daemon.MODULE, "a Python task does not read Spark's own jar anew"),
}
_CLUSTER = {
    "spark.ui.enabled": ("false", "a web server without authentication"),
    "spark.ui.showConsoleProgress": ("false", "progress is shown by flow"),
    "spark.sql.catalogImplementation": ("in-memory", "tables are found by connection, not in a metastore"),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": ("32", "listing a folder is not a job of 10000 tasks"),
    "spark.databricks.delta.snapshotPartitions": ("8", "a table's log is small"),
    "spark.databricks.delta.stalenessLimit": ("0", "a read sees the last commit"),
}
_DELTA = {
    "spark.sql.extensions": ("io.delta.sql.DeltaSparkSessionExtension", "Delta tables are in play"),
    "spark.sql.catalog.spark_catalog": ("org.apache.spark.sql.delta.catalog.DeltaCatalog", "Delta tables are in play"),
}


def join_order(choice: EngineChoice) -> Setting:
    """Return whether joins over lake tables are reordered, with the origin of that decision."""
    if choice.engine == SAIL:
        return Setting(_JOIN_ORDER, "as written", "the native engine orders joins itself")
    config = engine_config()
    reason = f"{config.join_origin} says so" if config.join_origin else "statistics of lake tables cost little"
    return Setting(_JOIN_ORDER, "by cost" if config.reorder_joins else "as written", reason)


def settings(
    wanted: Iterable[str],
    *,
    choice: EngineChoice | None = None,
    records_classes_in: Path | None = None,
    is_brief: bool = False,
) -> list[Setting]:
    """Return all settings of a session with these jar sets; a brief session ends after one small load."""
    needed = sorted(wanted)
    choice = choice or choose_engine()
    is_local = choice.is_local
    if choice.is_remote or choice.engine == SAIL:
        return with_user_settings([item for item in _from_table(_EXACT) if item.name.startswith("spark.sql.")], choice)
    all_settings = [Setting("spark.master", choice.address, choice.reason)]
    all_settings += _from_table(_EXACT)
    if is_local:
        all_settings += [*_from_table(_ONE_MACHINE), *_sized(os.cpu_count() or 2, _memory())]
    else:
        all_settings += [
            *_from_table(_CLUSTER),
            _heap(_memory()),
            *_driver_address(choice),
            *_secret_settings(choice),
        ]
    paths = jars.ensure_jars(jars.with_cached_sets(needed) if is_local else needed)
    if paths:
        all_settings += _on_the_class_path(paths, is_local=is_local)
    if "delta" in needed:
        all_settings += _from_table(_DELTA)
    options = _java_options(paths, records_classes_in=records_classes_in)
    why = "UTC, a log file, the class archive"
    if is_local:
        options, why = [*options, *_collector(choice, is_brief=is_brief)], f"{why}; no core collects garbage meanwhile"
    if is_brief and is_local:
        options, why = [*options, _QUICK_COMPILER], f"{why}; the work ends before a second compiler pays off"
        all_settings += _from_table(_BRIEF)
    all_settings.append(Setting("spark.driver.extraJavaOptions", " ".join(options), why))
    return with_user_settings([*all_settings, *_accelerator_note(choice)], choice)


def accelerator(choice: EngineChoice) -> accelerators.InstalledAccelerator | None:
    """Return the accelerator on the class path of a session; None where the user configures plugins."""
    if choice.is_remote or choice.engine == SAIL or "spark.plugins" in choice.settings:
        return None
    from importlib.metadata import version

    return accelerators.find_accelerator(accelerators.class_path(choice.settings), spark=version("pyspark"))


def _accelerator_note(choice: EngineChoice) -> list[Setting]:
    installed = accelerator(choice)
    if installed is None:
        return []
    values = installed.settings(_heap(_memory()).value)
    return [Setting(name, value, f"{installed} is on the class path") for name, value in values.items()]


def with_user_settings(defaults: Sequence[Setting], choice: EngineChoice) -> list[Setting]:
    """Return the settings overridden by the user's; settings that are lists are concatenated."""
    ours = {item.name: item for item in defaults}
    for name, value in choice.settings.items():
        separator = _LISTS.get(name)
        if separator and name in ours:
            value = f"{ours[name].value}{separator}{value}"
        ours[name] = Setting(name, value, f"{choice.origin} says so")
    if INITIAL_PARTITIONS not in choice.settings and is_set_by_user(INITIAL_PARTITIONS, choice.settings):
        ours.pop(INITIAL_PARTITIONS, None)
    return list(ours.values())


def is_set_by_user(name: str, own: Mapping[str, str]) -> bool:
    """Return whether the user sets this; a user's number of partitions also counts as the initial number."""
    return name in own or (name == INITIAL_PARTITIONS and _PARTITIONS in own)


def configuration(
    wanted: Iterable[str],
    *,
    choice: EngineChoice | None = None,
    records_classes_in: Path | None = None,
    is_brief: bool = False,
) -> dict[str, str]:
    """Return the settings as a mapping of names to values for Spark."""
    all_settings = settings(wanted, choice=choice, records_classes_in=records_classes_in, is_brief=is_brief)
    return {item.name: item.value for item in all_settings}


def _from_table(known: Mapping[str, tuple[str, str]]) -> list[Setting]:
    return [Setting(name, value, reason) for name, (value, reason) in known.items()]


def _driver_address(choice: EngineChoice) -> list[Setting]:
    own = master_urls.own_address(choice.address)
    return [Setting("spark.driver.host", own, "by this address the cluster reaches this process")] if own else []


def _secret_settings(choice: EngineChoice) -> list[Setting]:
    """Return the settings for a secret: it authenticates processes and encrypts their traffic."""
    if choice.secret is None:
        return []
    why = f"{choice.origin or 'flow cluster start'} names a secret"
    secured = [Setting("spark.authenticate", "true", why), Setting("spark.authenticate.secret", choice.secret, why)]
    if choice.settings.get("spark.ssl.rpc.enabled", "false").lower() == "true":
        return secured  # TLS encrypts already
    return [*secured, Setting("spark.network.crypto.enabled", "true", f"{why}: traffic is encrypted with it")]


def _heap(memory: int | None) -> Setting:
    own = os.environ.get(MEMORY_VARIABLE)
    heap = own or f"{_heap_gigabytes(memory)}g"
    reason = f"{MEMORY_VARIABLE} says so" if own else "a quarter of this machine's memory, 1 to 8 GB"
    return Setting("spark.driver.memory", heap, reason)


def _heap_gigabytes(memory: int | None) -> int:
    return max(1, min(8, (memory or 0) // _GIGABYTE // 4))


def _collector(choice: EngineChoice, *, is_brief: bool) -> list[str]:
    """Return the option of a stop-the-world garbage collector, empty where the user chose a collector."""
    options = [
        choice.settings.get("spark.driver.extraJavaOptions", ""),
        *(os.environ.get(it, "") for it in _JAVA_VARIABLES),
    ]
    if any(_COLLECTOR.search(words) for words in options):
        return []
    return ["-XX:+UseSerialGC" if is_brief else "-XX:+UseParallelGC"]


def _broadcast(memory: int | None) -> list[Setting]:
    """Return the broadcast limit for the default heap; none for a user's heap, whose free part is unknown."""
    size = _heap_gigabytes(memory) * _GIGABYTE // _HEAP_PER_BROADCAST
    if os.environ.get(MEMORY_VARIABLE) or size <= _USUAL_BROADCAST:
        return []
    reason = "tables this small fit into the heap many times, and need no sorting"
    return [Setting("spark.sql.autoBroadcastJoinThreshold", str(size), reason)]


def _joins(cores: int, memory: int | None) -> list[Setting]:
    """Return the settings of large joins, which Spark decides by measured sizes."""
    join_settings = [
        Setting(
            "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold", "10MB",
            "rows that a join would drop are left out while a table is read",
        ),
        Setting(
            INITIAL_PARTITIONS, str(cores * PARTITIONS_PER_CORE),
            f"cut finely, then joined to {cores} or to 64 MB each once their sizes are known",
        ),
    ]  # fmt: skip
    size = _heap_gigabytes(memory) * _GIGABYTE // (_HEAP_PER_HASH_TABLE * cores)
    if not os.environ.get(MEMORY_VARIABLE) and size >= _LEAST_HASH_TABLE:
        reason = "partitions this small fit into the heap many times, and need no sorting to be joined"
        join_settings.append(Setting("spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold", str(size), reason))
    return join_settings


def _sized(cores: int, memory: int | None) -> list[Setting]:
    return [
        *_broadcast(memory),
        *_joins(cores, memory),
        Setting(_PARTITIONS, str(cores), f"{cores} cores: more partitions would only wait"),
        Setting("spark.default.parallelism", str(cores), f"{cores} cores"),
        _heap(memory),
        Setting("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "ematix-flow-warehouse"), "never used"),
    ]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _on_the_class_path(paths: Sequence[Path], *, is_local: bool) -> list[Setting]:
    joined = os.pathsep.join(str(path) for path in paths)
    here = Setting("spark.driver.extraClassPath", joined, "where the class archive can serve these jars")
    jars_setting = Setting("spark.jars", ",".join(str(path) for path in paths), "executors fetch them from here")
    return [here] if is_local else [here, jars_setting]


def _java_options(paths: Sequence[Path], *, records_classes_in: Path | None) -> list[str]:
    options = [IN_UTC, f"-Dlog4j2.configurationFile=file:{_LOGGING}"]
    if records_classes_in is not None:
        return [*options, f"-XX:ArchiveClassesAtExit={records_classes_in}"]
    return [*options, *class_archive.options(paths)]


ROWS_PER_PARTITION = 500_000
_MOST_PER_CORE = 100


def run_settings(rows: int | None, *, cores: int) -> list[Setting]:
    """Return the Spark settings for a run with this number of rows, None where it is unknown.

    >>> [item.value for item in run_settings(5_000_000, cores=2)]
    ['10', '10']
    >>> [item.value for item in run_settings(None, cores=2)]
    ['2', '16']
    """
    wanted = math.ceil((rows or 0) / ROWS_PER_PARTITION)
    count = max(cores, min(wanted, cores * _MOST_PER_CORE))
    reason = f"{cores} cores: more partitions would only wait"
    if count > cores:
        reason = f"~{rows:,} rows, {ROWS_PER_PARTITION:,} or so to sort at once"
    setting = Setting("spark.sql.shuffle.partitions", str(count), reason)
    if rows is None:
        measured = f"rows unknown: cut finely, then joined to {cores} or to 64 MB each once their sizes are known"
        return [setting, Setting(INITIAL_PARTITIONS, str(cores * PARTITIONS_PER_CORE), measured)]
    return [setting, Setting(INITIAL_PARTITIONS, str(count), reason)]
