"""The market's door: signed orders in, verified orders or a reason out.

The API asks before it gives a receipt, and the matchmaker asks again when the order comes out of
the inbox: the answer depends on the arguments alone. Nothing here looks at other orders.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.adverts import ask_of
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRole, NoDelegates
from cloud_gpu.protocol.orders import (
    Advert,
    Ask,
    AskFlags,
    Bid,
    BidFlags,
    SignedAdvert,
    SignedBid,
    SignedCancellation,
    Terms,
)
from cloud_gpu.protocol.product import Product, ProductFlags
from cloud_gpu.protocol.signing import Verified, verify, verify_statement
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, cost_down, format_duration
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, keccak256
from market.books.ledger import Ledger
from market.rules import BLOCK_WINDOWS_MAX, GANG_MACHINES_MAX, MarketRules

ADDRESSES_MAX = 8
"""Multiaddrs in one advert."""


def check_bid(
    order: SignedBid,
    *,
    rules: MarketRules,
    products: Mapping[int, Product],
    fee: BasisPoints,
    at: int,
) -> Verified[Bid] | Rejection:
    """Whether this market takes the bid; `at` in Unix seconds.

    Rejects: WRONG_MATCHER, TERMS_DIGEST_DIFFERS, TOO_LARGE, EXPIRED, DURATION_OUTSIDE_LIMITS,
    UNKNOWN_PRODUCT, WRONG_COUNT, FLAGS_DIFFER, MALFORMED (a block without a salt), FEE_ABOVE_LIMIT,
    CAP_OUT_OF_RANGE, BAD_SIGNATURE, KEY_NOT_AUTHORISED. The signature comes last: it costs a
    hundred times the rest.
    """
    bid = order.bid.payload
    refused = (
        _wrong_matcher("bid.matcher", bid.matcher, rules)
        or _wrong_terms(order)
        or _wrong_life("bid.start_by", bid.start_by, at)
        or _wrong_window(bid, order.terms)
    )
    if refused is not None:
        return refused
    product = products.get(bid.product)
    if product is None:
        return _unknown_product("bid.product", bid.product)
    refused = (
        _wrong_gang(bid, order.terms, product)
        or _wrong_block(bid, order.terms, rules)
        or _wrong_flags(bid, product)
        or _wrong_fee("bid.max_fee_bps", bid.max_fee_bps, fee)
        or _wrong_cap(bid, product.slice_gpus)
    )
    if refused is not None:
        return refused
    # Only the account's own key: a session key must not spend.
    return verify(order.bid, rules.domain, account=bid.buyer, keys=NoDelegates(), at=at)


def check_cancellation(
    cancellation: SignedCancellation, *, buyer: Address, rules: MarketRules, at: int
) -> Rejection | None:
    """None when `buyer` signed that its bid be forgotten. Rejects as `verify_statement`.

    Whose the bid is, is not told: the id of a sealed one is public.
    """
    refused = verify_statement(
        cancellation, rules.domain, account=buyer, keys=NoDelegates(), role=None, at=at
    )
    if refused is None or refused.reason is RejectReason.EXPIRED:
        return refused
    return replace(refused, needed="the signature of the account that signed the order")


def check_advert(
    advert: SignedAdvert, *, rules: MarketRules, ledger: Ledger, at: int
) -> Verified[Ask] | Rejection:
    """Whether the ask may enter the book; `at` in Unix seconds.

    An ask for the lease after the running one is taken: it becomes available when that one ends.
    Rejects: WRONG_MATCHER, EXPIRED, DURATION_OUTSIDE_LIMITS, UNKNOWN_PRODUCT, FLAGS_DIFFER,
    FEE_ABOVE_LIMIT, UNKNOWN_MACHINE, WRONG_PRODUCT, STALE_SEQUENCE, WRONG_COUNT, MALFORMED,
    BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    ask = advert.body.ask.payload
    refused = (
        _wrong_matcher("ask.matcher", ask.matcher, rules)
        or _wrong_life("ask.start_by", ask.start_by, at)
        or _wrong_fee("ask.max_fee_bps", ask.max_fee_bps, ledger.fee_of(rules.market_id))
        or _wrong_machine(ask, ledger)
        or _wrong_profile(advert.body, ledger.products.get(ask.product))
    )
    if refused is not None:
        return refused
    return _signed_by_node(advert, rules=rules, ledger=ledger, at=at)


def _signed_by_node(
    advert: SignedAdvert, *, rules: MarketRules, ledger: Ledger, at: int
) -> Verified[Ask] | Rejection:
    ask = ask_of(advert, rules.domain, at=at)
    if isinstance(ask, Rejection) or speaks_for(ask.account, ask.signer, ledger, at):
        return ask
    return Rejection(
        reason=RejectReason.KEY_NOT_AUTHORISED,
        field="ask.signature",
        found=f"signed by {ask.signer}, which LeaseBook lets sign nothing for it",
        needed=f"a node key of {ask.account} that is neither expired nor revoked",
        next="Register the node key with the provider's wallet.",
    )


