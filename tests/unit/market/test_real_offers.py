"""One day's real offers as the book: what a query finds, what a bid costs, why one gets nothing."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

import pytest
from msgspec.structs import replace

from cloud_gpu.bidding import LeaseRequest, ways_for, wish
from cloud_gpu.protocol.hardware import Gpu, GpuClass
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.units import format_tokens, parse_tokens
from cloud_gpu.quoting import look_up
from tests.unit.market.builders import (
    NOW_S,
    Desk,
    advert,
    joined,
    order,
    product,
    profile,
    provider,
)

RICH = 10_000


@dataclass(frozen=True)
class Row:
    """One listed instance; a provider each."""

    name: str
    model: GpuClass
    gpus: int
    memory_mib: int
    tick_price: str
    region: str


def rows() -> list[Row]:
    text = (resources.files("cloud_gpu.adapters") / "offers" / "vast.csv").read_text()
    found = []
    for place, line in enumerate(csv.DictReader(text.splitlines())):
        gpus = int(line["count"])
        ticks = -(-parse_tokens(line["price_per_hour_usd"]).value // (gpus * 1_000))
        found.append(
            Row(
                name=f"provider-{place}",
                model=GpuClass(line["instance"].split("-")[1].replace("_", "-")),
                gpus=gpus,
                memory_mib=int(line["gpu_memory_total_mib"]) // gpus,
                tick_price=format_tokens(ticks * 1_000, 3),
                region="/".join(part.strip() for part in line["region"].split(",")[-2:]),
            )
        )
    return found


class Place:
    """A market on which all of it is on offer, and two buyers with money."""

    def __init__(self) -> None:
        self.desk = Desk()
        offers = rows()
        kinds = sorted({(row.model, row.gpus) for row in offers})
        self.numbers = {kind: 100 + place for place, kind in enumerate(kinds)}
        self.desk.mine(
            *(product(n, gpus, gpu_class=model) for (model, gpus), n in self.numbers.items()),
            *joined("bob", RICH),
            *joined("eve", RICH),
        )
        self.adverts: list[SignedAdvert] = []
        for row in offers:
            number = self.numbers[row.model, row.gpus]
            self.desk.mine(*provider(row.name, bond=1_000, products=(number,)))
            gpu = Gpu(model=row.model, memory_mib=row.memory_mib, cuda="12.4", driver="550.54")
            hardware = replace(
                profile(gpu_class=row.model, region=row.region, simulated=False),
                gpus=(gpu,) * row.gpus,
            )
            self.adverts.append(
                advert(row.name, at=row.tick_price, product=number, hardware=hardware)
            )
        self.desk.hear(*self.adverts)
        self.products = tuple(
            product(number, gpus, gpu_class=model).row
            for (model, gpus), number in self.numbers.items()
        )

    def bids(self, request: LeaseRequest, buyer: str = "bob", nonce: int = 0) -> list[BidState]:
        """One bid for each product that the request means, as the SDK signs them; after a round."""
        orders = [
            order(
                buyer,
                limit=format_tokens(request.max_price, 3),
                nonce=nonce,
                product=each.id,
                count=each.slice_gpus,
                wanting=request.terms(each.gpu_class),
            )
            for each, _ in ways_for(request, self.products)
        ]
        self.desk.submit(*orders)
        self.desk.end_round()
        self.reports = [self.desk.report(each) for each in orders]
        return [report.state for report in self.reports]


@pytest.fixture(scope="module")
def listed() -> Place:
    return Place()


def asked(query: str, limit: str = "5.00") -> LeaseRequest:
    return wish(gpu_type=query, count=1, max_price=limit, duration="1h")


def test_all_sixty_seven_are_on_the_book(listed: Place) -> None:
    assert len(listed.desk.market.adverts()) == len(rows()) == 67


@pytest.mark.parametrize(
    ("query", "limit", "expected"),
    [
        ("H200", "5.00", ["2.65 FR/EU"]),
        ("gpu in [H100-SXM,H100-NVL] price<=2.00", "5.00", ["1.87 US/NA"]),
        ("RTX 5090 region!=US", "5.00", ["0.48 HU/EU"]),
        ("RTX 4090 vram<=24GB region in [EU]", "5.00", ["0.40 DE/EU"]),
    ],
)
def test_a_query_finds_the_cheapest_first(
    listed: Place, query: str, limit: str, expected: list[str]
) -> None:
    quote = look_up(asked(query, limit), listed.products, listed.adverts, NOW_S)
    found = [
        f"{format_tokens(view.ask.min_price_per_hour)} {view.advert.body.profile.region}"
        for view in quote.fitting
    ]
    assert found[: len(expected)] == expected
    assert quote.blocking is None


def test_what_nothing_offers_is_explained_with_the_nearest(listed: Place) -> None:
    quote = look_up(asked("H200 region=US"), listed.products, listed.adverts, NOW_S)
    assert quote.fitting == ()
    assert quote.blocking is not None
    assert quote.blocking.field == "regions"


def test_a_wish_over_several_classes_takes_the_cheapest_of_all() -> None:
    place = Place()
    states = place.bids(asked("gpu in [A100,H100,H200] vram>=75GB"))
    assert states.count(BidState.MATCHED) == 1
    (won,) = [report for report in place.reports if report.state is BidState.MATCHED]
    assert won.price is not None
    cheapest = min(
        view.ask.min_price_per_hour
        for view in look_up(
            asked("gpu in [A100,H100,H200] vram>=75GB"), place.products, place.adverts, NOW_S
        ).fitting
    )
    assert won.price == cheapest


def test_an_unfilled_bid_is_told_what_each_limit_costs_on_the_real_book() -> None:
    place = Place()
    states = place.bids(asked("RTX 5090 region=HU", limit="0.40"))
    assert states == [BidState.PENDING]
    how = place.reports[0].explanation
    assert how is not None
    told = {each.field: (each.asks, each.alone) for each in how.obstructions}
    on_offer = [row for row in rows() if (row.model, row.gpus) == ("RTX-5090", 1)]
    elsewhere = [row for row in on_offer if "HU" not in row.region]
    assert told["terms.regions"][0] == len(elsewhere)
    assert told["bid.max_price_per_hour"][0] == len(on_offer) == how.asks
    assert how.change == "Raise the price limit to 0.48."


def test_two_buyers_for_the_last_machine_and_the_dearer_limit_wins() -> None:
    place = Place()
    query = "H200 region=FR"
    first = order_of(place, query, "bob", "3.00")
    second = order_of(place, query, "eve", "3.10")
    place.desk.submit(first, second)
    place.desk.end_round()
    lost, won = place.desk.report(first), place.desk.report(second)
    assert (lost.state, won.state) == (BidState.PENDING, BidState.MATCHED)
    assert lost.explanation is not None
    assert lost.explanation.change == "Raise the price limit to 3.101."


def order_of(place: Place, query: str, buyer: str, limit: str) -> SignedBid:
    request = asked(query, limit)
    ((wanted, _),) = ways_for(request, place.products)
    return order(
        buyer,
        limit=limit,
        product=wanted.id,
        count=wanted.slice_gpus,
        wanting=request.terms(wanted.gpu_class),
    )
