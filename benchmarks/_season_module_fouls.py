"""Foul moves against Futures, GroupBuy and Verification."""

from __future__ import annotations

from msgspec.structs import replace

from benchmarks._audited import VERIFIERS
from benchmarks._parties import PRICE
from benchmarks._season import Broken, Season
from benchmarks._season_audits import POINTS, drawn, state_of
from benchmarks._season_futures import handing_over
from benchmarks._season_groups import entry, locking, slices_of
from benchmarks._season_moves import Move
from cloud_gpu.protocol.adapters.bindings import futures, group_buy, lease_book
from cloud_gpu.protocol.adapters.evm_group_buys import campaign_row
from cloud_gpu.protocol.audit import BatchState, VerdictResult
from cloud_gpu.protocol.calls import (
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSilence,
    FinaliseBatches,
    RevealPreimages,
)
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.values import Digest

_SOON = 60
"""Seconds: a block's time is not known before."""


# Futures.


def act_for_a_side(s: Season) -> None:
    """Fund, nominate or leave in somebody else's place."""
    if not s.ahead:
        return
    ahead = s.dice.choice(s.ahead)
    other = s.stranger(ahead.long, ahead.short)
    calls = (
        futures.fund(ahead.number),
        futures.nominate(ahead.number, (0,)),
        handing_over(s, ahead, other, is_buy=s.dice.random() < 0.5, signer=other),
    )
    s.foul(other.wallet, s.dice.choice(calls))


def force_a_side_on(s: Season) -> None:
    """Hand a side to somebody that did not sign for it, or to the other side."""
    if not s.ahead:
        return
    ahead, is_buy = s.dice.choice(s.ahead), s.dice.random() < 0.5
    leaver, counterparty = (ahead.long, ahead.short) if is_buy else (ahead.short, ahead.long)
    victim = s.dice.choice((s.stranger(leaver), counterparty))
    signer = counterparty if victim is counterparty else leaver
    call = handing_over(s, ahead, victim, is_buy=is_buy, signer=signer)
    s.foul(leaver.wallet, call)


def replay_a_pair(s: Season) -> None:
    """Its orders' nonces are used: nothing opens."""
    if not s.ahead:
        return
    ahead = s.dice.choice(s.ahead)
    before = s.chain.ask(futures.contract_count())
    if s.chain.time() + _SOON < s.chain.ask(
        futures.deadline_of(ahead.series.window_start, ahead.series.window_seconds)
    ):
        call = futures.open_futures(ahead.series, ahead.price, (ahead.pair,))
        s.chain.send(s.market.matcher, call)
        if s.chain.ask(futures.contract_count()) != before:
            raise Broken(f"contract {ahead.number} opened again")
        s.fouls += 1


def end_a_contract_wrongly(s: Season) -> None:
    """Too early, or in a way that gives one side the other's margin."""
    if not s.ahead:
        return
    ahead = s.dice.choice(s.ahead)
    number, now = ahead.number, s.chain.time()
    both = ahead.funded and ahead.machines
    closes_at = s.chain.ask(
        futures.deadline_of(ahead.series.window_start, ahead.series.window_seconds)
    )
    if both or now + _SOON < closes_at:
        s.foul(s.stranger().wallet, futures.settle_default(number))
    if not both or now + _SOON < ahead.series.window_start + s.chain.deployment.windows.start:
        s.foul(s.stranger().wallet, futures.lapse(number))


def deliver_wrongly(s: Season) -> None:
    """Before the window, or other machines than the nominated."""
    ready = [ahead for ahead in s.ahead if ahead.funded and ahead.machines]
    if not ready:
        return
    ahead = s.dice.choice(ready)
    s.foul(s.stranger().wallet, futures.deliver(ahead.number, (*ahead.machines, 7)))
    if s.chain.time() + _SOON < ahead.series.window_start:
        s.foul(s.stranger().wallet, futures.deliver(ahead.number, ahead.machines))


def take_margins(s: Season) -> None:
    """Of a lease that runs, or of one that has none; or report its end oneself."""
    key = s.dice.choice(s.units) if s.units else None
    if key is None:
        return
    unit = s.chain.ask(futures.unit_of(key.provider, key.index, key.seq))
    if unit.end == 0:
        s.foul(s.stranger().wallet, futures.settle_unit(key.provider, key.index, key.seq))
    machine = MachineKey(provider=key.provider, index=key.index).word.raw
    s.foul(s.stranger().wallet, futures.lease_ended(machine, key.seq, 1, 1))
    s.foul(s.stranger().wallet, futures.settle_unit(key.provider, key.index, key.seq + 1_000))


# Group buys.


def pledge_for_another(s: Season) -> None:
    """A pledge that its buyer did not sign, or that locks more than it says."""
    if not s.pools:
        return
    pool = s.dice.choice(s.pools)
    buyer = s.dice.choice(s.buyers)
    forged = locking(s, pool, buyer, slices=1, signer=s.stranger(buyer))
    dear = locking(s, pool, buyer, slices=1, signer=buyer, short=1)
    s.foul(s.market.matcher, s.dice.choice((forged, dear)))


