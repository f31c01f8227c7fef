"""Servers that are built with their own tools: once, into the tests' cache, with a line that says so."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ematix_flow.engine.session.jars import cache_folder
from tests.services.server import ServerNotBuilt, ServiceMissing

BUILD_SECONDS = 1500


@dataclass(frozen=True)
class Recipe:
    """How a server is made: by which tool, with which words, and which file is there afterwards."""

    name: str
    version: str
    tool: str
    command: tuple[str, ...]
    product: str
    environment: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return cache_folder().parent / "servers" / f"{self.name}-{self.version}"


def _go(name: str, module: str, version: str) -> Recipe:
    # One compiler at a time and no more: somebody may want to use this machine meanwhile.
    environment = {"GOBIN": "{folder}", "GOFLAGS": "-p=1 -trimpath -buildvcs=false", "CGO_ENABLED": "0"}
    return Recipe(name, version, "go", ("install", f"{module}@v{version}"), name, environment)


VERSITYGW = _go("versitygw", "github.com/versity/versitygw/cmd/versitygw", "1.8.0")
FAKE_GCS = _go("fake-gcs-server", "github.com/fsouza/fake-gcs-server", "1.56.1")
AZURITE = Recipe(
    name="azurite",
    version="3.35.0",
    tool="npm",
    command=("install", "--prefix", "{folder}", "--no-audit", "--no-fund", "--loglevel=error", "azurite@3.35.0"),
    product="node_modules/azurite/dist/src/blob/main.js",
    environment={},
)
_PSTEST_SOURCE = Path(__file__).with_name("pstest.go")
PSTEST = Recipe(
    name="pstest",
    version="2.6.2",
    tool="sh",
    command=(
        "-ec",
        (
            "mkdir '{folder}/source' && cd '{folder}/source' && "
            f"cp '{_PSTEST_SOURCE}' main.go && go mod init pstest && "
            "go get cloud.google.com/go/pubsub/v2@v2.6.2 && go mod tidy && "
            "go build -o '{folder}/pstest' . && rm -rf '{folder}/source'"
        ),
    ),
    product="pstest",
    environment={"GOFLAGS": "-p=1 -trimpath -buildvcs=false -mod=mod", "CGO_ENABLED": "0"},
)
KINESALITE = Recipe(
    name="kinesalite",
    version="3.3.3",
    tool="npm",
    command=("install", "--prefix", "{folder}", "--no-audit", "--no-fund", "--loglevel=error", "kinesalite@3.3.3"),
    product="node_modules/kinesalite/index.js",
    environment={},
)
RECIPES = {"s3": VERSITYGW, "gcs": FAKE_GCS, "azure": AZURITE, "kinesis": KINESALITE, "pubsub": PSTEST}


def product(recipe: Recipe) -> Path:
    """The server's file."""
    wanted = recipe.folder / recipe.product
    if not wanted.exists():
        raise ServerNotBuilt(f"{recipe.name} takes minutes to build, and is not here yet: make servers")
    return wanted


def build(recipe: Recipe) -> Path:
    """The server's file; built now when it is not there."""
    wanted = recipe.folder / recipe.product
    if wanted.exists():
        return wanted
    if shutil.which(recipe.tool) is None:
        raise ServiceMissing(f"{recipe.name} is built with {recipe.tool}, which this machine lacks; install it")
    recipe.folder.parent.mkdir(parents=True, exist_ok=True)
    with recipe.folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            _build(recipe)
    return wanted


def _build(recipe: Recipe) -> None:
    """Into a folder of our own, which gets its name when it is whole."""
    draft = recipe.folder.with_name(f".{recipe.folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    _say(f"building {recipe.name} {recipe.version} with {recipe.tool}, once; this may take some minutes")
    began = time.monotonic()
    environment = {name: text.format(folder=draft) for name, text in recipe.environment.items()}
    command = [recipe.tool, *(word.format(folder=draft) for word in recipe.command)]
    try:
        done = subprocess.run(
            ["nice", "-n", "10", *command], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=BUILD_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ServiceMissing(f"{' '.join(command)} did not end within {BUILD_SECONDS} s") from None
    if done.returncode != 0 or not (draft / recipe.product).exists():
        raise ServiceMissing(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    shutil.rmtree(recipe.folder, ignore_errors=True)
    draft.rename(recipe.folder)
    _say(f"{recipe.name} is there after {time.monotonic() - began:.0f} s")


def _say(line: str) -> None:
    """To the terminal even where a test runner keeps what tests print."""
    print(f"  {line}", file=sys.__stderr__, flush=True)
