"""A person's words as bids, and the nearest change where none fits."""

from typing import Any

import pytest
from msgspec.structs import replace

from cloud_gpu.bidding import Preferences, WordUnclear, drawn_salt, make_bids, ways_for, wish
from cloud_gpu.protocol.hardware import GpuClass, Isolation
from cloud_gpu.protocol.orders import AskFlags, BidFlags, Scope
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import recover
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.quoting import look_up
from cloud_gpu.spending import escrow_of
from cloud_gpu.testing.world import BUYER, profile_of
from tests.unit.buyer.builders import DOMAIN, MARKET, PRODUCT, PROVIDER, T0, advert, purse, request


def product(number: int, gpu_class: str, gpus: int = 2) -> Product:
    return Product(
        id=number,
        gpu_class=GpuClass(gpu_class),
        slice_gpus=gpus,
        region_group="",
        min_bond=BasisPoints(0),
        notice=0,
        penalty=BasisPoints(0),
        flags=0,
    )


def address(number: int) -> str:
    return str(Address(bytes([number]) * 20))


@pytest.mark.parametrize(
    ("wanted", "gpu_class", "fits"),
    [
        ("A100", "A100-SXM4-80GB", True),
        ("a100", "A100-PCIE-40GB", True),
        ("A100-SXM4", "A100-SXM4-80GB", True),
        ("A100 80GB", "A100-SXM4-80GB", False),
        ("80GB", "A100-SXM4-80GB", True),
        ("4090", "RTX-4090", True),
        ("RTX 4090", "RTX-4090", True),
        ("A10", "A100-SXM4-80GB", False),
        ("H100", "GH100", False),
        ("A100|H100", "H100-SXM5-80GB", True),
        ("A100|H100", "L4", False),
        ("A100:80GB..", "A100-SXM4-80GB", True),
    ],
)
def test_a_class_is_meant_by_its_words(wanted: str, gpu_class: str, fits: bool) -> None:
    assert request(gpu_type=wanted).query.wants(GpuClass(gpu_class)) is fits


def test_a_memory_is_asked_for_with_what_cards_hold_back() -> None:
    gpu_class = GpuClass("A100-SXM4-80GB")
    assert request(gpu_type="A100:80GB..").terms(gpu_class).gpu_memory_mib_min == 77_824
    assert request(gpu_type="A100").terms(gpu_class).gpu_memory_mib_min == 0


