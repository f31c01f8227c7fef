"""Listens to brokers for workflows; each message requests a run once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import MessageListener
from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.message import Message
from ematix_flow.declare.workflow import Workflow
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import LeaseLost, Unsupported, located
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.worker import this_worker
from ematix_flow.scheduler.due import MESSAGE, Job
from ematix_flow.scheduler.queueing import SLOT

_MOST_AT_ONCE = 100
_WAIT_SECONDS = 0.5
_AGAIN_SECONDS = 5.0
_RUNS = uuid.UUID("6f0c3a52-3f8e-4f0f-9a63-6b1d4f1c9a77")
"""The UUID namespace of the run ids."""

OnEvent = Callable[[str, str, str], None]


def open_listener(flow: Workflow) -> MessageListener:
    """Return an open listener for the source of a workflow; raise Unsupported for a backend without listeners."""
    return _listener_of(flow, flow.on_message)()


def _listener_of(flow: Workflow, source: Source) -> Callable[[], MessageListener]:
    """Return the function that opens the listener, without contacting the broker."""
    connection = resolve(source.connection).connection
    backend = backend_for(connection)
    if backend.listener is None:
        raise Unsupported(
            f"workflow {flow.name}: {backend.title} cannot fire a workflow by its messages",
            where=flow.where,
            hint="on_message= takes a source of Kafka or RabbitMQ; a stream can read others and send: flow send NAME",
        )
    return partial(backend.listener, connection, source.query, flow.name)


def run_for_message(message: Message, job: str, flow: str) -> RunRecord:
    """Return the run of a job for a message; the same message always yields the same run id."""
    slot = f"{MESSAGE}:{message.position}"
    extras = {
        "action": "run", SLOT: slot, "requested_by": this_worker(), "workflow": flow, MESSAGE: message.to_dict(),
    }  # fmt: skip
    return RunRecord(str(uuid.uuid5(_RUNS, f"{flow}/{job}/{slot}")), job, "requested", clock_now(), extras=extras)


def first_jobs_of(flow: Workflow, jobs: Iterable[Job]) -> list[str]:
    """Return the jobs of a workflow without upstreams inside it: those that its messages fire."""
    known = {job.name: job for job in jobs}
    return [name for name in flow.jobs if name in known and not set(known[name].depends_on) & (set(flow.jobs) - {name})]


@dataclass
class MessageTrigger:
    """A listener for one workflow, in a separate thread: an unresponsive broker delays no schedule."""

    flow: Workflow
    heads: Sequence[str]
    run_log: RunLog
    leader: str
    on_event: OnEvent
    news: threading.Event
    opened: Callable[[Workflow], MessageListener] = open_listener
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the listener thread."""
        self._thread = threading.Thread(target=self._work, name=f"listen-{self.flow.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Make the thread stop after the received messages are processed."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait up to so many seconds until the thread has stopped."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        last_message = ""
        while not self._stopping.is_set():
            try:
                self._listen()
            except LeaseLost:  # the next leader receives the unconfirmed messages
                return
            except Exception as error:
                message = mask(str(getattr(error, "what", error)))
                if message != last_message:
                    self.on_event("listen_error", self.flow.name, message)
                last_message = message
                if isinstance(error, Unsupported):
                    return
                self._stopping.wait(_AGAIN_SECONDS)

    def _listen(self) -> None:
        listener = self.opened(self.flow)
        try:
            while not self._stopping.is_set():
                messages = listener.receive(_MOST_AT_ONCE, _WAIT_SECONDS)
                for message in messages:
                    self._request_runs(message)
                if messages:
                    listener.confirm()
                    self.news.set()
        finally:
            listener.close()

    def _request_runs(self, message: Message) -> None:
        for job in self.heads:
            record = run_for_message(message, job, self.flow.name)
            if self.run_log.offer_run(record, leader=self.leader):
                self.on_event("fired", job, f"{MESSAGE}:{message.position}")


class BrokerTriggers:
    """The listeners of a leader for all workflows with a broker source."""

    def __init__(self, flows: Iterable[Workflow], jobs: Sequence[Job], run_log: RunLog, on_event: OnEvent) -> None:
        self._flows = [(flow, first_jobs_of(flow, jobs)) for flow in flows if isinstance(flow.on_message, Source)]
        self._run_log, self._hear = run_log, on_event
        self._triggers: list[MessageTrigger] = []
        self._news = threading.Event()

    def start(self, leader: str) -> None:
        """Start listening under the leader's token."""
        self.stop()
        self._triggers = [
            MessageTrigger(flow, heads, self._run_log, leader, self._hear, self._news) for flow, heads in self._flows
        ]
        for trigger in self._triggers:
            trigger.start()

    def stop(self, seconds: float = 0.0) -> None:
        """Stop listening; wait up to so many seconds for each listener to confirm its received messages."""
        for trigger in self._triggers:
            trigger.stop()
        for trigger in self._triggers:
            trigger.join(seconds)
        self._triggers = []

    def has_news(self) -> bool:
        """Return whether a run was requested since the last call."""
        has_news = self._news.is_set()
        self._news.clear()
        return has_news


def check_sources(flows: Iterable[Workflow]) -> None:
    """Raise, before anything is scheduled, for a workflow whose source is unknown or cannot be listened to."""
    for flow in flows:
        if isinstance(flow.on_message, Source):
            with located(flow.where):
                _listener_of(flow, flow.on_message)
