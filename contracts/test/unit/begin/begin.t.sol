// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {READY} from "../../../src/types/Flags.sol";
import {Role, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ready} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Begin is Fixture {
    uint24 private seq;
    uint32 private openedAt;

    function setUp() public override {
        super.setUp();
        openedAt = uint32(block.timestamp);
        seq = _open();
    }

    function _accept(uint32 startedAt) private view returns (Accept memory) {
        return Accept({provider: provider, index: INDEX, seq: seq, startedAt: startedAt});
    }

    function _tryBegin(address readySigner, address acceptSigner, Accept memory accepted, bytes memory error_)
        private
    {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        bytes memory readySignature = _signReady(readySigner, ready);
        bytes memory acceptSignature = _signAccept(acceptSigner, accepted);
        if (error_.length != 0) vm.expectRevert(error_);
        book.begin(ready, readySignature, accepted, acceptSignature);
    }

    // ------------------------------------------------------------------------------------------------ postReady

    function test_postReady_whenNodeKeySigned_thenFlagsTheLease() external {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        bytes memory signature = _signReady(nodeKey, ready);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.LeaseReady(_key(), seq, ready.runtimeHash);
        book.postReady(ready, signature);
        assertEq(_leaseOf(seq).flags & READY, READY);
        assertEq(_status(), Status.Funded);
    }

    function test_postReady_whenPostedBefore_thenReverts() external {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        bytes memory signature = _signReady(provider, ready);
        book.postReady(ready, signature);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Funded));
        book.postReady(ready, signature);
    }

    function test_postReady_whenSignedByAnyoneElse_thenReverts() external {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        address[3] memory others = [buyer, sessionKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            bytes memory signature = _signReady(others[i], ready);
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, provider));
            book.postReady(ready, signature);
        }
    }

    function test_postReady_whenDeadlineHasPassed_thenReverts() external {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        bytes memory signature = _signReady(nodeKey, ready);
        skip(START + 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooLate.selector, openedAt + START));
        book.postReady(ready, signature);
    }

    function test_postReady_whenForAnotherLease_thenReverts() external {
        Ready memory ready = _readyOf(provider, INDEX, seq + 1);
        bytes memory signature = _signReady(nodeKey, ready);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq));
        book.postReady(ready, signature);
    }

    // ------------------------------------------------------------------------------------------------ begin

    function test_begin_whenBothSigned_thenRunsFromStartedAtWhoeverSends() external {
        skip(10 minutes);
        uint32 startedAt = uint32(block.timestamp - 3 minutes);
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(buyer), _cash(provider));
        vm.expectEmit(address(book));
        emit ILeaseBookLog.LeaseStarted(_key(), seq, startedAt);
        vm.startPrank(stranger);
        _begin(seq, startedAt);
        vm.stopPrank();
        Lease memory lease = _leaseOf(seq);
        assertEq(lease.status, Status.Active);
        assertEq(lease.start, startedAt);
        assertEq(lease.ceiling, CAP * 3 minutes / DURATION);
        assertEq(lease.paid, 0);
        assertEq(_cash(buyer), buyerBefore);
        assertEq(_cash(provider), providerBefore);
    }

    function test_begin_whenBuyerAndProviderSignThemselves_thenRuns() external {
        _tryBegin(provider, buyer, _accept(openedAt), "");
        assertEq(_status(), Status.Active);
    }

    function test_begin_whenAtTheDeadline_thenRuns() external {
        skip(START);
        _begin(seq, openedAt + START);
        assertEq(_status(), Status.Active);
    }

    function test_begin_whenDeadlineHasPassed_thenReverts() external {
        skip(START + 1);
        bytes memory late = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooLate.selector, openedAt + START);
        _tryBegin(nodeKey, sessionKey, _accept(openedAt), late);
    }

    function test_begin_whenStartIsBeforeTheOpeningOrInTheFuture_thenReverts() external {
        skip(5 minutes);
        uint32[2] memory starts = [openedAt - 1, uint32(block.timestamp + 1)];
        for (uint256 i; i < starts.length; ++i) {
            bytes memory outside = abi.encodeWithSelector(
                ILeaseBookLog.LeaseBook_StartOutOfRange.selector, starts[i], openedAt, block.timestamp
            );
            _tryBegin(nodeKey, sessionKey, _accept(starts[i]), outside);
        }
    }

    function test_begin_whenReadyIsSignedByAnyoneElse_thenReverts() external {
        address[3] memory others = [buyer, sessionKey, stranger];
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, provider);
        for (uint256 i; i < others.length; ++i) {
            _tryBegin(others[i], sessionKey, _accept(openedAt), bad);
        }
    }

    function test_begin_whenAcceptIsSignedByAnyoneElse_thenReverts() external {
        address[3] memory others = [provider, nodeKey, stranger];
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, buyer);
        for (uint256 i; i < others.length; ++i) {
            _tryBegin(nodeKey, others[i], _accept(openedAt), bad);
        }
    }

    function test_begin_whenAcceptNamesAnotherLease_thenReverts() external {
        Accept memory accepted = _accept(openedAt);
        accepted.seq = seq + 1;
        bytes memory wrong = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq);
        _tryBegin(nodeKey, sessionKey, accepted, wrong);
        accepted = _accept(openedAt);
        accepted.index = INDEX + 1;
        _tryBegin(nodeKey, sessionKey, accepted, wrong);
    }

    function test_begin_whenItRunsAlready_thenReverts() external {
        _begin(seq, openedAt);
        bytes memory wrong = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Active);
        _tryBegin(nodeKey, sessionKey, _accept(openedAt), wrong);
    }

    function test_begin_whenSessionKeyWasSetAfterTheOpening_thenRuns() external {
        address key = _signer("later");
        _delegate(buyer, key, Role.Session, uint32(block.timestamp + 1 days));
        _tryBegin(nodeKey, key, _accept(openedAt), "");
        assertEq(_status(), Status.Active);
    }
}
