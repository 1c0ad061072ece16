// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {MachineKey} from "../types/MachineKey.sol";
import {OrderHash} from "./OrderHash.sol";

/// @title PackedBatch: calldata of batches without padding, equal to `cloud_gpu/protocol/adapters/evm_packing.py`
/// @dev Calldata is most of a batch's price after storage: an entry is laid out by hand, big-endian, and what all
/// entries share is said once. Signatures are EIP-2098, 64 bytes. An entry is named by where it lies in calldata; its
/// words are taken apart by the functions below, and hashed as EIP-712 in memory that nobody keeps.
///
/// A match, 256 bytes: provider 20, index 4, minPricePerHour 8 | buyer 20, nonce 4, maxPricePerHour 8 | of the ask:
/// seq 3, minDuration 3, maxDuration 3, startBy 4, maxFeeBps 2, flags 1; of the bid: duration 3, startBy 4,
/// openFrom 4, maxFeeBps 2, auditBps 2, flags 1 (its highest bit: the bid names this provider) | terms 32 | the ask's
/// signature 64, the bid's 64. Product, count and matcher are the call's.
///
/// A start, 75 bytes: index 4, seq 3, startedAt 4 | the Accept's signature 64. The provider is the call's.
///
/// A closing, 97 or 161 bytes: provider 20, index 4, seq 3, amount 6 | the buyer's signature 64 | the provider's 64.
library PackedBatch {
    uint256 internal constant MATCH_BYTES = 256;
    uint256 internal constant START_BYTES = 75;
    uint256 internal constant CLOSING_BYTES = 97;
    uint256 internal constant SIGNATURE_BYTES = 64;

    uint256 internal constant ASK_SIGNATURE = 128;
    uint256 internal constant BID_SIGNATURE = 192;
    uint256 internal constant ACCEPT_SIGNATURE = 11;
    uint256 internal constant BUYER_SIGNATURE = 33;
    uint256 internal constant PROVIDER_SIGNATURE = 97;

    uint256 internal constant PINNED = 0x80;

    /// @notice Where the first entry of `data` lies.
    function first(bytes calldata data) internal pure returns (uint256 entry) {
        assembly ("memory-safe") {
            entry := data.offset
        }
    }

    function wordAt(uint256 place) internal pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(place)
        }
    }

    /// @notice Provider and index lead a match and a closing alike.
    function machineAt(uint256 entry) internal pure returns (MachineKey key) {
        assembly ("memory-safe") {
            let head := calldataload(entry)
            key := or(shl(96, shr(96, head)), and(shr(64, head), 0xffffffff))
        }
    }

    /// @dev One block, since the compiler makes a call of every shift that is written in Solidity.
    function partsOfMatch(uint256 entry)
        internal
        pure
        returns (MachineKey key, address provider, address buyer, uint256 nonce, uint256 seq, uint256 duration)
    {
        key = machineAt(entry);
        assembly ("memory-safe") {
            let bid := calldataload(add(entry, 32))
            let terms := calldataload(add(entry, 64))
            provider := shr(96, key)
            buyer := shr(96, bid)
            nonce := and(shr(64, bid), 0xffffffff)
            seq := shr(232, terms)
            duration := and(shr(104, terms), 0xffffff)
        }
    }

    /// @notice The EIP-2098 signature that lies there.
    function signatureAt(uint256 place) internal pure returns (bytes calldata signature) {
        assembly ("memory-safe") {
            signature.offset := place
            signature.length := 64
        }
    }

    /// @dev Words of a match: 0 names the machine, 1 the buyer, 2 holds both orders' terms.
    function askHash(uint256 entry, uint256 product, address matcher) internal pure returns (bytes32 structHash) {
        bytes32 typeHash = OrderHash.ASK;
        assembly ("memory-safe") {
            let m := mload(0x40)
            let machine := calldataload(entry)
            let terms := calldataload(add(entry, 64))
            mstore(m, typeHash)
            mstore(add(m, 0x20), shr(96, machine))
            mstore(add(m, 0x40), and(shr(64, machine), 0xffffffff))
            mstore(add(m, 0x60), shr(232, terms))
            mstore(add(m, 0x80), product)
            mstore(add(m, 0xa0), and(machine, 0xffffffffffffffff))
            mstore(add(m, 0xc0), and(shr(208, terms), 0xffffff))
            mstore(add(m, 0xe0), and(shr(184, terms), 0xffffff))
            mstore(add(m, 0x100), and(shr(152, terms), 0xffffffff))
            mstore(add(m, 0x120), matcher)
            mstore(add(m, 0x140), and(shr(136, terms), 0xffff))
            mstore(add(m, 0x160), and(shr(128, terms), 0xff))
            structHash := keccak256(m, 0x180)
        }
    }

    function bidHash(uint256 entry, uint256 product, uint256 count, address matcher)
        internal
        pure
        returns (bytes32 structHash)
    {
        bytes32 typeHash = OrderHash.BID;
        assembly ("memory-safe") {
            let m := mload(0x40)
            let buyer := calldataload(add(entry, 32))
            let terms := calldataload(add(entry, 64))
            mstore(m, typeHash)
            mstore(add(m, 0x20), shr(96, buyer))
            mstore(add(m, 0x40), product)
            mstore(add(m, 0x60), count)
            mstore(add(m, 0x80), and(buyer, 0xffffffffffffffff))
            mstore(add(m, 0xa0), and(shr(104, terms), 0xffffff))
            mstore(add(m, 0xc0), and(shr(72, terms), 0xffffffff))
            mstore(add(m, 0xe0), and(shr(40, terms), 0xffffffff))
            mstore(add(m, 0x100), mul(shr(96, calldataload(entry)), and(shr(7, terms), 1)))
            mstore(add(m, 0x120), and(shr(64, buyer), 0xffffffff))
            mstore(add(m, 0x140), matcher)
            mstore(add(m, 0x160), and(shr(24, terms), 0xffff))
            mstore(add(m, 0x180), and(shr(8, terms), 0xffff))
            mstore(add(m, 0x1a0), and(terms, 0x7f))
            mstore(add(m, 0x1c0), calldataload(add(entry, 96)))
            structHash := keccak256(m, 0x1e0)
        }
    }

    /// @param typeHash VOUCHER or FINAL: both name the same four fields.
    function closingHash(uint256 entry, bytes32 typeHash) internal pure returns (bytes32 structHash) {
        assembly ("memory-safe") {
            let m := mload(0x40)
            let head := calldataload(entry)
            mstore(m, typeHash)
            mstore(add(m, 0x20), shr(96, head))
            mstore(add(m, 0x40), and(shr(64, head), 0xffffffff))
            mstore(add(m, 0x60), and(shr(40, head), 0xffffff))
            mstore(add(m, 0x80), and(calldataload(add(entry, 1)), 0xffffffffffff))
            structHash := keccak256(m, 0xa0)
        }
    }

    function acceptHash(uint256 entry, address provider) internal pure returns (bytes32 structHash) {
        bytes32 typeHash = OrderHash.ACCEPT;
        assembly ("memory-safe") {
            let m := mload(0x40)
            let head := calldataload(entry)
            mstore(m, typeHash)
            mstore(add(m, 0x20), provider)
            mstore(add(m, 0x40), shr(224, head))
            mstore(add(m, 0x60), and(shr(200, head), 0xffffff))
            mstore(add(m, 0x80), and(shr(168, head), 0xffffffff))
            structHash := keccak256(m, 0xa0)
        }
    }

    /// @return signer The key behind the EIP-2098 signature at `place` of an EIP-712 digest; zero for a bad one.
    /// @dev As {SigCheck.recover}, which goes through a library made for signatures of every shape.
    function signerOf(bytes32 domainSeparator, bytes32 structHash, uint256 place)
        internal
        view
        returns (address signer)
    {
        assembly ("memory-safe") {
            let m := mload(0x40)
            mstore(m, hex"1901")
            mstore(add(m, 0x02), domainSeparator)
            mstore(add(m, 0x22), structHash)
            let vs := calldataload(add(place, 0x20))
            let s := shr(1, shl(1, vs))
            mstore(m, keccak256(m, 0x42))
            mstore(add(m, 0x20), add(27, shr(255, vs)))
            mstore(add(m, 0x40), calldataload(place))
            mstore(add(m, 0x60), s)
            mstore(0x00, 0)
            // Of the two signatures that say the same, only the one with the lower s counts (EIP-2).
            if lt(s, 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a1) {
                pop(staticcall(gas(), 0x01, m, 0x80, 0x00, 0x20))
            }
            signer := mload(0x00)
        }
    }
}
