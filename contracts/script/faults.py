"""One-line faults in the money paths, for `mutants.py`: where, what stands there, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

_OFF = "false"


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of a source, changed."""

    file: str
    """Below contracts/src."""
    what: str
    where: str
    """Text that stands once in the file."""
    before: str
    """What of it is replaced: an expression, or a statement with its semicolon."""
    after: str


def _fault(file: str, what: str, before: str, after: str, where: str = "") -> Fault:
    return Fault(file=file, what=what, where=where or before, before=before, after=after)


_SETTLEMENT = "libraries/SettlementLib.sol"
_NONCES = "libraries/NonceWindow.sol"
_LEDGER = "book/Ledger.sol"
_OPENINGS = "book/Openings.sol"
_PAYMENTS = "book/Payments.sol"
_ENDINGS = "book/Endings.sol"
_HOLDINGS = "book/Holdings.sol"
_MACHINES = "book/Machines.sol"
_ACCOUNTS = "book/Accounts.sol"
_VERIFICATION = "modules/Verification.sol"
_FAULTS = "modules/VerificationFaults.sol"
_AUDIT = "libraries/AuditLib.sol"
_PACKED = "book/PackedTrading.sol"
_MARGIN = "libraries/MarginLib.sol"
_FUTURES = "modules/Futures.sol"
_FUTURES_TRADING = "modules/FuturesTrading.sol"
_GROUP = "modules/GroupBuy.sol"

_ARITHMETIC = (
    _fault(
        _SETTLEMENT,
        "the cap rounds up",
        "price * gpus * duration / HOUR",
        "(price * gpus * duration + HOUR - 1) / HOUR",
    ),
    _fault(_SETTLEMENT, "all accrues at once", "cap * elapsed / duration", "cap"),
    _fault(
        _SETTLEMENT,
        "a voucher above the ceiling is paid",
        "amount < ceiling ? amount : ceiling",
        "amount",
    ),
    _fault(_SETTLEMENT, "an older voucher takes pay back", "due > paid ? due : paid", "due"),
    _fault(
        _SETTLEMENT,
        "a fee rounds up",
        "amount * bps / ONE",
        "(amount * bps + (ONE - 1)) / ONE",
        "return amount * bps / ONE;",
    ),
    _fault(
        _SETTLEMENT,
        "a penalty rounds down",
        "(amount * bps + (ONE - 1)) / ONE",
        "amount * bps / ONE",
        "return (amount * bps + (ONE - 1)) / ONE;",
    ),
    _fault(
        _SETTLEMENT,
        "a no-show amount rounds down",
        "(cap * window + (duration - 1)) / duration",
        "cap * window / duration",
    ),
    _fault(_NONCES, "a nonce is used twice", "bits & bit != 0", _OFF),
    _fault(_NONCES, "one order voids all that follow", "ahead > STEP_MAX", _OFF),
)

_MONEY = (
    _fault(_LEDGER, "cash goes below nothing", "word.cash() < amount", _OFF),
    _fault(_LEDGER, "a key speaks in any role", "delegate.role == role", "true"),
    _fault(_LEDGER, "a key never expires", "when < delegate.expiry", "true"),
    _fault(
        _LEDGER,
        "a key is never revoked",
        "(delegate.revokedAt == 0 || when < delegate.revokedAt)",
        "true",
    ),
    _fault(_LEDGER, "a locked bond counts as free", "locked == 0", "true", "if (locked == 0)"),
    _fault(_LEDGER, "pay is paid again", "paid - word.paid()", "paid"),
    _fault(_LEDGER, "a fee comes out of nowhere", "amount - fee", "amount"),
    _fault(
        _LEDGER, "the market gets no fee", "SettlementLib.shareDown(amount, market.feeBps)", "0"
    ),
    _fault(_LEDGER, "the buyer gets all of the cap back", "word.cap() - paid", "word.cap()"),
    _fault(_LEDGER, "an audit share is returned and kept", "held.audit() - needed", "held.audit()"),
    _fault(
        _LEDGER,
        "cancelled asks open",
        "next > floor ? next : floor",
        "next",
        "return next > floor ? next : floor;",
    ),
    _fault(
        _ACCOUNTS,
        "a withdrawal costs nothing",
        "_debit(msg.sender, amount);",
        "",
    ),
    _fault(_ACCOUNTS, "a fee on transfer is credited", "total != before + amount", _OFF),
    _fault(_ACCOUNTS, "any key becomes a delegate", "found != signer", _OFF),
    _fault(_ACCOUNTS, "cancelled bids live again", "newBase <= word.nonceBase()", _OFF),
    _fault(_ACCOUNTS, "anybody pauses", "msg.sender != GUARDIAN", _OFF),
    _fault(
        _MACHINES,
        "a machine's bond is a gift",
        "_debit(msg.sender, bond * BOND_UNIT);",
        "",
        "_debit(msg.sender, bond * BOND_UNIT);\n        _leases[key] = word.idle",
    ),
    _fault(
        _MACHINES,
        "more bond is a gift",
        "_debit(msg.sender, bond * BOND_UNIT);",
        "",
        "_debit(msg.sender, bond * BOND_UNIT);\n        _leases[key] = word.withBond(total)",
    ),
    _fault(_MACHINES, "a bond leaves at once", "block.timestamp < machine.retireAt()", _OFF),
    _fault(_MACHINES, "a locked bond leaves", "machine.locked() != 0", _OFF),
    _fault(_MACHINES, "a bond leaves before held pay", "!held.isClear()", _OFF),
    _fault(
        _MACHINES,
        "a bond stays that was paid out",
        "word.idle(Status.None).withBond(0)",
        "word.idle(Status.None)",
    ),
)

