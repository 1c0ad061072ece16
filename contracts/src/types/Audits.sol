// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// What Verification reads signed (Commit, Verdict, Results: field for field the EIP-712 types) or proven. Weights are
// parts per million of a batch's value.

/// @notice The provider's word on a batch: the Merkle sum root of its `n` segments.
struct Commit {
    address provider;
    uint32 index;
    uint24 seq;
    uint16 batchNo;
    bytes32 root;
    uint16 n;
}

/// @notice A verifier's word on segment `i`: `digest` is what the re-execution gave, `result` a VerdictResult.
struct Verdict {
    address provider;
    uint32 index;
    uint24 seq;
    uint16 batchNo;
    uint16 i;
    bytes32 leaf;
    bytes32 digest;
    uint8 result;
}

/// @notice A verifier's word on a batch: segment i of bit i could not be told right or wrong, every other drawn one
/// is right.
struct Results {
    address provider;
    uint32 index;
    uint24 seq;
    uint16 batchNo;
    uint128 incomparable;
}

/// @notice The preimage of a leaf; its salt keeps anybody from guessing it before it is opened.
struct Leaf {
    address provider;
    uint32 index;
    uint24 seq;
    uint16 batchNo;
    uint16 i;
    uint32 weight;
    bytes32 job;
    bytes32 result;
    bytes32 salt;
}

/// @notice A node of the tree beside a path, and the weight under it.
struct Sibling {
    bytes32 hash;
    uint32 weight;
}

/// @notice What names a batch.
struct BatchId {
    address provider;
    uint32 index;
    uint24 seq;
    uint16 batchNo;
}

/// @notice Leaf `i` shown by its hash and weight alone.
struct Opening {
    uint16 i;
    bytes32 leaf;
    uint32 weight;
    Sibling[] proof;
}

/// @notice How one batch ends: with a verifier's results, or (empty signature) past the hard cap without.
struct Ending {
    Results results;
    /// Each segment that `results` finds incomparable and that is not settled, ascending; none are needed when
    /// nothing of the batch is paid.
    Opening[] openings;
    bytes signature;
}

enum VerdictResult {
    MATCH,
    MISMATCH,
    INCOMPARABLE
}

/// @notice Where a batch stands. ACCUSED: drawn, with an accusation open. SLASHED: its provider was convicted in jobs
/// of two buyers.
enum BatchState {
    NONE,
    COMMITTED,
    DRAWN,
    ACCUSED,
    FINAL,
    PARTIAL,
    FINAL_UNVERIFIED,
    SLASHED
}

/// @notice One of the two verifiers. `anchor` is the end of its hash chain: keccak256 of its first preimage.
struct Verifier {
    address signer;
    bytes32 anchor;
    /// Whose cash a batch's audit share becomes.
    address audits;
}

/// @notice Time-outs in seconds, fixed at construction. The commit window is LeaseBook's.
struct AuditWindows {
    /// How long an accusation may be contested. At most 3 days.
    uint32 challenge;
    /// Commitment to the end without results. At most 3 days.
    uint32 hardCap;
    /// How long after it a batch that ended so can still be accused. With the commit window, at most the retire
    /// window.
    uint32 lateSlash;
    /// How long a challenged leaf may be shown. At most 1 day.
    uint32 answer;
}

/// @notice What Verification tells LeaseBook to do with a batch's money.
struct Payout {
    uint32 buyerId;
    uint16 marketId;
    /// To the provider, the market's fee out of it.
    uint64 pay;
    uint64 toBuyer;
    address audits;
    uint64 auditPay;
    uint64 burnt;
    /// Of the bond, in whole units.
    uint24 unlock;
}

/// @notice What Verification tells LeaseBook to take for a fault, in one call.
struct Slash {
    uint32 buyerId;
    /// To the buyer, out of the batch's money.
    uint64 fromBatch;
    /// To the buyer, out of the bond.
    uint64 fromBond;
    /// Out of the bond, after `fromBond`; burnt, but for the bounty.
    uint64 fine;
    /// Of the bond, in whole units, before anything is taken.
    uint24 unlock;
    /// To `audits`, out of the fine; at most a tenth of it.
    uint64 bounty;
    address audits;
    /// The provider takes no verified lease any more.
    bool bar;
}

/// @notice A batch, decoded.
struct Batch {
    BatchState state;
    uint16 n;
    bytes32 root;
    /// 0 until the draw.
    bytes32 seed;
    /// What the commitment took from the lease's held pay.
    uint48 value;
    /// What of it is still here; 0 when it has ended.
    uint48 left;
    /// The buyer's share for audits; 0 when it has ended.
    uint56 audit;
    /// Of the machine's bond, base units.
    uint64 locked;
    /// Commitments before it in this deployment: its verifier is number mod 2, its preimage number / 2.
    uint40 number;
    uint48 blockNumber;
    uint32 committedAt;
    /// Bit i: segment i is accused.
    uint128 accused;
    /// Bit i: segment i was contested or convicted.
    uint128 settled;
    /// Bit j: point j is to be shown, until `answerBy` at the latest.
    uint128 challenged;
    /// Bit j: point j was not shown, and convicted.
    uint128 silent;
    uint32 answerBy;
}

/// @notice A lease's held pay, decoded; all zero when that lease holds none and runs no more.
struct Held {
    uint48 amount;
    uint56 audit;
    address buyer;
    uint16 marketId;
    uint16 auditBps;
    /// 0 while the lease runs.
    uint32 endedAt;
    uint16 nextBatchNo;
}
