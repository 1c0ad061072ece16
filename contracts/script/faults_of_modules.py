"""Faults in the modules: verification, futures, group buys."""

from __future__ import annotations

from contracts.script.fault import OFF, fault

_OFF = "false"
_HOLDINGS = "book/Holdings.sol"
_VERIFICATION = "modules/Verification.sol"
_FAULTS = "modules/VerificationFaults.sol"
_AUDIT = "libraries/AuditLib.sol"
_MARGIN = "libraries/MarginLib.sol"
_FUTURES_TRADING = "modules/FuturesTrading.sol"
_FUTURES = "modules/Futures.sol"
_GROUP = "modules/GroupBuy.sol"

AUDITS = (
    fault(_HOLDINGS, "held pay returns early", "block.timestamp < opensAt", OFF),
    fault(
        _HOLDINGS,
        "held pay returns twice",
        "_held[key][seq % HELD_SLOTS] = HeldWord.wrap(0);",
        "",
        "_held[key][seq % HELD_SLOTS] = HeldWord.wrap(0);\n        uint256 amount",
    ),
    fault(_HOLDINGS, "a batch is taken twice", "batchNo != held.nextBatchNo()", OFF),
    fault(_HOLDINGS, "a bond is locked twice", "free < units", OFF),
    fault(
        _HOLDINGS,
        "a refund beyond the free bond",
        "slash.fromBond < free ? slash.fromBond : free",
        "slash.fromBond",
    ),
    fault(_FAULTS, "one verifier is two", "b == a", OFF, "if (!_isVerifier(b) || b == a)"),
    fault(
        _FAULTS,
        "a contest without an end",
        "block.timestamp > disputes.until()",
        OFF,
    ),
    fault(
        _FAULTS,
        "a conviction before its window closed",
        "block.timestamp <= disputes.until()",
        OFF,
    ),
    fault(
        _FAULTS,
        "silence is convicted at once",
        "block.timestamp <= challenges.until()",
        OFF,
    ),
    fault(_FAULTS, "a fault of one buyer is fraud", "fault.buyerId != buyerId", "true"),
    fault(
        _FAULTS,
        "an old fault is fraud",
        "block.timestamp <= fault.convictedAt + FRAUD_WINDOW",
        "true",
    ),
    fault(
        _FAULTS,
        "a segment is accused twice",
        "(disputes.accused() | disputes.settled()) & (1 << leaf.i) != 0",
        OFF,
    ),
    fault(_FAULTS, "a fine leaves the lock", "word.withLocked(word.locked() - freed)", "word"),
    fault(
        _VERIFICATION,
        "a batch ends under the hard cap",
        "block.timestamp < opensAt",
        OFF,
    ),
    fault(
        _VERIFICATION,
        "a batch ends while it is accused",
        "disputes.accused() != 0",
        OFF,
        "if (disputes.accused() != 0) revert",
    ),
    fault(_VERIFICATION, "what is lost is paid, too", "left - price", "left"),
    fault(_VERIFICATION, "audits of nothing are paid", "audit * rest / word.value()", "audit"),
    fault(_VERIFICATION, "a batch ends with a lock left", "uint24(word.locked())", "uint24(0)"),
    fault(_VERIFICATION, "the other verifier takes the audit pay", "!late", OFF),
    fault(_AUDIT, "a proof of a segment that is none", "i >= n", OFF),
)


MODULES = (
    fault(_MARGIN, "a margin rounds down", "(HOUR * ONE - 1)", "0"),
    fault(_MARGIN, "a margin below its floor", "share > floor ? share : floor", "share"),
    fault(_FUTURES_TRADING, "one trades with oneself", "buy.trader == sell.trader", OFF),
    fault(
        _FUTURES_TRADING,
        "an order opens more than it says",
        "progress.filled + units > order.units",
        OFF,
    ),
    fault(
        _FUTURES_TRADING,
        "what an order opened is forgotten",
        "filled + units",
        "units",
        "progress.filled = filled + units;",
    ),
    fault(
        _FUTURES_TRADING,
        "a closed order opens on",
        "progress.closed",
        OFF,
        "if (progress.closed) return (0, SkipCode.ORDER_CLOSED);",
    ),
    fault(
        _FUTURES_TRADING,
        "an order opens on when its nonce was passed",
        "order.nonce >= account.nonceBase",
        "true",
    ),
    fault(_FUTURES_TRADING, "a stranger assigns a side", "msg.sender != leaver", OFF),
    fault(_FUTURES_TRADING, "an assignment that nobody signed", "signer != joiner", OFF),
    fault(
        _FUTURES,
        "a default before the deadline",
        "block.timestamp < opensAt",
        OFF,
        "if (block.timestamp < opensAt) revert Futures_TooEarly(opensAt);\n        bool nominated",
    ),
    fault(_FUTURES, "a unit is settled twice", "delete _units[machine][seq];", ""),
    fault(_FUTURES, "anybody ends a firm lease", "msg.sender != address(BOOK)", OFF),
    fault(_GROUP, "a pledge above its limit", "amount > pledge.maxAmount", OFF),
    fault(_GROUP, "a group closes below its goal", "asks.length < campaign.goal", OFF),
    fault(
        _GROUP,
        "a group closes twice",
        "state.closed",
        OFF,
        "if (state.closed) revert GroupBuy_AlreadyClosed(id);\n        if (block.timestamp",
    ),
    fault(_GROUP, "a refund before the deadline", "block.timestamp <= campaign.deadline", OFF),
    fault(
        _GROUP,
        "a provider that is not listed",
        "providers[entry.place] == entry.ask.provider",
        "true",
    ),
)
