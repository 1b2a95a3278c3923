"""Waiting for descriptors, with an end. Part of the guard: standard library only."""

import select


def wait_for(readable: list[int], seconds: float, writable: int = -1) -> bool:
    """Sleep until one of the descriptors is ready; False when the time is over. (select(2) stops at 1,024.)"""
    poll = select.poll()
    for fd in readable:
        poll.register(fd, select.POLLIN)
    if writable >= 0:
        poll.register(writable, select.POLLIN | select.POLLOUT)
    return bool(poll.poll(seconds * 1000))
