// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accept, Ask, Bid, Voucher} from "../types/Orders.sol";

/// @title PackedBatch: calldata of batches without padding, equal to `cloud_gpu/protocol/adapters/evm_packing.py`
/// @dev Calldata is most of a batch's price after storage: an entry is laid out by hand, big-endian, and what all
/// entries share is said once. Signatures are EIP-2098, 64 bytes. Offsets are within `data`; callers checked its
/// length. Entries are read into the same structs again and again, so memory does not grow with the batch.
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

    uint256 private constant ORDERS_BYTES = 128;
    uint256 private constant START_HEAD_BYTES = 11;
    uint256 private constant CLOSING_HEAD_BYTES = 33;
    uint256 private constant PINNED = 0x80;

    /// @dev Fills in what an entry says of both orders.
    function readMatch(bytes calldata data, uint256 offset, Ask memory ask, Bid memory bid) internal pure {
        uint256 word = _word(data, offset);
        ask.provider = address(uint160(word >> 96));
        ask.index = uint32(word >> 64);
        ask.minPricePerHour = uint64(word);
        word = _word(data, offset + 32);
        bid.buyer = address(uint160(word >> 96));
        bid.nonce = uint32(word >> 64);
        bid.maxPricePerHour = uint64(word);
        word = _word(data, offset + 64);
        ask.seq = uint24(word >> 232);
        ask.minDuration = uint24(word >> 208);
        ask.maxDuration = uint24(word >> 184);
        ask.startBy = uint32(word >> 152);
        ask.maxFeeBps = uint16(word >> 136);
        ask.flags = uint8(word >> 128);
        bid.duration = uint24(word >> 104);
        bid.startBy = uint32(word >> 72);
        bid.openFrom = uint32(word >> 40);
        bid.maxFeeBps = uint16(word >> 24);
        bid.auditBps = uint16(word >> 8);
        bid.provider = word & PINNED != 0 ? ask.provider : address(0);
        bid.flags = uint8(word & (PINNED - 1));
        bid.terms = bytes32(_word(data, offset + 96));
    }

    /// @return askSignature Of the match at `offset`, with the bid's.
    function matchSignatures(bytes calldata data, uint256 offset)
        internal
        pure
        returns (bytes calldata askSignature, bytes calldata bidSignature)
    {
        askSignature = _signature(data, offset + ORDERS_BYTES);
        bidSignature = _signature(data, offset + ORDERS_BYTES + SIGNATURE_BYTES);
    }

    function readStart(bytes calldata data, uint256 offset, Accept memory accepted) internal pure {
        uint256 word = _word(data, offset);
        accepted.index = uint32(word >> 224);
        accepted.seq = uint24(word >> 200);
        accepted.startedAt = uint32(word >> 168);
    }

    function startSignature(bytes calldata data, uint256 offset) internal pure returns (bytes calldata) {
        return _signature(data, offset + START_HEAD_BYTES);
    }

    function readClosing(bytes calldata data, uint256 offset, Voucher memory voucher) internal pure {
        uint256 word = _word(data, offset);
        voucher.provider = address(uint160(word >> 96));
        voucher.index = uint32(word >> 64);
        voucher.seq = uint24(word >> 40);
        voucher.amount = uint48(_word(data, offset + 1));
    }

    /// @param withFinal Whether the provider's signature follows the buyer's.
    function closingSignatures(bytes calldata data, uint256 offset, bool withFinal)
        internal
        pure
        returns (bytes calldata buyerSignature, bytes calldata providerSignature)
    {
        buyerSignature = _signature(data, offset + CLOSING_HEAD_BYTES);
        providerSignature = withFinal ? _signature(data, offset + CLOSING_BYTES) : data[:0];
    }

    /// @dev 32 bytes; what lies beyond `data` is never used of it.
    function _word(bytes calldata data, uint256 offset) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(add(data.offset, offset))
        }
    }

    function _signature(bytes calldata data, uint256 offset) private pure returns (bytes calldata signature) {
        assembly ("memory-safe") {
            signature.offset := add(data.offset, offset)
            signature.length := 64
        }
    }
}
