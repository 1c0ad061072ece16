"""One-line faults in the money paths, for `mutants.py`."""

from __future__ import annotations

from contracts.script.fault import OFF, fault
from contracts.script.faults_of_modules import AUDITS, MODULES

_OFF = "false"
_SETTLEMENT = "libraries/SettlementLib.sol"
_NONCES = "libraries/NonceWindow.sol"
_LEDGER = "book/Ledger.sol"
_OPENINGS = "book/Openings.sol"
_PAYMENTS = "book/Payments.sol"
_ENDINGS = "book/Endings.sol"
_MACHINES = "book/Machines.sol"
_ACCOUNTS = "book/Accounts.sol"
_PACKED = "book/PackedTrading.sol"

_ARITHMETIC = (
    fault(
        _SETTLEMENT,
        "the cap rounds up",
        "price * gpus * duration / HOUR",
        "(price * gpus * duration + HOUR - 1) / HOUR",
    ),
    fault(_SETTLEMENT, "all accrues at once", "cap * elapsed / duration", "cap"),
    fault(
        _SETTLEMENT,
        "a voucher above the ceiling is paid",
        "amount < ceiling ? amount : ceiling",
        "amount",
    ),
    fault(_SETTLEMENT, "an older voucher takes pay back", "due > paid ? due : paid", "due"),
    fault(
        _SETTLEMENT,
        "a fee rounds up",
        "amount * bps / ONE",
        "(amount * bps + (ONE - 1)) / ONE",
        "return amount * bps / ONE;",
    ),
    fault(
        _SETTLEMENT,
        "a penalty rounds down",
        "(amount * bps + (ONE - 1)) / ONE",
        "amount * bps / ONE",
        "return (amount * bps + (ONE - 1)) / ONE;",
    ),
    fault(
        _SETTLEMENT,
        "a no-show amount rounds down",
        "(cap * window + (duration - 1)) / duration",
        "cap * window / duration",
    ),
    fault(_NONCES, "a nonce is used twice", "bits & bit != 0", OFF),
    fault(_NONCES, "one order voids all that follow", "ahead > STEP_MAX", OFF),
)

_MONEY = (
    fault(_LEDGER, "cash goes below nothing", "word.cash() < amount", OFF),
    fault(_LEDGER, "a key speaks in any role", "delegate.role == role", "true"),
    fault(_LEDGER, "a key never expires", "when < delegate.expiry", "true"),
    fault(
        _LEDGER,
        "a key is never revoked",
        "(delegate.revokedAt == 0 || when < delegate.revokedAt)",
        "true",
    ),
    fault(_LEDGER, "a locked bond counts as free", "locked == 0", "true", "if (locked == 0)"),
    fault(_LEDGER, "pay is paid again", "paid - word.paid()", "paid"),
    fault(_LEDGER, "a fee comes out of nowhere", "amount - fee", "amount"),
    fault(_LEDGER, "the market gets no fee", "SettlementLib.shareDown(amount, market.feeBps)", "0"),
    fault(_LEDGER, "the buyer gets all of the cap back", "word.cap() - paid", "word.cap()"),
    fault(_LEDGER, "an audit share is returned and kept", "held.audit() - needed", "held.audit()"),
    fault(
        _LEDGER,
        "cancelled asks open",
        "next > floor ? next : floor",
        "next",
        "return next > floor ? next : floor;",
    ),
    fault(
        _ACCOUNTS,
        "a withdrawal costs nothing",
        "_debit(msg.sender, amount);",
        "",
    ),
    fault(_ACCOUNTS, "a fee on transfer is credited", "total != before + amount", OFF),
    fault(_ACCOUNTS, "any key becomes a delegate", "found != signer", OFF),
    fault(_ACCOUNTS, "cancelled bids live again", "newBase <= word.nonceBase()", OFF),
    fault(_ACCOUNTS, "anybody pauses", "msg.sender != GUARDIAN", OFF),
    fault(
        _MACHINES,
        "a machine's bond is a gift",
        "_debit(msg.sender, bond * BOND_UNIT);",
        "",
        "_debit(msg.sender, bond * BOND_UNIT);\n        _leases[key] = word.idle",
    ),
    fault(
        _MACHINES,
        "more bond is a gift",
        "_debit(msg.sender, bond * BOND_UNIT);",
        "",
        "_debit(msg.sender, bond * BOND_UNIT);\n        _leases[key] = word.withBond(total)",
    ),
    fault(_MACHINES, "a bond leaves at once", "block.timestamp < machine.retireAt()", OFF),
    fault(_MACHINES, "a locked bond leaves", "machine.locked() != 0", OFF),
    fault(_MACHINES, "a bond leaves before held pay", "!held.isClear()", OFF),
    fault(
        _MACHINES,
        "a bond stays that was paid out",
        "word.idle(Status.None).withBond(0)",
        "word.idle(Status.None)",
    ),
)

