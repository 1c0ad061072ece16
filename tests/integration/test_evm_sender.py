"""Calls reach the chain once, whatever happens to the process, the node or the nonce meanwhile."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.evm import EvmChain, write_deployment
from cloud_gpu.protocol.adapters.evm_abi import lease_book
from cloud_gpu.protocol.adapters.evm_outbox import Outbox, SentCall
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, whole
from cloud_gpu.protocol.adapters.evm_sender import Sender
from cloud_gpu.protocol.adapters.evm_transaction import Fees, Transaction
from cloud_gpu.protocol.calls import CancelOne, PostReady, StopLease
from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    ChainAdvanced,
    LeaseOpened,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseKey
from tests.support.anvil import ETHER, WINDOWS, Deployed, deployed_on, running_anvil
from tests.support.trading import trading_on
from tests.support.watching import Watch, watched

GWEI = 10**9


def cancelled(watch: Watch) -> list[int]:
    """The nonces whose cancellation was told, each as often as it was told."""
    return [event.nonce for event in watch.all(BidsCancelled)]


def mined(deployed: Deployed, owner: LocalKey) -> int:
    """How many transactions of a key the chain has."""
    return whole(deployed.anvil.rpc.call("eth_getTransactionCount", str(owner.address), "latest"))


def waiting(deployed: Deployed, owner: LocalKey) -> dict[str, Any]:
    """What the node's pool holds of a key, by nonce."""
    content = deployed.anvil.rpc.call("txpool_content")
    found = content["pending"] | content["queued"]
    by_address = {address.lower(): entries for address, entries in found.items()}
    entries: dict[str, Any] = by_address.get(str(owner.address).lower(), {})
    return entries


async def until(true: Callable[[], bool], within_s: float = 60) -> None:
    with anyio.move_on_after(within_s):
        while not true():  # noqa: ASYNC110  # the chain sends no event for it
            await anyio.sleep(0.02)
    assert true()


def outside(deployed: Deployed, owner: LocalKey, nonce: int, gwei: int) -> None:
    """Another program sends with the same key: an empty transfer under this nonce."""
    transfer = Transaction(
        chain_id=deployed.deployment.chain_id,
        nonce=nonce,
        to=owner.address,
        payload=b"",
        gas=21_000,
        fees=Fees(most=gwei * GWEI, tip=gwei * GWEI),
    )
    raw = transfer.signed(owner).raw
    deployed.anvil.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())


async def test_forty_calls_at_once_are_each_mined_once(deployed: Deployed, tmp_path: Path) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        async with anyio.create_task_group() as tasks:
            for nonce in range(40):
                tasks.start_soon(watch.chain.submit, CancelOne(nonce=nonce))
        await watch.until(lambda: len(cancelled(watch)) >= 40, "40 cancellations")
        assert sorted(cancelled(watch)) == list(range(40))
        assert not watch.all(TransactionFailed)
        assert mined(deployed, buyer) == before + 40
        await until_done(watch)
        assert await watch.chain.gas_used() > 40 * 21_000


async def until_done(watch: Watch) -> None:
    """The sender has seen every receipt and knows that the party was told."""
    await until(lambda: not watch.chain._outbox.sent() and not watch.chain._outbox.queued(1))


