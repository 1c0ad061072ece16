// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Held, Payout, Slash} from "../../../src/types/Audits.sol";
import {VERIFIED} from "../../../src/types/Flags.sol";
import {CloseReason, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, Voucher} from "../../../src/types/Orders.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract HeldPay is AuditFixture {
    uint256 private constant SHARE = CAP * AUDIT_BPS / 10_000;

    function _expectRevert(bytes memory error_) private {
        vm.expectRevert(error_);
    }

    // ------------------------------------------------------------------------------------------------ opening

    function test_openBatch_whenVerified_thenTakesCapAndAuditShare() external {
        uint24 seq = _openVerified();
        assertEq(_cash(buyer), CASH - CAP - SHARE);
        assertEq(_leaseOf(seq).flags & VERIFIED, VERIFIED);
        Held memory held = _heldOf(seq);
        assertEq(held.audit, SHARE);
        assertEq(held.amount + held.endedAt + held.nextBatchNo, 0);
        assertEq(held.buyer, buyer);
        assertEq(held.marketId, marketId);
        assertEq(held.auditBps, AUDIT_BPS);
        _assertAllSolvent();
    }

    function test_openBatch_whenAuditRateIsAboveTheMaximum_thenSkips() external {
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        bid.auditBps = 12_001;
        _assertSkipped(matcher, _paired(ask, bid), SkipCode.FLAGS_DIFFER);
        bid.auditBps = 12_000;
        _openWith(ask, bid);
        assertEq(_cash(buyer), CASH - CAP - CAP * 12 / 10);
    }

    function test_openBatch_whenCashCoversTheCapAlone_thenSkips() external {
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        vm.prank(buyer);
        book.withdraw(uint64(CASH - CAP - SHARE + 1));
        _assertSkipped(matcher, _paired(ask, bid), SkipCode.CASH_TOO_LOW);
        vm.prank(stranger);
        token.mint(stranger, 1);
        vm.prank(stranger);
        token.approve(address(book), 1);
        vm.prank(stranger);
        book.deposit(buyer, 1);
        _openWith(ask, bid);
        assertEq(_cash(buyer), 0);
    }

    function test_openBatch_whenTheSlotIsNotClear_thenSkips() external {
        uint24 first = _endedWith(1e6);
        for (uint256 i; i < 3; ++i) {
            _endedWith(0);
        }
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        assertEq(ask.seq, first + 4);
        _assertSkipped(matcher, _paired(ask, bid), SkipCode.HELD_NOT_CLEARED);
        (ask.flags, bid.flags, bid.auditBps) = (0, 0, 0); // a plain one uses no slot
        _openWith(ask, bid);
        _begin(ask.seq, uint32(block.timestamp));
        _closeAt(ask.seq, 0);
        (ask, bid) = _verifiedOrders(); // the next slot is clear
        _openWith(ask, bid);
        _assertAllSolvent();
    }

    // ------------------------------------------------------------------------------------------------ paying

    function test_held_whenVouchersAreSettled_thenHoldsAndTakesNoFee() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 1e6);
        _settleAt(seq, 3e6);
        assertEq(_heldOf(seq).amount, 3e6);
        assertEq(_leaseOf(seq).paid, 3e6);
        assertEq(_cash(provider) + uint256(BOND) * 1e6, CASH);
        assertEq(_cash(matcher), CASH - FEE_TO_REGISTER * 2);
        _assertAllSolvent();
    }

    function test_held_whenTheLeaseEndsWithPay_thenReturnsTheAuditShareOfTheRest() external {
        uint24 seq = _endedWith(3e6);
        Held memory held = _heldOf(seq);
        assertEq(held.amount, 3e6);
        assertEq(held.audit, 210_000);
        assertEq(held.endedAt, block.timestamp);
        assertEq(_cash(buyer), CASH - 3e6 - 210_000);
        _assertFree(seq);
        _assertAllSolvent();
    }

    function test_held_whenTheLeaseEndsWithNothing_thenClearsTheSlot() external {
        uint24 seq = _endedWith(0);
        assertEq(_heldOf(seq).buyer, address(0));
        assertEq(_cash(buyer), CASH);
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        seq = _openWith(ask, bid); // never begins
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        assertEq(_heldOf(seq).buyer, address(0));
        _assertAllSolvent();
    }

    function test_held_whenReleased_thenHoldsTheVoucher() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, 2e6);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        vm.prank(provider);
        book.release(voucher, signature, CloseReason.HEALTH);
        assertEq(_heldOf(seq).amount, 2e6);
        _assertAllSolvent();
    }

    function test_held_whenStopped_thenPaysUpToTheCeilingIntoTheSlot() external {
        uint24 seq = _openVerified();
        skip(30 minutes);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        _settleAt(seq, CAP);
        assertEq(_heldOf(seq).amount, CAP / 10);
        skip(CLAIM + 1);
        book.expire(provider, INDEX, seq);
        assertEq(_heldOf(seq).audit, CAP / 10 * AUDIT_BPS / 10_000);
        _assertAllSolvent();
    }

    // ------------------------------------------------------------------------------------------------ returning

    function test_returnHeld_whenTheLeaseRuns_thenReverts() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 1e6);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Active));
        book.returnHeld(provider, INDEX, seq);
    }

    function test_returnHeld_whenNothingIsHeld_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NothingHeld.selector, seq + 4));
        book.returnHeld(provider, INDEX, seq + 4); // the same slot
        _commitBatch(seq, 0);
        skip(COMMIT_WINDOW + 1);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NothingHeld.selector, seq));
        book.returnHeld(provider, INDEX, seq);
    }

    function test_returnHeld_whenTooEarly_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        uint256 opensAt = block.timestamp + COMMIT_WINDOW + 1;
        vm.warp(opensAt - 1);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, opensAt));
        book.returnHeld(provider, INDEX, seq);
    }

    function test_returnHeld_whenTheWindowIsOver_thenReturnsToTheBuyerOnce() external {
        uint24 seq = _endedWith(1e6);
        skip(COMMIT_WINDOW + 1);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.HeldReturned(_key(), seq, 1_070_000);
        vm.prank(stranger);
        book.returnHeld(provider, INDEX, seq);
        assertEq(_cash(buyer), CASH);
        _assertAllSolvent();
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NothingHeld.selector, seq));
        book.returnHeld(provider, INDEX, seq);
    }

    // ------------------------------------------------------------------------------------------------ leaving

    function test_finishRetire_whenSomethingIsHeld_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        vm.startPrank(provider);
        book.retire(INDEX);
        skip(RETIRE);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_HeldNotCleared.selector, seq));
        book.finishRetire(INDEX);
        book.returnHeld(provider, INDEX, seq);
        book.finishRetire(INDEX);
        vm.stopPrank();
        assertEq(_cash(provider), CASH);
    }

    function test_finishRetire_whenABatchLocksTheBond_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        _commitBatch(seq, 0);
        vm.startPrank(provider);
        book.retire(INDEX);
        skip(RETIRE);
        _expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BondLocked.selector, 7e6));
        book.finishRetire(INDEX);
        _finalizeUnverified(seq, 0);
        book.finishRetire(INDEX);
        vm.stopPrank();
    }

    // ------------------------------------------------------------------------------------------------ the module's rights

    function test_module_whenTheCallerIsNotVerification_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        Payout memory payout;
        Slash memory slash;
        (payout.pay, slash.fine) = (1, 1);
        bytes memory notOwner = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, provider);
        vm.startPrank(provider);
        _expectRevert(notOwner);
        book.takeHeld(_key(), seq, 0, provider, 1);
        _expectRevert(notOwner);
        book.payHeld(_key(), payout);
        _expectRevert(notOwner);
        book.slashBond(_key(), slash);
        vm.stopPrank();
    }

    /// @dev The book does not trust its module with the vault.
    function test_module_whenItPaysMoreThanItTook_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        _commitBatch(seq, 0);
        assertEq(book.batched(), 1_070_000);
        Payout memory payout;
        (payout.buyerId, payout.toBuyer) = (1, 1_070_001);
        vm.startPrank(address(module));
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 0x11));
        book.payHeld(_key(), payout);
        (payout.toBuyer, payout.unlock) = (0, 8); // it locked 7
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 0x11));
        book.payHeld(_key(), payout);
        Slash memory slash;
        slash.unlock = 8;
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 0x11));
        book.slashBond(_key(), slash);
        (slash.unlock, slash.fromBatch) = (0, 1_070_001);
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 0x11));
        book.slashBond(_key(), slash);
        vm.stopPrank();
    }

    /// @dev Whatever the module asks for, nine tenths of a fine are burnt, and a locked bond is out of reach.
    function test_module_whenItAsksForAnotherBounty_thenATenthIsTheMost() external {
        uint24 seq = _endedWith(1e6);
        _commitBatch(seq, 0); // locks 7 of 100
        Slash memory slash;
        (slash.fine, slash.bounty, slash.audits) = (type(uint64).max, type(uint64).max, audits[0]);
        vm.prank(address(module));
        (uint256 refunded, uint256 fine, uint256 bounty) = book.slashBond(_key(), slash);
        assertEq(refunded, 0);
        assertEq(fine, 93e6);
        assertEq(bounty, 9_300_000);
        assertEq(_cash(audits[0]), 9_300_000);
        assertEq(_bond(), 7);
        _assertAllSolvent();
    }

    function test_views_thenTellTheModuleAndItsWindow() external view {
        assertEq(book.verification(), address(module));
        assertEq(book.commitWindow(), COMMIT_WINDOW);
        assertEq(module.leaseBook(), address(book));
        assertEq(module.auditWindows().hardCap, HARD_CAP);
        assertEq(module.verifiers()[1].audits, audits[1]);
        (bytes32 head, uint40 position) = module.headOf(0);
        assertEq(head, _preimage(0, CHAIN_LENGTH));
        assertEq(position, 0);
    }

    /// @dev A price above the free bond goes to the buyer as far as the bond goes, and nothing is left to burn.
    function test_slashBond_whenTheRefundExceedsTheFreeBond_thenTakesWhatIsFree() external {
        uint256 free = uint256(BOND) * book.bondUnit();
        (uint256 cash, uint32 id) = (_cash(buyer), book.accountOf(buyer).id);
        Slash memory slash = Slash({
            buyerId: id,
            fromBatch: 0,
            fromBond: uint64(free + 1),
            fine: 5,
            unlock: 0,
            bounty: 5,
            audits: audits[0],
            bar: false
        });
        vm.prank(address(module));
        (uint256 refunded, uint256 fine, uint256 bounty) = book.slashBond(_key(), slash);
        assertEq(refunded, free);
        assertEq(fine + bounty, 0);
        assertEq(_cash(buyer), cash + free);
        assertEq(book.machineOf(provider, INDEX).bond, 0);
        _assertAllSolvent();
    }
}
