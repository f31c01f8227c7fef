"""How often a worker that does not begin is started again."""

from __future__ import annotations

from dataclasses import dataclass, field

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.schedule import Action
from ematix_flow.scheduler.dispatching import Dispatcher


@dataclass
class FakeExecutor:
    """An executor whose workers begin when the test says so."""

    refusals: int = 0
    ended: set[str] = field(default_factory=set)

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        if self.refusals:
            self.refusals -= 1
            raise DispatchError("no place for a worker")
        self.ended.discard(spec.run_id)
        return DispatchHandle(spec.pipeline_name, "desk", None, spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        self.ended.add(handle.run_id)

    def has_ended(self, handle: DispatchHandle) -> bool:
        return handle.run_id in self.ended

    def close(self, *, wait: bool) -> None:
        """Nothing is held."""


def _dispatching(run_log: RunLog, desk: FakeExecutor) -> Dispatcher:
    return Dispatcher(
        run_log, desk, {"orders": RetryPolicy()}, lambda run: DispatchSpec(run.pipeline, "pipelines", run_id=run.run_id),
        max_workers=4, lease_seconds=60,
    )  # fmt: skip


def test_tries_are_forgotten_when_the_run_has_begun() -> None:
    run_log, desk = InMemoryRunLog(), FakeExecutor(refusals=2)
    leader = _dispatching(run_log, desk)
    run_id = run_log.enqueue(Action("run", "orders"))
    assert [leader.dispatch_waiting() for _ in range(3)] == [0, 0, 1]
    assert run_log.take_action(run_id, "elsewhere:1:1")
    desk.ended.add(run_id)
    leader.dispatch_waiting()
    assert leader.is_idle
    assert leader._tries == {}


def test_tries_before_and_after_a_start_count_together() -> None:
    run_log, desk = InMemoryRunLog(), FakeExecutor(refusals=2)
    leader = _dispatching(run_log, desk)
    run_id = run_log.enqueue(Action("run", "orders"))
    assert [leader.dispatch_waiting() for _ in range(3)] == [0, 0, 1]
    desk.ended.add(run_id)
    leader.dispatch_waiting()
    found = run_log.get_run(run_id)
    assert found is not None
    assert (found.status, leader._tries) == ("failed", {})