async def test_a_repeat_is_dropped_while_the_first_is_under_way_and_made_again_after(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    deployed.anvil.automine(False)
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        for _ in range(5):
            await watch.chain.submit(CancelOne(nonce=1))
        await until(lambda: len(waiting(deployed, buyer)) == 1)
        await watch.chain.submit(CancelOne(nonce=1))
        await anyio.sleep(0.3)
        assert len(waiting(deployed, buyer)) == 1
        deployed.anvil.mine()
        deployed.anvil.automine(True)
        await watch.wait_for(BidsCancelled)
        await until_done(watch)
        assert mined(deployed, buyer) == before + 1
        await watch.chain.submit(CancelOne(nonce=1))
        failed = await watch.wait_for(TransactionFailed)
        assert failed.error == "LeaseBook_NonceUnusable(nonce=1)"
        assert mined(deployed, buyer) == before + 1, "what must fail is not sent"


async def test_what_was_only_queued_when_the_process_died_is_sent(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer = deployed.member("buyer")
    outbox = Outbox(tmp_path / "outbox")
    outbox.add(CancelOne(nonce=3), 0)
    outbox.close()
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        assert (await watch.wait_for(BidsCancelled)).nonce == 3


class DyingRpc(Rpc):
    """The process dies just before or just after a transaction leaves it."""

    after = False

    def call(self, method: str, *params: Any) -> Any:
        if method != "eth_sendRawTransaction":
            return super().call(method, *params)
        if self.after:
            super().call(method, *params)
        raise ChainUnavailable("the process died here")


@pytest.mark.parametrize("after", [False, True], ids=["before_sending", "after_sending"])
async def test_what_was_signed_when_the_process_died_is_mined_once_under_its_hash(
    deployed: Deployed, tmp_path: Path, after: bool
) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    outbox = Outbox(tmp_path / "outbox")
    outbox.add(CancelOne(nonce=3), 0)
    with DyingRpc(deployed.rpc_url) as rpc:
        rpc.after = after
        sender = Sender(rpc, deployed.deployment, buyer, outbox, SystemClock())
        with pytest.raises(ChainUnavailable):
            sender.turn()
    (sent,) = outbox.sent()
    outbox.close()
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.wait_for(BidsCancelled)
        await until_done(watch)
        assert cancelled(watch) == [3]
        assert not watch.all(TransactionFailed)
    assert mined(deployed, buyer) == before + 1
    receipt = deployed.anvil.rpc.call("eth_getTransactionReceipt", str(sent.attempts[0].hash))
    assert whole(receipt["status"]) == 1


_KILLED = """
import sys
from pathlib import Path
import trio
from cloud_gpu.protocol.adapters.evm import EvmChain, read_deployment
from cloud_gpu.protocol.calls import CancelOne
from cloud_gpu.protocol.identity import LocalKey

async def main():
    deployment = read_deployment(Path(sys.argv[2]))
    owner = LocalKey(bytes.fromhex(sys.argv[3]))
    async with EvmChain(sys.argv[1], deployment, owner, Path(sys.argv[4])) as chain:
        for nonce in range(30):
            await chain.submit(CancelOne(nonce=nonce))
            print(nonce, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def kill_once_it_said(arguments: list[str], line: str) -> None:
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert line in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("acknowledged", [1, 10, 30])
async def test_after_kill_9_everything_acknowledged_is_mined_once(
    deployed: Deployed, tmp_path: Path, acknowledged: int
) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    write_deployment(tmp_path / "deployment.json", deployed.deployment)
    arguments = [
        *(sys.executable, "-c", _KILLED, deployed.rpc_url, str(tmp_path / "deployment.json")),
        *(buyer.secret.hex(), str(tmp_path / "outbox")),
    ]
    kill_once_it_said(arguments, f"{acknowledged - 1}\n")
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.until(
            lambda: set(cancelled(watch)) >= set(range(acknowledged)), "what was acknowledged"
        )
        await until_done(watch)
        assert len(cancelled(watch)) == len(set(cancelled(watch)))
        assert not watch.all(TransactionFailed)
        assert mined(deployed, buyer) == before + len(cancelled(watch))


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Deployed]:
    """LeaseBook on a chain of the test's own."""
    with running_anvil() as anvil:
        yield deployed_on(anvil)


async def test_a_fee_that_became_too_low_is_raised(private: Deployed, tmp_path: Path) -> None:
    deployed, buyer = private, private.member("buyer")
    deployed.anvil.automine(False)
    async with watched(deployed, buyer, tmp_path / "outbox", bump_after_s=0.3) as watch:
        await watch.chain.submit(CancelOne(nonce=4))
        await until(lambda: bool(waiting(deployed, buyer)))
        (first,) = waiting(deployed, buyer).values()
        price = 4 * whole(first["maxFeePerGas"])
        deployed.anvil.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(price))
        deployed.anvil.mine()
        assert not watch.all(BidsCancelled), "it could not pay for that block"

        def offers() -> int:
            found = waiting(deployed, buyer).values()
            return max((whole(t["maxFeePerGas"]) for t in found), default=0)

        await until(lambda: offers() > price)
        deployed.anvil.mine()
        await watch.wait_for(BidsCancelled)
        await until_done(watch)
    assert cancelled(watch) == [4]


async def test_a_gap_in_the_nonces_is_filled(deployed: Deployed, tmp_path: Path) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    deployed.anvil.automine(False)
    outside(deployed, buyer, before, gwei=5)
    (foreign,) = waiting(deployed, buyer).values()
    async with watched(deployed, buyer, tmp_path / "outbox", bump_after_s=0.3) as watch:
        await watch.chain.submit(CancelOne(nonce=4))
        await until(lambda: str(before + 1) in waiting(deployed, buyer))
        deployed.anvil.rpc.call("anvil_dropTransaction", foreign["hash"])
        await until(lambda: str(before) in waiting(deployed, buyer))
        deployed.anvil.automine(True)
        deployed.anvil.mine()
        await watch.wait_for(BidsCancelled)
    assert mined(deployed, buyer) == before + 2


async def test_a_nonce_that_another_program_used_is_replaced(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    deployed.anvil.automine(False)
    async with watched(deployed, buyer, tmp_path / "outbox", bump_after_s=0.3) as watch:
        await watch.chain.submit(CancelOne(nonce=4))
        await until(lambda: len(waiting(deployed, buyer)) == 1)
        (ours,) = waiting(deployed, buyer).values()
        deployed.anvil.rpc.call("anvil_dropTransaction", ours["hash"])
        outside(deployed, buyer, before, gwei=500)
        deployed.anvil.mine()
        deployed.anvil.automine(True)
        await watch.wait_for(BidsCancelled)
        await until_done(watch)
        assert cancelled(watch) == [4]
    assert mined(deployed, buyer) == before + 2


async def test_a_key_without_gas_money_is_told_so_and_can_go_on_when_it_has_some(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer = deployed.member("buyer")
    deployed.anvil.give_native(buyer.address, 1_000)
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.chain.submit(CancelOne(nonce=4))
        failed = await watch.wait_for(TransactionFailed)
        assert failed.error.startswith(f"InsufficientFunds(key={buyer.address}, wei=1000)")
        assert "send it native currency" in failed.error
        deployed.anvil.give_native(buyer.address, ETHER)
        await watch.chain.submit(CancelOne(nonce=4))
        await watch.wait_for(BidsCancelled)


async def test_a_call_that_reverts_in_its_block_says_why(
    deployed: Deployed, tmp_path: Path
) -> None:
    trading = trading_on(deployed)
    async with (
        watched(deployed, trading.matcher, tmp_path / "market") as market,
        watched(deployed, trading.node, tmp_path / "node") as node,
    ):
        await market.chain.submit(trading.opening((trading.ask(), trading.bid())))
        opened = await node.wait_for(LeaseOpened)
        deployed.anvil.automine(False)
        await node.chain.submit(trading.posting(opened.terms.key))
        await until(lambda: bool(waiting(deployed, trading.node)))
        deployed.anvil.pass_time(WINDOWS.start + 100)
        failed = await node.wait_for(TransactionFailed)
        assert isinstance(failed.call, PostReady)
        assert failed.error == f"LeaseBook_TooLate(closedAt={opened.terms.start_deadline})"


async def test_a_failure_is_told_again_until_the_party_took_it(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer = deployed.member("buyer")
    call = StopLease(lease=LeaseKey(provider=buyer.address, index=0, seq=1))
    async with EvmChain(deployed.rpc_url, deployed.deployment, buyer, tmp_path / "outbox") as chain:
        await chain.submit(call)  # and nobody listens
        await until(lambda: bool(chain._outbox.untold()))
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        assert (await watch.wait_for(TransactionFailed)).call == call
        await watch.wait_for(ChainAdvanced)
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.wait_for(ChainAdvanced)
        assert not watch.all(TransactionFailed)


async def test_calls_made_while_the_node_is_down_are_sent_when_it_is_back(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "anvil.json"))
    with running_anvil(*state) as first:
        deployed = deployed_on(first)
        buyer = deployed.member("buyer")
        async with watched(deployed, buyer, tmp_path / "outbox") as watch:
            await watch.wait_for(ChainAdvanced)
            first.end()
            for nonce in range(5):
                await watch.chain.submit(CancelOne(nonce=nonce))
            await anyio.sleep(0.3)
            with running_anvil(*state, port=first.port):
                await watch.until(lambda: len(cancelled(watch)) >= 5, "five cancellations")
                assert sorted(cancelled(watch)) == list(range(5))


def test_the_nonces_of_calls_under_way_are_the_counter(deployed: Deployed, tmp_path: Path) -> None:
    """Also when the node's own count is behind, as after it lost its pool."""
    buyer = deployed.member("buyer")
    before = mined(deployed, buyer)
    deployed.anvil.automine(False)
    outbox = Outbox(tmp_path / "outbox")
    with Rpc(deployed.rpc_url) as rpc:
        sender = Sender(rpc, deployed.deployment, buyer, outbox, SystemClock())
        for nonce in range(3):
            outbox.add(CancelOne(nonce=nonce), 0)
        sender.turn()
        deployed.anvil.rpc.call("anvil_dropAllTransactions")
        outbox.add(CancelOne(nonce=3), 0)
        sender.turn()
        sent: list[SentCall] = outbox.sent()
    outbox.close()
    assert [call.nonce for call in sent] == [before + place for place in range(4)]
    assert (
        lease_book().function_of(bytes.fromhex(_input(deployed, buyer, before + 3))) == "cancelOne"
    )


def _input(deployed: Deployed, owner: LocalKey, nonce: int) -> str:
    text: str = waiting(deployed, owner)[str(nonce)]["input"]
    return text.removeprefix("0x")
