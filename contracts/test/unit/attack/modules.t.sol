// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Payout, Slash} from "../../../src/types/Audits.sol";
import {CloseReason} from "../../../src/types/Lifecycle.sol";
import {machineKeyOf} from "../../../src/types/MachineKey.sol";
import {Opening} from "../../../src/types/Rows.sol";
import {StubbedModules} from "../modules/modules.t.sol";

/// @dev Pause or upgrade as a trap; a module that takes over bonds. The modules here do whatever the test likes, as if
/// their code were somebody else's.
contract AttackByModules is StubbedModules {
    function _refusedTo(address module) private {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, module));
    }

    function test_attack_moduleTakesOverABond() external {
        Slash memory slash;
        address[2] memory modules = [address(ear), pool];
        for (uint256 i; i < 2; ++i) {
            _refusedTo(modules[i]);
            vm.prank(modules[i]);
            book.slashBond(_key(), slash);
        }
        assertEq(book.machineOf(provider, INDEX).bond, BOND);
    }

    function test_attack_moduleTakesHeldPay() external {
        Payout memory payout;
        vm.startPrank(address(ear));
        _refusedTo(address(ear));
        book.takeHeld(_key(), 1, 0, nodeKey, 1);
        _refusedTo(address(ear));
        book.payHeld(_key(), payout);
        vm.stopPrank();
    }

    /// @dev Of a lease's escrow, a bond or another module's money nothing is a module's to give.
    function test_attack_moduleGivesOutMoreThanItTook() external {
        _openAndBegin();
        _take(pool, buyer, 5e6);
        _take(address(ear), buyer, 3e6);
        vm.startPrank(address(ear));
        book.giveCash(provider, 1e6);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 2e6, 2e6 + 1));
        book.giveCash(provider, 2e6 + 1);
        Opening memory opening = _opening();
        vm.stopPrank();
        vm.prank(provider);
        book.addMachine(9, BOND, product);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 2e6, CAP));
        vm.prank(address(ear));
        book.openFirm(machineKeyOf(provider, 9), opening);
    }

    /// @dev A module opens the leases of its own kind alone.
    function test_attack_modulesPassForEachOther() external {
        _take(pool, buyer, CAP);
        Opening memory opening = _opening();
        vm.prank(pool);
        _refusedTo(pool);
        book.openFirm(_key(), opening);
    }

    function test_attack_moduleIsSwapped() external {
        string[4] memory setters =
            ["setFutures(address)", "setGroupBuy(address)", "setVerification(address)", "upgradeTo(address)"];
        for (uint256 i; i < 4; ++i) {
            vm.prank(guardian);
            (bool ok,) = address(book).call(abi.encodeWithSignature(setters[i], stranger));
            assertFalse(ok);
        }
        assertEq(book.futures(), address(ear));
    }

    /// @dev Seven days at most, once in thirty, and no way out is among what it stops.
    function test_attack_pauseAsATrap() external {
        uint24 seq = _beginFirm();
        _take(pool, buyer, 5e6);
        vm.prank(guardian);
        book.pauseOpenings(7 days);
        vm.prank(pool);
        book.giveCash(buyer, 5e6);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        assertEq(ear.count(), 1);
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
        uint64 all = uint64(_cash(buyer));
        vm.prank(buyer);
        book.withdraw(all);
        assertEq(token.balanceOf(buyer), all);
        vm.warp(block.timestamp + 7 days);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, block.timestamp + 23 days));
        vm.prank(guardian);
        book.pauseOpenings(1);
    }

    /// @dev A lease of nobody would return its escrow to nobody.
    function test_attack_moduleOpensForNobody() external {
        Opening memory opening = _opening();
        opening.buyer = stranger;
        _take(address(ear), buyer, CAP);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        vm.prank(address(ear));
        book.openFirm(_key(), opening);
    }
}
