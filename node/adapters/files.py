"""The settings file, read from the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloud_gpu.protocol.errors import SettingsInvalid
from node.settings import NodeSettings, parse_settings


def read_settings(path: Path, environment: Mapping[str, str]) -> NodeSettings:
    """The settings in a file, overridden by the environment; raises `SettingsInvalid`."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"the settings file cannot be read: {error}") from error
    return parse_settings(text, environment)
