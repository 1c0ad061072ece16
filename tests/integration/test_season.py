"""A short season of random trade: nothing is left in the book, and broken rules are seen."""

import random

import pytest

from benchmarks import season
from benchmarks._chain import running_chain
from benchmarks._parties import Market
from benchmarks._season import Broken, Season
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token
from cloud_gpu.protocol.lease import LeaseFlags


def test_everybody_goes_with_what_is_theirs() -> None:
    outcome = season.play(600, seed=6)
    assert outcome.left == 0
    assert outcome.facts["leases"] >= 20
    assert outcome.facts["futures"] >= 8
    assert outcome.facts["futures delivered"] >= 2
    assert outcome.facts["group buys"] >= 1
    assert outcome.facts["challenges"] >= 1
    assert outcome.fouls >= 30
    assert outcome.done >= outcome.operations // 4


def test_what_must_not_happen_ends_a_season() -> None:
    with running_chain(season.TERMS) as chain:
        market = Market(chain, flags=int(LeaseFlags.VERIFIED))
        played = Season(chain, market, [], [], [], random.Random(1))
        owner = market.member("somebody")
        with pytest.raises(Broken, match="a foul call went through"):
            played.foul(owner, lease_book.withdraw(1))
        # Tokens that nobody deposited are nobody's, and are noticed.
        book = chain.deployment.lease_book
        chain.send(owner, payment_token.mint(book, 5))
        with pytest.raises(Broken, match="holds 10000000004 base units and owes 9999999999"):
            season._check(played)
