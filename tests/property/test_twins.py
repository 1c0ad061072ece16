"""What is hashed unsigned, proven, packed and counted: the same in Python and in Solidity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks._chain import named_key, running_chain
from benchmarks.season import TERMS
from cloud_gpu.protocol import futures, settlement
from cloud_gpu.protocol.adapters.evm_packing import (
    packed_closings,
    packed_matches,
    packed_starts,
)
from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    WEIGHT_ONE,
    Leaf,
    Sibling,
    SumTree,
    batch_key,
    draw_point,
    prove,
    seed_of,
)
from cloud_gpu.protocol.calls import Closing, MatchedOrders
from cloud_gpu.protocol.group_buy import Campaign, providers_hash
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Domain, Signed, recover, sign
from cloud_gpu.protocol.units import (
    BasisPoints,
    GpuSeconds,
    Price,
    TokenAmount,
    cost_down,
    share_down,
    share_up,
)
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, Signature, keccak256
from cloud_gpu.protocol.voucher import Accept, Final, Voucher
from tests.support import drawing, twins
from tests.support.drawing import words

KEYS = tuple(named_key(f"signer {n}") for n in range(4))
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""Of the curve: a signature with a larger s is not taken (EIP-2)."""


@pytest.fixture(scope="module")
def other() -> Iterator[twins.Twins]:
    twins.build()
    with running_chain(TERMS) as chain:
        yield twins.placed(chain, "OtherTwins")


# Names.


def test_campaigns_have_the_same_ids(other: twins.Twins) -> None:
    deployment = other.chain.deployment
    chain_id, contract = deployment.chain_id, deployment.group_buy

    def check(drawn: Sequence[Campaign]) -> None:
        ours = [campaign.id(chain_id=chain_id, contract=contract).raw for campaign in drawn]
        assert list(other.ask("campaign", contract, drawn)) == ours

    twins.for_many(drawing.campaigns, check)


def test_lists_of_providers_have_the_same_names(other: twins.Twins) -> None:
    def check(drawn: Sequence[list[Address]]) -> None:
        assert list(other.ask("providers", drawn)) == [providers_hash(each).raw for each in drawn]

    twins.for_many(st.lists(drawing.addresses, max_size=5), check)


# Audits.


def test_leaves_have_the_same_hashes_and_batches(other: twins.Twins) -> None:
    deployment = other.chain.deployment
    place = deployment.chain_id, deployment.verification

    def check(drawn: Sequence[Leaf]) -> None:
        ours = [(leaf.hash(*place).raw, batch_key(leaf.lease, leaf.batch_no).raw) for leaf in drawn]
        rows = [_row(leaf) for leaf in drawn]
        assert list(other.ask("leaves", deployment.verification, rows)) == ours

    twins.for_many(drawing.leaves, check)


def _row(leaf: Leaf) -> tuple[object, ...]:
    lease = leaf.lease
    place = (lease.provider, lease.index, lease.seq, leaf.batch_no, leaf.i, leaf.weight)
    return (*place, leaf.job, leaf.result, leaf.salt)


def test_draws_give_the_same_points(other: twins.Twins) -> None:
    def check(drawn: Sequence[tuple[Digest, ...]]) -> None:
        seeds = [seed_of(*each) for each in drawn]
        ours = [(int.from_bytes(seed.raw, "big"), draw_point(seed, 7)) for seed in seeds]
        assert list(other.ask("draws", drawn, 7)) == ours

    twins.for_many(st.tuples(*(drawing.digests,) * 4), check)


Proof = tuple[Digest, int, int, Sibling, tuple[Sibling, ...]]


@st.composite
def proofs(draw: st.DrawFn) -> Proof:
    """Of any leaf of any tree, leaves without weight among them; half of them altered."""
    n = draw(st.one_of(st.integers(1, 9), st.sampled_from((31, 64, 97, SEGMENTS_MAX))))
    cuts = sorted(draw(st.integers(0, WEIGHT_ONE)) for _ in range(min(n - 1, 8)))
    edges = [0, *cuts, *[WEIGHT_ONE] * (n - len(cuts))]
    salt = draw(words(16)).to_bytes(2, "big")
    leaves = [
        Sibling(hash=keccak256(salt + bytes([k])), weight=edges[k + 1] - edges[k]) for k in range(n)
    ]
    tree, i = SumTree(leaves), draw(st.integers(0, n - 1))
    root, leaf, steps = tree.root, leaves[i], tree.proof(i)
    match draw(st.integers(0, 9)):
        case 0:
            i = draw(st.integers(0, SEGMENTS_MAX))
        case 1:
            n = draw(st.integers(1, SEGMENTS_MAX + 1))
        case 2:
            leaf = replace(leaf, weight=draw(st.integers(0, WEIGHT_ONE)))
        case 3:
            steps = steps[:-1]
        case 4 if steps:
            heavy = replace(steps[0], weight=draw(st.integers(0, WEIGHT_ONE)))
            steps = (heavy, *steps[1:])
        case _:
            pass
    return root, n, i, leaf, steps


