"""Selection of the stream that a command works on: declared in a module or in a TOML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.loading import module as modules
from ematix_flow.declare.streams import registry as streams
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.streams.spec import StreamSpec

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_FILE = "pipeline.toml"

_config_option: Callable[[_F], _F] = click.option(
    "-c", "--config", metavar="PIPELINE_TOML", type=click.Path(dir_okay=False), help="the file that declares the stream"
)


def stream_options(function: _F) -> _F:
    """Add the options that name the declaration; the command receives `module` and `config`."""
    return module_option(_config_option(function))


def declared_streams(module: str | None, config: str | None) -> dict[str, StreamSpec]:
    """Return the streams of the given module or file by name; without options those of the default module and file."""
    if config is not None:
        return _stream_of_file(config, module)
    known: dict[str, StreamSpec] = {}
    if module is not None or modules.default_module() is not None:
        modules.load_module(module)
        known = {name: stream.spec for name, stream in streams.streams().items()}
    if module is None and Path(DEFAULT_FILE).is_file():
        known |= _stream_of_file(DEFAULT_FILE, None)
    return known


def _stream_of_file(config: str, module: str | None) -> dict[str, StreamSpec]:
    from ematix_flow.config.stream_toml import stream_from_file

    if module is not None:  # the file can refer to its connections
        modules.load_module(module)
    modules.prepend_to_path(Path.cwd())
    spec = stream_from_file(config)
    return {spec.name: spec}


def chosen_stream(name: str | None, module: str | None, config: str | None = None) -> StreamSpec:
    """Return the named stream, that of the file, or the only one, with resolved connections; raise if there is none."""
    from ematix_flow.config.stream_connections import with_resolved_connections

    if name is not None and config is None and _is_file(name, module):
        name, config = None, name
    if name is None and module is None and config is None and Path(DEFAULT_FILE).is_file():
        config = DEFAULT_FILE
    known = declared_streams(module, config)
    if name is None and len(known) == 1:
        return with_resolved_connections(next(iter(known.values())))
    if name is None:
        text = (
            f"name one of the streams: {', '.join(sorted(known))}"
            if known
            else f"no streams are declared here: name a module with --module, or a file such as {DEFAULT_FILE}"
        )
        raise click.UsageError(text)
    if name not in known:
        where = did_you_mean(name, known) if known else f"say where it is declared: --module, or a file {DEFAULT_FILE}"
        raise UnknownName(f"no stream is called {name!r}", hint=where)
    return with_resolved_connections(known[name])


def _is_file(name: str, module: str | None) -> bool:
    """Return whether the name is a file: by its ending or, without a module, because the file exists."""
    return name.endswith(".toml") or (module is None and Path(name).is_file())
