"""The choice of the engine that runs the work: this machine, a cluster, or Sail behind the same API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ematix_flow.config.spark import WAIT_SECONDS, SparkConfig, said_for_this_run, secret_for_this_run, spark_config
from ematix_flow.declare.engine import AUTO, DISTRIBUTED, LOCAL, SAIL, EngineWish
from ematix_flow.engine import local_cluster, peers
from ematix_flow.foundation.errors import ConfigError

THIS_MACHINE = "local[*]"


@dataclass(frozen=True, repr=False)
class Choice:
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
    def shown(self) -> str:
        """Return the choice as a text for messages."""
        return self.engine if self.engine in (LOCAL, SAIL) else f"{self.engine} {peers.shown(self.address)}"

    def same_place(self, other: Choice) -> bool:
        """Return whether one session can serve both choices."""
        return (self.engine, self.address) == (other.engine, other.address)


class _Submitted:
    """The application whose driver is this process, if spark-submit started it."""

    choice: Choice | None = None


def stay_in(application: Choice) -> None:
    """Make every run of this process use this application, regardless of pipelines, files and variables."""
    _Submitted.choice = application


def choose(said: EngineWish | None = None) -> Choice:
    """Return the engine: the environment overrides the pipeline's options, which override the project's file."""
    if _Submitted.choice is not None:
        return _Submitted.choice
    file, now, own = spark_config(), said_for_this_run(), said or EngineWish()
    if now is not None and (now.master or now.wish.engine != AUTO):
        peers_of = () if now.master or now.wish.engine == LOCAL else own.peers or file.wish.peers
        wish = EngineWish(now.wish.engine, peers_of)
        return _chosen(wish, now.master or file.master, file, reason=f"{now.origin} says so")
    if own.peers or own.engine not in (None, AUTO):
        wish = own if own.peers or own.engine != DISTRIBUTED else EngineWish(DISTRIBUTED, file.wish.peers)
        return _chosen(wish, file.master, file, reason="the pipeline says so")
    return _chosen(file.wish, file.master, file, reason=f"{file.origin} says so")


def choose_master(master: str, *, settings: Mapping[str, str], reason: str) -> Choice:
    """Return the engine at this master, with these settings overriding those of the file."""
    file = spark_config()
    file = replace(file, settings={**file.settings, **settings}, origin=file.origin or reason)
    if not master.startswith("yarn"):
        return _chosen(EngineWish(), master, file, reason=f"{reason} says so")
    return replace(_on_a_cluster(master, file, f"{reason} says so"), secret=None)  # YARN creates its own secret


def _chosen(said: EngineWish, master: str | None, file: SparkConfig, *, reason: str) -> Choice:
    if said.engine == SAIL:
        return Choice(SAIL, SAIL, False, file.settings, reason, file.origin)
    if said.engine == LOCAL:
        return _here(master or "", file, reason, may_join=False)
    address = peers.address(said.peers) if said.peers else _address(master or "")
    if not address or address.startswith("local"):
        if said.engine == DISTRIBUTED:
            raise ConfigError(
                'engine="distributed" needs to know where the cluster is',
                hint='name it: peers=["spark://host:7077"], or master = "spark://host:7077" below [spark]',
            )
        return _here(address, file, reason, may_join=True)
    return _on_a_cluster(address, file, reason)


def _on_a_cluster(address: str, file: SparkConfig, reason: str) -> Choice:
    secret = secret_for_this_run() or file.secret or local_cluster.secret_of(address)
    return Choice(
        DISTRIBUTED, address, False, file.settings, reason, file.origin, secret, file.stage, file.wait_seconds
    )


def _address(master: str) -> str:
    if not master or master.startswith("local"):
        return master
    return peers.address([master]) if master.startswith("dns:") else peers.filled(master)


def _here(address: str, file: SparkConfig, reason: str, *, may_join: bool) -> Choice:
    if address.startswith("local"):
        return Choice(LOCAL, address, False, file.settings, reason, file.origin, stage=file.stage)
    return Choice(LOCAL, may_join=may_join, settings=file.settings, origin=file.origin, stage=file.stage)
