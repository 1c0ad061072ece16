// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {NonceWindow} from "../../src/libraries/NonceWindow.sol";
import {AccountWord} from "../../src/types/AccountWord.sol";
import {Test} from "forge-std/Test.sol";

/// @dev The packed window against a naive twin that remembers every nonce in a mapping.
contract FuzzNonceWindow is Test {
    uint256 private constant CASH_AND_ID = (uint256(77) << 64) | 123_456_789;

    mapping(uint256 nonce => bool) private _used;
    uint256 private _base;

    function _naiveUse(uint256 nonce) private returns (bool) {
        if (nonce < _base || nonce - _base > 65_535 || _used[nonce]) return false;
        _used[nonce] = true;
        if (nonce > _base + 127) _base = nonce - 127;
        return true;
    }

    function _naiveBits() private view returns (uint256 bits) {
        for (uint256 bit; bit < 128; ++bit) {
            if (_used[_base + bit]) bits |= 1 << bit;
        }
    }

    function testFuzz_use_whenAnySequence_thenAgreesWithTheTwin(uint32[16] memory steps, uint32 start) external {
        AccountWord account = AccountWord.wrap(CASH_AND_ID);
        start = uint32(bound(start, 0, type(uint32).max - 16 * 70_000));
        if (start != 0) account = NonceWindow.raise(account, start);
        _base = start;
        for (uint256 i; i < steps.length; ++i) {
            // Mostly near the window, now and then far ahead or behind.
            uint256 reach = steps[i] % 8 == 0 ? 70_000 : 200;
            uint256 from = _base > 20 ? _base - 20 : 0;
            uint32 nonce = uint32(from + (steps[i] >> 3) % reach);
            bool usable;
            (account, usable) = NonceWindow.use(account, nonce);
            assertEq(usable, _naiveUse(nonce), "use");
            if (steps[i] % 13 == 0) {
                uint32 raised = uint32(_base + 1 + steps[i] % 150);
                account = NonceWindow.raise(account, raised);
                _base = raised;
            }
            assertEq(account.nonceBase(), _base, "base");
            assertEq(account.nonceBits(), _naiveBits(), "bits");
            assertEq(AccountWord.unwrap(account) & ((1 << 96) - 1), CASH_AND_ID, "cash and id");
        }
    }

    function test_use_whenAtTheEndOfThe32Bits_thenDoesNotWrap() external pure {
        AccountWord account = NonceWindow.raise(AccountWord.wrap(CASH_AND_ID), type(uint32).max - 10);
        bool usable;
        (account, usable) = NonceWindow.use(account, type(uint32).max);
        assertTrue(usable);
        assertEq(account.nonceBase(), type(uint32).max - 10);
        (, usable) = NonceWindow.use(account, type(uint32).max);
        assertFalse(usable);
        (, usable) = NonceWindow.use(account, 0);
        assertFalse(usable);
    }
}
