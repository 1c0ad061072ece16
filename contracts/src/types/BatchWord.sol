// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {BatchState} from "./Audits.sol";

/// @notice A batch, but for its root and seed, in one slot. From the lowest bit: value 48, auditBps 14, locked 24,
/// n 7, state 3, forfeit 1, buyerId 32, marketId 16, number 32, blockNumber 40, committedAt 32.
/// @dev `locked` is in whole bond units; `number` is what was committed before it in this deployment; `forfeit`:
/// what is left of it will be burnt. The state ACCUSED is never stored, see {DisputeWord}.
type BatchWord is uint256;

using BatchWordLibrary for BatchWord global;

library BatchWordLibrary {
    uint256 private constant AUDIT_BPS = 48;
    uint256 private constant LOCKED = 62;
    uint256 private constant SEGMENTS = 86;
    uint256 private constant STATE = 93;
    uint256 private constant FORFEIT = 96;
    uint256 private constant BUYER = 97;
    uint256 private constant MARKET = 129;
    uint256 private constant NUMBER = 145;
    uint256 private constant BLOCK = 177;
    uint256 private constant COMMITTED = 217;

    uint256 private constant U3 = 0x7;
    uint256 private constant U7 = 0x7f;
    uint256 private constant U14 = 0x3fff;
    uint256 private constant U24 = 0xffffff;
    uint256 private constant U40 = 0xffffffffff;
    uint256 private constant U48 = 0xffffffffffff;

    /// @dev A batch that was just committed. Arguments fit their fields: LeaseBook's words bound the amounts, and four
    /// billion batches are more than a hash chain serves.
    function committed(
        uint256 value_,
        uint256 auditBps_,
        uint256 locked_,
        uint256 n_,
        uint256 buyerId_,
        uint256 marketId_,
        uint256 number_
    ) internal view returns (BatchWord) {
        uint256 money = value_ | (auditBps_ << AUDIT_BPS) | (locked_ << LOCKED) | (n_ << SEGMENTS);
        uint256 terms = (uint256(BatchState.COMMITTED) << STATE) | (buyerId_ << BUYER) | (marketId_ << MARKET);
        uint256 place = (number_ << NUMBER) | (block.number << BLOCK) | (block.timestamp << COMMITTED);
        return BatchWord.wrap(money | terms | place);
    }

    function value(BatchWord w) internal pure returns (uint256) {
        return BatchWord.unwrap(w) & U48;
    }

    function auditBps(BatchWord w) internal pure returns (uint256) {
        return (BatchWord.unwrap(w) >> AUDIT_BPS) & U14;
    }

    function locked(BatchWord w) internal pure returns (uint256) {
        return (BatchWord.unwrap(w) >> LOCKED) & U24;
    }

    function n(BatchWord w) internal pure returns (uint256) {
        return (BatchWord.unwrap(w) >> SEGMENTS) & U7;
    }

    function state(BatchWord w) internal pure returns (BatchState) {
        return BatchState((BatchWord.unwrap(w) >> STATE) & U3);
    }

    function isForfeit(BatchWord w) internal pure returns (bool) {
        return (BatchWord.unwrap(w) >> FORFEIT) & 1 != 0;
    }

    function buyerId(BatchWord w) internal pure returns (uint32) {
        return uint32(BatchWord.unwrap(w) >> BUYER);
    }

    function marketId(BatchWord w) internal pure returns (uint16) {
        return uint16(BatchWord.unwrap(w) >> MARKET);
    }

    function number(BatchWord w) internal pure returns (uint256) {
        return uint32(BatchWord.unwrap(w) >> NUMBER);
    }

    function blockNumber(BatchWord w) internal pure returns (uint256) {
        return (BatchWord.unwrap(w) >> BLOCK) & U40;
    }

    function committedAt(BatchWord w) internal pure returns (uint256) {
        return uint32(BatchWord.unwrap(w) >> COMMITTED);
    }

    function withState(BatchWord w, BatchState state_) internal pure returns (BatchWord) {
        return _with(w, STATE, U3, uint256(state_));
    }

    function withLocked(BatchWord w, uint256 units) internal pure returns (BatchWord) {
        return _with(w, LOCKED, U24, units);
    }

    function forfeited(BatchWord w) internal pure returns (BatchWord) {
        return _with(w, FORFEIT, 1, 1);
    }

    function _with(BatchWord w, uint256 shift, uint256 mask, uint256 field) private pure returns (BatchWord) {
        return BatchWord.wrap((BatchWord.unwrap(w) & ~(mask << shift)) | (field << shift));
    }
}
