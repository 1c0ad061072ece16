// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ILeasePacked} from "../../../src/interfaces/ILeasePacked.sol";
import {ILeaseTrading} from "../../../src/interfaces/ILeaseTrading.sol";
import {VERIFIED} from "../../../src/types/Flags.sol";
import {Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch, Voucher} from "../../../src/types/Orders.sol";
import {ModuleAddresses} from "../../../src/types/Rows.sol";
import {Packing} from "../../Packing.sol";

/// @dev What only a book with a Verification opens, and closings that no signature or no market backs: packed, they do
/// what the ABI's way does.
contract VerifiedPacked is Packing {
    uint16 private constant AUDIT_BPS = 600;

    function _deploy(address token_) internal override returns (ILeaseBook) {
        return _deployBook(token_, ModuleAddresses(makeAddr("verification"), address(0), address(0)), 24 hours);
    }

    function _verified() private returns (Ask memory ask, Bid memory bid) {
        (ask, bid) = (_ask(), _bid());
        (ask.flags, bid.flags, bid.auditBps) = (VERIFIED, VERIFIED, AUDIT_BPS);
    }

    function _assertTwin(Ask memory ask, Bid memory bid) private {
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(ask, bid);
        bytes memory plain = abi.encodeCall(ILeaseTrading.openBatch, (product, PRICE, marketId, entries));
        bytes memory data = _packMatches(entries);
        _assertTwins(matcher, plain, abi.encodeCall(ILeasePacked.openPacked, (product, PRICE, marketId, data)));
    }

    function _assertTwin(Voucher memory voucher, bytes memory ofBuyer, bytes memory ofProvider) private {
        (Voucher[] memory vouchers, bytes[] memory buyers) = _one(voucher, ofBuyer);
        (, bytes[] memory providers) = _one(voucher, ofProvider);
        bytes memory plain = abi.encodeCall(ILeaseTrading.closeBatch, (vouchers, buyers, providers));
        bytes memory data = _packClosing(voucher, ofBuyer, ofProvider);
        bool withFinal = ofProvider.length != 0;
        assertEq(_assertTwins(provider, plain, abi.encodeCall(ILeasePacked.closePacked, (data, withFinal))), 1);
    }

    function test_openPacked_whenVerified_thenLocksTheAuditShareToo() external {
        (Ask memory ask, Bid memory bid) = _verified();
        _assertTwin(ask, bid);
        assertEq(_cash(buyer), CASH - CAP - CAP * AUDIT_BPS / 10_000);
        assertEq(book.heldOf(provider, INDEX, ask.seq).audit, CAP * AUDIT_BPS / 10_000);
    }

    function test_openPacked_whenCashIsOneUnitShortOfTheAuditShare_thenSkips() external {
        (Ask memory ask, Bid memory bid) = _verified();
        uint256 need = CAP + CAP * AUDIT_BPS / 10_000;
        vm.prank(buyer);
        book.withdraw(uint64(CASH - need + 1));
        _assertTwin(ask, bid);
        assertEq(_cash(buyer), need - 1);
        assertEq(_status(), Status.Free);
    }

    function test_closePacked_whenVerified_thenHoldsThePay() external {
        (Ask memory ask, Bid memory bid) = _verified();
        uint24 seq = _openWith(ask, bid);
        _begin(seq, uint32(block.timestamp));
        skip(DURATION);
        uint256 before = _cash(provider);
        Voucher memory voucher = _voucher(seq, CAP);
        _assertTwin(voucher, _signVoucher(buyer, voucher), "");
        assertEq(_cash(provider), before);
        assertEq(book.heldOf(provider, INDEX, seq).amount, CAP);
    }

    function test_closePacked_whenThereIsNoMarket_thenTakesNoFee() external {
        marketId = 0;
        uint24 seq = _openAndBegin();
        skip(DURATION);
        uint256 before = _cash(provider);
        Voucher memory voucher = _voucher(seq, CAP);
        _assertTwin(voucher, _signVoucher(buyer, voucher), "");
        assertEq(_cash(provider), before + CAP);
    }

    function test_closePacked_whenASignatureRecoversToNobody_thenSkips() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP / 2);
        bytes memory nobodys = abi.encodePacked(bytes32(0), bytes32(uint256(1)), uint8(27));
        _assertTwin(voucher, nobodys, "");
        _assertTwin(voucher, _signVoucher(buyer, voucher), nobodys);
        assertEq(_status(), Status.Active);
    }
}