def test_what_a_query_says_holds_with_the_words_beside_it() -> None:
    found = request(
        gpu_type="A100:2 price<=0.80 isolation>=gvisor simulated=no verified=yes",
        count=1,
        isolation="container",
        max_price="1.20",
    )
    assert (found.count, found.max_price, found.isolation) == (2, Price(800_000), Isolation.GVISOR)
    assert (found.simulated_allowed, found.verified) == (False, True)
    assert request(gpu_type="A100 price<=9", max_price="1.20").max_price == Price(1_200_000)
    gang = request(gpu_type="A100 count=8..16 scope=fabric chunk=8 interruptible=yes", count=1)
    assert (gang.count, gang.min_count, gang.scope, gang.chunk) == (16, 8, Scope.FABRIC, 8)
    assert gang.interruptible
    assert request(gpu_type="A100 scope=node", scope="node").scope is Scope.NODE
    for wanted, beside in (("A100 need=30GB", 0), ("A100", 30_720)):
        preferences = Preferences(gpu_memory_need_mib=beside)
        needing = request(gpu_type=wanted, preferences=preferences)
        assert needing.terms(GpuClass("A100-SXM4-80GB")).gpu_memory_need_mib == 30_720
    terms = request(gpu_type="A100", region="EU").terms(GpuClass("A100-SXM4-80GB"))
    assert terms.regions == ("EU",)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"gpu_type": "A100:2", "count": 4}, "count: found 4, and 2 in the query"),
        ({"gpu_type": "A100 region=US", "region": "EU"}, "region: found EU, and US in the query"),
        (
            {"gpu_type": "A100 scope=any", "scope": "node"},
            "scope: found node, and any in the query",
        ),
        (
            {"gpu_type": f"A100 provider={address(1)}", "provider": address(2)},
            "provider: found .* in the query",
        ),
    ],
)
def test_a_query_and_the_words_beside_it_do_not_contradict(
    words: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        request(**words)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"gpu_type": " "}, "gpu_type"),
        ({"gpu_type": "A100|"}, "gpu_type"),
        ({"count": 0}, "count"),
        ({"min_count": 3}, "min_count: found 3, needed 1 to 2"),
        ({"scope": "rack"}, "scope: found 'rack', needed one of node, fabric, region, any"),
        ({"scope": "any", "count": 4, "chunk": 3}, "chunk: found 3, needed a divisor of 4"),
        ({"chunk": 2}, "chunk: needed a scope"),
        ({"start_after": "soon"}, "start_after"),
        ({"max_price": "1,20"}, "max_price"),
        ({"max_price": "0"}, "max_price"),
        ({"max_price": "1.2345"}, "max_price"),
        ({"duration": "2 fortnights"}, "timeout"),
        ({"start_timeout": "0s"}, "start_timeout"),
        ({"isolation": "glass"}, "isolation"),
        ({"provider": "0x12"}, "provider: found '0x12', needed 0x and 40 hex digits"),
        ({"provider": "0x" + "00" * 20}, "provider: found the zero address"),
        ({"exclude_providers": ["bob"]}, "exclude_providers: found 'bob'"),
        ({"exclude_providers": "0x" + "07" * 20}, "exclude_providers: .* needed a list"),
        ({"exclude_providers": [address(n) for n in range(1, 63)]}, "exclude_providers: found 62"),
        ({"provider": address(1), "exclude_providers": [address(1)]}, "provider: .* not excluded"),
    ],
)
def test_a_word_that_cannot_be_read_is_named(words: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        request(**words)


def test_words_become_units() -> None:
    found = wish(gpu_type="A100", count=2, max_price="1.20", duration="2h", isolation="gvisor")
    assert (found.max_price, found.duration) == (Price(1_200_000), 7_200)
    assert found.isolation is Isolation.GVISOR


def test_products_fit_by_class_and_by_slice() -> None:
    known = [product(1, "A100-SXM4-80GB"), product(2, "A100-PCIE-40GB"), product(3, "L4")]
    known.append(product(4, "A100-SXM4-80GB", gpus=8))
    assert [p.id for p, _ in ways_for(request(), known)] == [1, 2]


def test_several_machines_make_a_count_up_only_within_a_scope() -> None:
    known = [product(1, "A100", gpus=1), product(2, "A100", gpus=2), product(3, "A100", gpus=4)]

    def ways(**words: object) -> list[tuple[int, int]]:
        return [(p.id, gpus) for p, gpus in ways_for(request(count=4, **words), known)]

    assert ways() == [(3, 4)]
    assert ways(scope="fabric") == [(1, 4), (2, 4), (3, 4)]
    assert ways(min_count=2) == [(3, 4), (2, 2)]
    assert ways(scope="any", min_count=3) == [(1, 4), (2, 4), (3, 4), (1, 3)]
    assert ways(scope="any", chunk=2) == [(1, 4), (2, 4), (3, 4)]
    assert ways(scope="any", chunk=4) == [(1, 4), (2, 4), (3, 4)]


def test_a_gang_signs_how_near_its_machines_are_and_that_each_is_paid_its_ask() -> None:
    wanted = request(count=8, min_count=2, scope="region", chunk=4, start_after="10m")
    known = [product(1, "A100", gpus=2)]
    ways = ways_for(wanted, known)
    assert [gpus for _, gpus in ways] == [8, 4, 2]
    orders = make_bids(wanted, ways, MARKET, purse(), nonce=9, at=T0)
    assert {o.bid.payload.nonce for o in orders} == {9}
    assert [o.bid.payload.flags for o in orders] == [4, 4, 0]
    assert [o.terms.scope for o in orders] == [Scope.REGION, Scope.REGION, Scope.ANY]
    assert [o.terms.chunk for o in orders] == [4, 4, 0]
    assert {o.terms.start_from for o in orders} == {T0 + 600}
    assert {o.bid.payload.start_by for o in orders} == {T0 + 660}


def test_an_interruptible_machine_is_taken_only_by_who_accepts_it() -> None:
    offered = advert(flags=int(AskFlags.INTERRUPTIBLE))
    found = look_up(request(), [PRODUCT], [offered], T0)
    assert found.blocking is not None
    assert found.blocking.field == "interruptible"
    willing = request(interruptible=True)
    assert look_up(willing, [PRODUCT], [offered], T0).blocking is None
    (order,) = make_bids(willing, [(PRODUCT, 2)], MARKET, purse(), nonce=1, at=T0)
    assert order.bid.payload.flags == BidFlags.INTERRUPTIBLE


def test_nobody_guesses_a_sealed_bid_from_its_id() -> None:
    numbers = iter(range(2**40, 2**40 + 8))
    salt = drawn_salt(lambda: next(numbers))
    assert salt == Digest(b"".join(bytes((0, 0, 0, n)) for n in range(8)))
    wanted, ways = request(block=True), [(PRODUCT, 2)]
    (order,) = make_bids(wanted, ways, MARKET, purse(), nonce=1, at=T0, salt=salt)
    (other,) = make_bids(wanted, ways, MARKET, purse(), nonce=1, at=T0, salt=Digest(b"\x01" * 32))
    assert order.terms == replace(other.terms, salt=salt)
    assert order.bid.payload.id != other.bid.payload.id


def test_a_sealed_bid_without_a_salt_is_not_signed() -> None:
    with pytest.raises(WordUnclear, match="salt: found none, needed 32 random bytes"):
        make_bids(request(block=True), [(PRODUCT, 2)], MARKET, purse(), nonce=1, at=T0)


def test_too_many_alternatives_are_refused_before_anything_is_signed() -> None:
    wanted = request(count=64, min_count=1, scope="any")
    with pytest.raises(WordUnclear, match=r"min_count: found 64 .* needed 32 at most"):
        ways_for(wanted, [product(1, "A100", gpus=1)])


def test_each_product_is_one_signed_bid_and_all_share_a_nonce() -> None:
    known = [product(1, "A100-SXM4-80GB"), product(2, "A100-PCIE-40GB")]
    orders = make_bids(request(), ways_for(request(), known), MARKET, purse(), nonce=9, at=T0)
    assert [o.bid.payload.product for o in orders] == [1, 2]
    assert {o.bid.payload.nonce for o in orders} == {9}
    for order in orders:
        bid = order.bid.payload
        assert recover(bid.digest(DOMAIN), order.bid.signature) == BUYER.address
        assert bid.terms == order.terms.digest
        assert bid.start_by == bid.open_from == T0 + 60
        assert bid.matcher == MARKET.matcher


def test_a_named_provider_and_excluded_ones_are_signed() -> None:
    wanted = request(provider=address(1), exclude_providers=[address(2), address(3), address(2)])
    (order,) = make_bids(wanted, [(PRODUCT, 2)], MARKET, purse(), nonce=9, at=T0)
    assert str(order.bid.payload.provider) == address(1)
    assert [str(each) for each in order.terms.excluded_providers] == [address(2), address(3)]
    (plain,) = make_bids(request(), [(PRODUCT, 2)], MARKET, purse(), nonce=9, at=T0)
    assert plain.bid.payload.provider.is_zero
    assert plain.terms.excluded_providers == ()


def test_as_many_providers_as_the_terms_hold_may_be_excluded() -> None:
    many = [address(n) for n in range(1, 62)]
    wanted = request(exclude_providers=many, region="EU")
    (order,) = make_bids(wanted, [(PRODUCT, 2)], MARKET, purse(), nonce=9, at=T0)
    assert len(order.terms.excluded_providers) == len(many)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"exclude_providers": [PROVIDER.address]}, "exclude_providers"),
        ({"provider": address(1)}, "provider"),
    ],
)
def test_an_ask_of_a_provider_that_is_not_wanted_does_not_fit(
    words: dict[str, Any], field: str
) -> None:
    found = look_up(request(**words), [PRODUCT], [advert()], T0)
    assert found.nearest is not None
    assert [unmet.field for unmet in found.nearest.unmet] == [field]
    assert str(PROVIDER.address) in found.nearest.unmet[0].found
    assert look_up(request(provider=PROVIDER.address), [PRODUCT], [advert()], T0).fitting


