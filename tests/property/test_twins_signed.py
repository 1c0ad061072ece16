"""Whatever is signed: its digest is the same in Python and in Solidity, of any values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from benchmarks._chain import running_chain
from benchmarks.season import TERMS
from cloud_gpu.protocol.adapters.bindings import futures, group_buy, lease_book, verification
from cloud_gpu.protocol.signing import TypedData
from tests.support import drawing, twins

DOMAINS = {
    "domain": lease_book.domain_separator(),
    "verification_domain": verification.domain_separator(),
    "futures_domain": futures.domain_separator(),
    "group_buy_domain": group_buy.domain_separator(),
}
"""Of a Deployment, and who names it on the chain."""

SIGNED: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "ask": ("domain", drawing.asks),
    "bid": ("domain", drawing.bids),
    "matched": ("domain", drawing.matches),
    "ready": ("domain", drawing.readies),
    "accepted": ("domain", drawing.accepts),
    "voucher": ("domain", drawing.vouchers),
    "finals": ("domain", drawing.finals),
    "delegation": ("domain", drawing.delegations),
    "commitment": ("verification_domain", drawing.commitments),
    "verdict": ("verification_domain", drawing.verdicts),
    "results": ("verification_domain", drawing.results),
    "futureOrder": ("futures_domain", drawing.future_orders),
    "assignment": ("futures_domain", drawing.assignments),
    "pledge": ("group_buy_domain", drawing.pledges),
}
"""Function of SignedTwins -> domain, values."""


@pytest.fixture(scope="module")
def signed() -> Iterator[twins.Twins]:
    twins.build()
    with running_chain(TERMS) as chain:
        yield twins.placed(chain, "SignedTwins")


@pytest.mark.parametrize("function", SIGNED)
def test_both_sides_sign_the_same(signed: twins.Twins, function: str) -> None:
    name, values = SIGNED[function]
    separator = signed.chain.ask(DOMAINS[name])
    domain = getattr(signed.chain.deployment, name)

    def check(drawn: Sequence[TypedData]) -> None:
        ours = [value.digest(domain).raw for value in drawn]
        assert list(signed.ask(function, separator, drawn)) == ours

    twins.for_many(values, check)