def test_the_same_proofs_hold(other: twins.Twins) -> None:
    held = 0

    def check(drawn: Sequence[Proof]) -> None:
        nonlocal held
        starts = [prove(*each) for each in drawn]
        ours = [0 if start is None else start + 1 for start in starts]
        rows = [(root, n, i, leaf.hash, leaf.weight, steps) for root, n, i, leaf, steps in drawn]
        assert list(other.ask("proofs", rows)) == ours
        held += sum(start is not None for start in starts)

    twins.for_many(proofs(), check)
    assert held > twins.CASES_EACH // 4


# Packed calldata.


def _shared(pairs: Sequence[tuple[Ask, Bid]], *, pinned: Sequence[bool]) -> list[tuple[Ask, Bid]]:
    """As one call carries them: of one product, count and matcher."""
    head, count = pairs[0][0], pairs[0][1].count
    found = []
    for (ask, bid), pin in zip(pairs, pinned, strict=True):
        ask = replace(ask, product=head.product, matcher=head.matcher)
        bid = replace(
            bid,
            product=head.product,
            matcher=head.matcher,
            count=count,
            provider=ask.provider if pin else ZERO_ADDRESS,
        )
        found.append((ask, bid))
    return found


def test_packed_matches_say_what_was_signed(other: twins.Twins) -> None:
    domain = other.chain.deployment.domain

    def check(drawn: Sequence[tuple[Ask, Bid, bool]]) -> None:
        pairs = _shared([(a, b) for a, b, _ in drawn], pinned=[pin for _, _, pin in drawn])
        signed = [
            MatchedOrders(ask=sign(ask, domain, KEYS[k % 4]), bid=sign(bid, domain, KEYS[k % 3]))
            for k, (ask, bid) in enumerate(pairs)
        ]
        head, count = pairs[0][0], pairs[0][1].count
        packed = packed_matches(head.product, signed)
        assert packed is not None
        shared = head.product, count, head.matcher
        found = other.ask("matches", domain.separator, packed, *shared)
        assert list(found) == [
            (ask.id.raw, bid.id.raw, KEYS[k % 4].address, KEYS[k % 3].address)
            for k, (ask, bid) in enumerate(pairs)
        ]

    twins.for_many(st.tuples(drawing.asks, drawing.bids, st.booleans()), check)


def test_packed_starts_say_what_was_signed(other: twins.Twins) -> None:
    domain = other.chain.deployment.domain

    def check(drawn: Sequence[Accept]) -> None:
        provider = drawn[0].provider
        accepts = [
            sign(replace(each, provider=provider), domain, KEYS[k % 4])
            for k, each in enumerate(drawn)
        ]
        found = other.ask("starts", domain.separator, provider, packed_starts(accepts))
        assert [tuple(each) for each in found] == [
            tuple(accept.payload.struct_hash().raw for accept in accepts),
            tuple(KEYS[k % 4].address for k in range(len(accepts))),
        ]

    twins.for_many(drawing.accepts, check)


def test_packed_closings_say_what_was_signed(other: twins.Twins) -> None:
    domain = other.chain.deployment.domain

    def check(drawn: Sequence[tuple[Voucher, bool]]) -> None:
        closings = [_closing(domain, voucher, early) for voucher, early in drawn]
        rows = other.ask("closings", domain.separator, packed_closings(closings))
        for closing, row in zip(closings, rows, strict=True):
            voucher, final, by_voucher, by_final, provider = row
            assert voucher == closing.voucher.payload.struct_hash().raw
            assert final == closing.final.payload.struct_hash().raw
            buyer = by_voucher if closing.buyer_final is None else by_final
            assert (buyer[12:], provider[12:]) == (KEYS[0].address.raw, KEYS[1].address.raw)

    twins.for_many(st.tuples(drawing.vouchers, st.booleans()), check)