def test_asks_that_fit_come_cheapest_first() -> None:
    asks = [advert(price=Price(1_900_000), index=1), advert(price=Price(1_200_000))]
    found = look_up(request(), [PRODUCT], asks, T0)
    assert [view.ask.min_price_per_hour.value for view in found.fitting] == [1_200_000, 1_900_000]
    assert found.blocking is None
    assert found.nearest is None


@pytest.mark.parametrize(
    ("words", "field", "change"),
    [
        ({"max_price": "1.00"}, "max_price", 'max_price="1.20"'),
        ({"count": 1}, "count", "count=2"),
        ({"duration": "5s"}, "timeout", 'timeout="10s"'),
        ({"duration": "2d"}, "timeout", 'timeout="1d"'),
        ({"region": "US"}, "regions", "regions"),
        ({"isolation": "vm"}, "isolation_min", "isolation_min"),
        ({"simulated_allowed": False}, "simulated_allowed", "simulated_allowed"),
        ({"gpu_type": "A100:96GB.."}, "gpu_memory_mib_min", "gpu_memory_mib_min"),
    ],
)
def test_what_is_in_the_way_is_named_with_the_nearest_change(
    words: dict[str, Any], field: str, change: str
) -> None:
    found = look_up(request(**words), [PRODUCT], [advert()], T0)
    assert found.fitting == ()
    assert found.blocking is not None
    assert found.blocking.field == field
    assert change in found.blocking.next
    assert found.blocking.found
    assert found.blocking.needed


def test_of_several_asks_the_one_that_needs_least_is_named() -> None:
    far = advert(profile_of("A100-SXM4-80GB", 2, region="KP/AS"), price=Price(9_000_000), index=1)
    found = look_up(request(max_price="1.00", region="FR"), [PRODUCT], [far, advert()], T0)
    assert found.nearest is not None
    assert found.nearest.ask.index == 0
    assert len(found.nearest.unmet) == 1