def close_wrongly(s: Season) -> None:
    """With too few machines, a lower price, or an ask that its provider did not sign so."""
    if not s.pools:
        return
    pool, machine = s.dice.choice(s.pools), s.dice.choice(s.machines)
    row, one = campaign_row(pool.campaign), entry(s, pool, machine)
    forged = replace(one, signature=s.market.ask(machine).signature.raw)
    cheaper = replace(row, price_per_hour=PRICE.value - 1)
    s.foul(s.stranger().wallet, group_buy.close_campaign(row, pool.listed, ()))
    s.foul(s.stranger().wallet, group_buy.close_campaign(cheaper, pool.listed, (one,)))
    if pool.campaign.goal == 1 and slices_of(pool):
        s.foul(s.stranger().wallet, group_buy.close_campaign(row, pool.listed, (forged,)))


def withdraw_a_pledge(s: Season) -> None:
    """Before the deadline, or one that is not there."""
    if not s.pools:
        return
    pool = s.dice.choice(s.pools)
    row = campaign_row(pool.campaign)
    s.foul(s.stranger().wallet, group_buy.refund_pledge(row, 99))
    if pool.pledges and s.chain.time() + _SOON < pool.campaign.deadline:
        place = s.dice.choice(list(pool.pledges))
        s.foul(pool.pledges[place][0].wallet, group_buy.refund_pledge(row, place))


# Verification.


def ask_wrongly(s: Season) -> None:
    """Challenge without being a verifier, or one point twice; convict silence before its time."""
    if (found := drawn(s)) is None:
        return
    batch, row = found
    m = min(batch.n, POINTS)
    call = ChallengeLeaf(lease=batch.lease, batch_no=0, j=0, m=m)
    s.foul(s.stranger().wallet, call)
    s.foul(VERIFIERS[0], replace(call, j=m))
    for j in range(m):
        silence = ConvictSilence(lease=batch.lease, batch_no=0, j=j)
        if not row.challenged >> j & 1:
            s.foul(s.stranger().wallet, silence)
            continue
        s.foul(VERIFIERS[0], replace(call, j=j))
        if s.chain.time() + _SOON < row.answer_by:
            s.foul(VERIFIERS[0], silence)
        shown = batch.shown(j, Digest(row.seed))
        s.foul(s.stranger().wallet, replace(shown, leaf=replace(shown.leaf, result=shown.leaf.job)))


def accuse_alone(s: Season) -> None:
    """With one verifier's signature twice, or a provider's."""
    if (found := drawn(s)) is None:
        return
    batch, row = found
    i = s.dice.randrange(batch.n)
    accusation = batch.accusation(i)
    s.foul(VERIFIERS[0], replace(accusation, second=accusation.first))
    other = batch.verdict(i, VerdictResult.MISMATCH, s.stranger().wallet)
    s.foul(VERIFIERS[0], replace(accusation, first=other))
    # Verifiers take turns: a stranger's results end nothing.
    ending = batch.ending(row.number % 2)
    assert ending.results is not None, "signed by a verifier"
    body, domain = ending.results.payload, s.chain.deployment.verification_domain
    forged = replace(ending, results=sign(body, domain, s.stranger().wallet))
    s.foul(s.stranger().wallet, FinaliseBatches(endings=(forged,)))


def clear_oneself(s: Season) -> None:
    """An accused provider contests, or draws with a preimage of its own."""
    if not s.batches:
        return
    batch = s.dice.choice(s.batches)
    state, row = state_of(s, batch)
    provider = s.party(batch.lease.provider)
    if state is BatchState.ACCUSED:
        i = row.accused.bit_length() - 1
        said = batch.verdict(i, VerdictResult.MATCH, provider.wallet)
        s.foul(provider.wallet, ContestSegment(verdict=said, opening=batch.opening(i)))
    if state is BatchState.COMMITTED:
        draw = replace(batch.draw(row.number), preimage=Digest(b"\x07" * 32))
        s.foul(provider.wallet, RevealPreimages(draws=(draw,)))
    domain = s.chain.deployment.verification_domain
    again = sign(batch.commit(), domain, provider.daily)
    s.foul(provider.daily, CommitBatch(commit=again))


def act_as_futures(s: Season) -> None:
    """Take cash, give what is not there, use a nonce, or open a lease that nobody paid for."""
    victim = s.dice.choice(s.buyers).wallet.address
    machine = s.dice.choice(s.machines)
    key = MachineKey(provider=machine.provider.wallet.address, index=machine.index).word.raw
    opening = lease_book.Opening(victim, s.market.product, PRICE.value, 60, 0, bytes(32))
    calls = (
        lease_book.take_cash(victim, 1),
        lease_book.give_cash(victim, 1),
        lease_book.use_nonce(victim, 2**31),
        lease_book.open_firm(key, opening),
    )
    s.foul(s.stranger().wallet, s.dice.choice(calls))


MODULE_FOUL: tuple[tuple[Move, int], ...] = (
    (act_for_a_side, 2),
    (force_a_side_on, 2),
    (replay_a_pair, 2),
    (end_a_contract_wrongly, 2),
    (deliver_wrongly, 2),
    (take_margins, 2),
    (pledge_for_another, 2),
    (close_wrongly, 1),
    (withdraw_a_pledge, 1),
    (ask_wrongly, 2),
    (accuse_alone, 2),
    (clear_oneself, 2),
    (act_as_futures, 1),
)
