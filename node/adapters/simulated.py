"""Pretended GPUs, declared as such: for laptops, demos and CI. Nothing computes on them."""

from __future__ import annotations

from cloud_gpu.protocol.hardware import Gpu
from node.inventory import GpuReading
from node.settings import MachineSettings


def simulated_gpus(machine: MachineSettings) -> tuple[GpuReading, ...]:
    """What the settings declare."""
    gpu = Gpu(
        model=machine.gpu_class,
        memory_mib=machine.gpu_memory_mib,
        driver="simulated",
        cuda=machine.cuda,
    )
    return tuple(
        GpuReading(uuid=f"simulated-{machine.index}-{number}", gpu=gpu)
        for number in range(machine.gpus)
    )