@pytest.mark.parametrize(("count", "nearest"), [(999, 4), (5, 4), (3, 4), (1, 2)])
def test_of_the_counts_that_are_listed_the_nearest_is_named_however_dear(
    count: int, nearest: int
) -> None:
    pair, four = product(1, "A100-SXM4-80GB"), product(2, "A100-SXM4-80GB", gpus=4)
    dear = advert(profile_of("A100-SXM4-80GB", 4), price=Price(1_900_000), index=1, product=2)
    found = look_up(request(count=count), [pair, four], [advert(), dear], T0)
    assert found.blocking is not None
    assert found.blocking.next == f"Ask for count={nearest}."


def test_a_class_that_nobody_sells_is_answered_by_what_is_sold() -> None:
    found = look_up(request(gpu_type="B200"), [PRODUCT], [advert()], T0)
    assert found.blocking is not None
    assert (found.blocking.field, found.blocking.found) == ("gpu_type", "2x A100-SXM4-80GB")


def test_an_empty_book_says_so() -> None:
    found = look_up(request(), [PRODUCT], [], T0)
    assert found.blocking is not None
    assert found.blocking.found == "an empty book"


def test_an_ask_of_an_unknown_product_is_left_out() -> None:
    assert look_up(request(), [PRODUCT], [advert(product=7)], T0).fitting == ()


def test_an_ask_past_its_time_does_not_fit() -> None:
    assert look_up(request(), [PRODUCT], [advert()], T0 + 300).fitting == ()


def test_an_ask_whose_profile_is_of_another_class_does_not_fit() -> None:
    found = look_up(request(), [PRODUCT], [advert(profile_of("T4", 2))], T0)
    assert found.blocking is not None
    assert found.blocking.field == "profile.gpu_class"


def test_a_verified_lease_pays_for_its_audits_on_top() -> None:
    wanted = request(verified=True, audit_bps=700, duration=3_600)
    assert wanted.most.value == 4_000_000 + 280_000
    (order,) = make_bids(wanted, [(PRODUCT, 2)], MARKET, purse(), nonce=1, at=T0)
    assert order.bid.payload.flags == BidFlags.VERIFIED
    assert order.bid.payload.audit_bps == BasisPoints(700)
    assert escrow_of(order.bid.payload) == wanted.most
    (plain,) = make_bids(request(), [(PRODUCT, 2)], MARKET, purse(), nonce=1, at=T0)
    assert (plain.bid.payload.flags, plain.bid.payload.audit_bps.value) == (0, 0)


@pytest.mark.parametrize(
    ("ask_flags", "product_flags", "fits"),
    [(2, 2, True), (0, 2, False), (2, 0, False), (3, 2, True)],
)
def test_a_verified_lease_needs_a_product_and_an_ask_that_allow_it(
    ask_flags: int, product_flags: int, fits: bool
) -> None:
    allowed = replace(PRODUCT, flags=product_flags)
    wanted = request(verified=True, interruptible=True)
    found = look_up(wanted, [allowed], [advert(flags=ask_flags)], T0)
    assert bool(found.fitting) is fits
    if not fits:
        assert found.blocking is not None
        assert found.blocking.field == "verified"


def test_an_audit_share_above_the_contracts_limit_is_named() -> None:
    with pytest.raises(ValueError, match="audit_bps: found 12001, needed 0 to 12000"):
        request(verified=True, audit_bps=12_001)


def test_a_block_bid_is_sealed_and_takes_the_one_price_also_for_a_gang() -> None:
    wanted = request(count=4, scope="any", block=True)
    salt = Digest(b"\x01" * 32)
    (order,) = make_bids(wanted, [(PRODUCT, 4)], MARKET, purse(), nonce=1, at=T0, salt=salt)
    assert order.terms.block
    assert not order.bid.payload.flags & BidFlags.PAY_AS_ASK


def test_preferences_are_signed_in_the_terms() -> None:
    wanted = request(
        preferences=Preferences(
            gpu_memory_need_mib=30_000,
            communication=BasisPoints(2_000),
            electricity_weight=BasisPoints(10_000),
            carbon_price=TokenAmount(100_000),
        )
    )
    (order,) = make_bids(wanted, [(PRODUCT, 2)], MARKET, purse(), nonce=1, at=T0)
    terms = order.terms
    assert (terms.gpu_memory_need_mib, terms.communication) == (30_000, BasisPoints(2_000))
    assert (terms.electricity_weight, terms.carbon_price) == (
        BasisPoints(10_000),
        TokenAmount(100_000),
    )
    assert order.bid.payload.terms == terms.digest