_LEASES = (
    _fault(_OPENINGS, "a fee above the ask's limit", "round.feeBps > ask.maxFeeBps", _OFF),
    _fault(_OPENINGS, "a fee above the bid's limit", "round.feeBps > bid.maxFeeBps", _OFF),
    _fault(_OPENINGS, "a buyer opens early", "block.timestamp >= bid.openFrom", "true"),
    _fault(_OPENINGS, "one deals with oneself", "ask.provider == bid.buyer", _OFF),
    _fault(_OPENINGS, "a price below the ask", "price < ask.minPricePerHour", _OFF),
    _fault(_OPENINGS, "a price above the bid", "price > bid.maxPricePerHour", _OFF),
    _fault(_OPENINGS, "an old ask opens", "block.timestamp > ask.startBy", _OFF),
    _fault(_OPENINGS, "an old bid opens", "block.timestamp > bid.startBy", _OFF),
    _fault(_OPENINGS, "a longer lease than offered", "duration > ask.maxDuration", _OFF),
    _fault(_OPENINGS, "another count of GPUs", "bid.count != round.count", _OFF),
    _fault(_OPENINGS, "two leases on a machine", "word.status() != Status.Free", _OFF),
    _fault(_OPENINGS, "another product's machine", "machine.product() != round.product", _OFF),
    _fault(_OPENINGS, "an ask opens twice", "seq != _nextSeq(word, machine)", _OFF),
    _fault(
        _OPENINGS,
        "a bond that covers nothing",
        "free < SettlementLib.shareUp(cap, round.minBondBps)",
        _OFF,
    ),
    _fault(_OPENINGS, "a bid opens twice", "!usable", _OFF),
    _fault(_OPENINGS, "the cap stays with the buyer", "account = account.minus(cap);", ""),
    _fault(
        _OPENINGS,
        "the audit share stays with the buyer",
        "account.minus(audit)",
        "account",
    ),
    _fault(_OPENINGS, "anybody signs a bid", "signer == buyer", "true"),
    _fault(
        _OPENINGS,
        "held pay of an older lease is overwritten",
        "!_held[key][slot].isClear()",
        _OFF,
    ),
    _fault(
        _LEDGER,
        "a lease starts before it was opened",
        "startedAt < deadline - START_WINDOW",
        _OFF,
    ),
    _fault(_LEDGER, "a lease starts in the future", "startedAt > block.timestamp", _OFF),
    _fault(_LEDGER, "a lease starts too late", "block.timestamp > deadline", _OFF),
    _fault(
        _LEDGER,
        "anybody accepts for the buyer",
        "!_speaksFor(_addressOf[word.buyerId()], signer, Role.Session, startedAt)",
        _OFF,
    ),
    _fault(
        _PAYMENTS,
        "an older lease's voucher pays",
        "word.seq() != voucher.seq",
        _OFF,
        """word.seq() != voucher.seq) return SkipCode.WRONG_STATE;
        uint256 paid = SettlementLib.paidAfter(voucher.amount, _ceiling(word), word.paid());
        if (paid""",
    ),
    _fault(_PAYMENTS, "pay is not written down", "_leases[key] = word.withPaid(paid);", ""),
    _fault(
        _PAYMENTS,
        "a provider leaves by its last voucher",
        "!stopped && block.timestamp < _end(word)",
        _OFF,
    ),
    _fault(
        _PAYMENTS,
        "a stale voucher closes",
        "paid != word.cap() && !_isFinal(voucher, providerSignature)",
        _OFF,
    ),
    _fault(
        _PAYMENTS,
        "anybody signs a Final",
        "_speaksFor(voucher.provider, signer, Role.Node, block.timestamp)",
        "true",
    ),
    _fault(_ENDINGS, "anybody stops a lease", "_accounts[msg.sender].id() != word.buyerId()", _OFF),
    _fault(_ENDINGS, "a stop returns nothing", "_credit(msg.sender, word.cap() - ceiling);", ""),
    _fault(
        _ENDINGS,
        "a stop leaves the cap",
        "word.withCap(ceiling).withDuration(used)",
        "word.withDuration(used)",
    ),
    _fault(_ENDINGS, "anybody releases a lease", "msg.sender != voucher.provider", _OFF),
    _fault(_ENDINGS, "a refund before the deadline", "block.timestamp <= word.start()", _OFF),
    _fault(_ENDINGS, "a lease expires under the claim", "block.timestamp < opensAt", _OFF),
    _fault(_ENDINGS, "a penalty beyond the free bond", "if (amount > free) amount = free;", ""),
    _fault(
        _ENDINGS,
        "change of a bond out of nowhere",
        "units * BOND_UNIT - amount",
        "units * BOND_UNIT",
    ),
    _fault(
        _ENDINGS,
        "notice counts at once",
        "block.timestamp >= noticeAt + rules.notice",
        "true",
    ),
    _fault(_ENDINGS, "a penalty leaves the bond whole", "word.bond() - units", "word.bond()"),
)

