"""What each claim of a proof needs, computed again from what the proof shows and nothing else.

The rules are the market's own functions (`fits`, `best_gang`), so a proof can only hold where
clearing the same round again would have given something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.receipts import is_ahead, signer_of_receipt
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Arrival,
    Lane,
    MachineCondition,
    PlacedAsk,
    PlacedBid,
    PlacedFuture,
    ProductCondition,
    SealedBatch,
    Taken,
    Unmatched,
)
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.ties import seed_after, subject_of_ask, subject_of_bid, tie_of
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Address, Digest
from market.audit.auditing import INBOX_PATIENCE_MS
from market.audit.proofs import CLAIMS, ENTERED, Claim, Proof, ProofFails, Shown, stands_between
from market.audit.rebuilding import resting_ask, resting_bid
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import cap_at, fits, locked_at, locked_by, obstacles
from market.clearing.gangs import Gang, best_gang
from market.clearing.scoring import is_by_price


def check_proof(proof: Proof, market: Address) -> str:
    """What the proof shows about `market`, in a sentence. Raises ProofFails: it shows nothing."""
    shown = Shown(proof, market)
    facts = shown.facts
    if proof.claim in CLAIMS[Lane.ON_DEMAND] and proof.claim not in CLAIMS[facts.lane]:
        raise ProofFails(f"claim {proof.claim} says nothing about a round of lane {facts.lane}")
    said = _CLAIMS[proof.claim](shown)
    where = f"market {facts.market_id} of {market} (chain {facts.domain.chain_id})"
    return f"In round {facts.number} of {where}: {said}."


# Lane A's order of service.


def _envy(shown: Shown) -> str:
    bid = shown.bid(shown.proof.order)
    left_out = [
        row for row in shown.all("unmatched") if isinstance(row, Unmatched) and row.order == bid.id
    ]
    if not left_out:
        raise ProofFails(f"it does not show that bid {bid.id} got nothing")
    gang = best_gang(bid, _open_to(bid, shown), shown.given)
    if gang is None:
        raise ProofFails(f"the machines that it shows do not do for bid {bid.id}")
    if left_out[0].reason != RejectReason.NO_MATCH:
        _require_cash(bid, gang, shown)
    machines = ", ".join(str(ask.machine) for ask in gang.asks)
    return (
        f"bid {bid.id} got nothing, while {machines} fitted it, and stayed free or went to bids"
        " that stand behind it"
    )


def _require_cash(bid: RestingBid, gang: Gang, shown: Shown) -> None:
    """The market says that cash was too low: it must be so for the one machine it would take."""
    if len(gang.asks) > 1 or not is_by_price(bid, shown.rules.attributes):
        raise ProofFails(
            "the market says that cash was too low; shown of one machine by price only"
        )
    needed = locked_by(bid, gang.asks[0]).value
    for row in shown.all("conditions"):
        if isinstance(row, AccountCondition) and row.account == bid.nonce[0]:
            if row.left >= needed:
                return
            raise ProofFails(f"its buyer had {row.left} base units left, needed {needed}")
    raise ProofFails(f"it does not show the cash of {bid.nonce[0]}")


def _skipped(shown: Shown) -> str:
    bid = shown.bid(shown.proof.order)
    own = _whole_gang(bid, shown)
    taken = {str(ask.id) for ask in own}
    mine = best_gang(bid, own, shown.given)
    if mine is None:
        raise ProofFails(f"what bid {bid.id} took does not do for it: claim {Claim.LIMIT}")
    others = [ask for ask in _open_to(bid, shown) if str(ask.id) not in taken]
    together = sorted([*own, *others], key=lambda ask: (ask.rank, ask.machine))
    best = best_gang(bid, together, shown.given)
    assert best is not None, "its own machines are among them"
    is_better = best.order < mine.order if len(own) == 1 else best.score < mine.score
    if not is_better:
        raise ProofFails(f"the machines that it shows are no better than what bid {bid.id} took")
    instead = ", ".join(str(ask.machine) for ask in best.asks if str(ask.id) not in taken)
    return (
        f"bid {bid.id} was given {', '.join(str(ask.machine) for ask in own)}, while {instead}"
        " fitted it better, and stayed free or went to bids that stand behind it"
    )


def _open_to(bid: RestingBid, shown: Shown) -> list[RestingAsk]:
    """Asks that fit a bid and that nobody before it took."""
    return [
        ask
        for ask in shown.asks()
        if ask.ask.payload.product == bid.bid.payload.product
        and _has_conditions(ask, shown)
        and fits(bid, ask, shown.given)
        and _is_open(bid, ask, shown)
    ]


def _is_open(bid: RestingBid, ask: RestingAsk, shown: Shown) -> bool:
    takers = shown.taken(ask=ask.id)
    if not takers:
        return shown.is_absent("fills", str(ask.id))
    return all(shown.bid(each.bid).rank > bid.rank for each in takers)


def _has_conditions(ask: RestingAsk, shown: Shown) -> bool:
    conditions = shown.all("conditions")
    return any(
        isinstance(row, MachineCondition) and row.machine == ask.machine for row in conditions
    ) and any(
        isinstance(row, ProductCondition) and row.product.id == ask.ask.payload.product
        for row in conditions
    )


def _whole_gang(bid: RestingBid, shown: Shown) -> list[RestingAsk]:
    """All machines that a bid took: as many as it wants, and their asks."""
    took = {str(each.ask) for each in shown.taken(bid=bid.id)}
    own = [ask for ask in shown.asks() if str(ask.id) in took and _has_conditions(ask, shown)]
    if len(own) != len(took) or sum(ask.gpus for ask in own) != bid.bid.payload.count:
        raise ProofFails(f"it does not show all that bid {bid.id} took, with its conditions")
    return own


# Capacity and limits.


def _twice(shown: Shown) -> str:
    order = shown.proof.order
    rows = [(each, row) for each, row in shown.rows if isinstance(row, Taken) and not each.header]
    for place, (exhibit, row) in enumerate(rows):
        for other, again in rows[place + 1 :]:
            if exhibit.path.place == other.path.place:
                continue
            if row.key == again.key and order in (row.ask, row.bid, again.bid):
                return f"ask {row.key} was matched twice"
    machines: dict[object, RestingAsk] = {}
    for ask in (ask for ask in shown.asks() if shown.taken(ask=ask.id)):
        if ask.machine in machines and machines[ask.machine].id != ask.id:
            return f"machine {ask.machine} was matched twice, by two asks"
        machines[ask.machine] = ask
    nonces: dict[object, Digest] = {}
    for taken in shown.taken():
        bid = shown.bid(taken.bid)
        if nonces.setdefault(bid.nonce, taken.bid) != taken.bid:
            return f"two bids of {bid.nonce[0]} with nonce {bid.nonce[1]} were both matched"
    raise ProofFails("it shows nothing that was matched twice")


def _limit(shown: Shown) -> str:
    order = shown.proof.order
    fills = shown.taken(bid=order)
    if not fills:
        raise ProofFails(f"it does not show that bid {order} was matched")
    if shown.is_absent("orders", str(order)):
        return f"bid {order} was matched and did not take part"
    bid = resting_bid(shown.bid_row(order), shown.rules.domain)
    if not isinstance(bid, RestingBid):
        return f"bid {order} was matched, which its buyer did not sign so"
    for taken in fills:
        if shown.is_absent("asks", str(taken.ask)):
            return f"ask {taken.ask} was matched and was not on offer"
        row = _ask_row(taken.ask, shown)
        ask = resting_ask(row, shown.rules.domain)
        if isinstance(ask, Rejection):
            return f"ask {taken.ask} was matched, which its provider did not sign so"
        wrong = _wrong_price(bid, ask, taken, shown) or _wrong_machine(bid, ask, taken, shown)
        if wrong is not None:
            return wrong
    if len({taken.price for taken in fills}) > 1 and shown.facts.lane is Lane.BLOCK:
        return f"bid {order} pays its machines different prices in one auction"
    if best_gang(bid, _whole_gang(bid, shown), shown.given) is None:
        return f"bid {order} was given machines that are too few or too far apart for it"
    raise ProofFails(f"what bid {order} was given is within all limits")


def _wrong_price(bid: RestingBid, ask: RestingAsk, taken: Taken, shown: Shown) -> str | None:
    asked, limit = ask.ask.payload.min_price_per_hour, bid.bid.payload.max_price_per_hour
    most = limit if shown.facts.lane is Lane.BLOCK else asked
    if not asked <= taken.price <= most:
        return (
            f"ask {taken.ask} of {asked.value} was matched at {taken.price.value}, where"
            f" {most.value} was the most"
        )
    needed = locked_at(bid, ask, taken.price)
    if taken.locked != needed:
        return f"bid {bid.id} locks {taken.locked.value} for {ask.machine}, needed {needed.value}"
    return None


def _wrong_machine(bid: RestingBid, ask: RestingAsk, taken: Taken, shown: Shown) -> str | None:
    if not _has_conditions(ask, shown):
        raise ProofFails(f"it does not show the conditions of machine {ask.machine}")
    given = shown.given
    broken = next(obstacles(bid, ask, given), None)
    if broken is not None:
        words = broken.words()
        return (
            f"bid {bid.id} was given {ask.machine}, against {broken.field}:"
            f" found {words.found}, needed {words.needed}"
        )
    bond = bond_needed(
        cap_at(bid, ask, taken.price), given.products[ask.ask.payload.product].min_bond
    )
    if bond > given.bonds[ask.machine]:
        return f"bid {bid.id} was given {ask.machine} for more than its bond secures"
    return None


def _ask_row(ask: Digest, shown: Shown) -> PlacedAsk:
    for row in shown.all("asks"):
        if isinstance(row, PlacedAsk) and row.key == str(ask):
            return row
    raise ProofFails(f"it does not show ask {ask}")


# Ranks, receipts, histories.


def _tie(shown: Shown) -> str:
    row = _ranked_row(shown)
    batch: SealedBatch = shown.one("batches", SealedBatch, "the batch that the order entered in")
    books = {header.body.facts.lane.entries for header in shown.proof.headers}
    if batch.batch != row.batch or len(books) > 1:
        raise ProofFails(
            f"the order entered in batch {row.batch} of its lane's book, and another is shown"
        )
    order, subject = shown.proof.order, row.subject
    if batch.seed != seed_after(batch.before, batch.batch, batch.entered):
        return f"the seed of batch {batch.batch} is not drawn from what entered in it"
    if row.tie != tie_of(batch.seed, subject):
        return f"order {order} was ranked by a tie key that its batch did not draw for it"
    places = {
        each.path.place: (entry.raw, each.path.count)
        for each, entry in shown.rows
        if each.list == ENTERED
    }
    if stands_between(subject.raw, places):
        return f"order {order} was ranked by batch {batch.batch}, in which it did not enter"
    raise ProofFails(f"order {order} has the tie key that its batch drew for it")


@dataclass(frozen=True, slots=True)
class _Ranked:
    batch: Instant
    tie: Digest
    subject: Digest


def _ranked_row(shown: Shown) -> _Ranked:
    order = str(shown.proof.order)
    for row in shown.all("orders"):
        if row.key == order:
            return _Ranked(row.batch, row.tie, _subject_of(row))
    for row in shown.all("asks"):
        if row.key == order:
            return _Ranked(row.batch, row.tie, subject_of_ask(row.advert.body.ask.payload))
    raise ProofFails(f"it does not show order {order}")


def _subject_of(row: PlacedBid | PlacedFuture) -> Digest:
    if isinstance(row, PlacedBid):
        return subject_of_bid(row.order.bid.payload, row.order.terms)
    return row.order.payload.id


def _unread(shown: Shown) -> str:
    receipt, facts, order = shown.proof.receipt, shown.facts, shown.proof.order
    if receipt is None or receipt.body.order != order:
        raise ProofFails(f"it has no receipt for order {order}")
    if signer_of_receipt(receipt, facts.domain) != facts.market:
        raise ProofFails(f"its receipt is not signed by {facts.market}")
    inbox, read = receipt.body.inbox, facts.inbox_to
    said = f"the receipt of order {order} names position {inbox} of the inbox"
    if facts.inbox_from <= inbox <= read:
        if is_ahead(receipt.body, facts.at):
            ahead_s = (receipt.body.received_at - facts.at) // 1000
            return f"{said}, and is dated {ahead_s} s after the market had read it"
        for exhibit, row in shown.rows:
            if exhibit.list == "arrivals" and isinstance(row, Arrival) and not exhibit.header:
                if exhibit.path.count != read - facts.inbox_from + 1:
                    return f"{said}, and the round does not list all positions that it read"
                is_place = exhibit.path.place == inbox - facts.inbox_from
                if is_place and (row.inbox, row.order) != (inbox, order):
                    return f"{said}, where order {row.order} came out at {row.inbox}"
        raise ProofFails(f"it does not show another order at position {inbox}")
    if read < inbox and facts.at > receipt.body.received_at + INBOX_PATIENCE_MS:
        late_s = (facts.at - receipt.body.received_at) // 1000
        return f"{said}, and {late_s} s later the market had read up to {read}"
    raise ProofFails(f"the round covers positions {facts.inbox_from} to {read}, not {inbox}")


def _fork(shown: Shown) -> str:
    headers = shown.proof.headers
    if len(headers) != 2 or headers[0].body.facts.number != headers[1].body.facts.number:
        raise ProofFails("it does not show two headers of one round")
    one, other = (header.body.id for header in headers)
    if one == other:
        raise ProofFails("its two headers are the same")
    return f"it signed two histories, {one} and {other}"


_CLAIMS = {
    Claim.ENVY: _envy,
    Claim.SKIPPED: _skipped,
    Claim.TWICE: _twice,
    Claim.LIMIT: _limit,
    Claim.TIE: _tie,
    Claim.UNREAD: _unread,
    Claim.FORK: _fork,
}
