"""The thread that talks to the broker: receives, writes, acknowledges committed messages, reconnects after a loss."""

from __future__ import annotations

import logging
import random
import threading
import time

from ematix_flow.foundation.errors import FlowError, RunFailed, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.spool.receiver import MakeReceiver, Receiver, SpoolLimits
from ematix_flow.spool.spool import Spool

_log = logging.getLogger(__name__)
TURN_SECONDS = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_AT_ONCE = 1_000


class ReceiverThread(threading.Thread):
    """The receiver thread of one spool; no other thread uses the receiver."""

    def __init__(self, spool: Spool, make: MakeReceiver, limits: SpoolLimits) -> None:
        super().__init__(name="flow-spool", daemon=True)
        self._spool, self._make, self._limits = spool, make, limits
        self._window = 0 if limits.drain else limits.window
        self._ending = threading.Event()
        self._receiver: Receiver | None = None
        self._lost_at: float | None = None
        self._pause = _FIRST_PAUSE
        self._was_connected = False
        self._renewed = self._held_since = self._last_message = 0.0
        self._expected: int | None = None
        self._received = 0

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._connected_loop()
        except FlowError as error:
            self._spool.fail(error)
        except Exception as exc:
            self._spool.fail(RunFailed(f"the spool stopped: {mask(str(exc) or type(exc).__name__)}"))
        finally:
            self._leave()

    def finish(self, seconds: float) -> None:
        """Stop the thread; messages that are committed within `seconds` are still acknowledged."""
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline and not self._spool.is_settled:
            time.sleep(0.02)
        self._ending.set()
        self.join(5.0)

    def _connected_loop(self) -> None:
        """Run one connection until it fails or the thread ends; after a failure, wait for the backoff pause."""
        try:
            if self._receiver is None:
                self._connect()
            while not self._ending.is_set():
                self._step()
        except FlowError as error:
            self._cut_off(error)

    def _connect(self) -> None:
        receiver = self._make()
        self._receiver = receiver
        receiver.connect(self._window)
        if self._lost_at is not None and self._was_connected:
            _log.warning("the broker answers again after %.1f s", time.monotonic() - self._lost_at)
        self._lost_at, self._pause, self._was_connected = None, _FIRST_PAUSE, True
        self._renewed = self._last_message = time.monotonic()
        if self._limits.drain and not self._received:
            self._expected = receiver.waiting()

    def _cut_off(self, error: FlowError) -> None:
        self._abandon()
        self._spool.disconnected()
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        # A restarting broker may not have its users and queues yet; before the first connection a refusal is final.
        is_patient = self._was_connected and now - self._lost_at <= self._limits.patience_seconds
        if not isinstance(error, Unreachable) and not is_patient:
            raise error
        pause = self._pause * (1 + random.random() / 4)  # noqa: S311  not a secret
        _log.warning("%s; trying again in %.1f s", mask(error.what), pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._ending.wait(pause)

    def _step(self) -> None:
        receiver = self._receiver
        if receiver is None:
            raise RunFailed("the spool has no connection")
        self._spool.read_commit_note()
        self._acknowledge(receiver)
        self._renew(receiver)
        room = self._free_slots()
        held, _ = self._spool.pending
        messages = receiver.receive(room, self._limits.linger_seconds if held else TURN_SECONDS)
        now = time.monotonic()
        if messages:
            self._held_since = self._held_since if held else now
            self._last_message, self._received = now, self._received + len(messages)
            self._spool.enqueue(messages)
        self._store(now, is_quiet=not messages)
        self._spool.clean_up()
        if self._limits.drain and not self._spool.is_drained:
            self._check_drained(now)

    def _acknowledge(self, receiver: Receiver) -> None:
        due = self._spool.due_answers()
        if due.acks:
            receiver.ack(due.acks)
        if due.refusals:
            receiver.nack([tag for tag, _ in due.refusals], requeue=False)
        self._spool.acknowledged(due, are_gone=receiver.rejects_at_once)

    def _renew(self, receiver: Receiver) -> None:
        every, now = receiver.renew_seconds, time.monotonic()
        if every is not None and now - self._renewed >= every:
            self._renewed = now
            receiver.extend(self._spool.tags())

    def _free_slots(self) -> int:
        """Return how many messages may be received now, bounded by the rest of the segment and of the window."""
        if self._spool.is_drained:
            return 0
        held, _ = self._spool.pending
        room = min(self._limits.rows_of_a_segment - held, _AT_ONCE)
        return max(0, min(room, self._window - self._spool.outstanding) if self._window else room)

    def _store(self, now: float, *, is_quiet: bool) -> None:
        held, size = self._spool.pending
        full = held >= self._limits.rows_of_a_segment or size >= self._limits.segment_bytes
        if held and (full or is_quiet or now - self._held_since >= self._limits.linger_seconds):
            self._spool.write_pending()

    def _check_drained(self, now: float) -> None:
        """Mark the spool as drained once all messages counted at the start arrived, or none for `quiet_seconds`."""
        quiet = now - self._last_message
        enough = self._expected is not None and self._received >= self._expected and quiet >= TURN_SECONDS
        if not self._spool.pending[0] and (enough or quiet >= self._limits.quiet_seconds):
            self._spool.drained()

    def _leave(self) -> None:
        """Acknowledge what is committed, requeue the rest at once, and close the connection."""
        receiver = self._receiver
        if receiver is not None:
            try:
                self._spool.read_commit_note(at_once=True)
                self._acknowledge(receiver)
                receiver.nack(self._spool.tags(), requeue=True)
            except FlowError as error:
                _log.info("left the broker without a word: %s", mask(error.what))
        self._abandon()
        self._spool.release()

    def _abandon(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()
