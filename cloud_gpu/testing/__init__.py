"""A pretend marketplace for tests: no chain, no network, no money, and time that can be virtual.

with pretend({"nvidia-smi -L": Said(stdout="GPU 0: A100")}) as world:
    with world.session("A100") as s:
        s.run("nvidia-smi -L")
"""

from cloud_gpu.testing.pretend_node import Faults, Said
from cloud_gpu.testing.world import Pretended, World, pretend, pretend_world

__all__ = ["Faults", "Pretended", "Said", "World", "pretend", "pretend_world"]
