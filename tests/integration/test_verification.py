"""A verified lease on a real chain: held, committed, drawn, accused, and ended in every way."""

from __future__ import annotations

from cloud_gpu.protocol.adapters.deployment_plan import created_at
from cloud_gpu.protocol.adapters.evm_rpc import octets
from cloud_gpu.protocol.audit import (
    BatchState,
    VerdictResult,
    batch_key,
    seed_of,
)
from cloud_gpu.protocol.calls import (
    ContestSegment,
    FallbackSeed,
    ReturnHeld,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchDrawn,
    BatchFinalised,
    HeldReturned,
    SegmentConvicted,
)
from cloud_gpu.protocol.units import TokenAmount, share_down
from cloud_gpu.protocol.values import Digest, keccak256
from tests.support.anvil import Deployed, key
from tests.support.auditing import (
    AUDIT,
    FIRST,
    PAID,
    SECOND,
    WINDOWS,
    Audits,
    audits,
    chain_of,
    ending,
    opening_of,
    verified,
    verified_once,
)
from tests.support.trading import FEE
from verifier.evidence import check_evidence, check_outline
from verifier.ledger import BatchOnChain, Ledger

__all__ = ["audits", "verified", "verified_once"]


def test_the_second_contract_lies_where_the_first_one_names_it(verified: Deployed) -> None:
    deployment = verified.deployment
    assert deployment.verification == created_at(key("deployer").address, 4)
    assert deployment.verifiers == (FIRST.address, SECOND.address)
    assert deployment.audit == WINDOWS
    modules = deployment.verification, deployment.futures, deployment.group_buy
    assert deployment.contracts == (deployment.lease_book, *modules)


async def test_pay_is_held_committed_drawn_and_paid_when_all_matched(audits: Audits) -> None:
    t = audits.trading
    before = await audits.cash(t.provider.address), await audits.cash(t.buyer.address)
    batch, told = await audits.committed()
    assert await audits.cash(t.provider.address) == before[0]  # held
    assert (told.root, told.n, told.value) == (batch.outline.root, 3, TokenAmount(PAID))
    assert told.locked.value == 1_000_000  # 7 times the value, in whole bond units

    preimage = chain_of(FIRST).at(0)
    assert preimage is not None
    audits.deployed.anvil.mine(2)
    await audits.first.chain.submit(audits.reveal(batch))
    drawn = await audits.second.wait_for(BatchDrawn)
    block = audits.deployed.anvil.rpc.call("eth_getBlockByNumber", hex(told.block + 1), False)
    key_of_batch = batch_key(batch.lease, 0)
    assert drawn.seed == seed_of(Digest(octets(block["hash"])), preimage, told.root, key_of_batch)

    await audits.first.chain.submit(audits.results(batch, set()))
    ended = await audits.node.wait_for(BatchFinalised)
    fee, share = share_down(TokenAmount(PAID), FEE), share_down(TokenAmount(PAID), AUDIT)
    assert ended.state is BatchState.FINAL
    assert (ended.provider.value, ended.market) == (PAID - fee.value, fee)
    assert (ended.audits, ended.buyer.value, ended.burnt.value) == (share, 0, 0)
    assert await audits.cash(t.provider.address) == before[0] + PAID - fee.value
    assert await audits.cash(t.buyer.address) == before[1] - PAID - share.value
    assert await audits.cash(key("audits").address) == share.value


async def test_what_the_node_shows_is_what_a_verifier_checks(audits: Audits) -> None:
    batch = await audits.drawn()
    ledger = Ledger()
    for event in audits.first.events:
        ledger.apply(event)
    on_chain: BatchOnChain = ledger.batches[batch.lease, 0]
    buyer = ledger.buyer_of(batch.lease)
    assert buyer == audits.trading.buyer.address
    assert check_outline(batch.outline, on_chain) is None
    for i in range(3):
        evidence = batch.evidence(i)
        assert evidence is not None
        rejection = check_evidence(
            evidence,
            on_chain,
            i,
            deployment=audits.deployed.deployment,
            buyer=buyer,
            keys=ledger,
            outline=batch.outline,
        )
        assert rejection is None


