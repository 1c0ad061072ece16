// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract OpenGang is Fixture {
    uint32 private constant SIZE = 4;

    function setUp() public override {
        super.setUp();
        for (uint32 i = 1; i <= SIZE; ++i) {
            vm.prank(provider);
            book.addMachine(i, BOND, product);
        }
    }

    function _gang() private returns (Bid memory bid, Ask[] memory asks) {
        bid = _bid();
        bid.count = uint16(SIZE * GPUS);
        asks = new Ask[](SIZE);
        for (uint32 i; i < SIZE; ++i) {
            asks[i] = _askFrom(provider, i + 1);
        }
    }

    function _signed(Ask[] memory asks) private view returns (bytes[] memory signatures) {
        signatures = new bytes[](asks.length);
        for (uint256 i; i < asks.length; ++i) {
            signatures[i] = _sign(nodeKey, _hash(asks[i]));
        }
    }

    function _submitGang(address sender, Bid memory bid, Ask[] memory asks) private {
        bytes memory bidSignature = _sign(bid.buyer, _hash(bid));
        bytes[] memory signatures = _signed(asks);
        vm.prank(sender);
        book.openGang(product, PRICE, marketId, bid, bidSignature, asks, signatures);
    }

    function _refuses(Bid memory bid, Ask[] memory asks, uint256 index, SkipCode code) private {
        bytes memory bidSignature = _sign(bid.buyer, _hash(bid));
        bytes[] memory signatures = _signed(asks);
        uint256 cash = _cash(buyer);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_EntryRefused.selector, index, code));
        vm.prank(matcher);
        book.openGang(product, PRICE, marketId, bid, bidSignature, asks, signatures);
        assertEq(_cash(buyer), cash, "a refused gang cost something");
        for (uint32 i = 1; i <= SIZE; ++i) {
            assertEq(book.machineOf(provider, i).status, Status.Free);
        }
    }

    function test_openGang_whenEverythingFits_thenOpensAllUnderOneBid() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        uint256 cash = _cash(buyer);
        _submitGang(matcher, bid, asks);
        for (uint32 i = 1; i <= SIZE; ++i) {
            Lease memory lease = book.leaseOf(provider, i, 1);
            assertEq(lease.status, Status.Funded);
            assertEq(lease.cap, CAP);
            assertEq(lease.buyer, buyer);
            _beginMachine(i);
        }
        assertEq(_cash(buyer), cash - SIZE * CAP);
        vm.prank(buyer);
        book.stop(provider, 2, 1);
        assertEq(book.leaseOf(provider, 2, 1).status, Status.Stopped);
        assertEq(book.leaseOf(provider, 3, 1).status, Status.Active);
    }

    function test_openGang_whenTheBuyerSubmits_thenOpensAtEachAsksPrice() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        asks[1].minPricePerHour = PRICE;
        vm.warp(bid.openFrom);
        _submitGang(buyer, bid, asks);
        uint256 cheaper = uint256(PRICE - 200_000) * GPUS * DURATION / 3600;
        assertEq(book.leaseOf(provider, 1, 1).cap, cheaper);
        assertEq(book.leaseOf(provider, 2, 1).cap, CAP);
        assertEq(book.leaseOf(provider, 1, 1).marketId, 0);
    }

    function test_openGang_whenThereIsNoAskOrNoSignature_thenReverts() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        bytes memory signature = _sign(bid.buyer, _hash(bid));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_LengthMismatch.selector, 0, 0));
        vm.prank(matcher);
        book.openGang(product, PRICE, marketId, bid, signature, new Ask[](0), new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_LengthMismatch.selector, SIZE, 1));
        vm.prank(matcher);
        book.openGang(product, PRICE, marketId, bid, signature, asks, new bytes[](1));
    }

    function test_openGang_whenCountIsNotThatOfAllAsks_thenReverts() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        bid.count = GPUS;
        _refuses(bid, asks, 0, SkipCode.WRONG_COUNT);
        bid.count = uint16(SIZE * GPUS + 1);
        _refuses(bid, asks, 0, SkipCode.WRONG_COUNT);
    }

    function test_openGang_whenOneAskIsBad_thenOpensNone() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        asks[2].minPricePerHour = PRICE + 1;
        _refuses(bid, asks, 2, SkipCode.PRICE_OUTSIDE_LIMITS);
        (bid, asks) = _gang();
        asks[3].seq = 2;
        _refuses(bid, asks, 3, SkipCode.STALE_SEQUENCE);
    }

    function test_openGang_whenAMachineIsNamedTwice_thenOpensNone() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        asks[3] = asks[0];
        _refuses(bid, asks, 3, SkipCode.MACHINE_NOT_FREE);
    }

    function test_openGang_whenCashCoversAllButTheLast_thenOpensNone() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        uint64 left = uint64(_cash(buyer) - SIZE * CAP + 1);
        vm.prank(buyer);
        book.withdraw(left);
        _refuses(bid, asks, SIZE - 1, SkipCode.CASH_TOO_LOW);
    }

    function test_openGang_whenNonceIsUsed_thenReverts() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        vm.prank(buyer);
        book.cancelOne(bid.nonce);
        _refuses(bid, asks, 0, SkipCode.NONCE_USED);
    }

    function test_openGang_whenBidIsNotSigned_thenReverts() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        bytes memory forged = _sign(sessionKey, _hash(bid));
        bytes[] memory signatures = _signed(asks);
        vm.expectRevert(
            abi.encodeWithSelector(ILeaseBookLog.LeaseBook_EntryRefused.selector, 0, SkipCode.BAD_BID_SIGNATURE)
        );
        vm.prank(matcher);
        book.openGang(product, PRICE, marketId, bid, forged, asks, signatures);
    }

    function test_openGang_whenAStrangerSubmits_thenReverts() external {
        (Bid memory bid, Ask[] memory asks) = _gang();
        bytes memory bidSignature = _sign(bid.buyer, _hash(bid));
        bytes[] memory signatures = _signed(asks);
        vm.expectRevert(
            abi.encodeWithSelector(ILeaseBookLog.LeaseBook_EntryRefused.selector, 0, SkipCode.WRONG_MATCHER)
        );
        vm.prank(stranger);
        book.openGang(product, PRICE, marketId, bid, bidSignature, asks, signatures);
    }

    function test_openGang_whenPaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        (Bid memory bid, Ask[] memory asks) = _gang();
        bytes memory bidSignature = _sign(bid.buyer, _hash(bid));
        bytes[] memory signatures = _signed(asks);
        uint256 until = block.timestamp + 1 days;
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_OpeningsPaused.selector, until));
        vm.prank(matcher);
        book.openGang(product, PRICE, marketId, bid, bidSignature, asks, signatures);
    }
}
