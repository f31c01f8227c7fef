"""The command `flow backends`: the supported systems, from the manifests of their backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.render.output import Output

if TYPE_CHECKING:
    from ematix_flow.contract.backend import Backend

_HEADER = ("NAME", "SYSTEM", "READ", "STREAM", "STRATEGIES", "CHANGES", "DELIVERY", "INSTALL")
_ORDER = ("append", "truncate", "merge", "scd2")


@click.command("backends", cls=FlowCommand)
@click.pass_obj
def command(output: Output) -> None:
    """List the systems that flow can read and write."""
    from ematix_flow.backends.catalog import all_backends

    backends = all_backends()
    rows = [_row(backend) for backend in backends]
    output.listing([_backend_to_dict(backend) for backend in backends], rows, header=_HEADER)
    if output.verbose and not output.json:
        for backend in backends:
            for note in backend.notes:
                output.data(f"{backend.name}: {note}")


def _backend_to_dict(backend: Backend) -> dict[str, Any]:
    return {
        "name": backend.name,
        "title": backend.title,
        "kinds": [kind.kind for kind in backend.connection_types],
        "reads": backend.batch_source is not None,
        "strategies": _strategies(backend),
        "delivery": backend.delivery if backend.batch_sink is not None else backend.stream_delivery or None,
        "streams": backend.stream_source is not None,
        "messages": backend.broker_sink is not None,
        "takes_changes": backend.takes_changes,
        "runs_inside": backend.identity is not None,
        "jars": list(backend.jars),
        "extra": backend.extra,
        "notes": list(backend.notes),
    }


def _strategies(backend: Backend) -> list[str]:
    if backend.batch_sink is None:
        return []
    return sorted(backend.strategies, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def _row(backend: Backend) -> tuple[str, ...]:
    data = _backend_to_dict(backend)
    return (
        backend.name,
        backend.title,
        "yes" if data["reads"] else "-",
        "yes" if data["streams"] else "-",
        ", ".join(data["strategies"]) or ("messages" if data["messages"] else "-"),
        "yes" if data["takes_changes"] else "-",
        data["delivery"] or "-",
        f"ematix-flow-spark[{backend.extra}]" if backend.extra else "included",
    )
