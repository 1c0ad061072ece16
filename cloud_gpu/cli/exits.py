"""What an exit code means; tested as a contract, since scripts live on it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The codes of every `cloud-gpu` command; `run` passes the remote code through instead."""

    DONE = 0
    OUR_BUG = 1
    USAGE = 2
    SETTINGS = 3
    NO_SUCH_THING = 4
    NO_MATCH = 5
    FUNDS = 6
    REJECTED = 7
    UNAVAILABLE = 8
    STILL_WAITING = 9
    """Waited too long; the state was printed, and it goes on."""
    PROVIDER_FAILED = 10
    RUN_FAILED = 125
    """`run` could not run the remote command; the code above is in the JSON."""
    HUNG_UP = 129
    """SIGHUP: its terminal is gone. What it held was put in order, as for the two below."""
    INTERRUPTED = 130
    """SIGINT: Ctrl-C."""
    TERMINATED = 143
    """SIGTERM."""
