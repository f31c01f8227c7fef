"""Runs a case: everybody warms up, then everybody runs in turn, forwards and backwards, and every result is checked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import data
from bench.ends import names
from bench.fingerprint import Fingerprint, of_parquet
from bench.measure import Stand, flow_command, run_once, stand
from bench.model import PRODUCT, Case, Contestant, Run, Unavailable
from bench.place import Place


@dataclass
class Outcome:
    """What one contestant did in a case."""

    contestant: Contestant
    runs: list[Run] = field(default_factory=list)
    warmups: list[float] = field(default_factory=list)  # wall seconds of the runs that are not counted
    found: Fingerprint | None = None
    problem: str = ""
    is_available: bool = True

    @property
    def is_over(self) -> bool:
        """Whether another run would tell nothing new: it failed, or it was stopped once."""
        return bool(self.problem) or any(run.stopped for run in self.runs)


@dataclass(frozen=True)
class Options:
    """How often, and who."""

    repeats: int
    warmups: int
    peers: frozenset[str] | None = None  # None: all of them

    def takes(self, contestant: Contestant) -> bool:
        """The product with a Spark process of its own takes part in any case."""
        return contestant.name == PRODUCT or self.peers is None or contestant.name in self.peers


class CaseRun:
    """One case on its way."""

    def __init__(self, case: Case, place: Place, options: Options) -> None:
        self.case, self.place, self.options = case, place, options
        self.outcomes = {item.name: Outcome(item) for item in case.contestants if options.takes(item)}
        self.expected: Fingerprint | None = None
        self._variables_before: Mapping[str, str] = {}
        self._stands: dict[str, Stand] = {}

    def go(self) -> dict[str, Outcome]:
        """Run it to its end."""
        variables = self._prepared()
        for name, outcome in self.outcomes.items():
            self._make_ready(name, outcome, variables)
        if not self.outcomes[PRODUCT].is_available:
            raise Unavailable(self.outcomes[PRODUCT].problem)
        try:
            for number in range(self.options.warmups):
                self._round(f"warm-up {number + 1}", counts=False, backwards=False)
            for number in range(self.options.repeats):
                self._round(f"run {number + 1} of {self.options.repeats}", counts=True, backwards=number % 2 == 1)
        finally:
            self._close()
        return self.outcomes

    def _prepared(self) -> Mapping[str, str]:
        case = self.case
        variables: dict[str, str] = dict(case.prepare(self.place)) if case.prepare else {}
        if case.table is not None and case.source is not None:
            variables |= case.source.prepare(self.place, case.table)
            self.expected = of_parquet(case.table, str(data.parquet(self.place, case.table)))
            if case.before is not None:
                self._variables_before = case.source.prepare(self.place, case.before)
        return variables

    def _make_ready(self, name: str, outcome: Outcome, variables: Mapping[str, str]) -> None:
        try:
            ready = stand(self.place, self.case, outcome.contestant, variables)
            if outcome.contestant.opens:
                flow_command(ready, outcome.contestant.opens)
        except Unavailable as reason:
            outcome.problem, outcome.is_available = str(reason), False
            print(f"  {name}: not run: {reason}", flush=True)
            return
        self._stands[name] = ready

    def _round(self, title: str, *, counts: bool, backwards: bool) -> None:
        order: Sequence[str] = list(self.outcomes)
        for name in reversed(order) if backwards else order:
            outcome = self.outcomes[name]
            if outcome.is_over or (not counts and outcome.contestant.stop_after):
                continue
            for _ in range(1 if counts else outcome.contestant.warmups):
                if not outcome.is_over:
                    self._count(outcome, self._one(name, title, counts=counts), title, counts=counts)

    def _count(self, outcome: Outcome, run: Run, title: str, *, counts: bool) -> None:
        outcome.problem = run.problem
        if counts and not run.problem:
            outcome.runs.append(run)
        elif not run.problem:
            outcome.warmups.append(run.wall)
        told = run.problem or f"{run.wall:7.2f} s wall {run.cpu:7.2f} s CPU" + (" (stopped)" if run.stopped else "")
        print(f"  {title:<12} {outcome.contestant.name:<11} {told}", flush=True)

    def _one(self, name: str, title: str, *, counts: bool) -> Run:
        outcome, ready, case = self.outcomes[name], self._stands[name], self.case
        variables: Mapping[str, str] = {}
        if case.target is not None and case.table is not None:
            variables = case.target.reset(self.place, case.table, outcome.contestant)
        log = self.place.cache / "logs" / case.name / f"{name}-{title.replace(' ', '_')}.log"
        problem = self._load_before(ready, variables, log) if case.before is not None else ""
        if problem:
            return Run(0.0, 0.0, 0.0, 0.0, problem=f"the load before: {problem}")
        run = run_once(self.place, case, ready, variables, log=log, counts=counts)
        if not run.problem and not run.stopped:
            run.problem = self._judge(outcome)
        shutil.rmtree(self.place.work / "target", ignore_errors=True)
        return run

    def _load_before(self, ready: Stand, variables: Mapping[str, str], log: Path) -> str:
        """Put the target into the state after an earlier load, made once by the contestant; return what went wrong."""
        kept = self.place.work / "before" / self.case.name / ready.contestant.name
        folder = names.folder_of(self.place, ready.contestant)
        if not kept.is_dir():
            with_source = {**variables, **self._variables_before}
            run = run_once(self.place, self.case, ready, with_source, log=log.with_suffix(".before"), counts=False)
            if run.problem:
                return run.problem
            shutil.copytree(folder, kept)
        else:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        return ""

    def _judge(self, outcome: Outcome) -> str:
        """Empty when the result is right."""
        case = self.case
        if case.check is not None:
            return case.check(self.place, self.place.work / "run")
        if case.target is None or case.table is None or self.expected is None or not case.is_read_back:
            return ""
        try:
            outcome.found = case.target.read(self.place, case.table, outcome.contestant)
        except Exception as error:  # each client has its own tree; all of them mean: not what was asked for
            return f"its result cannot be read: {str(error).splitlines()[0][:200]}"
        if outcome.found == self.expected:
            return ""
        return f"its result is not the source's: {outcome.found} instead of {self.expected}"

    def _close(self) -> None:
        for name, ready in self._stands.items():
            words = self.outcomes[name].contestant.closes
            if words:
                with suppress(Unavailable):  # the case is measured; an engine ends by itself when it is idle
                    flow_command(ready, words)


def run_case(case: Case, place: Place, options: Options) -> dict[str, Outcome]:
    """Every contestant's outcome by name; Unavailable when the case itself cannot be prepared."""
    return CaseRun(case, place, options).go()
