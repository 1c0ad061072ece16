// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {World} from "./World.sol";

/// @dev Money in and out, cancellations, time.
abstract contract AccountHandler is World {
    function deposit(uint256 seed, uint64 amount) external counted("deposit") {
        address[] memory all = accounts();
        (address payer, address to) = (all[seed % all.length], all[(seed >> 32) % all.length]);
        amount = uint64(bound(amount, 1, 1000e6));
        token.mint(payer, amount);
        vm.prank(payer);
        book.deposit(to, amount);
        if (to == matcher) marketIn += amount;
    }

    function withdraw(uint256 seed, uint64 amount) external {
        address[] memory all = accounts();
        address who = all[seed % all.length];
        uint256 cash = _cash(who);
        if (cash == 0) return;
        amount = uint64(bound(amount, 1, cash / 4 + 1));
        uint256 before = token.balanceOf(who);
        vm.prank(who);
        book.withdraw(amount);
        assertEq(token.balanceOf(who), before + amount);
        if (who == matcher) marketOut += amount;
        ++calls["withdraw"];
    }

    function registerRow(uint256 seed) external {
        address who = _buyers[seed % _buyers.length];
        if (_cash(who) < FEE_TO_REGISTER) return;
        vm.prank(who);
        if (seed % 2 == 0) book.registerProduct(_product());
        else book.registerMarket(uint16(seed % 1001));
        ++calls["registerRow"];
    }

    function cancelBelow(uint256 seed) external counted("cancelBelow") {
        address who = _buyers[seed % _buyers.length];
        uint32 base = book.accountOf(who).nonceBase;
        vm.prank(who);
        book.cancelBelow(base + 1);
    }

    function wait_(uint256 seed) external counted("wait") {
        uint32[6] memory steps = [uint32(30), 5 minutes, 16 minutes, 1 hours, 3 hours, 12 hours];
        skip(steps[seed % steps.length]);
    }
}
