"""Logs of a daemon: JSON lines on stderr, so that stdout is the ready line's alone."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

import structlog

from cloud_gpu.protocol.adapters.gossip import Overlay


def configure_logs(level: str) -> None:
    """Set up once per process; libraries that use `logging` come out the same way."""
    number: int = getattr(logging, level.upper())
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*processors, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*processors, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # libp2p tells every step of every stream
    logging.getLogger("cloud_gpu").setLevel(number)


def say_ready(overlay: Overlay, runtime: str, stand_ins: Sequence[str]) -> None:
    """The daemon's one word on stdout."""
    ready = {
        "ready": True,
        "peer": overlay.peer_id,
        "addresses": list(overlay.addresses),
        "http": None,
        "runtime": runtime,
        "stand_ins": list(stand_ins),
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
