// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accept, Ask, Bid, Ready, Voucher} from "../types/Orders.sol";

/// @title OrderHash: EIP-712 struct hashes of everything LeaseBook reads signed
/// @dev The structs have static members only, in the order of their type strings, so their calldata words are the
/// words that EIP-712 hashes: one copy, one hash. Scratch memory beyond the free pointer is used and not kept.
/// The type strings are final and equal to those of `cloud_gpu.protocol`.
library OrderHash {
    bytes32 internal constant ASK = keccak256(
        "Ask(address provider,uint32 index,uint24 seq,uint32 product,uint64 minPricePerHour,uint24 minDuration,uint24 maxDuration,uint32 startBy,address matcher,uint16 maxFeeBps,uint8 flags)"
    );
    bytes32 internal constant BID = keccak256(
        "Bid(address buyer,uint32 product,uint16 count,uint64 maxPricePerHour,uint24 duration,uint32 startBy,uint32 openFrom,address provider,uint32 nonce,address matcher,uint16 maxFeeBps,uint16 auditBps,uint8 flags,bytes32 terms)"
    );
    bytes32 internal constant READY =
        keccak256("Ready(address provider,uint32 index,uint24 seq,bytes32 runtimeHash)");
    bytes32 internal constant ACCEPT = keccak256("Accept(address provider,uint32 index,uint24 seq,uint32 startedAt)");
    bytes32 internal constant VOUCHER = keccak256("Voucher(address provider,uint32 index,uint24 seq,uint48 amount)");
    bytes32 internal constant FINAL = keccak256("Final(address provider,uint32 index,uint24 seq,uint48 amount)");
    bytes32 internal constant DELEGATE = keccak256("Delegate(address account,uint8 role,uint32 expiry)");

    function hash(Ask calldata ask) internal pure returns (bytes32) {
        uint256 offset;
        assembly ("memory-safe") {
            offset := ask
        }
        return _hash({typeHash: ASK, offset: offset, size: 11 * 32});
    }

    function hash(Bid calldata bid) internal pure returns (bytes32) {
        uint256 offset;
        assembly ("memory-safe") {
            offset := bid
        }
        return _hash({typeHash: BID, offset: offset, size: 14 * 32});
    }

    function hash(Ready calldata ready) internal pure returns (bytes32) {
        uint256 offset;
        assembly ("memory-safe") {
            offset := ready
        }
        return _hash({typeHash: READY, offset: offset, size: 4 * 32});
    }

    function hash(Accept calldata accepted) internal pure returns (bytes32) {
        uint256 offset;
        assembly ("memory-safe") {
            offset := accepted
        }
        return _hash({typeHash: ACCEPT, offset: offset, size: 4 * 32});
    }

    /// @param typeHash VOUCHER or FINAL: both name the same four fields.
    function hash(Voucher calldata voucher, bytes32 typeHash) internal pure returns (bytes32) {
        uint256 offset;
        assembly ("memory-safe") {
            offset := voucher
        }
        return _hash({typeHash: typeHash, offset: offset, size: 4 * 32});
    }

    function hashDelegate(address account, uint8 role, uint32 expiry) internal pure returns (bytes32) {
        return keccak256(abi.encode(DELEGATE, account, role, expiry));
    }

    function _hash(bytes32 typeHash, uint256 offset, uint256 size) private pure returns (bytes32 structHash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, typeHash)
            calldatacopy(add(free, 0x20), offset, size)
            structHash := keccak256(free, add(size, 0x20))
        }
    }
}
