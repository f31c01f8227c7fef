"""Which engine runs the work: this machine, a cluster, or another engine behind the same API."""

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
    """The engine, where it is, the user's own settings of Spark, and who said so."""

    engine: str = LOCAL
    address: str = THIS_MACHINE
    """A Spark master, or the `sc://` address of a Spark Connect server."""
    may_join: bool = True
    """Whether a warm engine of this user will do."""
    settings: Mapping[str, str] = field(default_factory=dict)
    reason: str = "this machine"
    origin: str = ""
    """Where the user's settings are written."""
    secret: str | None = None
    """What every process of the cluster knows."""
    stage: str | None = None
    """A folder that this process and all workers share."""
    wait_seconds: float = WAIT_SECONDS
    submitted_with: frozenset[str] | None = None
    """The jar sets of an application that spark-submit started; None for a session of our own making."""

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, in the session's own JVM."""
        return self.engine == LOCAL

    @property
    def is_remote(self) -> bool:
        """Whether the session itself lives in a server."""
        return self.address.startswith("sc://")

    @property
    def shown(self) -> str:
        """For people."""
        return self.engine if self.engine in (LOCAL, SAIL) else f"{self.engine} {peers.shown(self.address)}"

    def same_place(self, other: Choice) -> bool:
        """Whether one session can serve both."""
        return (self.engine, self.address) == (other.engine, other.address)


class _Submitted:
    """The application that this process is the driver of, if spark-submit started it."""

    choice: Choice | None = None


def stay_in(application: Choice) -> None:
    """From now on every run of this process happens there, whatever pipelines, files and variables say."""
    _Submitted.choice = application


def choose(said: EngineWish | None = None) -> Choice:
    """The environment over the pipeline's own words over the project's file."""
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
    """The engine at this master, with these settings over those of the file."""
    file = spark_config()
    file = replace(file, settings={**file.settings, **settings}, origin=file.origin or reason)
    if not master.startswith("yarn"):
        return _chosen(EngineWish(), master, file, reason=f"{reason} says so")
    return replace(_on_a_cluster(master, file, f"{reason} says so"), secret=None)  # YARN makes its own


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
