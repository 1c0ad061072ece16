// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice Where a machine stands. Funded, Active and Stopped are also the states of its lease.
enum Status {
    None,
    Free,
    Funded,
    Active,
    Stopped,
    Paused,
    Retiring
}

/// @notice Why a lease ended. Only the last three are ends of a lease that never began.
enum CloseReason {
    END_OF_TIME,
    STOPPED,
    RELEASED,
    NOTICE,
    NO_VOUCHERS,
    HEALTH,
    EXPIRED,
    BUYER_NO_SHOW,
    PROVIDER_NO_SHOW,
    RELEASED_UNSTARTED
}

using {isNone} for SkipCode global;

/// @dev Without the range check that the compiler puts before every comparison of an enum.
function isNone(SkipCode code) pure returns (bool yes) {
    assembly ("memory-safe") {
        yes := iszero(code)
    }
}

/// @dev What `LeaseClosed` tells, in one word: it is the dearest line of a close after its signatures.
function endingOf(uint256 paid, uint256 seq, CloseReason reason) pure returns (uint256) {
    return paid | (seq << 48) | (uint256(reason) << 72);
}

/// @notice What a delegated key may sign: Session (a buyer's): Accept, Voucher and the buyer's Final;
/// Node (a provider's): Ask, Ready and Final, and it may give notice and close.
enum Role {
    None,
    Session,
    Node
}

/// @notice Why one entry of a batch was left out; the rest of the batch goes on.
enum SkipCode {
    NONE,
    // openBatch
    WRONG_PRODUCT,
    WRONG_COUNT,
    WRONG_MATCHER,
    WRONG_PROVIDER,
    SELF_DEALING,
    PRICE_OUTSIDE_LIMITS,
    DURATION_OUTSIDE_LIMITS,
    EXPIRED,
    FEE_ABOVE_LIMIT,
    FLAGS_DIFFER,
    VERIFIED_CLOSED,
    MACHINE_NOT_FREE,
    STALE_SEQUENCE,
    CAP_OUT_OF_RANGE,
    BOND_TOO_LOW,
    CASH_TOO_LOW,
    NONCE_USED,
    BAD_ASK_SIGNATURE,
    BAD_BID_SIGNATURE,
    // settleBatch, closeBatch
    WRONG_STATE,
    NOTHING_DUE,
    BAD_VOUCHER_SIGNATURE,
    BAD_FINAL_SIGNATURE,
    STILL_RUNNING,
    // openBatch
    HELD_NOT_CLEARED,
    // beginPacked
    START_OUT_OF_RANGE,
    BAD_ACCEPT_SIGNATURE,
    // openFutures
    WRONG_SERIES,
    // openBatch
    PROVIDER_BARRED,
    // openFutures
    ORDER_CLOSED
}
