// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AccountWord} from "../types/AccountWord.sol";

/// @title NonceWindow: 128 live nonces in the account's own slot
/// @dev Nonces below the base are dead, base to base + 127 are tracked bit by bit, a later one slides the window up.
/// One step is at most 65,535, so that one order cannot void all that follow.
library NonceWindow {
    uint256 internal constant WIDTH = 128;
    uint256 internal constant STEP_MAX = 65_535;

    /// @param nonce Below 2^32.
    /// @return The account with `nonce` used, and whether it still could be.
    function use(AccountWord account, uint256 nonce) internal pure returns (AccountWord, bool) {
        unchecked {
            uint256 base = account.nonceBase();
            if (nonce < base) return (account, false);
            uint256 ahead = nonce - base;
            if (ahead > STEP_MAX) return (account, false);
            uint256 bits = account.nonceBits();
            if (ahead >= WIDTH) {
                uint256 step = ahead - (WIDTH - 1);
                bits >>= step; // a shift of 256 and more gives 0
                base += step; // at most nonce: fits 32 bits
                ahead = WIDTH - 1;
            }
            uint256 bit = 1 << ahead;
            if (bits & bit != 0) return (account, false);
            return (account.withNonces(base, bits | bit), true);
        }
    }

    /// @return The account with every nonce below `newBase` dead; `newBase` is above the present base.
    function raise(AccountWord account, uint32 newBase) internal pure returns (AccountWord) {
        unchecked {
            return account.withNonces(newBase, uint256(account.nonceBits()) >> (newBase - account.nonceBase()));
        }
    }
}