def speaks_for(provider: Address, node_key: Address, ledger: Ledger, at: int) -> bool:
    """Whether the chain lets a node key sign for a provider, whose own key always may."""
    return node_key == provider or ledger.may_sign(provider, node_key, KeyRole.NODE, at)


def _wrong_matcher(field: str, found: Address, rules: MarketRules) -> Rejection | None:
    if found == rules.matcher:
        return None
    return Rejection(
        reason=RejectReason.WRONG_MATCHER,
        field=field,
        found=str(found),
        needed=str(rules.matcher),
        next="Name this market's matcher in the order, and sign it again.",
    )


def _wrong_life(field: str, start_by: int, at: int) -> Rejection | None:
    if start_by <= at:
        return Rejection(
            reason=RejectReason.EXPIRED,
            field=field,
            found=str(start_by),
            needed=f"later than {at}",
            next="Sign a new order; check this machine's clock if it was made just now.",
        )
    if start_by > at + limits.ORDER_LIFE_S_MAX:
        return Rejection(
            reason=RejectReason.DURATION_OUTSIDE_LIMITS,
            field=field,
            found=format_duration(start_by - at) + " from now",
            needed=f"at most {format_duration(limits.ORDER_LIFE_S_MAX)} from now",
            next="Sign an order that ends sooner, and renew it while you want it.",
        )
    return None


def _wrong_terms(order: SignedBid) -> Rejection | None:
    document = to_json(order.terms)
    if len(document) > limits.TERMS_BYTES_MAX:
        return Rejection(
            reason=RejectReason.TOO_LARGE,
            field="terms",
            found=f"{len(document)} bytes",
            needed=f"at most {limits.TERMS_BYTES_MAX} bytes",
            next="Name fewer classes, regions or providers.",
        )
    digest = keccak256(document)
    if digest == order.bid.payload.terms:
        return None
    return Rejection(
        reason=RejectReason.TERMS_DIGEST_DIFFERS,
        field="bid.terms",
        found=str(order.bid.payload.terms),
        needed=str(digest),
        next="Sign the digest of the terms that you send (RFC 8785 JSON, keccak-256).",
    )


def _wrong_flags(bid: Bid, product: Product) -> Rejection | None:
    verified = bool(bid.flags & BidFlags.VERIFIED)
    if verified and not product.flags & ProductFlags.VERIFIED:
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="bid.flags",
            found="verified",
            needed=f"a product that allows it; product {product.id} does not",
            next="Bid for a product with verified leases, or without the verified flag.",
        )
    if bid.audit_bps and not verified:
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="bid.audit_bps",
            found=f"{bid.audit_bps.value} without the verified flag",
            needed="0",
            next="Only verified leases pay for audits.",
        )
    return None


def _wrong_gang(bid: Bid, terms: Terms, product: Product) -> Rejection | None:
    gpus = product.slice_gpus
    machines, rest = divmod(bid.count, gpus)
    if rest or machines > GANG_MACHINES_MAX:
        return Rejection(
            reason=RejectReason.WRONG_COUNT,
            field="bid.count",
            found=str(bid.count),
            needed=f"1 to {GANG_MACHINES_MAX} times {gpus}, the GPUs of a machine of product"
            f" {product.id}",
            next="Bid for whole machines, or for a product of another size.",
        )
    if terms.chunk and (terms.chunk % gpus or bid.count % terms.chunk):
        return Rejection(
            reason=RejectReason.WRONG_COUNT,
            field="terms.chunk",
            found=str(terms.chunk),
            needed=f"a multiple of {gpus} that divides {bid.count}, or 0",
            next="Chunks are whole machines, and the bid is whole chunks.",
        )
    if machines > 1 and not (bid.flags & BidFlags.PAY_AS_ASK or terms.block):
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="bid.flags",
            found=f"{machines} machines at one price",
            needed=f"flag {int(BidFlags.PAY_AS_ASK)}, pay-as-ask",
            next="Sign the bid with that flag: each machine is paid its own price.",
        )
    return None


