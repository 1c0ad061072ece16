// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @dev What the handlers know without asking the book.
abstract contract LeaseStore {
    struct Told {
        address buyer;
        uint256 cap;
        uint256 duration;
        /// The largest voucher or Final the buyer signed.
        uint256 signed;
        bool accepted;
    }

    struct Slot {
        address provider;
        uint32 index;
        uint24 seq;
        uint256 bond;
    }

    Slot[] internal _slots;
    mapping(bytes32 lease => Told) internal _told;

    /// What the market's account was given and took out by itself; the rest of its cash is fees.
    uint256 public marketIn;
    uint256 public marketOut;
    /// Pay that went through a market, fee included.
    uint256 public paidThroughMarket;
    mapping(string call => uint256) public calls;

    function slotCount() external view returns (uint256) {
        return _slots.length;
    }

    function slotAt(uint256 i) external view returns (Slot memory) {
        return _slots[i];
    }

    function toldOf(uint256 i) public view returns (Told memory) {
        return _told[_leaseId(_slots[i])];
    }

    function _leaseId(Slot memory slot) internal pure returns (bytes32) {
        return keccak256(abi.encode(slot.provider, slot.index, slot.seq));
    }
}
