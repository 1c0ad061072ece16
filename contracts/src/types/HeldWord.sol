// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice The held pay of one verified lease in one slot. From the lowest bit: amount 48, audit 56, buyerId 32,
/// marketId 16, auditBps 16, endedAt 32, nextBatchNo 16, seq 24.
/// @dev Not zero from the lease's opening until its last money left. `amount` is what vouchers paid and no batch took
/// yet; `audit` is the buyer's share for audits beside it; `endedAt` is 0 while the lease runs.
type HeldWord is uint256;

using HeldWordLibrary for HeldWord global;

/// @dev A machine's leases reuse so many slots in turn.
uint256 constant HELD_SLOTS = 4;

library HeldWordLibrary {
    uint256 private constant AUDIT = 48;
    uint256 private constant BUYER = 104;
    uint256 private constant MARKET = 136;
    uint256 private constant AUDIT_BPS = 152;
    uint256 private constant ENDED = 168;
    uint256 private constant BATCH = 200;
    uint256 private constant SEQ = 216;

    uint256 private constant U48 = 0xffffffffffff;
    uint256 private constant U56 = 0xffffffffffffff;

    function isClear(HeldWord w) internal pure returns (bool) {
        return HeldWord.unwrap(w) == 0;
    }

    function amount(HeldWord w) internal pure returns (uint256) {
        return HeldWord.unwrap(w) & U48;
    }

    function audit(HeldWord w) internal pure returns (uint256) {
        return (HeldWord.unwrap(w) >> AUDIT) & U56;
    }

    function buyerId(HeldWord w) internal pure returns (uint32) {
        return uint32(HeldWord.unwrap(w) >> BUYER);
    }

    function marketId(HeldWord w) internal pure returns (uint16) {
        return uint16(HeldWord.unwrap(w) >> MARKET);
    }

    function auditBps(HeldWord w) internal pure returns (uint16) {
        return uint16(HeldWord.unwrap(w) >> AUDIT_BPS);
    }

    function endedAt(HeldWord w) internal pure returns (uint32) {
        return uint32(HeldWord.unwrap(w) >> ENDED);
    }

    function nextBatchNo(HeldWord w) internal pure returns (uint16) {
        return uint16(HeldWord.unwrap(w) >> BATCH);
    }

    function seq(HeldWord w) internal pure returns (uint24) {
        return uint24(HeldWord.unwrap(w) >> SEQ);
    }

    /// @dev A lease that was just funded: nothing paid, all of the audit share. Arguments fit their fields.
    function opened(uint256 seq_, uint256 audit_, uint256 buyerId_, uint256 marketId_, uint256 auditBps_)
        internal
        pure
        returns (HeldWord)
    {
        uint256 terms = (audit_ << AUDIT) | (buyerId_ << BUYER) | (marketId_ << MARKET);
        return HeldWord.wrap(terms | (auditBps_ << AUDIT_BPS) | (seq_ << SEQ));
    }

    /// @dev Bound: all that a lease pays is at most its cap, below 2^48.
    function plus(HeldWord w, uint256 more) internal pure returns (HeldWord) {
        unchecked {
            return HeldWord.wrap(HeldWord.unwrap(w) + more);
        }
    }

    function withAudit(HeldWord w, uint256 audit_) internal pure returns (HeldWord) {
        return _with(w, AUDIT, U56, audit_);
    }

    function withEnd(HeldWord w, uint256 when) internal pure returns (HeldWord) {
        return _with(w, ENDED, type(uint32).max, when);
    }

    /// @dev A batch took the amount and `audit_` of the audit share.
    function taken(HeldWord w, uint256 audit_) internal pure returns (HeldWord) {
        w = _with(w, 0, U48, 0);
        w = _with(w, AUDIT, U56, audit(w) - audit_);
        unchecked {
            return _with(w, BATCH, type(uint16).max, uint16(nextBatchNo(w) + 1));
        }
    }

    function _with(HeldWord w, uint256 shift, uint256 mask, uint256 value) private pure returns (HeldWord) {
        return HeldWord.wrap((HeldWord.unwrap(w) & ~(mask << shift)) | (value << shift));
    }
}
