// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Account as Holder} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Accounts is Fixture {
    bytes32 private constant PERMIT =
        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");

    // ------------------------------------------------------------------------------------------------ register

    function test_register_whenNew_thenGivesTheNextNumber() external {
        (uint32 accounts,,) = book.counts();
        vm.expectEmit(address(book));
        emit ILeaseBookLog.AccountRegistered(stranger, accounts + 1);
        vm.prank(stranger);
        assertEq(book.register(), accounts + 1);
        assertEq(book.accountOf(stranger).id, accounts + 1);
        assertEq(book.addressOf(accounts + 1), stranger);
    }

    function test_register_whenRegistered_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_AlreadyRegistered.selector, buyer));
        vm.prank(buyer);
        book.register();
    }

    // ------------------------------------------------------------------------------------------------ deposit

    function test_deposit_whenForAnotherAccount_thenCreditsIt() external {
        uint256 before = _cash(provider);
        token.mint(stranger, 5e6);
        vm.startPrank(stranger);
        token.approve(address(book), 5e6);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.Deposited(provider, stranger, 5e6);
        book.deposit(provider, 5e6);
        assertEq(_cash(provider), before + 5e6);
        assertEq(token.balanceOf(stranger), 0);
    }

    function test_deposit_whenNotRegistered_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        vm.prank(buyer);
        book.deposit(stranger, 1);
    }

    function test_deposit_whenZero_thenReverts() external {
        vm.expectRevert(ILeaseBookLog.LeaseBook_AmountZero.selector);
        vm.prank(buyer);
        book.deposit(buyer, 0);
    }

    function test_deposit_whenVaultWouldHoldMoreThan64Bits_thenReverts() external {
        uint256 held = token.balanceOf(address(book));
        uint64 rest = uint64(type(uint64).max - token.totalSupply());
        token.mint(buyer, rest);
        // Supply is at the limit; what already lies in the vault by a plain transfer must count too.
        vm.prank(address(book));
        token.transfer(buyer, held);
        vm.startPrank(buyer);
        book.deposit(buyer, uint64(token.balanceOf(buyer)));
        assertLe(token.balanceOf(address(book)), type(uint64).max);
    }

    function test_depositWithPermit_whenSigned_thenNeedsNoApproval() external {
        uint256 before = _cash(buyer);
        (uint8 v, bytes32 r, bytes32 s) = _permit(stranger, 7e6);
        token.mint(stranger, 7e6);
        vm.prank(stranger);
        book.depositWithPermit(buyer, 7e6, block.timestamp, v, r, s);
        assertEq(_cash(buyer), before + 7e6);
    }

    function test_depositWithPermit_whenSomebodySentThePermitBefore_thenStillDeposits() external {
        uint256 before = _cash(buyer);
        (uint8 v, bytes32 r, bytes32 s) = _permit(stranger, 7e6);
        token.mint(stranger, 7e6);
        token.permit(stranger, address(book), 7e6, block.timestamp, v, r, s);
        vm.prank(stranger);
        book.depositWithPermit(buyer, 7e6, block.timestamp, v, r, s);
        assertEq(_cash(buyer), before + 7e6);
    }

    function test_depositWithPermit_whenPermitIsAnothers_thenReverts() external {
        (uint8 v, bytes32 r, bytes32 s) = _permit(stranger, 7e6);
        token.mint(stranger, 7e6);
        address thief = _signer("thief");
        vm.expectRevert();
        vm.prank(thief);
        book.depositWithPermit(buyer, 7e6, block.timestamp, v, r, s);
    }

    function _permit(address owner, uint256 value) private view returns (uint8, bytes32, bytes32) {
        bytes32 structHash =
            keccak256(abi.encode(PERMIT, owner, address(book), value, token.nonces(owner), block.timestamp));
        return vm.sign(keyOf[owner], keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), structHash)));
    }

    // ------------------------------------------------------------------------------------------------ withdraw

    function test_withdraw_whenCashCovers_thenPaysTheOwner() external {
        uint64 all = uint64(_cash(buyer));
        vm.expectEmit(address(book));
        emit ILeaseBookLog.Withdrawn(buyer, all);
        vm.prank(buyer);
        book.withdraw(all);
        assertEq(_cash(buyer), 0);
        assertEq(token.balanceOf(buyer), all);
    }

    function test_withdraw_whenCashIsShort_thenReverts() external {
        uint64 all = uint64(_cash(buyer));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, all, all + 1));
        vm.prank(buyer);
        book.withdraw(all + 1);
    }

    function test_withdraw_whenZero_thenReverts() external {
        vm.expectRevert(ILeaseBookLog.LeaseBook_AmountZero.selector);
        vm.prank(buyer);
        book.withdraw(0);
    }

    function test_withdraw_whenMoneyIsLockedInALease_thenOnlyTheRest() external {
        _open();
        uint64 rest = uint64(CASH - CAP);
        vm.startPrank(buyer);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, rest, rest + 1));
        book.withdraw(rest + 1);
        book.withdraw(rest);
    }

    // ------------------------------------------------------------------------------------------------ nonces

    function test_cancelOne_whenUsable_thenMarksItUsed() external {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.NonceCancelled(buyer, 5);
        vm.startPrank(buyer);
        book.cancelOne(5);
        Holder memory account = book.accountOf(buyer);
        assertEq(account.nonceBits, 1 << 5);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, 5));
        book.cancelOne(5);
    }

    function test_cancelOne_whenTooFarAhead_thenReverts() external {
        vm.startPrank(buyer);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, 65_536));
        book.cancelOne(65_536);
        book.cancelOne(65_535);
        assertEq(book.accountOf(buyer).nonceBase, 65_535 - 127);
    }

    function test_cancelBelow_whenAbove_thenMovesTheWindow() external {
        vm.startPrank(buyer);
        book.cancelOne(100);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.NoncesCancelled(buyer, 99);
        book.cancelBelow(99);
        Holder memory account = book.accountOf(buyer);
        assertEq(account.nonceBase, 99);
        assertEq(account.nonceBits, 1 << 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, 99));
        book.cancelBelow(99);
    }

    function test_cancel_whenNotRegistered_thenReverts() external {
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        book.cancelOne(1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        book.cancelBelow(1);
    }
}
