"""Import of the user's module, which registers the declarations in it, and the choice of its pipelines."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import click

from ematix_flow.cli.render.output import Output
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import FlowError, ModuleFailed
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import nearest_name
from ematix_flow.foundation.redact import mask

VARIABLE = "EMATIX_FLOW_MODULE"
DEFAULT_FILE = "pipelines.py"
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


@dataclass(frozen=True)
class LoadedModule:
    """A loaded module: its name, and the value of --module if it was given."""

    name: str
    asked: str | None

    @property
    def option(self) -> str:
        """The `--module …` part of a command to type next; empty when the module is the default."""
        return f"--module {self.asked} " if self.asked else ""


def load_module(requested: str | None) -> LoadedModule:
    """Import the module and check the dependency graph of its pipelines."""
    name = requested or default_module()
    if name is None:
        raise click.UsageError(
            f"no module is named: pass --module pipelines, set {VARIABLE}, or go to the folder of {DEFAULT_FILE}"
        )
    prepend_to_path(Path.cwd())
    with stdout_to_stderr():
        _import(name)
        registry.check_graph()
    return LoadedModule(name, requested)


def load_module_if_any(requested: str | None, output: Output) -> LoadedModule | None:
    """Import the given or the default module; None if there is none. Errors of the default module become a warning."""
    if requested is None and default_module() is None:
        return None
    try:
        return load_module(requested)
    except FlowError as error:
        if requested is not None:
            raise
        output.warn(f"{error.what}; going on without what it declares")
        return None


def default_module() -> str | None:
    """Return EMATIX_FLOW_MODULE, else pipelines.py of the working directory if it exists, else None."""
    return os.environ.get(VARIABLE) or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else None)


def chosen_pipelines(names: Sequence[str], *, everything: bool) -> list[PipelineSpec]:
    """Return the named pipelines, or all, each after its dependencies; raise at once if a name is wrong."""
    known = registry.pipelines()
    if everything and names:
        raise click.UsageError("give names or --all, not both")
    if not everything and not names:
        offered = f" ({', '.join(known)})" if known else ""
        raise click.UsageError(f"name a pipeline{offered}, or pass --all")
    for name in names:
        registry.get_pipeline(name)
    if everything and not known:
        raise click.UsageError("the module declares no pipelines")
    wanted = list(known) if everything else list(dict.fromkeys(names))
    return [known[name].spec for name in registry.order(wanted)]


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect the output of user code to stderr: stdout is for the data of the command."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _import(name: str) -> None:
    try:
        if name.endswith(".py") or os.sep in name:
            _import_file(Path(name))
        else:
            _drop_module_from_other_folder(name.partition(".")[0])
            importlib.import_module(name)
    except FlowError as error:
        error.at(_user_location(error))
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _module_not_found(name) from None
        raise _module_failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _module_failed(name, error) from error


def _drop_module_from_other_folder(name: str) -> None:
    """Drop a loaded module of this name that comes from another folder, as happens in long-running processes."""
    known = getattr(sys.modules.get(name), "__spec__", None)
    importlib.invalidate_caches()
    module_spec = PathFinder.find_spec(name) if known is not None else None
    if known is None or module_spec is None or _module_location(known) == _module_location(module_spec):
        return
    for other in [item for item in sys.modules if item == name or item.startswith(f"{name}.")]:
        del sys.modules[other]


def _module_location(spec: ModuleSpec) -> object:
    """Return the file of a module, or the folders of a namespace package."""
    return spec.origin if spec.origin is not None else list(spec.submodule_search_locations or ())


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _module_not_found(str(path))
    home, name = _import_name(path.resolve())
    prepend_to_path(home)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ModuleFailed(f"{path} is not a Python file", hint="name a module, or a file that ends in .py")
    if "." in name:
        importlib.import_module(name.rpartition(".")[0])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_name(path: Path) -> tuple[Path, str]:
    """Return the folder to import from and the dotted name there: a file of a package is imported as part of it."""
    parts = [path.stem]
    home = path.parent
    while (home / "__init__.py").is_file():
        parts.insert(0, home.name)
        home = home.parent
    return home, ".".join(parts)


def prepend_to_path(folder: Path) -> None:
    """Put the folder first on the path, also for the Python workers that Spark starts, which import the same module."""
    text = str(folder)
    if sys.path[:1] != [text]:
        sys.path.insert(0, text)
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != text]
    os.environ["PYTHONPATH"] = os.pathsep.join([text, *others])


def _module_not_found(name: str) -> ModuleFailed:
    here = sorted(path.stem for path in Path.cwd().glob("*.py"))
    near = nearest_name(name.removesuffix(".py"), here)
    hint = f"did you mean {near!r}?" if near else f"python files here: {', '.join(here) or 'none'}"
    return ModuleFailed(f"there is no module {name!r} in {Path.cwd()} or on the Python path", hint=hint)


def _module_failed(name: str, error: BaseException) -> ModuleFailed:
    message = mask(str(error)).strip()
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    hint = "look at that line"
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"install {error.name}, or correct the import"
    elif isinstance(error, SyntaxError):
        what = f"{type(error).__name__}: {error.msg}"
        hint = "correct that line"
    return ModuleFailed(f"{name} cannot be imported: {what}", where=_user_location(error), hint=hint)


def _user_location(error: BaseException) -> Location | None:
    """Return the user's line: the last frame in a file that belongs neither to this package nor to a library."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Location(error.filename, error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_file(frame.filename)]
    users = [frame for frame in frames if not _is_a_library(frame.filename)]
    chosen = users or frames
    return Location(chosen[-1].filename, chosen[-1].lineno or 1) if chosen else None


def _is_file(filename: str) -> bool:
    return not filename.startswith("<") and not filename.startswith(_PACKAGE)


def _is_a_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(str(Path(os.__file__).parent))
