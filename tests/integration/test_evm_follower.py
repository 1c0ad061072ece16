"""Facts of the chain are told once, in order, and taken back when their blocks are replaced."""

import random
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.adapters.evm import ContractGone, EvmChain
from cloud_gpu.protocol.calls import CancelOne
from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    BidsCancelled,
    CashChanged,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    DelegationChanged,
    LeaseOpened,
    MachineAdded,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.units import TokenAmount
from tests.support.anvil import Anvil, Deployed, deployed_on, key, running_anvil, start_anvil
from tests.support.trading import trading_on
from tests.support.watching import Watch, watched


@pytest.fixture
def private() -> Iterator[Deployed]:
    """LeaseBook on a chain of the test's own."""
    with running_anvil() as anvil:
        yield deployed_on(anvil)


def standing(events: list[ChainEvent]) -> list[ChainEvent]:
    """What a party that takes reorganisations back still believes, blocks left out.

    An event belongs to the first ChainAdvanced after it.
    """
    kept: list[tuple[int, list[ChainEvent]]] = []
    open_poll: list[ChainEvent] = []
    for event in events:
        if isinstance(event, ChainReorganised):
            assert not open_poll, "a reorganisation never comes inside a poll's events"
            kept = [(block, told) for block, told in kept if block <= event.block]
        elif isinstance(event, ChainAdvanced):
            kept.append((event.block, open_poll))
            open_poll = []
        elif not isinstance(event, TransactionFailed):
            open_poll.append(event)
    return [event for _, told in kept for event in told] + open_poll


async def read_anew(deployed: Deployed, outbox: Path) -> list[ChainEvent]:
    """What somebody who comes now is told."""
    async with watched(deployed, key("reader"), outbox) as watch:
        head = deployed.anvil.block()
        await watch.wait_for(ChainAdvanced, lambda e: e.block >= head)
    return standing(watch.events)


async def caught_up(watch: Watch, anvil: Anvil) -> None:
    """Until the chain's newest block was told, on the branch that it is on now."""
    head = anvil.block()
    await watch.until(
        lambda: (
            bool(watch.events)
            and isinstance(watch.events[-1], ChainAdvanced)
            and watch.events[-1].block >= head
        ),
        f"block {head}",
    )


async def test_a_replaced_block_is_taken_back_and_our_call_is_sent_again(
    private: Deployed, tmp_path: Path
) -> None:
    buyer = private.member("buyer")
    async with watched(private, buyer, tmp_path / "outbox") as watch:
        await watch.chain.submit(CancelOne(nonce=5))
        await watch.wait_for(BidsCancelled)
        await caught_up(watch, private.anvil)
        before = private.anvil.block() - 1
        private.anvil.reorganise(1)
        back = await watch.wait_for(ChainReorganised)
        assert back.block == before
        # Anvil forgot the transaction; the outbox did not.
        await watch.until(lambda: len(watch.all(BidsCancelled)) == 2, "the call again")
        await caught_up(watch, private.anvil)
        assert standing(watch.events) == await read_anew(private, tmp_path / "other")
        assert [e for e in standing(watch.events) if isinstance(e, BidsCancelled)] == [
            BidsCancelled(account=buyer.address, nonce=5, below=False)
        ]
        assert not watch.all(TransactionFailed)


async def test_a_reorganisation_below_the_confirmations_is_never_told(
    private: Deployed, tmp_path: Path
) -> None:
    deployed = Deployed(private.anvil, replace(private.deployment, confirmations=3))
    buyer = deployed.member("buyer")
    deployed.anvil.mine(3)
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.wait_for(CashChanged)
        await watch.chain.submit(CancelOne(nonce=5))
        await anyio.sleep(0.3)
        assert not watch.all(BidsCancelled), "it has no confirmations yet"
        deployed.anvil.reorganise(1)
        await anyio.sleep(0.3)
        deployed.anvil.mine(4)
        await watch.wait_for(BidsCancelled)
        (advanced, *_) = [e for e in reversed(watch.events) if isinstance(e, ChainAdvanced)]
        assert advanced.block == deployed.anvil.block() - 3
        await watch.until(lambda: len(watch.all(BidsCancelled)) == 1, "one cancellation")
        assert not watch.all(ChainReorganised)


