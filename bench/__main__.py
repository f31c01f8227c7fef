"""`python -m bench`: run cases, keep their results, write the page."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from pathlib import Path

from bench import page, picture, results
from bench.cases import CASES
from bench.machine import Machine
from bench.model import PRODUCT, SAIL, WARM, Case, Unavailable
from bench.place import FOLDER, ROOT, Place
from bench.runner import Options, run_case


def main(words: list[str]) -> int:
    """Everything, or what the words ask for; 1 when the product failed or gave a wrong result."""
    asked = _parser().parse_args(words)
    if asked.list:
        return _list()
    if asked.render:
        _write_page(results.read(asked.results), asked.docs)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # engines and folders are removed then as well
    place = Place(asked.scale, asked.cache.resolve())
    measured: dict[str, results.Result] = {}
    try:
        options = Options(asked.repeats, asked.warmups, asked.peers)
        for case in _wanted(asked, options):  # each is kept at once: an hour's work is not lost with its last minute
            measured |= _measure(case, place, options)
            _keep({case.name: measured[case.name]}, asked)
    finally:
        place.close()
    if asked.json:
        asked.json.write_text(json.dumps({"cases": measured}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    ours = {
        name if who == PRODUCT else f"{name} ({who})": case["contestants"][who]
        for name, case in measured.items()
        for who in (PRODUCT, WARM, SAIL)
        if who in case["contestants"]
    }
    failed = {name: item["problem"] for name, item in ours.items() if item["available"] and item["problem"]}
    for name, problem in failed.items():
        print(f"{name}: the product has no result: {problem}", file=sys.stderr)
    return 1 if failed else 0


def _wanted(asked: argparse.Namespace, options: Options) -> list[Case]:
    """The cases that were asked for; with --missing without those whose results are kept at this scale."""
    kept = results.read(asked.results) if asked.missing else {}
    return [case for case in asked.only if not _is_kept(case, kept.get(case.name), asked.scale, options)]


def _is_kept(case: Case, found: results.Result | None, scale: float, options: Options) -> bool:
    if found is None or found["scale"] < scale:
        return False
    ours = [item.name for item in case.contestants if item.is_product and options.takes(item)]
    return all(found["contestants"].get(name, {}).get("figure") is not None for name in ours)


def _measure(case: Case, place: Place, options: Options) -> dict[str, results.Result]:
    machine = Machine()
    print(f"{case.name}: {case.title}", flush=True)
    try:
        outcomes = run_case(case, place, options)
        found = results.summary(case, place, options, outcomes, machine)
    except Unavailable as reason:
        print(f"  not run: {reason}", flush=True)
        found = results.unavailable(case, place, options, machine, str(reason))
    except Exception as error:  # whatever it is, the cases after this one are measured
        traceback.print_exc()
        found = results.unavailable(case, place, options, machine, f"{type(error).__name__}: {error}", failed=True)
    for goal in found["goals"]:
        print(f"  goal {goal['text']} {goal['peer'] or ''}: {page.verdict(goal)}", flush=True)
    return {case.name: found}


def _keep(measured: dict[str, results.Result], asked: argparse.Namespace) -> None:
    kept, refused = results.merge(asked.results, measured, replace=asked.replace)
    for name in refused:
        shown = f"scale {kept[name]['scale']:g}, {len(kept[name]['contestants'])} contestants"
        print(f"{name}: the kept results ({shown}) stay; --replace overwrites them")
    _write_page(kept, asked.docs)


def _write_page(cases: dict[str, results.Result], docs: Path) -> None:
    order = {case.name: place for place, case in enumerate(CASES.values())}
    ordered = dict(sorted(cases.items(), key=lambda item: order.get(item[0], len(order))))
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text(page.render(ordered), encoding="utf-8")
    (docs / "images" / "benchmarks.svg").write_text(picture.render(ordered), encoding="utf-8")


def _list() -> int:
    for case in CASES.values():
        goals = ", ".join(goal.text + (f" {goal.peer}" if goal.at_least else "") for goal in case.goals)
        print(f"{case.name:<20} {case.title:<44} {goals:<28} {', '.join(item.name for item in case.contestants)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", type=_cases, default=list(CASES.values()), metavar="CASE,…", help="these cases")
    parser.add_argument("--missing", action="store_true", help="of these only the cases without kept results")
    parser.add_argument("--scale", type=_scale, default=1.0, help="1: the full sizes; 0.001 at least")
    parser.add_argument("--repeats", type=int, default=3, help="measured runs of every contestant")
    parser.add_argument("--warmups", type=int, default=1, help="runs of every contestant that are not counted")
    parser.add_argument(
        "--peers",
        type=_names,
        default=None,
        metavar="PEER,…",
        help="beside the product only these, or: none; warm: the product on a warm engine",
    )
    parser.add_argument("--json", type=Path, help="write the results of this invocation to a file as well")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.json", help="the kept results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the folder of benchmarks.md")
    parser.add_argument("--cache", type=Path, default=FOLDER / ".cache", help="data and environments, made once")
    parser.add_argument("--replace", action="store_true", help="also replace results that say more")
    parser.add_argument("--render", action="store_true", help="only write the page from the kept results")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser


def _cases(text: str) -> list[Case]:
    asked = text.split(",")
    unknown = [name for name in asked if name not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return [CASES[name] for name in asked]


def _names(text: str) -> frozenset[str]:
    known = {item.name for case in CASES.values() for item in case.contestants} - {PRODUCT}
    asked = frozenset() if text == "none" else frozenset(text.split(","))
    if asked - known:
        raise argparse.ArgumentTypeError(
            f"no peer {', '.join(sorted(asked - known))}; there are {', '.join(sorted(known))}"
        )
    return asked


def _scale(text: str) -> float:
    scale = float(text)
    if not 0.001 <= scale <= 100:
        raise argparse.ArgumentTypeError("between 0.001 and 100")
    return scale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
