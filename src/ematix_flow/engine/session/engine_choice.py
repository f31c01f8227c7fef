"""The choice of the engine that runs the work: this machine, a cluster, or Sail behind the same API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ematix_flow.config.spark import (
    WAIT_SECONDS,
    SparkConfig,
    secret_from_environment,
    spark_config,
    spark_config_from_environment,
)
from ematix_flow.declare.engine import AUTO, DISTRIBUTED, LOCAL, SAIL, EngineOptions
from ematix_flow.engine.cluster import local_cluster, master_urls
from ematix_flow.foundation.errors import ConfigError

THIS_MACHINE = "local[*]"


@dataclass(frozen=True, repr=False)
class EngineChoice:
    """The engine, its address, the user's Spark settings, and the reason for the choice."""

    engine: str = LOCAL
    address: str = THIS_MACHINE
    """A Spark master, or the `sc://` address of a Spark Connect server."""
    may_join: bool = True
    """Whether a warm engine of this user may be used."""
    settings: Mapping[str, str] = field(default_factory=dict)
    reason: str = "this machine"
    origin: str = ""
    """The place where the user's settings are written."""
    secret: str | None = None
    """The secret that all processes of the cluster share."""
    stage: str | None = None
    """A folder shared by this process and all workers."""
    wait_seconds: float = WAIT_SECONDS
    submitted_with: frozenset[str] | None = None
    """The jar sets of an application started by spark-submit; None for a session that this package starts."""

    @property
    def is_local(self) -> bool:
        """Return whether tasks run on this machine, in the session's own JVM."""
        return self.engine == LOCAL

    @property
    def is_remote(self) -> bool:
        """Return whether the session itself runs in a server."""
        return self.address.startswith("sc://")

    @property
    def display(self) -> str:
        """Return the choice as a text for messages."""
        return (
            self.engine if self.engine in (LOCAL, SAIL) else f"{self.engine} {master_urls.shown_address(self.address)}"
        )

    def same_place(self, other: EngineChoice) -> bool:
        """Return whether one session can serve both choices."""
        return (self.engine, self.address) == (other.engine, other.address)


class _CurrentApplication:
    """The application whose driver is this process, if spark-submit started it."""

    choice: EngineChoice | None = None


def use_application(application: EngineChoice) -> None:
    """Make every run of this process use this application, regardless of pipelines, files and variables."""
    _CurrentApplication.choice = application


def choose_engine(options: EngineOptions | None = None) -> EngineChoice:
    """Return the engine: the environment overrides the pipeline's options, which override the project's file."""
    if _CurrentApplication.choice is not None:
        return _CurrentApplication.choice
    file, now, own = spark_config(), spark_config_from_environment(), options or EngineOptions()
    if now is not None and (now.master or now.options.engine != AUTO):
        peers_of = () if now.master or now.options.engine == LOCAL else own.peers or file.options.peers
        chosen = EngineOptions(now.options.engine, peers_of)
        return _chosen(chosen, now.master or file.master, file, reason=f"{now.origin} says so")
    if own.peers or own.engine not in (None, AUTO):
        chosen = own if own.peers or own.engine != DISTRIBUTED else EngineOptions(DISTRIBUTED, file.options.peers)
        return _chosen(chosen, file.master, file, reason="the pipeline says so")
    return _chosen(file.options, file.master, file, reason=f"{file.origin} says so")


def choose_master(master: str, *, settings: Mapping[str, str], reason: str) -> EngineChoice:
    """Return the engine at this master, with these settings overriding those of the file."""
    file = spark_config()
    file = replace(file, settings={**file.settings, **settings}, origin=file.origin or reason)
    if not master.startswith("yarn"):
        return _chosen(EngineOptions(), master, file, reason=f"{reason} says so")
    return replace(_on_a_cluster(master, file, f"{reason} says so"), secret=None)  # YARN creates its own secret


def _chosen(options: EngineOptions, master: str | None, file: SparkConfig, *, reason: str) -> EngineChoice:
    if options.engine == SAIL:
        return EngineChoice(SAIL, SAIL, False, file.settings, reason, file.origin)
    if options.engine == LOCAL:
        return _on_this_machine(master or "", file, reason, may_join=False)
    address = master_urls.engine_address(options.peers) if options.peers else _address(master or "")
    if not address or address.startswith("local"):
        if options.engine == DISTRIBUTED:
            raise ConfigError(
                'engine="distributed" needs to know where the cluster is',
                hint='name it: peers=["spark://host:7077"], or master = "spark://host:7077" below [spark]',
            )
        return _on_this_machine(address, file, reason, may_join=True)
    return _on_a_cluster(address, file, reason)


def _on_a_cluster(address: str, file: SparkConfig, reason: str) -> EngineChoice:
    secret = secret_from_environment() or file.secret or local_cluster.secret_of(address)
    return EngineChoice(
        DISTRIBUTED, address, False, file.settings, reason, file.origin, secret, file.stage, file.wait_seconds
    )


def _address(master: str) -> str:
    if not master or master.startswith("local"):
        return master
    return master_urls.engine_address([master]) if master.startswith("dns:") else master_urls.filled_address(master)


def _on_this_machine(address: str, file: SparkConfig, reason: str, *, may_join: bool) -> EngineChoice:
    if address.startswith("local"):
        return EngineChoice(LOCAL, address, False, file.settings, reason, file.origin, stage=file.stage)
    return EngineChoice(LOCAL, may_join=may_join, settings=file.settings, origin=file.origin, stage=file.stage)
