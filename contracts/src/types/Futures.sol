// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// Field for field and in the order of the EIP-712 types (see ModuleHash). Prices are base units of the token per
// GPU-hour, units are machines of the product, durations seconds, times Unix seconds, shares basis points.

/// @notice What is traded: machines of a product for a window. Its start is a multiple of its length (UTC; weeks start
/// on Thursdays).
struct Series {
    uint32 product;
    uint32 windowStart;
    /// 1 hour, 4 hours, 1 day or 7 days.
    uint24 windowSeconds;
}

/// @notice A trader's signed limit. It opens contracts until its units are used up, it expires or is closed.
struct FutureOrder {
    address trader;
    bool isBuy;
    uint32 product;
    uint32 windowStart;
    uint24 windowSeconds;
    uint16 units;
    uint64 limitPricePerHour;
    uint32 startBy;
    uint32 nonce;
    address matcher;
}

/// @notice One pair of a call: a contract of `units` between the two.
struct FuturePair {
    FutureOrder buy;
    FutureOrder sell;
    uint16 units;
    bytes buySignature;
    bytes sellSignature;
}

/// @notice The joiner's word that it takes over a side of a contract. Its nonce is of the account's window, so the
/// joiner may cancel it, and nobody sends it twice.
struct Assignment {
    uint40 contractId;
    bool isBuy;
    address leaver;
    address joiner;
    /// Base units the leaver pays to be rid of the side.
    uint64 leaverPays;
    /// Base units the joiner pays to have it.
    uint64 joinerPays;
    uint32 expiry;
    uint32 nonce;
}

/// @notice What a deployment of Futures fixes.
struct FuturesRules {
    /// Margins, as shares of the value; at most 5,000.
    uint16 longBps;
    uint16 shortBps;
    /// The least margin of a contract, base units.
    uint48 marginFloor;
    /// Before the window's start: when funding and nomination close; at most 7 days.
    uint32 lead;
    /// The same for windows under a day.
    uint32 leadShort;
}

/// @notice A contract that was neither delivered nor settled otherwise, decoded; all zero when it is none.
struct FutureContract {
    address long;
    address short;
    Series series;
    uint64 price;
    uint16 units;
    uint64 longMargin;
    uint64 shortMargin;
    bool funded;
    bool nominated;
}

/// @notice How a delivered unit's lease ended.
enum UnitEnd {
    RUNNING,
    HELD,
    BROKEN_BY_LONG,
    BROKEN_BY_SHORT
}

/// @notice A delivered machine and the margins behind its lease, decoded; all zero when there is none.
struct FutureUnit {
    uint40 contractId;
    address long;
    address short;
    uint48 longMargin;
    uint48 shortMargin;
    UnitEnd end;
    /// Seconds of the lease that were left at its end.
    uint24 left;
    uint24 windowSeconds;
}

/// @notice How a contract ended without delivery.
enum ContractEnd {
    LONG_DEFAULT,
    SHORT_DEFAULT,
    BOTH_DEFAULT,
    LAPSED
}
