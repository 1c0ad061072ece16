"""The devnet's prices are the list's, for one GPU, never below it, on the tick."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.adapters.devnet_profile import (
    MACHINES_EACH,
    MAX_PRICE,
    SHARED_CLASS,
    SHARED_EACH,
    machines_of,
    products_of,
)
from cloud_gpu.adapters.offers import dealt, price_per_gpu_hour, read_offers, single_gpus
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import TokenAmount, parse_price


@given(st.integers(1, 10**12), st.integers(1, 16))
def test_a_price_is_rounded_up_to_the_next_tick_and_no_further(total: int, gpus: int) -> None:
    price = price_per_gpu_hour(TokenAmount(total), gpus).value
    assert 0 <= price - Fraction(total, gpus) < limits.PRICE_TICK


def test_the_a100_pair_costs_what_the_list_says() -> None:
    (pair,) = [o for o in read_offers() if o.gpu_class == "A100-SXM4-40GB" and o.gpus == 2]
    assert pair.price == parse_price("0.745")  # 1.49 an hour for two
    assert pair.gpu_memory_mib == 40_960
    assert pair.region == "SI/EU"


def test_rows_that_contradict_their_model_are_left_out() -> None:
    cards = [offer for offer in read_offers() if offer.gpu_class == "RTX4090-24GB"]
    assert cards
    assert all(offer.gpu_memory_mib == 24_564 for offer in cards)  # not the "4090" of 48 GB


@pytest.mark.parametrize("nodes", [1, 2, 4, 16])
def test_any_devnet_has_a_pair_of_a100_below_the_buyers_limit(nodes: int) -> None:
    machines = [m for hand in machines_of(nodes) for m in hand]
    assert len(machines) == nodes * (MACHINES_EACH + SHARED_EACH)
    assert any(m.offer.gpu_class.startswith("A100") and m.offer.gpus == 2 for m in machines)
    assert all(m.offer.price < parse_price(MAX_PRICE) for m in machines)


def test_two_nodes_sell_the_same_product_at_least_once() -> None:
    first, second = ({(m.offer.gpu_class, m.offer.gpus) for m in hand} for hand in machines_of(2))
    assert first & second


def test_every_node_has_machines_of_one_class_at_its_own_price() -> None:
    hands = [
        [m.offer for m in hand if (m.offer.gpu_class, m.offer.gpus) == (SHARED_CLASS, 1)]
        for hand in machines_of(4)
    ]
    assert all(len(hand) >= SHARED_EACH for hand in hands)
    prices = [min(offer.price.value for offer in hand) for hand in hands]
    assert prices == sorted(prices)
    assert prices[0] < prices[1] < prices[2]


def test_single_gpus_keep_what_an_instance_costs_for_one() -> None:
    listed = {o.price for o in read_offers() if o.gpu_class == SHARED_CLASS}
    cut = single_gpus(read_offers(), SHARED_CLASS)
    assert [o.price for o in cut] == sorted(listed, key=lambda price: price.value)
    assert {o.gpus for o in cut} == {1}


def test_products_cover_the_machines() -> None:
    machines = machines_of(3)
    assert set(products_of(machines)) == {
        (m.offer.gpu_class, m.offer.gpus) for hand in machines for m in hand
    }


def test_offers_are_dealt_in_turn_and_start_again() -> None:
    offers = read_offers()[:3]
    assert dealt(offers, 2, 2) == ((offers[0], offers[2]), (offers[1], offers[0]))