def _closing(domain: Domain, voucher: Voucher, early: bool) -> Closing:
    """`early`: the buyer signed the Final, too, as before a lease's end."""
    final = Final(
        provider=voucher.provider, index=voucher.index, seq=voucher.seq, amount=voucher.amount
    )
    return Closing(
        voucher=sign(voucher, domain, KEYS[0]),
        final=sign(final, domain, KEYS[1]),
        buyer_final=sign(final, domain, KEYS[0]) if early else None,
    )


def test_any_bytes_are_the_same_signature_of_the_same_key(other: twins.Twins) -> None:
    """Of s below 2^255: the packed form keeps v in the bit above, which good signatures leave 0."""
    domain = other.chain.deployment.domain
    said = Accept(provider=ZERO_ADDRESS, index=1, seq=2, started_at=3)
    digest = said.digest(domain)

    def check(drawn: Sequence[tuple[int, int, int]]) -> None:
        raw = [Signature(b"%b%b%c" % (_word(r), _word(s), v)) for r, s, v in drawn]
        signed = [Signed(payload=said, signature=each) for each in raw]
        _, signers = other.ask("starts", domain.separator, ZERO_ADDRESS, packed_starts(signed))
        assert list(signers) == [recover(digest, each) or ZERO_ADDRESS for each in raw]

    good = sign(said, domain, KEYS[0]).signature.raw
    r_of, s_of = (int.from_bytes(part, "big") for part in (good[:32], good[32:64]))
    rs = st.one_of(st.just(r_of), words(256))
    near = st.integers(HALF_ORDER - 2, HALF_ORDER + 2)
    ss = st.one_of(st.just(s_of), st.just(2 * HALF_ORDER + 1 - s_of), near, words(255))
    cases = st.tuples(rs, ss.map(lambda s: s % 2**255), st.sampled_from((27, 28)))
    twins.for_many(cases, check)


def _word(value: int) -> bytes:
    return value.to_bytes(32, "big")


# Arithmetic.


def test_leases_are_settled_the_same(other: twins.Twins) -> None:
    def check(drawn: Sequence[tuple[int, ...]]) -> None:
        assert list(other.ask("settlements", drawn)) == [_settled(*each) for each in drawn]

    cap = words(48)
    share = words(16)
    cases = st.tuples(cap, words(32), words(24, 1), cap, cap, share, words(32))
    twins.for_many(cases, check)


def _settled(
    cap: int, elapsed: int, duration: int, voucher: int, paid: int, share: int, window: int
) -> tuple[int, ...]:
    whole, bps = TokenAmount(cap), BasisPoints(share)
    ceiling = settlement.accrued(whole, elapsed, duration)
    due = settlement.payable(TokenAmount(voucher), ceiling, TokenAmount(paid))
    return (
        ceiling.value,
        paid + due.value,
        share_down(whole, bps).value,
        share_up(whole, bps).value,
        settlement.no_show_amount(whole, duration, window).value,
    )


def test_margins_are_the_same(other: twins.Twins) -> None:
    def check(drawn: Sequence[tuple[int, ...]]) -> None:
        assert list(other.ask("margins", drawn)) == [_margins(*each) for each in drawn]

    ticks = st.integers(1, 2 * 10**8)  # with eight GPUs for a week still below 2^48 base units
    cases = st.tuples(
        ticks.map(lambda n: n * 1_000),
        st.integers(1, 8),
        st.integers(1, futures.UNITS_MAX),
        st.sampled_from(futures.WINDOWS_S),
        st.integers(1, 5_000),
        words(48),
        words(24),
    )
    twins.for_many(cases, check)


def _margins(
    price: int, gpus: int, units: int, window: int, share: int, floor: int, left: int
) -> tuple[int, ...]:
    margin = futures.margin(
        Price(price),
        gpus=gpus,
        units=units,
        window_s=window,
        share=BasisPoints(share),
        floor=TokenAmount(floor),
    )
    part = futures.part(margin, units)
    lost = futures.forfeit(part, left_s=left, window_s=window)
    cost = cost_down(Price(price), GpuSeconds(gpus * window))
    return cost.value, margin.value, part.value, lost.value
