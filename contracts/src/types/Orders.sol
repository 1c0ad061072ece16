// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// Field for field and in the order of the EIP-712 types (see OrderHash): a calldata struct is hashed as it lies.
// Prices are base units of the token per GPU-hour, durations seconds, times Unix seconds, shares basis points.

/// @notice A provider's signed price for one lease of one machine.
struct Ask {
    address provider;
    uint32 index;
    uint24 seq;
    uint32 product;
    uint64 minPricePerHour;
    uint24 minDuration;
    uint24 maxDuration;
    uint32 startBy;
    address matcher;
    uint16 maxFeeBps;
    uint8 flags;
}

/// @notice A buyer's signed limit. Alternatives share one nonce: the first to open voids the rest.
struct Bid {
    address buyer;
    uint32 product;
    uint16 count;
    uint64 maxPricePerHour;
    uint24 duration;
    uint32 startBy;
    uint32 openFrom;
    address provider;
    uint32 nonce;
    address matcher;
    uint16 maxFeeBps;
    uint16 auditBps;
    uint8 flags;
    bytes32 terms;
}

/// @notice The matcher's word that these two orders meet at this price, for this market; anyone may then open it.
struct Match {
    bytes32 askHash;
    bytes32 bidHash;
    uint64 price;
    uint16 marketId;
}

/// @notice One pair of a batch; signatures are 65 bytes (r, s, v), 64 bytes (EIP-2098), or a wallet's own (ERC-1271).
struct SignedMatch {
    Ask ask;
    Bid bid;
    bytes askSignature;
    bytes bidSignature;
}

/// @notice The node has the lease's container prepared.
struct Ready {
    address provider;
    uint32 index;
    uint24 seq;
    bytes32 runtimeHash;
}

/// @notice The buyer's side has checked the Ready: the meter runs from `startedAt`.
struct Accept {
    address provider;
    uint32 index;
    uint24 seq;
    uint32 startedAt;
}

/// @notice The buyer owes `amount` base units in all for this lease so far; the newest replaces the rest.
struct Voucher {
    address provider;
    uint32 index;
    uint24 seq;
    uint48 amount;
}
