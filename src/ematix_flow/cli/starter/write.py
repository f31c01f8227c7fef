"""Writing of the starter project, without overwriting existing files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from ematix_flow.cli.starter.shop import make_shop
from ematix_flow.foundation.errors import FlowError, PermissionDenied

TEMPLATES = {
    "pipelines.py": "pipelines.py.txt",
    ".ematix-flow.toml": "connections.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
DEPLOYMENT = {
    "Dockerfile": "Dockerfile.txt",
    "flow.service": "flow.service.txt",
    ".github/workflows/flow.yml": "workflow.yml.txt",
}
"""The files of `--deploy`: a container image, a systemd unit and a GitHub workflow."""
DATA = "data"


class AlreadyThere(FlowError, FileExistsError):
    """Raised when a file would be overwritten."""

    exit_code = 2


def scaffold_project(target_dir: Path, *, force: bool = False, deploy: bool = False) -> list[Path]:
    """Write the project into the folder and return its files; raise AlreadyThere if one exists, unless `force`."""
    templates = {**TEMPLATES, **(DEPLOYMENT if deploy else {})}
    existing = [name for name in (*templates, DATA) if (target_dir / name).exists()]
    if existing and not force:
        raise AlreadyThere(
            f"{target_dir} already has {', '.join(existing)}",
            hint="choose another folder, or pass --force to overwrite",
        )
    try:
        target_dir.mkdir(parents=True, exist_ok=True)
        written = [_write(target_dir / name, template) for name, template in templates.items()]
        return [*written, *make_shop(target_dir / DATA)]
    except OSError as error:
        raise PermissionDenied(
            f"{target_dir} cannot be written: {error.strerror or error}", hint="choose a folder you may write to"
        ) from error


def _write(path: Path, template: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((files(__package__) / "templates" / template).read_text(encoding="utf-8"), encoding="utf-8")
    return path
