// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Status} from "./Lifecycle.sol";

/// @notice A machine's bond and its lease in one slot. From the lowest bit: cap 48, paid 48, marketId 16, buyerId 32,
/// start 32, duration 24, seq 24, bond 24, status 4, flags 4.
/// @dev `start` is the start deadline while Funded and the start afterwards; `bond` counts whole tokens; `seq` is the
/// newest lease's number and outlives it. Between leases everything else but bond and status is zero.
type LeaseWord is uint256;

using LeaseWordLibrary for LeaseWord global;

library LeaseWordLibrary {
    uint256 private constant PAID = 48;
    uint256 private constant MARKET = 96;
    uint256 private constant BUYER = 112;
    uint256 private constant START = 144;
    uint256 private constant DURATION = 176;
    uint256 private constant SEQ = 200;
    uint256 private constant BOND = 224;
    uint256 private constant STATUS = 248;
    uint256 private constant FLAGS = 252;

    uint256 private constant U16 = 0xffff;
    uint256 private constant U24 = 0xffffff;
    uint256 private constant U32 = 0xffffffff;
    uint256 private constant U48 = 0xffffffffffff;

    function cap(LeaseWord w) internal pure returns (uint256) {
        return LeaseWord.unwrap(w) & U48;
    }

    function paid(LeaseWord w) internal pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> PAID) & U48;
    }

    function marketId(LeaseWord w) internal pure returns (uint16) {
        return uint16(LeaseWord.unwrap(w) >> MARKET);
    }

    function buyerId(LeaseWord w) internal pure returns (uint32) {
        return uint32(LeaseWord.unwrap(w) >> BUYER);
    }

    function start(LeaseWord w) internal pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> START) & U32;
    }

    function duration(LeaseWord w) internal pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> DURATION) & U24;
    }

    /// @dev What a meter needs, in one call.
    function meter(LeaseWord w)
        internal
        pure
        returns (uint256 cap_, uint256 paid_, uint256 start_, uint256 duration_)
    {
        assembly ("memory-safe") {
            cap_ := and(w, U48)
            paid_ := and(shr(PAID, w), U48)
            start_ := and(shr(START, w), U32)
            duration_ := and(shr(DURATION, w), U24)
        }
    }

    function seq(LeaseWord w) internal pure returns (uint24) {
        return uint24(LeaseWord.unwrap(w) >> SEQ);
    }

    function bond(LeaseWord w) internal pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> BOND) & U24;
    }

    function status(LeaseWord w) internal pure returns (Status) {
        return Status((LeaseWord.unwrap(w) >> STATUS) & 0xf);
    }

    function flags(LeaseWord w) internal pure returns (uint8) {
        return uint8(LeaseWord.unwrap(w) >> FLAGS);
    }

    function has(LeaseWord w, uint8 flag) internal pure returns (bool) {
        return (LeaseWord.unwrap(w) >> FLAGS) & flag != 0;
    }

    /// @dev {seq} for comparisons, without a narrower type's cleaning.
    function seqBits(LeaseWord w) internal pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> SEQ) & U24;
    }

    function isFree(LeaseWord w) internal pure returns (bool) {
        return _statusBits(w) == uint256(Status.Free);
    }

    function isStopped(LeaseWord w) internal pure returns (bool) {
        return _statusBits(w) == uint256(Status.Stopped);
    }

    function isRunning(LeaseWord w) internal pure returns (bool) {
        uint256 s = _statusBits(w);
        return s == uint256(Status.Active) || s == uint256(Status.Stopped);
    }

    function _statusBits(LeaseWord w) private pure returns (uint256) {
        return (LeaseWord.unwrap(w) >> STATUS) & 0xf;
    }

    /// @dev A new lease over a free machine's word; arguments fit their fields (the caller checked).
    function funded(
        LeaseWord w,
        uint256 cap_,
        uint256 marketId_,
        uint256 buyerId_,
        uint256 deadline,
        uint256 duration_,
        uint256 seq_,
        uint256 flags_
    ) internal pure returns (LeaseWord) {
        uint256 kept = LeaseWord.unwrap(w) & (U24 << BOND);
        uint256 terms;
        assembly ("memory-safe") {
            terms := or(or(cap_, shl(MARKET, marketId_)), or(shl(BUYER, buyerId_), shl(START, deadline)))
            terms := or(or(terms, shl(DURATION, duration_)), or(shl(SEQ, seq_), shl(FLAGS, flags_)))
        }
        return LeaseWord.wrap(kept | terms | (uint256(Status.Funded) << STATUS));
    }

    /// @dev The machine alone: bond and the newest lease's number, with a state between leases.
    function idle(LeaseWord w, Status status_) internal pure returns (LeaseWord) {
        uint256 kept = LeaseWord.unwrap(w) & ((U24 << BOND) | (U24 << SEQ));
        return LeaseWord.wrap(kept | (uint256(status_) << STATUS));
    }

    /// @dev Over a word that {funded} made without a buyer.
    function withBuyer(LeaseWord w, uint256 buyerId_) internal pure returns (LeaseWord) {
        return LeaseWord.wrap(LeaseWord.unwrap(w) | (buyerId_ << BUYER));
    }

    function withStatus(LeaseWord w, Status status_) internal pure returns (LeaseWord) {
        return _with(w, STATUS, 0xf, uint256(status_));
    }

    function withStart(LeaseWord w, uint256 start_) internal pure returns (LeaseWord) {
        return _with(w, START, U32, start_);
    }

    function withDuration(LeaseWord w, uint256 duration_) internal pure returns (LeaseWord) {
        return _with(w, DURATION, U24, duration_);
    }

    function withCap(LeaseWord w, uint256 cap_) internal pure returns (LeaseWord) {
        return _with(w, 0, U48, cap_);
    }

    function withPaid(LeaseWord w, uint256 paid_) internal pure returns (LeaseWord) {
        return _with(w, PAID, U48, paid_);
    }

    function withBond(LeaseWord w, uint256 bond_) internal pure returns (LeaseWord) {
        return _with(w, BOND, U24, bond_);
    }

    function withFlag(LeaseWord w, uint8 flag) internal pure returns (LeaseWord) {
        return LeaseWord.wrap(LeaseWord.unwrap(w) | (uint256(flag) << FLAGS));
    }

    function _with(LeaseWord w, uint256 shift, uint256 mask, uint256 value) private pure returns (LeaseWord) {
        return LeaseWord.wrap((LeaseWord.unwrap(w) & ~(mask << shift)) | (value << shift));
    }
}
