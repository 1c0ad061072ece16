"""A peer in a process of its own, for tests that kill and stop it.

`python -m tests.support.overlay_peer KEY LISTEN [BOOTSTRAP]` prints its address; it echoes
requests, and publishes what it is asked to.
"""

import sys
from dataclasses import replace

import trio

from cloud_gpu.protocol.adapters.gossip import open_overlay
from tests.support.overlay import QUICK, TOPIC, echo, secret_of


async def main(key: int, listen: str, bootstrap: tuple[str, ...]) -> None:
    settings = replace(QUICK, listen=listen, bootstrap=bootstrap, silence_s=2.0)
    async with open_overlay(settings, secret_of(key)) as overlay:

        async def publish(peer: str, payload: bytes) -> bytes:
            await overlay.publish(TOPIC, payload)
            return b""

        overlay.serve("/test/echo/1", echo)
        overlay.serve("/test/publish/1", publish)
        print(overlay.addresses[0], flush=True)  # noqa: T201  # read by the test
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:]))