async def test_events_survive_random_reorganisations(private: Deployed, tmp_path: Path) -> None:
    rng = random.Random(20261130)
    members = [private.member(f"member {number}") for number in range(3)]
    floor = private.anvil.block()
    async with watched(private, key("reader"), tmp_path / "reader") as watch:
        await watch.wait_for(ChainAdvanced)
        for step in range(40):
            owner = rng.choice(members)
            with private.wallet(owner) as wallet:
                wallet.cancel_one(wallet.account().nonce_base + step)
                if rng.random() < 0.5:
                    wallet.withdraw(TokenAmount(1 + step))
            if rng.random() < 0.5:
                depth = rng.randrange(1, private.anvil.block() - floor + 1)
                private.anvil.reorganise(depth)
            if rng.random() < 0.5:
                await anyio.sleep(rng.random() * 0.1)
        await caught_up(watch, private.anvil)
        assert len(watch.all(ChainReorganised)) >= 5
        assert standing(watch.events) == await read_anew(private, tmp_path / "other")


async def test_tables_follow_a_reorganisation(private: Deployed, tmp_path: Path) -> None:
    """Account numbers and delegations mean something else on the other branch."""
    trading = trading_on(private)
    first = private.key("first")
    async with watched(private, trading.matcher, tmp_path / "outbox") as watch:
        with private.wallet(first) as wallet:
            wallet.register_account()
        await watch.wait_for(AccountRegistered, lambda e: e.account == first.address)
        private.anvil.reorganise(1)
        await watch.wait_for(ChainReorganised)
        second = private.member("second")
        joined = await watch.wait_for(AccountRegistered, lambda e: e.account == second.address)
        assert joined.id == watch.all(AccountRegistered)[-2].id
        provider = trading.provider
        with private.wallet(provider) as wallet:
            wallet.revoke_delegate(trading.node.address)
        revoked = await watch.wait_for(DelegationChanged, lambda e: e.delegation.revoked_at > 0)
        assert revoked.signer == trading.node.address
        assert (revoked.delegation.account, revoked.delegation.role) == (
            provider.address,
            KeyRole.NODE,
        )


async def test_a_chain_that_was_rolled_back_is_taken_back(
    private: Deployed, tmp_path: Path
) -> None:
    buyer = private.member("buyer")
    snapshot, block = private.anvil.snapshot(), private.anvil.block()
    async with watched(private, key("reader"), tmp_path / "outbox") as watch:
        with private.wallet(buyer) as wallet:
            wallet.cancel_one(1)
        await watch.wait_for(BidsCancelled)
        private.anvil.revert(snapshot)
        assert (await watch.wait_for(ChainReorganised)).block == block
        with private.wallet(buyer) as wallet:
            wallet.cancel_one(2)
        await watch.wait_for(BidsCancelled, lambda e: e.nonce == 2)
        assert standing(watch.events)[-1] == BidsCancelled(
            account=buyer.address, nonce=2, below=False
        )


async def test_an_outage_is_waited_out_and_nothing_is_told_twice(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "anvil.json"))
    anvil = start_anvil(*state)
    deployed = deployed_on(anvil)
    buyer = deployed.member("buyer")
    async with watched(deployed, buyer, tmp_path / "outbox") as watch:
        await watch.wait_for(CashChanged)
        restarts: list[int] = []
        for _ in range(2):
            restarts.append(anvil.port)
            anvil.end()
            await anyio.sleep(0.3)
            anvil = start_anvil(*state, port=anvil.port)
            again = Deployed(anvil, deployed.deployment)
            with again.wallet(buyer) as wallet:
                wallet.cancel_one(len(restarts))
            await watch.wait_for(BidsCancelled, lambda e: e.nonce == len(restarts))
        assert len(watch.all(AccountRegistered)) == 1
        assert len(watch.all(BidsCancelled)) == 2
        assert not watch.all(ChainReorganised)
    anvil.end()


