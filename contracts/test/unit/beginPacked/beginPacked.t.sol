// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {ILeasePacked} from "../../../src/interfaces/ILeasePacked.sol";
import {ILeaseTrading} from "../../../src/interfaces/ILeaseTrading.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ready} from "../../../src/types/Orders.sol";
import {Packing} from "../../Packing.sol";

contract BeginPacked is Packing {
    uint24 private _seq;

    function setUp() public override {
        super.setUp();
        _seq = _open();
    }

    function _accept(uint24 seq, uint256 startedAt) private view returns (Accept memory) {
        return Accept({provider: provider, index: INDEX, seq: seq, startedAt: uint32(startedAt)});
    }

    function _entry(address signer, Accept memory accepted) private view returns (bytes memory) {
        return _packStart(accepted, _signAccept(signer, accepted));
    }

    function _skips(bytes memory data, SkipCode code) private {
        Status before = _status();
        _expectSkip(0, code);
        vm.prank(nodeKey);
        book.beginPacked(provider, data);
        assertEq(_status(), before);
    }

    function test_beginPacked_whenTheNodeSends_thenDoesWhatBeginDoes() external {
        Accept memory accepted = _accept(_seq, block.timestamp);
        Ready memory ready = _readyOf(provider, INDEX, _seq);
        address[2] memory signers = [buyer, sessionKey];
        uint256 funded = vm.snapshotState();
        for (uint256 i; i < 2; ++i) {
            vm.revertToState(funded);
            bytes memory signature = _signAccept(signers[i], accepted);
            bytes memory plain =
                abi.encodeCall(ILeaseTrading.begin, (ready, _signReady(nodeKey, ready), accepted, signature));
            bytes memory packed =
                abi.encodeCall(ILeasePacked.beginPacked, (provider, _packStart(accepted, signature)));
            assertEq(_assertTwins(i == 0 ? provider : nodeKey, plain, packed), 1);
        }
    }

    function test_beginPacked_whenLengthIsNoWholeNumberOfEntries_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadLength.selector, 74, 75));
        vm.prank(nodeKey);
        book.beginPacked(provider, new bytes(74));
    }

    function test_beginPacked_whenCallerIsNotTheProvider_thenReverts() external {
        bytes memory data = _entry(sessionKey, _accept(_seq, block.timestamp));
        address[3] memory others = [buyer, stranger, sessionKey];
        for (uint256 i; i < 3; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, others[i]));
            vm.prank(others[i]);
            book.beginPacked(provider, data);
        }
    }

    function test_beginPacked_whenTheNodeKeyIsRevoked_thenReverts() external {
        vm.prank(provider);
        book.revokeDelegate(nodeKey);
        skip(START);
        bytes memory data = _entry(buyer, _accept(_seq, block.timestamp));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, nodeKey));
        vm.prank(nodeKey);
        book.beginPacked(provider, data);
    }

    function test_beginPacked_whenTheLeaseIsAnotherOrRunsAlready_thenSkips() external {
        _skips(_entry(sessionKey, _accept(_seq + 1, block.timestamp)), SkipCode.WRONG_STATE);
        _begin(_seq, uint32(block.timestamp));
        _skips(_entry(sessionKey, _accept(_seq, block.timestamp)), SkipCode.WRONG_STATE);
    }

    function test_beginPacked_whenTheDeadlineHasPassed_thenSkips() external {
        uint256 openedAt = block.timestamp;
        skip(START + 1);
        _skips(_entry(sessionKey, _accept(_seq, openedAt)), SkipCode.EXPIRED);
    }

    function test_beginPacked_whenTheStartIsOutOfRange_thenSkips() external {
        _skips(_entry(sessionKey, _accept(_seq, block.timestamp - 1)), SkipCode.START_OUT_OF_RANGE);
        _skips(_entry(sessionKey, _accept(_seq, block.timestamp + 1)), SkipCode.START_OUT_OF_RANGE);
    }

    function test_beginPacked_whenTheBuyerDidNotAccept_thenSkips() external {
        _skips(_entry(nodeKey, _accept(_seq, block.timestamp)), SkipCode.BAD_ACCEPT_SIGNATURE);
        bytes memory nobodys = bytes.concat(abi.encodePacked(INDEX, _seq, uint32(block.timestamp)), new bytes(64));
        _skips(nobodys, SkipCode.BAD_ACCEPT_SIGNATURE);
    }

    function test_beginPacked_whenOneOfTwoIsBad_thenStartsTheOther() external {
        bytes memory bad = _entry(sessionKey, _accept(_seq + 1, block.timestamp));
        bytes memory good = _entry(sessionKey, _accept(_seq, block.timestamp));
        _expectSkip(0, SkipCode.WRONG_STATE);
        vm.prank(nodeKey);
        book.beginPacked(provider, bytes.concat(bad, good));
        assertEq(_leaseOf(_seq).status, Status.Active);
    }
}
