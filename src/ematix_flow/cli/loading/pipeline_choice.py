"""Selection of the pipelines that a command works on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec


def chosen_pipelines(names: Sequence[str], *, everything: bool) -> list[PipelineSpec]:
    """Return the named pipelines, or all, each after its dependencies; raise at once if a name is wrong."""
    context = click.get_current_context(silent=True)
    known = registry.pipelines()
    if everything and names:
        raise click.UsageError("give names or --all, not both", ctx=context)
    if not everything and not names:
        offered = f" ({', '.join(known)})" if known else ""
        raise click.UsageError(f"name a pipeline{offered}, or pass --all", ctx=context)
    for name in names:
        registry.get_pipeline(name)
    if everything and not known:
        raise click.UsageError("the module declares no pipelines", ctx=context)
    wanted = list(known) if everything else list(dict.fromkeys(names))
    return [known[name].spec for name in registry.order(wanted)]
