"""The arithmetic of an ending conserves, and equals the vectors that Solidity is held to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.settlement import (
    accrued,
    bond_needed,
    no_show_amount,
    payable,
    release_penalty,
    settle,
)
from cloud_gpu.protocol.units import BasisPoints, TokenAmount

VECTORS = Path(__file__).parents[2] / "vectors" / "settlement.json"
CASES = json.loads(VECTORS.read_text())["cases"]
amounts = st.integers(0, limits.LEASE_CAP_MAX)


def test_vectors_when_counted_then_there_are_some() -> None:
    assert len(CASES) >= 50


@pytest.mark.parametrize("case", CASES)
def test_settlement_when_given_a_vector_then_equal(case: dict[str, str]) -> None:
    at = {name: int(value) for name, value in case.items()}
    cap, paid = TokenAmount(at["cap"]), TokenAmount(at["paid"])
    ceiling = accrued(cap, at["elapsed"], at["duration"])
    voucher, fee = TokenAmount(at["voucher"]), BasisPoints(at["feeBps"])
    split = settle(cap, paid, voucher, ceiling, fee, close=True)
    rest = cap - paid - payable(voucher, ceiling, paid)
    assert ceiling.value == at["accrued"]
    assert payable(voucher, ceiling, paid).value == at["payable"]
    assert (split.provider.value, split.market.value) == (at["provider"], at["fee"])
    assert split.buyer.value == at["refundOnClose"]
    assert no_show_amount(cap, at["duration"]).value == at["noShow"]
    assert release_penalty(rest, BasisPoints(at["penaltyBps"])).value == at["penalty"]
    assert bond_needed(cap, BasisPoints(at["minBondBps"])).value == at["bondNeeded"]


@given(
    cap=amounts,
    elapsed=st.integers(-10, 2**25),
    duration=st.integers(1, limits.DURATION_S_MAX),
    steps=st.lists(st.tuples(amounts, st.integers(0, 2**24)), max_size=6),
    fee=st.integers(0, limits.FEE_BPS_MAX),
)
def test_settlement_when_vouchers_come_in_any_order_then_conserves(
    cap: int, elapsed: int, duration: int, steps: list[tuple[int, int]], fee: int
) -> None:
    escrow, paid, out = TokenAmount(cap), TokenAmount(0), 0
    for voucher, wait in steps:
        elapsed += wait
        ceiling = accrued(escrow, elapsed, duration)
        split = settle(escrow, paid, TokenAmount(voucher), ceiling, BasisPoints(fee), close=False)
        paid, out = paid + split.provider + split.market, out + split.total.value
        assert paid.value <= ceiling.value <= cap
        assert paid.value <= max(v for v, _ in steps)
    last = settle(escrow, paid, TokenAmount(cap), escrow, BasisPoints(fee), close=True)
    assert out + last.total.value == cap


@given(cap=st.integers(1, limits.LEASE_CAP_MAX), duration=st.integers(1, limits.DURATION_S_MAX))
def test_no_show_when_charged_then_never_above_the_cap(cap: int, duration: int) -> None:
    amount = no_show_amount(TokenAmount(cap), duration).value
    assert 0 < amount <= cap
    if duration <= limits.NO_SHOW_S:
        assert amount == cap
