"""An address to listen on, tried before a server takes it."""

from __future__ import annotations

import socket

from cloud_gpu.protocol.errors import SettingsInvalid


def require_free(setting: str, listen: str) -> None:
    """Raises SettingsInvalid, naming the setting, when the address is taken or not ours."""
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), int(port)))
    except OSError as error:
        raise SettingsInvalid(
            f"{setting}: cannot listen on {listen} ({error.strerror or error})."
            " Name another port, or 0 for any"
        ) from error
