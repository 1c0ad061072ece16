// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {INTERRUPTIBLE, PAY_AS_ASK, VERIFIED} from "../../../src/types/Flags.sol";
import {LeaseWord} from "../../../src/types/LeaseWord.sol";
import {Role, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract OpenBatch is Fixture {
    // ------------------------------------------------------------------------------------------------ the call

    function test_openBatch_whenProductIsUnknown_thenReverts() external {
        SignedMatch[] memory none = new SignedMatch[](0);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownProduct.selector, 2));
        book.openBatch(2, PRICE, marketId, none);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownProduct.selector, 0));
        book.openBatch(0, PRICE, marketId, none);
    }

    function test_openBatch_whenMarketIsUnknown_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_UnknownMarket.selector, 2));
        book.openBatch(product, PRICE, 2, new SignedMatch[](0));
    }

    function test_openBatch_whenBatchIsEmpty_thenDoesNothing() external {
        vm.recordLogs();
        book.openBatch(product, PRICE, marketId, new SignedMatch[](0));
        assertEq(vm.getRecordedLogs().length, 0);
    }

    function test_openBatch_whenPaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(_ask(), _bid());
        uint256 until = block.timestamp + 1 days;
        vm.prank(matcher);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_OpeningsPaused.selector, until));
        book.openBatch(product, PRICE, marketId, entries);
    }

    // ------------------------------------------------------------------------------------------------ who

    function test_openBatch_whenCallerIsAStranger_thenSkips() external {
        _assertSkipped(stranger, _paired(_ask(), _bid()), SkipCode.WRONG_MATCHER);
    }

    function test_openBatch_whenCallerMatchesOneOrderOnly_thenSkips() external {
        Ask memory ask = _ask();
        ask.matcher = stranger;
        _assertSkipped(matcher, _paired(ask, _bid()), SkipCode.WRONG_MATCHER);
        _assertSkipped(stranger, _paired(ask, _bid()), SkipCode.WRONG_MATCHER);
        Bid memory bid = _bid();
        bid.matcher = stranger;
        _assertSkipped(matcher, _paired(_ask(), bid), SkipCode.WRONG_MATCHER);
    }

    function test_openBatch_whenMatcherIsZero_thenNobodyMayActAsIt() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.matcher, bid.matcher) = (address(0), address(0));
        _assertSkipped(stranger, _paired(ask, bid), SkipCode.WRONG_MATCHER);
    }

    function test_openBatch_whenBuyerCallsBeforeOpenFrom_thenSkips() external {
        Bid memory bid = _bid();
        vm.warp(bid.openFrom - 1);
        _assertSkipped(buyer, _paired(_ask(), bid), SkipCode.WRONG_MATCHER);
    }

    function test_openBatch_whenBuyerCallsFromOpenFrom_thenOpensAtTheAsksPriceForNoMarket() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        ask.matcher = stranger; // any ask
        vm.warp(bid.openFrom);
        _submit(buyer, bid.maxPricePerHour, _paired(ask, bid));
        Lease memory lease = _leaseOf(1);
        assertEq(lease.status, Status.Funded);
        assertEq(lease.cap, uint256(ask.minPricePerHour) * GPUS * DURATION / 3600);
        assertEq(lease.marketId, 0);
    }

    function test_openBatch_whenProviderCallsAfterOpenFrom_thenSkips() external {
        Bid memory bid = _bid();
        vm.warp(bid.openFrom);
        _assertSkipped(provider, _paired(_ask(), bid), SkipCode.WRONG_MATCHER);
    }

    // ------------------------------------------------------------------------------------------------ what it stores

    function test_openBatch_whenEverythingFits_thenLocksTheCapAndStoresTheLease() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        uint256 cashBefore = _cash(buyer);
        vm.recordLogs();
        _submit(matcher, PRICE, _paired(ask, bid));

        assertEq(_cash(buyer), cashBefore - CAP);
        Lease memory lease = _leaseOf(1);
        assertEq(lease.status, Status.Funded);
        assertEq(lease.buyer, buyer);
        assertEq(lease.cap, CAP);
        assertEq(lease.paid, 0);
        assertEq(lease.ceiling, 0);
        assertEq(lease.marketId, marketId);
        assertEq(lease.start, block.timestamp + START);
        assertEq(lease.duration, DURATION);
        assertEq(lease.flags, 0);
        assertEq(book.machineOf(provider, INDEX).bond, BOND);

        bytes memory word = vm.getRecordedLogs()[0].data;
        LeaseWord found = LeaseWord.wrap(abi.decode(word, (uint256)));
        assertEq(found.cap(), CAP);
        assertEq(found.marketId(), marketId);
        assertEq(found.buyerId(), book.accountOf(buyer).id);
        assertEq(found.start(), lease.start);
        assertEq(found.duration(), DURATION);
        assertEq(found.seq(), 1);
        assertEq(found.bond(), BOND);
        assertEq(found.status(), Status.Funded);
    }

    function test_openBatch_whenEverythingFits_thenLogsMachineAndBid() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        vm.expectEmit(true, true, false, false, address(book));
        emit ILeaseBookLog.LeaseOpened(_key(), _hash(bid), 0);
        _submit(matcher, PRICE, _paired(ask, bid));
    }

    function test_openBatch_whenAProviderSignsItself_thenOpens() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.askSignature = _sign(provider, _hash(entry.ask));
        _submit(matcher, PRICE, entry);
        assertEq(_status(), Status.Funded);
    }

    function test_openBatch_whenSignaturesAreCompact_thenOpens() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.askSignature = _compact(entry.askSignature);
        entry.bidSignature = _compact(entry.bidSignature);
        _submit(matcher, PRICE, entry);
        assertEq(_status(), Status.Funded);
    }

    function test_openBatch_whenBidPaysAsAsked_thenOpensAtTheAsksPrice() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        bid.flags = PAY_AS_ASK;
        _submit(matcher, PRICE, _paired(ask, bid));
        assertEq(_leaseOf(1).cap, uint256(ask.minPricePerHour) * GPUS * DURATION / 3600);
        assertEq(_leaseOf(1).marketId, marketId);
    }

    function test_openBatch_whenMachineMayLeaveAndBuyerAccepts_thenTheLeaseSaysSo() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.flags, bid.flags) = (INTERRUPTIBLE | VERIFIED, INTERRUPTIBLE);
        _submit(matcher, PRICE, _paired(ask, bid));
        assertEq(_leaseOf(1).flags, INTERRUPTIBLE);
    }

    // ------------------------------------------------------------------------------------------------ signatures

    function test_openBatch_whenAskIsSignedByAnyoneElse_thenSkips() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        address[4] memory others = [buyer, stranger, sessionKey, matcher];
        for (uint256 i; i < others.length; ++i) {
            entry.askSignature = _sign(others[i], _hash(entry.ask));
            _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        }
    }

    function test_openBatch_whenBidIsSignedByAnyoneElse_thenSkips() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        address[4] memory others = [provider, stranger, sessionKey, matcher];
        for (uint256 i; i < others.length; ++i) {
            entry.bidSignature = _sign(others[i], _hash(entry.bid));
            _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        }
    }

    function test_openBatch_whenNodeKeyHasExpired_thenSkips() external {
        address key = _signer("short-lived");
        _delegate(provider, key, Role.Node, uint32(block.timestamp + 1 minutes));
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.askSignature = _sign(key, _hash(entry.ask));
        skip(1 minutes);
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    // ------------------------------------------------------------------------------------------------ batches

    function test_openBatch_whenOneEntryIsBad_thenOpensTheOthers() external {
        SignedMatch[] memory entries = new SignedMatch[](3);
        for (uint32 i; i < 3; ++i) {
            vm.prank(provider);
            book.addMachine(20 + i, 50, product);
            entries[i] = _paired(_askFrom(provider, 20 + i), _bid());
        }
        entries[1].bidSignature = "";
        _expectSkip(1, SkipCode.BAD_BID_SIGNATURE);
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        assertEq(book.machineOf(provider, 20).status, Status.Funded);
        assertEq(book.machineOf(provider, 21).status, Status.Free);
        assertEq(book.machineOf(provider, 22).status, Status.Funded);
    }

    function _compact(bytes memory signature) private pure returns (bytes memory) {
        (bytes32 r, bytes32 s, uint8 v) = (bytes32(0), bytes32(0), uint8(signature[64]));
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            s := mload(add(signature, 0x40))
        }
        return abi.encodePacked(r, bytes32(uint256(s) | (uint256(v - 27) << 255)));
    }
}
