"""What each of several processes does at once: take whatever it can get, and print it.

Run as: python -m tests.run_log_contract.racing URL SLOTS INTERVALS CLAIMS; it says ready, and begins when it is told to.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone

from ematix_flow.run_log import from_url
from ematix_flow.run_log.worker import this_worker

FIRST = datetime(2026, 11, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def main(url: str, slots: int, intervals: int, claims: int) -> None:
    """Race."""
    log, me = from_url(url), this_worker()
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(slots):
        if log.take_slot("orders", f"cron:{number}", me):
            print("slot", number)
    for record in log.pending_actions():
        if log.take_action(record.run_id, me):
            print("action", record.run_id)
    for number in range(intervals):
        begin = FIRST + HOUR * number
        if log.take_interval("orders", begin, begin + HOUR, me, 60):
            print("interval", number)
    for _ in range(claims):
        claim = log.claim("orders", f"elsewhere:{me}", 60)
        if claim.acquired and claim.token:
            print("fence", claim.fence)
            log.release(claim.token)
    print("end", flush=True)
    sys.stdin.read()  # what a process has taken is its own only while it lives
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
