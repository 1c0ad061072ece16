// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accept, Ask, Bid, Match, Ready, Voucher} from "../types/Orders.sol";

/// @title OrderHash: EIP-712 struct hashes of everything LeaseBook reads signed
/// @dev The structs have static members only, in the order of their type strings, so in memory they lie as EIP-712
/// hashes them, one word a member: the type hash stands in for the word before them while they are hashed.
/// The type strings are final and equal to those of `cloud_gpu.protocol`.
library OrderHash {
    bytes32 internal constant ASK = keccak256(
        "Ask(address provider,uint32 index,uint24 seq,uint32 product,uint64 minPricePerHour,uint24 minDuration,uint24 maxDuration,uint32 startBy,address matcher,uint16 maxFeeBps,uint8 flags)"
    );
    bytes32 internal constant BID = keccak256(
        "Bid(address buyer,uint32 product,uint16 count,uint64 maxPricePerHour,uint24 duration,uint32 startBy,uint32 openFrom,address provider,uint32 nonce,address matcher,uint16 maxFeeBps,uint16 auditBps,uint8 flags,bytes32 terms)"
    );
    bytes32 internal constant MATCH =
        keccak256("Match(bytes32 askHash,bytes32 bidHash,uint64 price,uint16 marketId)");
    bytes32 internal constant READY =
        keccak256("Ready(address provider,uint32 index,uint24 seq,bytes32 runtimeHash)");
    bytes32 internal constant ACCEPT = keccak256("Accept(address provider,uint32 index,uint24 seq,uint32 startedAt)");
    bytes32 internal constant VOUCHER = keccak256("Voucher(address provider,uint32 index,uint24 seq,uint48 amount)");
    bytes32 internal constant FINAL = keccak256("Final(address provider,uint32 index,uint24 seq,uint48 amount)");
    bytes32 internal constant DELEGATE = keccak256("Delegate(address account,uint8 role,uint32 expiry)");

    function hash(Ask memory ask) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := ask
        }
        return _hash({typeHash: ASK, pointer: pointer, size: 11 * 32});
    }

    function hash(Bid memory bid) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := bid
        }
        return _hash({typeHash: BID, pointer: pointer, size: 14 * 32});
    }

    function hash(Match memory value) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := value
        }
        return _hash({typeHash: MATCH, pointer: pointer, size: 4 * 32});
    }

    function hash(Ready memory ready) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := ready
        }
        return _hash({typeHash: READY, pointer: pointer, size: 4 * 32});
    }

    function hash(Accept memory accepted) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := accepted
        }
        return _hash({typeHash: ACCEPT, pointer: pointer, size: 4 * 32});
    }

    /// @param typeHash VOUCHER or FINAL: both name the same four fields.
    function hash(Voucher memory voucher, bytes32 typeHash) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := voucher
        }
        return _hash({typeHash: typeHash, pointer: pointer, size: 4 * 32});
    }

    function hashDelegate(address account, uint8 role, uint32 expiry) internal pure returns (bytes32) {
        return keccak256(abi.encode(DELEGATE, account, role, expiry));
    }

    /// @dev The word before is put back before anybody can read it.
    function _hash(bytes32 typeHash, uint256 pointer, uint256 size) private pure returns (bytes32 structHash) {
        assembly ("memory-safe") {
            let before := sub(pointer, 0x20)
            let kept := mload(before)
            mstore(before, typeHash)
            structHash := keccak256(before, add(size, 0x20))
            mstore(before, kept)
        }
    }
}
