// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {SignedMatch} from "../../../src/types/Orders.sol";
import {ModuleAddresses, Windows} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";
import {FeeToken, PlainToken, ReentrantToken} from "../../mocks/Tokens.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @dev Attacks by the token, and on the vault's own code.
contract AttackByTokens is Fixture {
    function _joinWith(PlainToken hostile, address who, uint64 amount) private {
        hostile.mint(who, amount);
        vm.startPrank(who);
        hostile.approve(address(book), type(uint256).max);
        book.register();
        vm.stopPrank();
    }

    function test_attack_feeOnTransferToken() external {
        FeeToken hostile = new FeeToken();
        book = _deploy(address(hostile));
        _joinWith(hostile, stranger, 1000);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TransferMismatch.selector, 990, 1000));
        vm.prank(stranger);
        book.deposit(stranger, 1000);
    }

    function test_attack_tokenReentersWithdraw() external {
        ReentrantToken hostile = new ReentrantToken();
        book = _deploy(address(hostile));
        hostile.join(book, 1000);
        _joinWith(hostile, stranger, 1000);
        vm.startPrank(stranger);
        book.deposit(stranger, 1000);
        hostile.arm(book, abi.encodeCall(book.withdraw, (1000)));
        book.withdraw(400);
        vm.stopPrank();
        _assertRefused(hostile);
        assertEq(book.accountOf(stranger).cash, 600);
        assertEq(book.accountOf(address(hostile)).cash, 1000);
        assertEq(hostile.balanceOf(address(book)), 1600);
    }

    /// @dev A withdrawal inside a deposit would make the balance difference of the deposit wrong.
    function test_attack_tokenReentersDeposit() external {
        ReentrantToken hostile = new ReentrantToken();
        book = _deploy(address(hostile));
        hostile.join(book, 1000);
        _joinWith(hostile, stranger, 1000);
        hostile.arm(book, abi.encodeCall(book.withdraw, (1000)));
        vm.prank(stranger);
        book.deposit(stranger, 1000);
        _assertRefused(hostile);
        assertEq(book.accountOf(stranger).cash, 1000);
    }

    /// @dev Paying for a table row moves tokens too.
    function test_attack_tokenReentersRegistration() external {
        ReentrantToken hostile = new ReentrantToken();
        book = _deploy(address(hostile));
        hostile.join(book, 10e6);
        _joinWith(hostile, stranger, 10e6);
        vm.prank(stranger);
        book.deposit(stranger, 10e6);
        hostile.arm(book, abi.encodeCall(book.withdraw, (1000)));
        vm.prank(stranger);
        book.registerProduct(_product());
        _assertRefused(hostile);
    }

    function _assertRefused(ReentrantToken hostile) private view {
        assertFalse(hostile.reached());
        assertEq(bytes4(hostile.answer()), ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector);
    }

    function test_attack_eighteenDecimalsOverflow() external {
        PlainToken wide = new PlainToken(18);
        Windows memory windows = book.windows();
        ModuleAddresses memory none;
        bytes memory code = abi.encodePacked(
            vm.getCode("BackOffice.sol:BackOffice"),
            abi.encode(address(wide), windows, FEE_TO_REGISTER, guardian, none, uint32(0))
        );
        (address made, bytes memory answer) = _tryCreate(code);
        assertEq(made, address(0));
        assertEq(answer, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_DecimalsTooMany.selector, 18));
    }

    /// @dev Sums of cash stay below 2^64 because the vault's balance does, whatever the token's supply.
    function test_attack_supplyAbove64BitsOverflowsAnAccount() external {
        PlainToken endless = new PlainToken(8);
        book = _deploy(address(endless));
        _joinWith(endless, stranger, type(uint64).max);
        vm.prank(stranger);
        book.deposit(stranger, type(uint64).max);
        _joinWith(endless, buyer, 1);
        uint256 total = uint256(type(uint64).max) + 1;
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_VaultFull.selector, total));
        vm.prank(buyer);
        book.deposit(buyer, 1);
    }

    /// @dev Tokens sent without a deposit belong to nobody and unbalance nothing.
    function test_attack_donationCreditsNobody() external {
        token.mint(address(book), 5e6);
        uint256 before = _cash(buyer);
        token.mint(buyer, 1);
        vm.prank(buyer);
        book.deposit(buyer, 1);
        assertEq(_cash(buyer), before + 1);
    }

    /// @dev The back office is reachable, but its own storage is another, empty book.
    function test_attack_backOfficeCalledDirectly() external {
        assertGt(office.code.length, 0);
        ILeaseBook direct = ILeaseBook(office);
        assertEq(direct.accountOf(buyer).id, 0);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 0, 1));
        vm.prank(buyer);
        direct.withdraw(1);
        vm.prank(stranger);
        direct.register();
        assertEq(book.accountOf(stranger).id, 0);
    }

    function test_attack_frontOfficeCalledDirectly() external {
        assertGt(front.code.length, 0);
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(_ask(), _bid());
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownProduct.selector, product));
        vm.prank(matcher);
        ILeaseBook(front).openBatch(product, PRICE, marketId, entries);
    }

    function test_attack_unknownSelector() external {
        (bool ok,) = address(book).call(abi.encodeWithSignature("upgradeTo(address)", stranger));
        assertFalse(ok);
        (ok,) = address(book).call{value: 0}("");
        assertFalse(ok);
        vm.deal(stranger, 1 ether);
        vm.prank(stranger);
        (ok,) = address(book).call{value: 1}("");
        assertFalse(ok);
    }
}
