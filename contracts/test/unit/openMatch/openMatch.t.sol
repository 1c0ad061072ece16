// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {OrderHash} from "../../../src/libraries/OrderHash.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, Match, SignedMatch} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract OpenMatch is Fixture {
    function _signMatch(address signer, SignedMatch memory entry, uint64 price, uint16 market)
        private
        view
        returns (bytes memory)
    {
        Match memory agreed = Match(_hash(entry.ask), _hash(entry.bid), price, market);
        return _sign(signer, keccak256(abi.encode(OrderHash.MATCH, agreed)));
    }

    function _refuses(SignedMatch memory entry, bytes memory signature, SkipCode code) private {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_EntryRefused.selector, 0, code));
        vm.prank(stranger);
        book.openMatch(product, PRICE, marketId, entry, signature);
    }

    function test_openMatch_whenEverythingFits_thenAnybodyOpensAtTheMatchersPrice() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory signature = _signMatch(matcher, entry, PRICE, marketId);
        vm.prank(stranger);
        book.openMatch(product, PRICE, marketId, entry, signature);
        Lease memory lease = _leaseOf(entry.ask.seq);
        assertEq(lease.status, Status.Funded);
        assertEq(lease.cap, CAP);
        assertEq(lease.marketId, marketId);
        assertEq(lease.buyer, buyer);
    }

    function test_openMatch_whenNobodySigned_thenReverts() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        (entry.ask.matcher, entry.bid.matcher) = (address(0), address(0));
        entry = _paired(entry.ask, entry.bid);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, address(0)));
        vm.prank(stranger);
        book.openMatch(product, PRICE, marketId, entry, new bytes(65));
    }

    function test_openMatch_whenSignerIsNotTheMatcherOfBoth_thenReverts() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        _refuses(entry, _signMatch(stranger, entry, PRICE, marketId), SkipCode.WRONG_MATCHER);
        entry.ask.matcher = stranger;
        entry = _paired(entry.ask, entry.bid);
        _refuses(entry, _signMatch(matcher, entry, PRICE, marketId), SkipCode.WRONG_MATCHER);
        _refuses(entry, _signMatch(stranger, entry, PRICE, marketId), SkipCode.WRONG_MATCHER);
    }

    function test_openMatch_whenTheMatcherSignedSomethingElse_thenReverts() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        SignedMatch memory other = _paired(_ask(), _bid());
        _refuses(entry, _signMatch(matcher, other, PRICE, marketId), SkipCode.WRONG_MATCHER);
        _refuses(entry, _signMatch(matcher, entry, PRICE + 1, marketId), SkipCode.WRONG_MATCHER);
        _refuses(entry, _signMatch(matcher, entry, PRICE, 0), SkipCode.WRONG_MATCHER);
    }

    function test_openMatch_whenARuleIsBroken_thenRevertsWithItsCode() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        bid.maxPricePerHour = PRICE - 1;
        SignedMatch memory entry = _paired(ask, bid);
        _refuses(entry, _signMatch(matcher, entry, PRICE, marketId), SkipCode.PRICE_OUTSIDE_LIMITS);
    }

    function test_openMatch_whenOpenedBefore_thenReverts() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory signature = _signMatch(matcher, entry, PRICE, marketId);
        book.openMatch(product, PRICE, marketId, entry, signature);
        _refuses(entry, signature, SkipCode.MACHINE_NOT_FREE);
    }

    function test_openMatch_whenPaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory signature = _signMatch(matcher, entry, PRICE, marketId);
        uint256 until = block.timestamp + 1 days;
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_OpeningsPaused.selector, until));
        book.openMatch(product, PRICE, marketId, entry, signature);
    }
}
