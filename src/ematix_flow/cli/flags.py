"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.running.observers import ObserverFlags

_F = TypeVar("_F", bound=Callable[..., Any])


def with_options(function: Callable[..., Any], *options: Callable[[Any], Any]) -> Any:
    """Return the function with click options, which its help shows in this order."""
    for option in reversed(options):
        function = option(function)
    return function


module_option: Callable[[_F], _F] = click.option(
    "-m",
    "--module",
    metavar="MODULE",
    help="the module or file with the pipelines (else EMATIX_FLOW_MODULE, else pipelines.py here)",
)
accept_deletes_option: Callable[[_F], _F] = click.option(
    "--accept-deletes",
    type=click.IntRange(min=0),
    metavar="N",
    help="let the load delete up to N rows, in spite of the delete limit",
)
force_path_option: Callable[[_F], _F] = click.option(
    "--force-path",
    type=click.Choice(["same_db", "cross_db"]),
    help="force the path: inside the database, or through Spark",
)


def run_log_options(function: _F) -> _F:
    """Add the options that choose the run log; the command receives one `run_log_choice`."""

    @functools.wraps(function)
    def wrapped(*args: Any, run_log_url: str | None, run_log_path: str | None, no_run_log: bool, **kwargs: Any) -> Any:
        return function(*args, run_log_choice=RunLogOptions(run_log_url, run_log_path, no_run_log), **kwargs)

    where = "the run log: a path, or sqlite, postgres, mysql, duckdb, s3, azureblob, gcs or memory ://…"
    return with_options(  # type: ignore[no-any-return]
        wrapped,
        click.option("--run-log", "--run-log-url", "run_log_url", metavar="URL", help=where),
        click.option("--run-log-path", metavar="PATH", help="the run log as the path of a SQLite file"),
        click.option("--no-run-log", is_flag=True, help="do not record runs"),
    )


def unwatched_options(function: _F) -> _F:
    """Accept and ignore the observer options on a command that runs nothing: one option set fits all commands."""

    @functools.wraps(function)
    def wrapped(*args: Any, alerter: tuple[str, ...], metrics: str | None, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    ignored = "accepted and ignored: this command runs nothing"
    return with_options(  # type: ignore[no-any-return]
        wrapped,
        click.option("--alerter", metavar="URL", multiple=True, help=ignored),
        click.option("--metrics", metavar="URL", help=ignored),
    )


def observing_options(function: _F) -> _F:
    """Add the options that choose the observers; the command receives one `flags`."""

    @functools.wraps(function)
    def wrapped(*args: Any, alerter: tuple[str, ...], metrics: str | None, traces: str | None, lineage: str | None,
                **kwargs: Any) -> Any:  # fmt: skip
        return function(*args, flags=ObserverFlags(alerter, metrics, traces, lineage), **kwargs)

    alerter = "where to send alerts about failures; may be repeated"
    return with_options(  # type: ignore[no-any-return]
        wrapped,
        click.option("--alerter", metavar="URL", multiple=True, help=alerter),
        click.option(
            "--metrics", metavar="URL", help="where metrics go: prometheus://:9100, otlp://host:4317, stdout://"
        ),
        click.option("--traces", metavar="URL", help="where traces go: otel://stdout, otel+otlp+grpc://host:4317"),
        click.option("--lineage", metavar="URL", help="where lineage events go: a file or an OpenLineage server"),
    )
