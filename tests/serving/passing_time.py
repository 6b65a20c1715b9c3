"""Seconds that pass at once, for limits too long to be waited for, and too short if they were shortened."""

from __future__ import annotations

import asyncio


async def pass_time(seconds: float) -> None:
    """Have the clock of asyncio's running loop go on by so many seconds, and what is due by then be done.

    What the loop has sent to itself has arrived before, but for a connection that it has yet to accept. Timeouts of the
    caller's own loop go on as well.
    """
    await asyncio.sleep(0.002)  # sockets come before timers
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]  # of this loop alone
    await asyncio.sleep(0.002)
