"""Processes that are not children of the test's, and may end."""

import psutil


def lives(pid: int) -> bool:
    """Whether a process runs.

    One that has ended, and that nobody has yet asked how, does not. Whoever asks this of orphans may take seconds.
    """
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
