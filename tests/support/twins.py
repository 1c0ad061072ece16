"""The contracts' libraries on a chain, many cases a call; see contracts/test/Twins.sol."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks._chain import Chain
from cloud_gpu.adapters.toolchain import find_forge, node_environment
from cloud_gpu.protocol.adapters.evm_abi import Code, Interface
from cloud_gpu.protocol.values import Address, keccak256

CASES_EACH = 1_000
"""Of every twin, in a run of the tests."""
_TOGETHER = 20
_PROJECT = Path(__file__).parents[2] / "contracts"
_GAS = 2**30
_BUILD_S = 300
CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Twins:
    """One harness contract on a chain."""

    chain: Chain
    known: Interface
    address: Address

    def ask(self, function: str, *arguments: Any) -> Any:
        """What it answers: one value, or all of several."""
        request = {
            "to": str(self.address),
            "data": "0x" + self.known.encode(function, *arguments).hex(),
            "gas": hex(_GAS),
        }
        returned = bytes.fromhex(self.chain.rpc.call("eth_call", request, "latest")[2:])
        found = self.known.decode(function, returned)
        return found[0] if len(found) == 1 else found


def build() -> None:
    """Compile the harness, unless that was done; as forge's own tests are compiled."""
    command = [str(find_forge(_PROJECT)), "build", "test/Twins.sol"]
    folder = _PROJECT / "cache"
    folder.mkdir(exist_ok=True)
    with (folder / "twins.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        done = subprocess.run(
            command,
            cwd=_PROJECT,
            env=node_environment(),
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def placed(chain: Chain, contract: str) -> Twins:
    """A harness contract's code, put on the chain without a creation."""
    built = json.loads((_PROJECT / "out" / "Twins.sol" / f"{contract}.json").read_text())
    address = Address(keccak256(contract.encode()).raw[12:])
    chain.rpc.call("anvil_setCode", str(address), built["deployedBytecode"]["object"])
    known = Interface(contract, built["abi"], b"", Code(0, 0, ()))
    return Twins(chain, known, address)


def for_many(cases: st.SearchStrategy[CaseT], check: Callable[[Sequence[CaseT]], None]) -> None:
    """Call `check` with lists of random cases, `CASES_EACH` in all; a list is one call."""
    tried = 0

    @settings(
        max_examples=CASES_EACH // _TOGETHER,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(cases, min_size=_TOGETHER, max_size=_TOGETHER))
    def run(drawn: list[CaseT]) -> None:
        nonlocal tried
        tried += len(drawn)
        check(drawn)

    run()
    assert tried >= CASES_EACH, f"{tried} cases were tried: draw smaller ones"
