// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {machineKeyOf} from "../../../src/types/MachineKey.sol";
import {Ask} from "../../../src/types/Orders.sol";
import {Machine} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Machines is Fixture {
    function setUp() public override {
        super.setUp();
        vm.startPrank(provider);
    }

    function _expectStatus(Status found) private {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, found));
    }

    // ------------------------------------------------------------------------------------------------ add

    function test_addMachine_whenNew_thenTakesTheBondAndIsFree() external {
        uint256 before = _cash(provider);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MachineAdded(machineKeyOf(provider, 8), product, 3);
        book.addMachine(8, 3, product);
        Machine memory machine = book.machineOf(provider, 8);
        assertEq(machine.status, Status.Free);
        assertEq(machine.product, product);
        assertEq(machine.bond, 3);
        assertEq(machine.seq, 0);
        assertEq(machine.nextSeq, 1);
        assertEq(machine.locked, 0);
        assertEq(_cash(provider), before - 3e6);
    }

    function test_addMachine_whenIndexIsTaken_thenReverts() external {
        _expectStatus(Status.Free);
        book.addMachine(INDEX, 1, product);
    }

    function test_addMachine_whenProductIsUnknown_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownProduct.selector, 0));
        book.addMachine(8, 1, 0);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownProduct.selector, product + 1));
        book.addMachine(8, 1, product + 1);
    }

    function test_addMachine_whenBondIsZeroOrNotCovered_thenReverts() external {
        vm.expectRevert(ILeaseBookLog.LeaseBook_AmountZero.selector);
        book.addMachine(8, 0, product);
        uint256 cash = _cash(provider);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, cash, 1e13));
        book.addMachine(8, 1e7, product);
    }

    function test_addBond_whenThere_thenAdds() external {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.BondAdded(_key(), 5);
        book.addBond(INDEX, 5);
        assertEq(book.machineOf(provider, INDEX).bond, BOND + 5);
    }

    function test_addBond_whenRunning_thenLeavesTheLeaseAlone() external {
        vm.stopPrank();
        uint24 seq = _openAndBegin();
        vm.prank(provider);
        book.addBond(INDEX, 5);
        assertEq(_leaseOf(seq).cap, CAP);
        assertEq(book.machineOf(provider, INDEX).bond, BOND + 5);
        _assertSolvent();
    }

    function test_addBond_whenAbsentOrZeroOrTooMuch_thenReverts() external {
        _expectStatus(Status.None);
        book.addBond(8, 5);
        vm.expectRevert(ILeaseBookLog.LeaseBook_AmountZero.selector);
        book.addBond(INDEX, 0);
        uint256 total = uint256(BOND) + type(uint24).max;
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BondTooHigh.selector, total));
        book.addBond(INDEX, type(uint24).max);
    }

    // ------------------------------------------------------------------------------------------------ pause

    function test_pause_whenFree_thenPausesAndBack() external {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MachinePaused(_key(), true);
        book.pause(INDEX);
        assertEq(_status(), Status.Paused);
        _expectStatus(Status.Paused);
        book.pause(INDEX);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MachinePaused(_key(), false);
        book.unpause(INDEX);
        assertEq(_status(), Status.Free);
        _expectStatus(Status.Free);
        book.unpause(INDEX);
    }

    function test_pause_whenNotMine_thenReverts() external {
        vm.stopPrank();
        _expectStatus(Status.None);
        vm.prank(stranger);
        book.pause(INDEX);
    }

    // ------------------------------------------------------------------------------------------------ retire

    function test_retire_whenFreeOrPaused_thenReturnsTheBondAfterTheDelay() external {
        book.pause(INDEX);
        uint32 finishableAt = uint32(block.timestamp + RETIRE);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MachineRetiring(_key(), finishableAt);
        book.retire(INDEX);
        assertEq(book.machineOf(provider, INDEX).retireAt, finishableAt);
        vm.warp(finishableAt - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, finishableAt));
        book.finishRetire(INDEX);
        vm.warp(finishableAt);
        uint256 before = _cash(provider);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MachineRetired(_key(), BOND);
        book.finishRetire(INDEX);
        assertEq(_cash(provider), before + uint256(BOND) * 1e6);
        assertEq(_status(), Status.None);
        assertEq(book.machineOf(provider, INDEX).bond, 0);
        assertEq(book.machineOf(provider, INDEX).product, 0);
    }

    function test_retire_whenLeasedOrRetiring_thenReverts() external {
        vm.stopPrank();
        _open();
        vm.startPrank(provider);
        _expectStatus(Status.Funded);
        book.retire(INDEX);
        book.addMachine(8, 1, product);
        book.retire(8);
        _expectStatus(Status.Retiring);
        book.retire(8);
        _expectStatus(Status.Funded);
        book.finishRetire(INDEX);
    }

    function test_addMachine_whenRetiredBefore_thenLeaseNumbersGoOn() external {
        vm.stopPrank();
        uint24 seq = _openAndBegin();
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        vm.startPrank(provider);
        book.cancelAsks(INDEX, 10);
        book.retire(INDEX);
        skip(RETIRE);
        book.finishRetire(INDEX);
        book.addMachine(INDEX, 2, product);
        assertEq(book.machineOf(provider, INDEX).seq, seq);
        assertEq(book.machineOf(provider, INDEX).nextSeq, 10);
    }

    // ------------------------------------------------------------------------------------------------ cancelAsks

    function test_cancelAsks_whenAbove_thenOldAsksAreStale() external {
        Ask memory ask = _ask();
        vm.expectEmit(address(book));
        emit ILeaseBookLog.OrdersCancelled(_key(), 5);
        book.cancelAsks(INDEX, 5);
        vm.stopPrank();
        _assertSkipped(matcher, _paired(ask, _bid()), SkipCode.STALE_SEQUENCE);
        assertEq(_open(), 5);
    }

    function test_cancelAsks_whenALeaseRuns_thenItKeepsItsNumber() external {
        vm.stopPrank();
        uint24 seq = _openAndBegin();
        vm.prank(provider);
        book.cancelAsks(INDEX, seq + 3);
        assertEq(_leaseOf(seq).status, Status.Active);
        assertEq(book.machineOf(provider, INDEX).nextSeq, seq + 3);
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        assertEq(book.machineOf(provider, INDEX).nextSeq, seq + 3);
    }

    function test_cancelAsks_whenNotAboveOrAbsent_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_StaleSequence.selector, 1, 1));
        book.cancelAsks(INDEX, 1);
        _expectStatus(Status.None);
        book.cancelAsks(8, 5);
    }

    function test_cancelAsks_whenAllNumbersAreUsedUp_thenNoAskFits() external {
        book.cancelAsks(INDEX, type(uint24).max);
        vm.stopPrank();
        uint24 seq = _openAndBegin();
        assertEq(seq, type(uint24).max);
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        assertEq(book.machineOf(provider, INDEX).nextSeq, 1 << 24);
        Ask memory ask = _ask(); // its number wraps to 0
        _assertSkipped(matcher, _paired(ask, _bid()), SkipCode.STALE_SEQUENCE);
        ask.seq = seq;
        _assertSkipped(matcher, _paired(ask, _bid()), SkipCode.STALE_SEQUENCE);
    }
}
