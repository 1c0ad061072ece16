// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice An account in one slot. From the lowest bit: cash 64, id 32, nonceBase 32, nonceBits 128.
/// @dev `id` is never zero for a registered account. Cash is added and taken in place: it is the lowest field, and
/// all cash together is at most the vault's balance, which {LeaseBook} keeps below 2^64.
type AccountWord is uint256;

using AccountWordLibrary for AccountWord global;

library AccountWordLibrary {
    uint256 private constant ID = 64;
    uint256 private constant BASE = 96;
    uint256 private constant BITS = 128;

    function cash(AccountWord w) internal pure returns (uint256) {
        return uint64(AccountWord.unwrap(w));
    }

    function id(AccountWord w) internal pure returns (uint32) {
        return uint32(AccountWord.unwrap(w) >> ID);
    }

    function nonceBase(AccountWord w) internal pure returns (uint32) {
        return uint32(AccountWord.unwrap(w) >> BASE);
    }

    function nonceBits(AccountWord w) internal pure returns (uint128) {
        return uint128(AccountWord.unwrap(w) >> BITS);
    }

    function withId(AccountWord w, uint32 id_) internal pure returns (AccountWord) {
        return AccountWord.wrap(AccountWord.unwrap(w) | (uint256(id_) << ID));
    }

    function withNonces(AccountWord w, uint256 base, uint256 bits) internal pure returns (AccountWord) {
        uint256 nonces;
        assembly ("memory-safe") {
            nonces := or(shl(BASE, base), shl(BITS, bits))
        }
        return AccountWord.wrap((AccountWord.unwrap(w) & ((1 << BASE) - 1)) | nonces);
    }

    /// @dev Bound: the sum of all cash stays below 2^64, so the field does not overflow.
    function plus(AccountWord w, uint256 amount) internal pure returns (AccountWord) {
        unchecked {
            return AccountWord.wrap(AccountWord.unwrap(w) + amount);
        }
    }

    /// @dev Bound: the caller checked amount <= cash.
    function minus(AccountWord w, uint256 amount) internal pure returns (AccountWord) {
        unchecked {
            return AccountWord.wrap(AccountWord.unwrap(w) - amount);
        }
    }
}
