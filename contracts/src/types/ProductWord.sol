// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What a machine is and what binds its bond, in one slot. From the lowest bit: product 32, locked 64,
/// noticeAt 32, noticeSeq 24, auditBps 16, retireAt 32, askFloor 24.
/// @dev `locked` is an amount in base units; a notice counts for the lease it names only, so nobody has to clear it;
/// asks below `askFloor` are cancelled, also across a retirement.
type ProductWord is uint256;

using ProductWordLibrary for ProductWord global;

library ProductWordLibrary {
    uint256 private constant LOCKED = 32;
    uint256 private constant NOTICE_AT = 96;
    uint256 private constant NOTICE_SEQ = 128;
    uint256 private constant RETIRE_AT = 168;
    uint256 private constant ASK_FLOOR = 200;

    uint256 private constant U24 = 0xffffff;
    uint256 private constant U32 = 0xffffffff;

    function product(ProductWord w) internal pure returns (uint32) {
        return uint32(ProductWord.unwrap(w));
    }

    function locked(ProductWord w) internal pure returns (uint256) {
        return uint64(ProductWord.unwrap(w) >> LOCKED);
    }

    function retireAt(ProductWord w) internal pure returns (uint32) {
        return uint32(ProductWord.unwrap(w) >> RETIRE_AT);
    }

    function askFloor(ProductWord w) internal pure returns (uint256) {
        return (ProductWord.unwrap(w) >> ASK_FLOOR) & U24;
    }

    /// @dev When notice was given for lease `seq`; 0: it was not.
    function noticeAt(ProductWord w, uint24 seq) internal pure returns (uint32) {
        uint256 word = ProductWord.unwrap(w);
        return (word >> NOTICE_SEQ) & U24 == seq ? uint32(word >> NOTICE_AT) : 0;
    }

    function withNotice(ProductWord w, uint24 seq, uint256 when) internal pure returns (ProductWord) {
        return _with(_with(w, NOTICE_AT, U32, when), NOTICE_SEQ, U24, seq);
    }

    function withLocked(ProductWord w, uint256 amount) internal pure returns (ProductWord) {
        return _with(w, LOCKED, type(uint64).max, amount);
    }

    function withRetireAt(ProductWord w, uint256 when) internal pure returns (ProductWord) {
        return _with(w, RETIRE_AT, U32, when);
    }

    function withAskFloor(ProductWord w, uint256 seq) internal pure returns (ProductWord) {
        return _with(w, ASK_FLOOR, U24, seq);
    }

    /// @dev A fresh machine of `product_` (0: none); cancelled asks stay cancelled.
    function renewed(ProductWord w, uint32 product_) internal pure returns (ProductWord) {
        return ProductWord.wrap((ProductWord.unwrap(w) & (U24 << ASK_FLOOR)) | product_);
    }

    function _with(ProductWord w, uint256 shift, uint256 mask, uint256 value) private pure returns (ProductWord) {
        return ProductWord.wrap((ProductWord.unwrap(w) & ~(mask << shift)) | (value << shift));
    }
}
