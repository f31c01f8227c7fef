"""The command `flow secrets`: tests references to secrets."""

from __future__ import annotations

import json

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output

group = FlowGroup("secrets", help="Test references to secrets: ${VAR}, ${vault:…}, ${aws:…}, ${gcp:…} and ${file:…}.")


@group.command("test", short_help="check whether a reference can be resolved")
@click.argument("reference", metavar="REF")
@click.option("--show", is_flag=True, help="print the value itself")
@module_option
@click.pass_obj
def test_command(output: Output, reference: str, show: bool, module: str | None) -> None:
    """Check whether a reference to a secret can be resolved; without --show its value stays hidden.

    \b
    flow secrets test PGPASSWORD
    flow secrets test vault:shop/db#password
    flow secrets test '${file:/run/secrets/db}'
    """
    if ":" in reference:
        modules.load_module_if_any(module, output)  # the module may register a resolver
    from ematix_flow.secrets.trial import try_reference

    trial = try_reference(reference)
    shown = trial.value if show else trial.masked
    facts = {"reference": trial.reference, "store": trial.store, "length": len(trial.value), "ms": trial.milliseconds}
    # Not through Output, which would mask the requested value.
    if output.json:
        click.echo(json.dumps({**facts, "value": shown}, indent=2, ensure_ascii=False))
        return
    click.echo(shown if show else f"{shown}  ({len(trial.value)} chars, from {trial.store} in {trial.milliseconds} ms)")
