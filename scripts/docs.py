"""Writes the generated pages from the code: command line, backends, guarantees, and the diagrams of ARCHITECTURE.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from architecture import architecture

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- made by `make docs`; change the code, not this page -->\n\n"
MODES = ("append", "truncate", "merge", "scd2")


def command_line() -> str:
    """Every command with its help."""
    import click

    from ematix_flow.cli.main import root

    lines = [NOTE, "# Command line\n"]

    def describe(command: click.Command, path: list[str]) -> None:
        context = click.Context(command, info_name=" ".join(path), terminal_width=100, max_content_width=100)
        lines.append(f"\n{'#' * min(len(path) + 1, 3)} {' '.join(path)}\n\n```\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    describe(child, [*path, name])

    describe(root, ["flow"])
    return "".join(lines)


def backends() -> str:
    """What every backend offers."""
    from ematix_flow.backends.catalog import all_backends

    lines = [NOTE, "# Backends\n\n", "| backend | batch source | stream source | target | append | truncate | merge | scd2 | change data | DDL | install |\n",
             "| --- | :-: | :-: | :-: | :-: | :-: | :-: | :-: | :-: | :-: | --- |\n"]  # fmt: skip
    for backend in all_backends():
        offered = [backend.batch_source is not None, backend.stream_source is not None]
        offered += [backend.batch_sink is not None or backend.broker_sink is not None]
        offered += [mode in backend.strategies for mode in MODES] + [backend.takes_changes, backend.ddl is not None]
        marks = " | ".join("✓" if mark else "—" for mark in offered)
        extra = f"`[{backend.extra}]`" if backend.extra else "in the core"
        lines.append(f"| [{backend.title}]({backend.name}.md) | {marks} | {extra} |\n")
    lines.append("\nAnother system: [Write a backend](../write-a-backend.md).\n")
    return "".join(lines)


def guarantees() -> str:
    """What a load promises on every backend, with the notes of its manifest."""
    from ematix_flow.backends.catalog import all_backends

    lines = [
        NOTE,
        "# Guarantees\n\n",
        "*Effectively once*: a load may be attempted many times, and its rows are visible once. Every publish carries\n",
        "`Commit(writer, sequence)`; repeating it changes nothing. `tests/contract` proves each line for each backend, and\n",
        "`tests/crash` with `kill -9` at each named point of the write path.\n\n",
        "| backend | delivery | published by | strategies | notes |\n| --- | --- | --- | --- | --- |\n",
    ]
    for backend in all_backends():
        modes = ", ".join(mode for mode in MODES if mode in backend.strategies) or "messages"
        delivery = backend.delivery if backend.batch_sink is not None else backend.stream_delivery
        lines.append(
            f"| {backend.title} | {delivery} | {backend.published_by} | {modes} | {'; '.join(backend.notes)} |\n"
        )
    return "".join([*lines, *_of_streams()])


def _of_streams() -> list[str]:
    """What a stream promises, source by target."""
    from proofs import BEYOND, PROOFS

    from ematix_flow.backends.catalog import all_backends
    from ematix_flow.contract.delivery import MEANINGS, short, stream_delivery

    sources = [one for one in all_backends() if one.stream_source is not None]
    targets = [one for one in all_backends() if one.batch_sink is not None or one.broker_sink is not None]
    head = [
        "\n## Streams\n\n",
        "A micro-batch is read again after any crash, and a target that has it already does not take it twice: its token is\n",
        "the stream, the generation of its checkpoint and the number of the micro-batch.\n\n",
        f"| from ↓ to → | {' | '.join(one.title for one in targets)} |\n",
        f"| --- |{' :-: |' * len(targets)}\n",
    ]
    rows = [
        f"| {source.title} | {' | '.join(short(stream_delivery(source, target)) for target in targets)} |\n"
        for source in sources
    ]
    meanings = [f"- **{word}**: {meaning}\n" for word, meaning in MEANINGS.items()]
    beyond = ["\n### Beyond the table\n\n", BEYOND]
    shown = [f"| {word} | `{test}` | {what} |\n" for word, tests in PROOFS.items() for test, what in tests]
    proofs = ["\n### Proofs\n\n", "| word | test | shows |\n| --- | --- | --- |\n", *shown]
    return [*head, *rows, "\n", *meanings, *beyond, *proofs]


PAGES = {
    "cli.md": command_line,
    "backends/README.md": backends,
    "guarantees.md": guarantees,
    "../ARCHITECTURE.md": architecture,
}


def main() -> int:
    """Write the pages, or with --check say which are old."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a page is old")
    check = parser.parse_args().check
    old = []
    for name, make in PAGES.items():
        page, text = DOCS / name, make()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            old.append(name)
            if not check:
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{'old' if check else 'written'}: {', '.join(old) or 'none'}\n")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