_AUDITS = (
    _fault(_HOLDINGS, "held pay returns early", "block.timestamp < opensAt", _OFF),
    _fault(
        _HOLDINGS,
        "held pay returns twice",
        "_held[key][seq % HELD_SLOTS] = HeldWord.wrap(0);",
        "",
        "_held[key][seq % HELD_SLOTS] = HeldWord.wrap(0);\n        uint256 amount",
    ),
    _fault(_HOLDINGS, "a batch is taken twice", "batchNo != held.nextBatchNo()", _OFF),
    _fault(_HOLDINGS, "a bond is locked twice", "free < units", _OFF),
    _fault(
        _HOLDINGS,
        "a refund beyond the free bond",
        "slash.fromBond < free ? slash.fromBond : free",
        "slash.fromBond",
    ),
    _fault(_FAULTS, "one verifier is two", "b == a", _OFF, "if (!_isVerifier(b) || b == a)"),
    _fault(
        _FAULTS,
        "a contest without an end",
        "block.timestamp > disputes.until()",
        _OFF,
    ),
    _fault(
        _FAULTS,
        "a conviction before its window closed",
        "block.timestamp <= disputes.until()",
        _OFF,
    ),
    _fault(
        _FAULTS,
        "silence is convicted at once",
        "block.timestamp <= challenges.until()",
        _OFF,
    ),
    _fault(_FAULTS, "a fault of one buyer is fraud", "fault.buyerId != buyerId", "true"),
    _fault(
        _FAULTS,
        "an old fault is fraud",
        "block.timestamp <= fault.convictedAt + FRAUD_WINDOW",
        "true",
    ),
    _fault(
        _FAULTS,
        "a segment is accused twice",
        "(disputes.accused() | disputes.settled()) & (1 << leaf.i) != 0",
        _OFF,
    ),
    _fault(_FAULTS, "a fine leaves the lock", "word.withLocked(word.locked() - freed)", "word"),
    _fault(
        _VERIFICATION,
        "a batch ends under the hard cap",
        "block.timestamp < opensAt",
        _OFF,
    ),
    _fault(
        _VERIFICATION,
        "a batch ends while it is accused",
        "disputes.accused() != 0",
        _OFF,
        "if (disputes.accused() != 0) revert",
    ),
    _fault(_VERIFICATION, "what is lost is paid, too", "left - price", "left"),
    _fault(_VERIFICATION, "audits of nothing are paid", "audit * rest / word.value()", "audit"),
    _fault(_VERIFICATION, "a batch ends with a lock left", "uint24(word.locked())", "uint24(0)"),
    _fault(_VERIFICATION, "the other verifier takes the audit pay", "!late", _OFF),
    _fault(_AUDIT, "a proof of a segment that is none", "i >= n", _OFF),
)