async def test_two_verdicts_accuse_and_after_the_window_convict(audits: Audits) -> None:
    batch = await audits.drawn()
    accused = await audits.accused(batch, 1)
    convict = audits.convicting(batch, 1)
    await audits.second.chain.submit(convict)  # too early: it waits for the chain's clock
    audits.deployed.anvil.pass_time(WINDOWS.challenge + 1)
    told = await audits.node.wait_for(SegmentConvicted)
    price = PAID * batch.outline.weights[1] // 10**6
    assert told.at > accused.until
    assert (told.i, told.refund.value) == (1, price)
    assert told.fine.value == min(20 * price, 1_000_000)
    assert told.bounty.value == told.fine.value // 10
    machine = await audits.node.chain.machine(audits.trading.machine)
    assert machine.bond.value == 49_000_000

    await audits.first.chain.submit(audits.results(batch, set()))
    ended = await audits.node.wait_for(BatchFinalised)
    assert ended.state is BatchState.PARTIAL
    assert ended.provider.value + ended.market.value == PAID - price


async def test_a_verifier_that_knows_better_clears_an_accusation(audits: Audits) -> None:
    batch = await audits.drawn()
    await audits.accused(batch, 2)
    verdict = audits.verdict(batch, 2, SECOND, VerdictResult.MATCH)
    await audits.second.chain.submit(
        ContestSegment(verdict=verdict, opening=opening_of(batch, verdict.payload.i))
    )
    told = await audits.node.wait_for(AccusationContested)
    assert (told.lease, told.batch_no, told.i) == (batch.lease, 0, 2)


async def test_incomparable_segments_are_shown_and_not_paid(audits: Audits) -> None:
    batch = await audits.drawn()
    await audits.first.chain.submit(audits.results(batch, {0, 2}))
    ended = await audits.node.wait_for(BatchFinalised)
    weights = batch.outline.weights
    lost = PAID * (weights[0] + weights[2]) // 10**6
    assert ended.state is BatchState.PARTIAL
    assert ended.provider.value + ended.market.value == PAID - lost
    assert not audits.node.all(SegmentConvicted)


async def test_of_a_silent_nodes_batch_nothing_is_paid_and_nothing_is_shown(
    audits: Audits,
) -> None:
    batch = await audits.drawn()
    whole = audits.results(batch, {0, 1, 2})
    call = ending(batch.lease, whole.endings[0].results)
    await audits.first.chain.submit(call)
    ended = await audits.node.wait_for(BatchFinalised)
    assert (ended.provider.value, ended.audits.value) == (0, 0)
    assert ended.buyer.value == PAID + share_down(TokenAmount(PAID), AUDIT).value


async def test_without_verifiers_the_chain_draws_and_the_hard_cap_pays(audits: Audits) -> None:
    batch, _ = await audits.committed()
    audits.deployed.anvil.mine(257)
    await audits.node.chain.submit(FallbackSeed(lease=batch.lease, batch_no=0))
    await audits.node.wait_for(BatchDrawn)
    audits.deployed.anvil.pass_time(WINDOWS.hard_cap + 1)
    await audits.node.chain.submit(ending(batch.lease, None))
    ended = await audits.first.wait_for(BatchFinalised)
    assert ended.state is BatchState.FINAL_UNVERIFIED
    assert ended.provider.value + ended.market.value == PAID
    assert ended.audits.value == 0


async def test_pay_that_nobody_commits_to_returns_to_the_buyer(audits: Audits) -> None:
    before = await audits.cash(audits.trading.buyer.address)
    lease = await audits.closed()
    audits.deployed.anvil.pass_time(WINDOWS.commit + 2)
    await audits.second.chain.submit(ReturnHeld(lease=lease))
    told = await audits.node.wait_for(HeldReturned)
    assert told.amount.value == PAID + share_down(TokenAmount(PAID), AUDIT).value
    assert await audits.cash(audits.trading.buyer.address) == before


async def test_refusals_come_back_with_their_names(audits: Audits) -> None:
    batch, _ = await audits.committed()
    audits.deployed.anvil.mine(2)
    wrong = audits.reveal(batch, keccak256(b"no preimage"))
    assert "Verification_BadPreimage" in await audits.failure(audits.first, wrong)
    early = audits.results(batch, set())
    assert "Verification_WrongState" in await audits.failure(audits.first, early)
    await audits.first.chain.submit(audits.reveal(batch))
    await audits.first.wait_for(BatchDrawn)
    hidden = audits.results(batch, {1})
    hidden = ending(batch.lease, hidden.endings[0].results)
    assert "Verification_NotShown(i=1)" in await audits.failure(audits.first, hidden)
    others = audits.results(batch, set(), SECOND)
    assert "Verification_NotVerifier" in await audits.failure(audits.second, others)