_LEASES = (
    fault(_OPENINGS, "a fee above the ask's limit", "round.feeBps > ask.maxFeeBps", OFF),
    fault(_OPENINGS, "a fee above the bid's limit", "round.feeBps > bid.maxFeeBps", OFF),
    fault(_OPENINGS, "a buyer opens early", "block.timestamp >= bid.openFrom", "true"),
    fault(_OPENINGS, "one deals with oneself", "ask.provider == bid.buyer", OFF),
    fault(_OPENINGS, "a price below the ask", "price < ask.minPricePerHour", OFF),
    fault(_OPENINGS, "a price above the bid", "price > bid.maxPricePerHour", OFF),
    fault(_OPENINGS, "an old ask opens", "block.timestamp > ask.startBy", OFF),
    fault(_OPENINGS, "an old bid opens", "block.timestamp > bid.startBy", OFF),
    fault(_OPENINGS, "a longer lease than offered", "duration > ask.maxDuration", OFF),
    fault(_OPENINGS, "another count of GPUs", "bid.count != round.count", OFF),
    fault(_OPENINGS, "two leases on a machine", "word.status() != Status.Free", OFF),
    fault(_OPENINGS, "another product's machine", "machine.product() != round.product", OFF),
    fault(_OPENINGS, "an ask opens twice", "seq != _nextSeq(word, machine)", OFF),
    fault(
        _OPENINGS,
        "a bond that covers nothing",
        "free < SettlementLib.shareUp(cap, round.minBondBps)",
        OFF,
    ),
    fault(_OPENINGS, "a bid opens twice", "!usable", OFF),
    fault(_OPENINGS, "the cap stays with the buyer", "account = account.minus(cap);", ""),
    fault(
        _OPENINGS,
        "the audit share stays with the buyer",
        "account.minus(audit)",
        "account",
    ),
    fault(_OPENINGS, "anybody signs a bid", "signer == buyer", "true"),
    fault(
        _OPENINGS,
        "held pay of an older lease is overwritten",
        "!_held[key][slot].isClear()",
        OFF,
    ),
    fault(
        _LEDGER,
        "a lease starts before it was opened",
        "startedAt < deadline - START_WINDOW",
        OFF,
    ),
    fault(_LEDGER, "a lease starts in the future", "startedAt > block.timestamp", OFF),
    fault(_LEDGER, "a lease starts too late", "block.timestamp > deadline", OFF),
    fault(
        _LEDGER,
        "anybody accepts for the buyer",
        "!_speaksFor(_addressOf[word.buyerId()], signer, Role.Session, startedAt)",
        OFF,
    ),
    fault(
        _PAYMENTS,
        "an older lease's voucher pays",
        "word.seq() != voucher.seq",
        OFF,
        """word.seq() != voucher.seq) return SkipCode.WRONG_STATE;
        uint256 paid = SettlementLib.paidAfter(voucher.amount, _ceiling(word), word.paid());
        if (paid""",
    ),
    fault(_PAYMENTS, "pay is not written down", "_leases[key] = word.withPaid(paid);", ""),
    fault(
        _PAYMENTS,
        "a provider leaves by its last voucher",
        "!stopped && block.timestamp < _end(word)",
        OFF,
    ),
    fault(
        _PAYMENTS,
        "a stale voucher closes",
        "paid != word.cap() && !_isFinal(voucher, providerSignature)",
        OFF,
    ),
    fault(
        _PAYMENTS,
        "anybody signs a Final",
        "_speaksFor(voucher.provider, signer, Role.Node, block.timestamp)",
        "true",
    ),
    fault(_ENDINGS, "anybody stops a lease", "_accounts[msg.sender].id() != word.buyerId()", OFF),
    fault(_ENDINGS, "a stop returns nothing", "_credit(msg.sender, word.cap() - ceiling);", ""),
    fault(
        _ENDINGS,
        "a stop leaves the cap",
        "word.withCap(ceiling).withDuration(used)",
        "word.withDuration(used)",
    ),
    fault(_ENDINGS, "anybody releases a lease", "msg.sender != voucher.provider", OFF),
    fault(_ENDINGS, "a refund before the deadline", "block.timestamp <= word.start()", OFF),
    fault(_ENDINGS, "a lease expires under the claim", "block.timestamp < opensAt", OFF),
    fault(_ENDINGS, "a penalty beyond the free bond", "if (amount > free) amount = free;", ""),
    fault(
        _ENDINGS,
        "change of a bond out of nowhere",
        "units * BOND_UNIT - amount",
        "units * BOND_UNIT",
    ),
    fault(
        _ENDINGS,
        "notice counts at once",
        "block.timestamp >= noticeAt + rules.notice",
        "true",
    ),
    fault(_ENDINGS, "a penalty leaves the bond whole", "word.bond() - units", "word.bond()"),
)

