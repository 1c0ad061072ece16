"""Where a person's settings lie on this machine, and reading them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from cloud_gpu.adapters.this_machine import context_file, contexts_folder
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.settings import PROJECT_FILE, Settings, SettingsFile, chosen_context, read_settings


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """All sources joined. Raises `SettingsInvalid`."""
    return read_settings(
        flags=flags,
        environment=environment,
        project=_read(Path(PROJECT_FILE)),
        context=lambda name: _read(context_file(name)),
        contexts=str(contexts_folder()),
        chosen=chosen_context(_read(platformdirs.user_config_path("cloud-gpu") / "config.toml")),
    )


def keep_logs_apart(level: str) -> None:
    """Our logs go to stderr from a level on, and libp2p's nowhere: stdout is the program's.

    A program that has set up structlog, or libp2p's logger, keeps what it chose.
    """
    import structlog  # 0.2 s that a command without logs spares

    if not structlog.is_configured():
        number: int = getattr(logging, level.upper())
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(number),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
    for name in ("libp2p", "cloud_gpu.overlay"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            # It calls each failed dial an error; whether that matters, we know better.
            logger.setLevel(logging.CRITICAL if level == "error" else level.upper())


def _read(path: Path) -> SettingsFile | None:
    try:
        return SettingsFile(path=str(path), text=path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"{path}: cannot be read: {error}") from error
