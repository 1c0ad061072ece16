"""Random values of what is signed and hashed, for Hypothesis: of any size that its field holds."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.adapters.wallet import DelegateProof, Permit
from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    WEIGHT_ONE,
    Commit,
    Leaf,
    Results,
    Verdict,
    VerdictResult,
)
from cloud_gpu.protocol.futures import Assignment, FutureOrder
from cloud_gpu.protocol.group_buy import SLICES_MAX, Campaign, Pledge
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import Match
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Document
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher


def words(bits: int, least: int = 0) -> st.SearchStrategy[int]:
    """Of so many bits, at least so much."""
    return st.integers(least, 2**bits - 1)


def amounts(bits: int) -> st.SearchStrategy[TokenAmount]:
    """Base units."""
    return words(bits).map(TokenAmount)


addresses = st.binary(min_size=20, max_size=20).map(Address)
somebody = addresses.filter(lambda address: not address.is_zero)
digests = st.binary(min_size=32, max_size=32).map(Digest)
prices = st.integers(1, limits.PRICE_MAX // limits.PRICE_TICK).map(
    lambda ticks: Price(ticks * limits.PRICE_TICK)
)
shares = words(16).map(BasisPoints)
_LEASE = {"provider": addresses, "index": words(32), "seq": words(24)}
_BATCH = {**_LEASE, "batch_no": words(16)}

_durations = st.tuples(words(24, 1), words(24, 1)).map(sorted)


def _ask(durations: list[int], **fields: Any) -> Ask:
    return Ask(min_duration=durations[0], max_duration=durations[1], **fields)


asks = st.builds(
    _ask,
    durations=_durations,
    provider=addresses,
    index=words(32),
    seq=words(24, 1),
    product=words(32, 1),
    min_price_per_hour=prices,
    start_by=words(32, 1),
    matcher=somebody,
    max_fee_bps=shares,
    flags=words(2),
)
bids = st.builds(
    Bid,
    buyer=addresses,
    product=words(32, 1),
    count=words(16, 1),
    max_price_per_hour=prices,
    duration=words(24, 1),
    start_by=words(32, 1),
    open_from=words(32),
    provider=st.one_of(st.just(ZERO_ADDRESS), addresses),
    nonce=words(32),
    matcher=somebody,
    max_fee_bps=shares,
    audit_bps=st.integers(0, limits.AUDIT_BPS_MAX).map(BasisPoints),
    flags=words(3),
    terms=digests,
)
matches = st.builds(Match, ask_hash=digests, bid_hash=digests, price=prices, market_id=words(16))
readies = st.builds(Ready, **_LEASE, runtime_hash=digests)
accepts = st.builds(Accept, **_LEASE, started_at=words(32))
vouchers = st.builds(Voucher, **_LEASE, amount=amounts(48))
finals = st.builds(Final, **_LEASE, amount=amounts(48))
delegations = st.builds(
    DelegateProof, account=addresses, role=st.sampled_from(KeyRole), expiry=words(32)
)
permits = st.builds(
    Permit,
    owner=addresses,
    spender=addresses,
    value=amounts(48),
    nonce=words(256),
    deadline=words(256),
)
documents = st.builds(Document, kind=digests, content=digests, nonce=words(64), expiry=words(64))
commitments = st.builds(Commit, **_BATCH, root=digests, n=st.integers(1, SEGMENTS_MAX))
verdicts = st.builds(
    Verdict,
    **_BATCH,
    i=st.integers(0, SEGMENTS_MAX - 1),
    leaf=digests,
    result_digest=digests,
    result=st.sampled_from(VerdictResult),
)
results = st.builds(Results, **_BATCH, incomparable=words(SEGMENTS_MAX))
leaves = st.builds(
    Leaf,
    lease=st.builds(LeaseKey, **_LEASE),
    batch_no=_BATCH["batch_no"],
    i=st.integers(0, SEGMENTS_MAX - 1),
    weight=st.integers(1, WEIGHT_ONE),
    job=digests,
    result=digests,
    salt=digests,
)
future_orders = st.builds(
    FutureOrder,
    trader=addresses,
    is_buy=st.booleans(),
    product=words(32),
    window_start=words(32),
    window_seconds=words(24),
    units=words(16, 1),
    limit_price_per_hour=prices,
    start_by=words(32),
    nonce=words(32),
    matcher=somebody,
)
assignments = st.builds(
    Assignment,
    contract_id=words(40),
    is_buy=st.booleans(),
    leaver=addresses,
    joiner=addresses,
    leaver_pays=amounts(64),
    joiner_pays=amounts(64),
    expiry=words(32),
    nonce=words(32),
)
pledges = st.builds(
    Pledge,
    buyer=addresses,
    campaign_id=digests,
    max_amount=amounts(48),
    slices=st.integers(1, SLICES_MAX),
    nonce=words(32),
)
_open_times = st.tuples(words(32), words(32)).map(sorted)


def _campaign(times: list[int], **fields: Any) -> Campaign:
    return Campaign(window_start=times[0], deadline=max(1, times[1]), **fields)


campaigns = st.builds(
    _campaign,
    times=_open_times,
    organiser=addresses,
    product=st.integers(1, 2**32 - 1),
    price_per_hour=prices,
    duration=st.integers(1, limits.DURATION_S_MAX),
    goal=st.integers(1, SLICES_MAX),
    market_id=words(16),
    providers_hash=digests,
)
