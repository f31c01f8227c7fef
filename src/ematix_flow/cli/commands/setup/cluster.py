"""The command `flow cluster`: a standalone Spark cluster on this machine, for trials and tests."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.units import format_duration

if TYPE_CHECKING:
    from ematix_flow.engine.cluster.local_cluster import LocalCluster


group = FlowGroup(
    "cluster",
    default="status",
    help="Manage a Spark cluster on this machine: a master and workers, on loopback only, for trials and tests.",
)


@group.command("start", short_help="start a cluster, or its missing workers")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="number of worker processes")
@click.option(
    "--cores", type=click.IntRange(1), metavar="N", help="cores per worker  [default: all cores of this machine]"
)
@click.option("--memory", default="1g", show_default=True, metavar="SIZE", help="memory per worker (1g, 1500m)")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="port of the master  [default: 7077 if it is free]"
)
@click.pass_obj
def start_command(output: Output, workers: int, cores: int | None, memory: str, port: int | None) -> None:
    """Start a cluster of this user, or the missing workers of a running one; access to it requires a secret.

    Also print the lines to add below [spark] in .ematix-flow.toml.
    """
    from ematix_flow.engine.cluster.local_processes import ClusterOptions, start_cluster

    if re.fullmatch(r"\d+[kmgt]b?", memory.strip().lower()) is None:
        raise click.UsageError(f"--memory {memory} is not a size: use 1g or 1500m")
    output.info("starting a cluster …")
    began = time.monotonic()
    cluster, is_new = start_cluster(ClusterOptions(workers, cores, memory.strip().lower(), port))
    if output.json:
        output.document({**cluster.to_dict(), "started": is_new})
        return
    took = f"ready after {time.monotonic() - began:.1f} s" if is_new else "was there already"
    output.data(f"cluster {cluster.address} {took}: {len(cluster.workers)} workers of {cluster.cores} core(s)")
    output.data(_address_to_configure(cluster))


@group.command("status", short_help="show its address, its workers and the runs on it")
@click.pass_obj
def status_command(output: Output) -> None:
    """Show the cluster of this user on this machine: its address, its workers and the runs on it."""
    from ematix_flow.engine.cluster.local_cluster import read_cluster

    cluster = read_cluster()
    status = cluster.to_dict() if cluster is not None else None
    if output.json:
        output.document(status)
    elif status is None:
        output.info("no cluster is running; start one with: flow cluster start")
    else:
        output.table(_rows(status), header=("WHAT", "VALUE"))


@group.command("stop", short_help="stop the cluster")
@click.pass_obj
def stop_command(output: Output) -> None:
    """Stop the cluster; a run that is using it fails, and can be run again."""
    from ematix_flow.engine.cluster.local_processes import stop_cluster

    ended = stop_cluster()
    if output.json or ended:
        output.result({"stopped": ended}, f"ended: {', '.join(map(str, ended))}")
    else:
        output.info("no cluster was running")


def _address_to_configure(cluster: LocalCluster) -> str:
    """Return the configuration to add; without the secret, which processes of this user on this machine find."""
    lines = [
        "",
        "to use it, write into .ematix-flow.toml:",
        "",
        "[spark]",
        'engine = "distributed"',
        f'peers = ["{cluster.address}"]',
    ]
    return "\n".join(lines)


def _rows(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    states = ", ".join(f"{worker['pid']} {'alive' if worker['alive'] else 'dead'}" for worker in status["workers"])
    return [
        ("address", str(status["address"])),
        ("state", f"{'alive' if status['alive'] else 'dead'} ({status['pid']})"),
        ("workers", states or "-"),
        ("cores", f"{status['cores_used']} of {status['cores']} in use"),
        ("memory", f"{status['memory_per_worker']} each"),
        ("runs", ", ".join(status["applications"]) or "-"),
        ("page", str(status["ui"])),
        ("up", format_duration(status["up_seconds"] * 1000)),
    ]
