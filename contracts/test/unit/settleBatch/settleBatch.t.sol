// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Role, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Bid, Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

contract SettleBatch is Fixture {
    uint24 private seq;

    function setUp() public override {
        super.setUp();
        seq = _openAndBegin();
    }

    function _assertPays(Voucher memory voucher, uint256 paid) private {
        (uint256 providerBefore, uint256 marketBefore) = (_cash(provider), _cash(matcher));
        uint256 paidBefore = _leaseOf(seq).paid;
        bytes memory signature = _signVoucher(sessionKey, voucher);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.LeaseSettled(_key(), seq, uint48(paid));
        vm.startPrank(stranger);
        _settle(voucher, signature);
        vm.stopPrank();
        uint256 fee = (paid - paidBefore) * FEE_BPS / 10_000;
        assertEq(_cash(provider), providerBefore + paid - paidBefore - fee);
        assertEq(_cash(matcher), marketBefore + fee);
        assertEq(_leaseOf(seq).paid, paid);
        _assertSolvent();
    }

    function _assertSkip(Voucher memory voucher, address signer, SkipCode code) private {
        bytes memory signature = _signVoucher(signer, voucher);
        uint256 before = _cash(provider);
        _expectSkip(0, code);
        _settle(voucher, signature);
        assertEq(_cash(provider), before);
    }

    function test_settleBatch_whenLengthsDiffer_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_LengthMismatch.selector, 1, 0));
        book.settleBatch(new Voucher[](1), new bytes[](0));
    }

    function test_settleBatch_whenWithinTheAccrued_thenPaysTheDifference() external {
        skip(1 hours);
        _assertPays(_voucher(seq, CAP / 5), CAP / 5);
        skip(1 hours);
        _assertPays(_voucher(seq, CAP / 5 + 1_000_001), CAP / 5 + 1_000_001);
    }

    function test_settleBatch_whenAboveTheAccrued_thenPaysTheAccrued() external {
        skip(1 hours);
        _assertPays(_voucher(seq, CAP), CAP / 5);
        skip(9 hours);
        _assertPays(_voucher(seq, type(uint48).max), CAP);
    }

    function test_settleBatch_whenNothingMoreIsDue_thenSkips() external {
        _assertSkip(_voucher(seq, CAP), sessionKey, SkipCode.NOTHING_DUE); // nothing has accrued yet
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _assertPays(voucher, CAP / 5);
        _assertSkip(voucher, sessionKey, SkipCode.NOTHING_DUE);
        _assertSkip(_voucher(seq, CAP / 6), sessionKey, SkipCode.NOTHING_DUE);
    }

    function test_settleBatch_whenSignedByAnyoneElse_thenSkips() external {
        skip(1 hours);
        address[4] memory others = [provider, nodeKey, matcher, stranger];
        for (uint256 i; i < others.length; ++i) {
            _assertSkip(_voucher(seq, CAP / 5), others[i], SkipCode.BAD_VOUCHER_SIGNATURE);
        }
    }

    function test_settleBatch_whenBuyerItselfSigned_thenPays() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _settle(voucher, _signVoucher(buyer, voucher));
        assertEq(_leaseOf(seq).paid, CAP / 5);
    }

    function test_settleBatch_whenForAnotherLease_thenSkips() external {
        skip(1 hours);
        _assertSkip(_voucher(seq + 1, CAP / 5), sessionKey, SkipCode.WRONG_STATE);
        _assertSkip(_voucher(seq - 1, CAP / 5), sessionKey, SkipCode.WRONG_STATE);
    }

    function test_settleBatch_whenFundedOnly_thenSkips() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        _submit(matcher, PRICE, _paired(_askFrom(provider, 8), _bid()));
        Voucher memory voucher = Voucher({provider: provider, index: 8, seq: 1, amount: 1});
        _assertSkip(voucher, sessionKey, SkipCode.WRONG_STATE);
    }

    function test_settleBatch_whenStopped_thenPaysUpToTheFrozenCeiling() external {
        skip(1 hours);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        skip(1 hours);
        _assertPays(_voucher(seq, CAP), CAP / 5);
    }

    function test_settleBatch_whenThereIsNoMarket_thenPaysTheProviderAll() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        Bid memory bid = _bid();
        vm.warp(bid.openFrom);
        _submit(buyer, 0, _paired(_askFrom(provider, 8), bid));
        vm.startPrank(stranger);
        _beginMachine(8);
        vm.stopPrank();
        skip(1 hours);
        uint256 before = _cash(provider);
        Voucher memory voucher = Voucher({provider: provider, index: 8, seq: 1, amount: 1_000_003});
        _settle(voucher, _signVoucher(sessionKey, voucher));
        assertEq(_cash(provider), before + 1_000_003);
    }

    function test_settleBatch_whenOneEntryIsBad_thenPaysTheOthers() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        _submit(matcher, PRICE, _paired(_askFrom(provider, 8), _bid()));
        _beginMachine(8);
        skip(1 hours);
        Voucher[] memory vouchers = new Voucher[](3);
        bytes[] memory signatures = new bytes[](3);
        (vouchers[0], vouchers[1]) = (_voucher(seq, CAP / 5), _voucher(seq, CAP / 4));
        vouchers[2] = Voucher({provider: provider, index: 8, seq: 1, amount: 7});
        (signatures[0], signatures[2]) = (_signVoucher(buyer, vouchers[0]), _signVoucher(buyer, vouchers[2]));
        signatures[1] = hex"00";
        _expectSkip(1, SkipCode.NOTHING_DUE);
        book.settleBatch(vouchers, signatures);
        assertEq(_leaseOf(seq).paid, CAP / 5);
        assertEq(book.leaseOf(provider, 8, 1).paid, 7);
    }

    function test_settleBatch_whenSessionKeyWasSetAfterTheStart_thenPays() external {
        skip(1 hours);
        address key = _signer("later");
        _delegate(buyer, key, Role.Session, uint32(block.timestamp + 1 days));
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _settle(voucher, _signVoucher(key, voucher));
        assertEq(_leaseOf(seq).paid, CAP / 5);
    }
}
