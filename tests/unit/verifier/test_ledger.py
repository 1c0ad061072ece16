"""The verifier's picture of the chain: what every reader of the same logs agrees on."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
    MachineRetired,
    SegmentConvicted,
)
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from tests.unit.verifier.builders import (
    BUYER,
    SESSION,
    T0,
    Batch,
    Work,
    address,
    block,
    digest,
    machine,
    opened,
    world_events,
)
from tests.unit.verifier.story import accused, contested, finalised
from verifier.ledger import PROBATION_SEGMENTS, Ledger


def started(*batches: Batch) -> Ledger:
    ledger = Ledger()
    for event in world_events("accused", "other"):
        ledger.apply(event)
    for batch in batches:
        ledger.apply(opened(batch.lease))
        ledger.apply(batch.committed())
    ledger.apply(block(60))
    return ledger


def convicted(batch: Batch, i: int) -> SegmentConvicted:
    return SegmentConvicted(
        lease=batch.lease,
        batch_no=0,
        i=i,
        refund=ZERO_TOKENS,
        fine=ZERO_TOKENS,
        bounty=ZERO_TOKENS,
        at=T0 + 70,
    )


def test_a_batch_goes_through_its_life() -> None:
    batch = Batch("accused", [Work(), Work(number=2)])
    ledger = started(batch)
    seen = [ledger.batches[batch.lease, 0].state]
    for event in (
        batch.drawn(),
        accused(batch, 0, 65, 75),
        accused(batch, 1, 66, 76),
        contested(batch, 1, 70),
        convicted(batch, 0),
        finalised(batch, BatchState.PARTIAL, 80),
    ):
        ledger.apply(event)
        seen.append(ledger.batches[batch.lease, 0].state)
    assert seen == [
        BatchState.COMMITTED,
        BatchState.DRAWN,
        BatchState.ACCUSED,
        BatchState.ACCUSED,
        BatchState.ACCUSED,
        BatchState.DRAWN,
        BatchState.PARTIAL,
    ]
    end = ledger.batches[batch.lease, 0]
    assert end.seed == digest("seed")
    assert (end.contested, end.convicted) == (frozenset({1}), frozenset({0}))
    assert not end.is_open


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (BatchState.FINAL, True),
        (BatchState.PARTIAL, False),
        (BatchState.FINAL_UNVERIFIED, False),
        (BatchState.SLASHED, False),
    ],
)
def test_only_what_passed_whole_earns_trust(state: BatchState, counts: bool) -> None:
    first, second = (Batch("accused", [Work()], seq=seq) for seq in (1, 2))
    other = Batch("other", [Work()])
    ledger = started(first)
    ledger.apply(finalised(first, state, 70))
    for batch in (second, other):
        ledger.apply(batch.committed())
    passed = first.value if counts else ZERO_TOKENS
    assert ledger.batches[second.lease, 0].passed == passed
    assert ledger.batches[other.lease, 0].passed == TokenAmount(0)


def test_probation_lasts_a_hundred_segments() -> None:
    batches = [Batch("accused", [Work(number=i + 1) for i in range(40)], seq=s) for s in range(6)]
    ledger = started(batches[0])
    ledger.apply(convicted(batches[0], 0))
    for batch in batches[1:]:
        ledger.apply(batch.committed())
    assert PROBATION_SEGMENTS == 100
    assert [ledger.batches[b.lease, 0].on_probation for b in batches[1:]] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_commitments_are_counted_over_the_deployment() -> None:
    batches = [Batch(name, [Work()]) for name in ("accused", "other")]
    ledger = started(*batches)
    assert [ledger.batches[batch.lease, 0].number for batch in batches] == [0, 1]


def test_keys_buyers_and_products() -> None:
    batch = Batch("accused", [Work()])
    ledger = started(batch)
    assert ledger.buyer_of(batch.lease) == BUYER.address
    assert ledger.may_sign(BUYER.address, SESSION.address, KeyRole.SESSION, T0)
    assert not ledger.may_sign(BUYER.address, SESSION.address, KeyRole.NODE, T0)
    assert not ledger.may_sign(address("accused"), SESSION.address, KeyRole.SESSION, T0)
    product = ledger.product_of(machine("accused"))
    assert product is not None
    assert ledger.owners_of(product.product) == {address("accused"), address("other")}
    ledger.apply(MachineRetired(machine=machine("other")))
    assert ledger.owners_of(product.product) == {address("accused")}
    assert ledger.product_of(machine("other")) is None


def test_replaced_blocks_take_back_exactly_what_they_said() -> None:
    batch, next_one = (Batch("accused", [Work()], seq=seq) for seq in (1, 2))
    ledger = started(batch)
    ledger.apply(batch.drawn())
    ledger.apply(block(63))
    ledger.apply(finalised(batch, BatchState.FINAL, 64))
    ledger.apply(block(64))
    ledger.apply(next_one.committed())
    ledger.apply(MachineRetired(machine=machine("other")))
    ledger.apply(block(65))
    ledger.apply(convicted(batch, 0))  # its block has not ended
    assert ledger.batches[next_one.lease, 0].passed == batch.value

    ledger.apply(ChainReorganised(block=63))
    assert ledger.block == 63
    assert (next_one.lease, 0) not in ledger.batches
    assert ledger.batches[batch.lease, 0].state is BatchState.DRAWN
    assert ledger.batches[batch.lease, 0].convicted == frozenset()
    assert address("other") in ledger.owners_of(1)
    ledger.apply(next_one.committed())
    again = ledger.batches[next_one.lease, 0]
    assert (again.number, again.passed, again.on_probation) == (1, ZERO_TOKENS, False)


def test_what_is_said_of_an_unknown_batch_changes_nothing() -> None:
    batch = Batch("accused", [Work()])
    ledger = started()
    ledger.apply(batch.drawn())
    ledger.apply(finalised(batch, BatchState.FINAL, 64))
    assert not ledger.batches