_TWINS = (
    fault(
        _PACKED,
        "a packed fee above the ask's limit",
        "round.feeBps > askFee",
        OFF,
    ),
    fault(_PACKED, "a packed fee above the bid's limit", "round.feeBps > bidFee", OFF),
    fault(_PACKED, "one deals with oneself, packed", "provider == buyer", OFF),
    fault(_PACKED, "a packed price below the ask", "price < (ask & U64)", OFF),
    fault(_PACKED, "a packed price above the bid", "price > (bid & U64)", OFF),
    fault(_PACKED, "a packed lease too long", "duration > longest", OFF),
    fault(_PACKED, "a packed ask too old", "block.timestamp > askBy", OFF),
    fault(_PACKED, "two packed leases on a machine", "!word.isFree()", OFF),
    fault(_PACKED, "packed cash below the cap", "account.cash() < cap", OFF),
    fault(_PACKED, "a packed bid opens twice", "!usable", OFF),
    fault(_PACKED, "the packed cap stays with the buyer", "account = account.minus(cap);", ""),
    fault(
        _PACKED,
        "anybody signs a packed bid",
        "signer != address(0) && signer == buyer",
        "true",
    ),
    fault(_PACKED, "the packed rest stays", "_accounts[buyer] = account.plus(cap - paid);", ""),
    fault(_PACKED, "the next buyer pays from the last one's purse", "buyer != purse.buyer", OFF),
    fault(
        _PACKED,
        "a purse is not put back for the next buyer",
        "_putBack(purse);",
        "",
        "_putBack(purse);\n                (purse.buyer",
    ),
    fault(
        _PACKED,
        "a provider's pay goes to the next one",
        "provider != dues.provider",
        "dues.provider == address(0)",
    ),
    fault(
        _PACKED,
        "a packed fee is not taken",
        "amount - _takeFee(dues, word.marketId(), amount)",
        "amount",
    ),
    fault(
        _PACKED,
        "a market's fees go to the next one",
        "id != dues.marketId",
        "dues.marketId == 0",
    ),
    fault(
        _PACKED,
        "a stale packed voucher closes",
        "!_isFinal(domainSeparator, entry, withFinal)",
        OFF,
    ),
)

FAULTS = (*_ARITHMETIC, *_MONEY, *_LEASES, *AUDITS, *_TWINS, *MODULES)
