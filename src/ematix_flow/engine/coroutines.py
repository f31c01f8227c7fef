"""Results of user functions declared with `async def`."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def awaited(answer: Any) -> Any:
    """Return the result of a coroutine, and any other value unchanged.

    If an event loop already runs, as in a notebook, the coroutine runs in a separate thread with its own loop.
    """
    if not inspect.iscoroutine(answer):
        return answer
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    with ThreadPoolExecutor(1, thread_name_prefix="coroutine") as pool:
        return pool.submit(copy_context().run, asyncio.run, answer).result()
