// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Leaf, Opening, Sibling} from "../../../src/types/Audits.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Challenge is AuditFixture {
    uint256 private constant V = 3e6;
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    function _point(uint16 j) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IVerification.Verification_WrongPoint.selector, j);
    }

    function _ask(uint24 seq, uint16 j, uint16 m) private {
        vm.prank(verifier[0]);
        module.challenge(provider, INDEX, seq, 0, j, m);
    }

    function _show(uint24 seq, uint16 j, uint16 i) private {
        (, Sibling[] memory proof) = _tree(seq, 0, i);
        module.openLeaf(j, _leaf(seq, 0, i), proof);
    }

    function _convictSilent(uint24 seq, uint16 j) private {
        module.convictSilent(provider, INDEX, seq, 0, j);
    }

    // ------------------------------------------------------------------------------------------------ challenge

    function test_challenge_whenAllIsWell_thenOpensTheWindow() external {
        uint24 seq = _drawn(V);
        uint32 until = uint32(block.timestamp + ANSWER);
        vm.expectEmit(address(module));
        emit IVerification.LeafChallenged(_key(), seq, 0, 1, 3, until);
        _ask(seq, 1, 3);
        assertEq(_batch(seq, 0).challenged, 2);
        assertEq(_batch(seq, 0).answerBy, until);
        _assertState(seq, 0, BatchState.DRAWN);
    }

    function test_challenge_whenTheOtherVerifierAsks_thenRestartsTheWindow() external {
        uint24 seq = _drawn(V);
        _ask(seq, 1, 3);
        skip(ANSWER / 2);
        vm.prank(verifier[1]);
        module.challenge(provider, INDEX, seq, 0, 2, 3);
        assertEq(_batch(seq, 0).challenged, 6);
        assertEq(_batch(seq, 0).answerBy, block.timestamp + ANSWER);
    }

    function test_challenge_whenTheCallerIsNoVerifier_thenReverts() external {
        uint24 seq = _drawn(V);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, stranger));
        vm.prank(stranger);
        module.challenge(provider, INDEX, seq, 0, 0, 1);
    }

    function test_challenge_whenNotDrawnOrPastTheHardCap_thenReverts() external {
        uint24 seq = _endedWith(V);
        _commitBatch(seq, 0);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_WrongState.selector, BatchState.COMMITTED));
        _ask(seq, 0, 1);
        _drawBatch(seq, 0);
        uint256 closesAt = _batch(seq, 0).committedAt + HARD_CAP;
        vm.warp(closesAt + 1);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_TooLate.selector, closesAt));
        _ask(seq, 0, 1);
        vm.warp(closesAt);
        _ask(seq, 0, 1);
    }

    function test_challenge_whenThePointIsNoneOrAskedBeforeOrOfAnotherNumber_thenReverts() external {
        uint24 seq = _drawn(V);
        vm.expectRevert(_point(2));
        _ask(seq, 2, 2);
        vm.expectRevert(_point(0));
        _ask(seq, 0, 4); // of three segments
        _ask(seq, 0, 3);
        vm.expectRevert(_point(0));
        _ask(seq, 0, 3);
        vm.expectRevert(_point(1));
        _ask(seq, 1, 2);
        vm.expectRevert(_point(300));
        _ask(seq, 300, 3);
    }

    // ------------------------------------------------------------------------------------------------ openLeaf

    function test_openLeaf_whenTheLeafIsShown_thenClearsAndTells() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        uint16 i = _segmentAt(_batch(seq, 0).seed, 0);
        Leaf memory leaf = _leaf(seq, 0, i);
        vm.expectEmit(address(module));
        emit IVerification.LeafOpened(_key(), seq, 0, 0, i, leaf.job, leaf.result, leaf.salt);
        vm.prank(stranger);
        _show(seq, 0, i);
        assertEq(_batch(seq, 0).challenged, 0);
        assertEq(_batch(seq, 0).silent, 0);
        skip(ANSWER + 1);
        vm.expectRevert(_point(0));
        _convictSilent(seq, 0);
        vm.expectRevert(_point(0));
        _ask(seq, 0, 3); // once
        _finalizeClean(seq, 0);
        _assertState(seq, 0, BatchState.FINAL);
    }

    function test_openLeaf_whenItIsAnotherLeaf_thenReverts() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        uint16 i = _segmentAt(_batch(seq, 0).seed, 0);
        vm.expectRevert(_point(0));
        _show(seq, 0, (i + 1) % 3);
        vm.expectRevert(_point(1));
        _show(seq, 1, i); // not asked for
        vm.expectRevert(_point(type(uint16).max));
        _show(seq, type(uint16).max, i);
        Leaf memory leaf = _leaf(seq, 0, i);
        (, Sibling[] memory proof) = _tree(seq, 0, i);
        leaf.salt = keccak256("another");
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadProof.selector, i));
        module.openLeaf(0, leaf, proof);
    }

    function test_openLeaf_whenTheWindowIsOver_thenReverts() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        uint256 until = block.timestamp + ANSWER;
        uint16 i = _segmentAt(_batch(seq, 0).seed, 0);
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_TooLate.selector, until));
        _show(seq, 0, i);
        vm.warp(until);
        _show(seq, 0, i);
    }

    // ------------------------------------------------------------------------------------------------ convictSilent

    function test_convictSilent_whenTheWindowIsOpen_thenReverts() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        uint256 until = block.timestamp + ANSWER;
        vm.warp(until);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_TooEarly.selector, until + 1));
        _convictSilent(seq, 0);
    }

    function test_convictSilent_whenNobodyShowed_thenCostsItsPartAndTheFineAndNoBounty() external {
        uint24 seq = _drawn(V);
        _ask(seq, 1, 3);
        skip(ANSWER + 1);
        uint256 burntBefore = token.balanceOf(BURNT);
        vm.expectEmit(address(module));
        emit IVerification.SilenceConvicted(_key(), seq, 0, 1, 999_999, 19_999_980); // V / 3, 20 times that
        vm.prank(stranger);
        _convictSilent(seq, 1);
        assertEq(_cash(buyer), CASH - V - 210_000 + 999_999);
        assertEq(token.balanceOf(BURNT) - burntBefore, 19_999_980);
        assertEq(_cash(audits[0]), 0);
        assertEq(_batch(seq, 0).silent, 2);
        assertEq(_batch(seq, 0).left, V - 999_999);
        assertEq(_locked(), 1e6);
        _assertAllSolvent();
        vm.expectRevert(_point(1));
        _convictSilent(seq, 1);
        uint256 before = _cash(provider);
        _finalizeClean(seq, 0);
        _assertState(seq, 0, BatchState.PARTIAL);
        uint256 rest = V - 999_999;
        assertEq(_cash(provider) - before, rest - rest * FEE_BPS / 10_000);
        _assertAllSolvent();
    }

    function test_convictSilent_whenItIsTheLeasesSecond_thenForfeitsTheRest() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        _ask(seq, 1, 3);
        skip(ANSWER + 1);
        _convictSilent(seq, 0);
        _convictSilent(seq, 1);
        uint256 before = _cash(provider);
        _finalizeClean(seq, 0);
        assertEq(_cash(provider), before);
        _assertState(seq, 0, BatchState.PARTIAL);
        _assertAllSolvent();
    }

    /// @dev Weights that are known and parts that are not may sum to more than all: all is the most that goes back.
    function test_convictSilent_whenMoreThanAllWouldGoBack_thenAllDoes() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 1);
        skip(ANSWER + 1);
        _convictSilent(seq, 0);
        assertEq(_cash(buyer), CASH - 210_000);
        uint256 before = _cash(provider);
        _finalize(seq, 0, 1, _shown(seq));
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(provider), before);
        _assertAllSolvent();
    }

    function _shown(uint24 seq) private view returns (Opening[] memory openings) {
        openings = new Opening[](1);
        openings[0] = _opening(seq, 0, 0);
    }

    // ------------------------------------------------------------------------------------------------ the end waits

    function test_finalize_whenAChallengeIsOpen_thenRevertsUntilAnyoneConvicts() external {
        uint24 seq = _drawn(V);
        vm.warp(_batch(seq, 0).committedAt + HARD_CAP);
        _ask(seq, 0, 3);
        bytes memory error_ = abi.encodeWithSelector(IVerification.Verification_Challenged.selector, 1);
        vm.expectRevert(error_);
        _finalizeUnverified(seq, 0);
        address signer = verifier[0];
        bytes memory signature = _signResults(signer, _results(seq, 0, 0));
        vm.expectRevert(error_);
        _end(_results(seq, 0, 0), new Opening[](0), signature);
        skip(ANSWER + 1);
        vm.startPrank(stranger);
        _convictSilent(seq, 0);
        _finalizeUnverified(seq, 0);
        vm.stopPrank();
        _assertState(seq, 0, BatchState.FINAL_UNVERIFIED);
        _assertAllSolvent();
    }

    /// @dev Shown at last, the leaf under a silent point costs nothing again.
    function test_accuse_whenTheLeafWasSilent_thenReverts() external {
        uint24 seq = _drawn(V);
        _ask(seq, 0, 3);
        skip(ANSWER + 1);
        _convictSilent(seq, 0);
        uint16 i = _segmentAt(_batch(seq, 0).seed, 0);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_WrongSegment.selector, i));
        this.accuse(seq, i);
        _accuse(seq, 0, (i + 1) % 3); // another is accused all the same
        assertEq(_batch(seq, 0).accused, 1 << ((i + 1) % 3));
    }

    function accuse(uint24 seq, uint16 i) external {
        _accuse(seq, 0, i);
    }

    function testFuzz_openLeaf_whenThePointIsInIt_thenAndOnlyThen(uint32 each, uint8 which, uint16 shown) external {
        _weigh(4, uint32(bound(each, 1, 333_333)));
        uint24 seq = _drawn(V);
        uint16 j = which % 4;
        _ask(seq, j, 4);
        shown = shown % 4;
        uint16 i = _segmentAt(_batch(seq, 0).seed, j);
        if (shown != i) vm.expectRevert(_point(j));
        _show(seq, j, shown);
        assertEq(_batch(seq, 0).challenged, shown == i ? 0 : 1 << j);
    }
}
