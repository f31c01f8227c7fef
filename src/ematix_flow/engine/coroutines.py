"""Answers of functions that people write with `async def`."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def awaited(answer: Any) -> Any:
    """Return what a coroutine returns, and any other answer as it is.

    Where a loop runs already, as in a notebook, the coroutine gets a thread with a loop of its own.
    """
    if not inspect.iscoroutine(answer):
        return answer
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    with ThreadPoolExecutor(1, thread_name_prefix="coroutine") as pool:
        return pool.submit(copy_context().run, asyncio.run, answer).result()