def _wrong_block(bid: Bid, terms: Terms, rules: MarketRules) -> Rejection | None:
    if not terms.block:
        return None
    window, most = rules.block_s, rules.block_s * BLOCK_WINDOWS_MAX
    if bid.duration % window or bid.duration > most:
        return Rejection(
            reason=RejectReason.DURATION_OUTSIDE_LIMITS,
            field="bid.duration",
            found=format_duration(bid.duration),
            needed=f"whole windows of {format_duration(window)}, {format_duration(most)} at most",
            next="Bid for a duration of whole windows, or without terms.block.",
        )
    if bid.flags & BidFlags.PAY_AS_ASK:
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="bid.flags",
            found="pay-as-ask",
            needed="a block auction's one price for all",
            next="Sign the bid without that flag; it never pays more than its limit.",
        )
    if terms.salt == ZERO_DIGEST:
        return Rejection(
            reason=RejectReason.MALFORMED,
            field="terms.salt",
            found="none",
            needed="32 random bytes: a sealed bid's id is published at once, and who tries all"
            " limits would find the one that gives it",
            next="Draw a salt, and sign the bid with the digest of those terms.",
        )
    return None


def _wrong_window(bid: Bid, terms: Terms) -> Rejection | None:
    if terms.start_from <= bid.start_by:
        return None
    return Rejection(
        reason=RejectReason.DURATION_OUTSIDE_LIMITS,
        field="terms.start_from",
        found=str(terms.start_from),
        needed=f"at most {bid.start_by}, the bid's start-by",
        next="Let the start window end after it begins.",
    )


def _unknown_product(field: str, found: int) -> Rejection:
    return Rejection(
        reason=RejectReason.UNKNOWN_PRODUCT,
        field=field,
        found=str(found),
        needed="a product that is registered in LeaseBook",
        next="GET /v1/products lists them.",
    )


def _wrong_fee(field: str, limit: BasisPoints, fee: BasisPoints) -> Rejection | None:
    if fee <= limit:
        return None
    return Rejection(
        reason=RejectReason.FEE_ABOVE_LIMIT,
        field=field,
        found=f"{limit.value} bp",
        needed=f"at least {fee.value} bp, this market's fee",
        next="Accept the fee in the order, or use another market.",
    )


def _wrong_cap(bid: Bid, slice_gpus: int) -> Rejection | None:
    quantity = GpuSeconds(slice_gpus * bid.duration)
    cost = cost_down(bid.max_price_per_hour, quantity).value
    if 1 <= cost <= limits.LEASE_CAP_MAX:
        return None
    return Rejection(
        reason=RejectReason.CAP_OUT_OF_RANGE,
        field="bid.max_price_per_hour",
        found=f"{cost} base units at the limit price",
        needed=f"1 to {limits.LEASE_CAP_MAX}",
        next="Bid for another duration or price.",
    )


def _wrong_machine(ask: Ask, ledger: Ledger) -> Rejection | None:
    key = ask.machine
    row = ledger.machines.get(key)
    if row is None or row.is_leaving:
        return Rejection(
            reason=RejectReason.UNKNOWN_MACHINE,
            field="ask.index",
            found=str(key),
            needed="a machine that LeaseBook holds",
            next="Add the machine on chain; the market hears of it with the next block.",
        )
    if row.product != ask.product:
        return Rejection(
            reason=RejectReason.WRONG_PRODUCT,
            field="ask.product",
            found=str(ask.product),
            needed=f"{row.product}, the product of {key}",
            next="A machine keeps its product until it is retired.",
        )
    if ask.seq != row.next_seq:
        return Rejection(
            reason=RejectReason.STALE_SEQUENCE,
            field="ask.seq",
            found=str(ask.seq),
            needed=f"{row.next_seq}, the next lease of {key}",
            next="Sign an ask for the machine's next lease.",
        )
    return None


def _wrong_profile(advert: Advert, product: Product | None) -> Rejection | None:
    ask, profile = advert.ask.payload, advert.profile
    if product is None:
        return _unknown_product("ask.product", ask.product)
    allowed = product.flags & (ProductFlags.INTERRUPTIBLE | ProductFlags.VERIFIED)
    if ask.flags & ~allowed & (AskFlags.INTERRUPTIBLE | AskFlags.VERIFIED):
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="ask.flags",
            found=str(ask.flags),
            needed=f"flags that product {product.id} allows: {allowed}",
        )
    if (profile.gpu_class, len(profile.gpus)) != (product.gpu_class, product.slice_gpus):
        return Rejection(
            reason=RejectReason.WRONG_COUNT,
            field="advert.profile",
            found=f"{len(profile.gpus)} x {profile.gpu_class}",
            needed=f"{product.slice_gpus} x {product.gpu_class}, as product {product.id} says",
        )
    tail = f"/p2p/{advert.peer}"
    if not 1 <= len(advert.addresses) <= ADDRESSES_MAX or not all(
        address.endswith(tail) for address in advert.addresses
    ):
        return Rejection(
            reason=RejectReason.MALFORMED,
            field="advert.addresses",
            found=f"{len(advert.addresses)} addresses",
            needed=f"1 to {ADDRESSES_MAX}, each ending in {tail}",
        )
    return None