_TWINS = (
    _fault(
        _PACKED,
        "a packed fee above the ask's limit",
        "round.feeBps > askFee",
        _OFF,
    ),
    _fault(_PACKED, "a packed fee above the bid's limit", "round.feeBps > bidFee", _OFF),
    _fault(_PACKED, "one deals with oneself, packed", "provider == buyer", _OFF),
    _fault(_PACKED, "a packed price below the ask", "price < (ask & U64)", _OFF),
    _fault(_PACKED, "a packed price above the bid", "price > (bid & U64)", _OFF),
    _fault(_PACKED, "a packed lease too long", "duration > longest", _OFF),
    _fault(_PACKED, "a packed ask too old", "block.timestamp > askBy", _OFF),
    _fault(_PACKED, "two packed leases on a machine", "!word.isFree()", _OFF),
    _fault(_PACKED, "packed cash below the cap", "account.cash() < cap", _OFF),
    _fault(_PACKED, "a packed bid opens twice", "!usable", _OFF),
    _fault(_PACKED, "the packed cap stays with the buyer", "account = account.minus(cap);", ""),
    _fault(
        _PACKED,
        "anybody signs a packed bid",
        "signer != address(0) && signer == buyer",
        "true",
    ),
    _fault(_PACKED, "the packed rest stays", "_accounts[buyer] = account.plus(cap - paid);", ""),
    _fault(_PACKED, "the next buyer pays from the last one's purse", "buyer != purse.buyer", _OFF),
    _fault(
        _PACKED,
        "a purse is not put back for the next buyer",
        "_putBack(purse);",
        "",
        "_putBack(purse);\n                (purse.buyer",
    ),
    _fault(
        _PACKED,
        "a provider's pay goes to the next one",
        "provider != dues.provider",
        "dues.provider == address(0)",
    ),
    _fault(
        _PACKED,
        "a packed fee is not taken",
        "amount - _takeFee(dues, word.marketId(), amount)",
        "amount",
    ),
    _fault(
        _PACKED,
        "a market's fees go to the next one",
        "id != dues.marketId",
        "dues.marketId == 0",
    ),
    _fault(
        _PACKED,
        "a stale packed voucher closes",
        "!_isFinal(domainSeparator, entry, withFinal)",
        _OFF,
    ),
)

_MODULES = (
    _fault(_MARGIN, "a margin rounds down", "(HOUR * ONE - 1)", "0"),
    _fault(_MARGIN, "a margin below its floor", "share > floor ? share : floor", "share"),
    _fault(_FUTURES_TRADING, "one trades with oneself", "buy.trader == sell.trader", _OFF),
    _fault(_FUTURES_TRADING, "a stranger assigns a side", "msg.sender != leaver", _OFF),
    _fault(_FUTURES_TRADING, "an assignment that nobody signed", "signer != joiner", _OFF),
    _fault(
        _FUTURES,
        "a default before the deadline",
        "block.timestamp < opensAt",
        _OFF,
        "if (block.timestamp < opensAt) revert Futures_TooEarly(opensAt);\n        bool nominated",
    ),
    _fault(_FUTURES, "a unit is settled twice", "delete _units[machine][seq];", ""),
    _fault(_FUTURES, "anybody ends a firm lease", "msg.sender != address(BOOK)", _OFF),
    _fault(_GROUP, "a pledge above its limit", "amount > pledge.maxAmount", _OFF),
    _fault(_GROUP, "a group closes below its goal", "asks.length < campaign.goal", _OFF),
    _fault(
        _GROUP,
        "a group closes twice",
        "state.closed",
        _OFF,
        "if (state.closed) revert GroupBuy_AlreadyClosed(id);\n        if (block.timestamp",
    ),
    _fault(_GROUP, "a refund before the deadline", "block.timestamp <= campaign.deadline", _OFF),
    _fault(
        _GROUP,
        "a provider that is not listed",
        "providers[entry.place] == entry.ask.provider",
        "true",
    ),
)

FAULTS = (*_ARITHMETIC, *_MONEY, *_LEASES, *_AUDITS, *_TWINS, *_MODULES)