async def test_a_node_that_is_down_at_the_start_is_named(private: Deployed, tmp_path: Path) -> None:
    private.anvil.end()
    with pytest.raises(ChainUnavailable, match=r"no answer from the EVM node at http://127.*`rpc`"):
        async with watched(private, key("buyer"), tmp_path / "outbox"):
            pass
    assert not (tmp_path / "outbox").exists()


async def test_a_chain_without_the_contract_or_with_another_id_is_named(
    private: Deployed, tmp_path: Path
) -> None:
    with running_anvil() as empty:
        elsewhere = Deployed(empty, private.deployment)
        with pytest.raises(ChainUnavailable, match="no LeaseBook at 0x"):
            async with watched(elsewhere, key("buyer"), tmp_path / "outbox"):
                pass
    with running_anvil("--chain-id", "4242") as other:
        elsewhere = Deployed(other, private.deployment)
        with pytest.raises(ChainUnavailable, match="serves chain 4242, the deployment is on chain"):
            async with watched(elsewhere, key("buyer"), tmp_path / "outbox"):
                pass


async def test_a_chain_that_was_reset_ends_the_following(tmp_path: Path) -> None:
    with running_anvil() as anvil:
        deployed = deployed_on(anvil)
        chain = EvmChain(
            anvil.url, deployed.deployment, key("buyer"), tmp_path / "o", poll_interval_s=0.02
        )
        async with chain:
            events = chain.events()
            assert isinstance(await anext(events), ChainAdvanced)
            anvil.rpc.call("anvil_reset")
            anvil.mine(20)
            with pytest.raises(ContractGone, match="it was reset"), anyio.fail_after(60):
                async for _ in events:
                    pass


async def test_a_reader_goes_on_where_it_was(private: Deployed, tmp_path: Path) -> None:
    trading = trading_on(private)
    outbox = tmp_path / "outbox"
    async with watched(private, trading.matcher, outbox) as first:
        await caught_up(first, private.anvil)
    told = first.all(ChainAdvanced)[-1].block
    async with watched(private, trading.matcher, outbox, resume_after=told) as second:
        await second.chain.submit(trading.opening((trading.ask(), trading.bid())))
        opened = await second.wait_for(LeaseOpened)
        assert second.events[0] == ChainReorganised(block=told)
        assert opened.terms.buyer == trading.buyer.address, (
            "it knows accounts that were told before"
        )
        assert not second.all(AccountRegistered) + second.all(MachineAdded)


async def test_a_reader_that_comes_back_to_another_branch_is_told_where_it_parted(
    private: Deployed, tmp_path: Path
) -> None:
    buyer, outbox = private.member("buyer"), tmp_path / "outbox"
    async with watched(private, key("reader"), outbox) as first:
        with private.wallet(buyer) as wallet:
            wallet.cancel_one(1)
        await first.wait_for(BidsCancelled)
        await caught_up(first, private.anvil)
    told = first.all(ChainAdvanced)[-1].block
    private.anvil.reorganise(1)
    async with watched(private, key("reader"), outbox, resume_after=told) as second:
        await caught_up(second, private.anvil)
    assert second.events[0] == ChainReorganised(block=told - 1)
    both = standing(first.events + second.events)
    assert both == await read_anew(private, tmp_path / "other")
    assert not [e for e in both if isinstance(e, BidsCancelled)]


async def test_many_blocks_are_caught_up_in_steps(private: Deployed, tmp_path: Path) -> None:
    buyer = private.member("buyer")
    for nonce in range(3):
        private.anvil.mine(100)
        with private.wallet(buyer) as wallet:
            wallet.cancel_one(nonce)
    async with watched(private, key("reader"), tmp_path / "outbox", blocks_at_once=80) as watch:
        await caught_up(watch, private.anvil)
        assert [e.nonce for e in watch.all(BidsCancelled)] == [0, 1, 2]
        assert len(watch.all(ChainAdvanced)) >= 4
        assert watch.all(ChainAdvanced)[-1].at == private.anvil.time()
        # A reorganisation right after is undone, though not every block's hash was kept.
        private.anvil.reorganise(1)
        await watch.wait_for(ChainReorganised)
        await caught_up(watch, private.anvil)
        assert standing(watch.events) == await read_anew(private, tmp_path / "other")
