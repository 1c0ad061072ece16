// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask} from "./Orders.sol";

// A slice is one machine of the product. Prices are base units of the token per GPU-hour, times Unix seconds.

/// @notice Everything that a group buy's pledges agree on; its hash is its name, so nobody changes any of it.
struct Campaign {
    /// Whoever set it up; it has no rights.
    address organiser;
    uint32 product;
    /// What every lease costs.
    uint64 pricePerHour;
    /// Of every lease, seconds.
    uint24 duration;
    /// Slices without which no lease opens; 1 to 100.
    uint16 goal;
    /// When it may close at the earliest.
    uint32 windowStart;
    /// When it may close at the latest; pledges are taken in the last 14 days before.
    uint32 deadline;
    /// Takes its fee of every lease; 0: nobody does.
    uint16 marketId;
    /// keccak256(abi.encode(address[])) of the providers that may serve it; zero: anybody.
    bytes32 providersHash;
}

/// @notice A buyer's signed promise of at most `maxAmount` base units for `slices` leases; it cannot be withdrawn.
struct Pledge {
    address buyer;
    bytes32 campaignId;
    uint48 maxAmount;
    uint16 slices;
    uint32 nonce;
}

/// @notice A provider's ask with GroupBuy as its matcher.
struct PledgedAsk {
    Ask ask;
    bytes signature;
    /// Its provider's place in the campaign's list; of no meaning where anybody may serve it.
    uint16 place;
}

/// @notice Where a campaign stands.
struct CampaignState {
    /// Pledged so far; 0 once closed.
    uint16 slices;
    uint16 pledges;
    bool closed;
}

/// @notice A locked pledge; all zero when it was served or refunded.
struct LockedPledge {
    address buyer;
    uint16 slices;
    uint64 amount;
}
