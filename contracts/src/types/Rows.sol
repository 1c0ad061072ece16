// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role, Status} from "./Lifecycle.sol";

/// @notice What is sold: one GPU class, one slice size, one set of rules. Append-only.
struct Product {
    /// ASCII, left-aligned, zero-padded: "A100-SXM4-80GB".
    bytes32 gpuClass;
    /// keccak256 of the published sheet (full description).
    bytes32 sheetHash;
    /// ASCII, left-aligned, zero-padded; zero: anywhere.
    bytes16 regionGroup;
    /// GPUs of one machine of this product.
    uint16 sliceGpus;
    /// Free bond a lease needs, as a share of its cap.
    uint16 minBondBps;
    /// What a provider that leaves early pays of the unpaid rest; at most minBondBps.
    uint16 penaltyBps;
    /// Seconds after which an interruptible lease's notice frees the provider of the penalty.
    uint32 notice;
    /// INTERRUPTIBLE, VERIFIED: allowed here. CHALLENGE: asked for.
    uint8 flags;
}

/// @notice Who takes a fee for matching, and how much; the rate of an id never changes.
struct Market {
    address account;
    uint16 feeBps;
}

/// @notice One delegated key. `revokedAt` is when a revocation takes effect; 0: not revoked.
struct Delegate {
    address account;
    Role role;
    uint32 expiry;
    uint32 revokedAt;
}

/// @notice Time-outs in seconds, fixed at construction.
struct Windows {
    /// Opening to start deadline; also the delay of a key's revocation. At most 1 hour.
    uint32 start;
    /// End or stop to `expire`. At most 7 days.
    uint32 claim;
    /// `retire` to `finishRetire`; at least start + claim, at most 30 days.
    uint32 retire;
    /// How much of a lease's price a side that fails to show up owes. At most 15 minutes.
    uint32 noShow;
}

/// @notice An account, decoded.
struct Account {
    uint64 cash;
    uint32 id;
    uint32 nonceBase;
    uint128 nonceBits;
}

/// @notice A machine, decoded. `bond` is in whole tokens, `locked` in base units.
struct Machine {
    Status status;
    uint32 product;
    /// Number of the newest lease; 0 before the first.
    uint24 seq;
    /// The number the next ask must carry.
    uint32 nextSeq;
    uint24 bond;
    uint64 locked;
    /// When a retiring machine may be finished; 0 otherwise.
    uint32 retireAt;
}

/// @notice A running lease, decoded; all zero when that lease is not running.
struct Lease {
    Status status;
    address buyer;
    uint48 cap;
    uint48 paid;
    /// What vouchers could have drawn by now, `paid` included.
    uint48 ceiling;
    uint16 marketId;
    /// Start deadline while Funded, the start afterwards.
    uint32 start;
    uint24 duration;
    uint8 flags;
    /// When the provider gave notice; 0: it did not.
    uint32 noticeAt;
}

/// @notice The modules of a LeaseBook, fixed at construction: addresses computed before they are deployed; zero: absent.
struct ModuleAddresses {
    address verification;
    address futures;
    address groupBuy;
}

/// @notice What a module opens a lease with.
struct Opening {
    address buyer;
    uint32 product;
    /// Base units per GPU-hour.
    uint64 price;
    uint24 duration;
    /// 0: no market, no fee.
    uint16 marketId;
    /// What the module calls it: the lease's `bidHash` in {LeaseOpened}.
    bytes32 name;
}
