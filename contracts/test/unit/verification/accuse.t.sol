// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Leaf, Opening, Sibling, Verdict, VerdictResult} from "../../../src/types/Audits.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Accusations is AuditFixture {
    uint256 private constant V = 3e6;

    function _tryAccuse(Leaf memory leaf, Sibling[] memory proof, Verdict memory verdict, bytes memory error_)
        private
    {
        bytes memory first = _signVerdict(verifier[0], verdict);
        bytes memory second = _signVerdict(verifier[1], verdict);
        vm.expectRevert(error_);
        module.accuse(leaf, proof, verdict, first, second);
    }

    function _accuseAs(uint24 seq, address a, address b, address refused) private {
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        (bytes memory first, bytes memory second) = (_signVerdict(a, verdict), _signVerdict(b, verdict));
        if (refused != address(0)) {
            vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, refused));
        }
        module.accuse(_leaf(seq, 0, 1), proof, verdict, first, second);
    }

    // ------------------------------------------------------------------------------------------------ accuse

    function test_accuse_whenAllIsWell_thenOpensTheWindow() external {
        uint24 seq = _drawn(V);
        vm.expectEmit(address(module));
        uint32 until = uint32(block.timestamp + CHALLENGE);
        emit IVerification.SegmentAccused(_key(), seq, 0, until, _opening(seq, 0, 1));
        _accuse(seq, 0, 1);
        _assertState(seq, 0, BatchState.ACCUSED);
        assertEq(_batch(seq, 0).accused, 2);
    }

    function test_accuse_whenSignaturesComeInEitherOrder_thenAccepts() external {
        uint24 seq = _drawn(V);
        _accuseAs(seq, verifier[1], verifier[0], address(0));
    }

    function test_accuse_whenNotDrawnOrEnded_thenReverts() external {
        uint24 seq = _endedWith(V);
        _commitBatch(seq, 0);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        bytes4 wrongState = IVerification.Verification_WrongState.selector;
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, _error(wrongState, uint256(BatchState.COMMITTED)));
        _drawBatch(seq, 0);
        _finalizeClean(seq, 0);
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, _error(wrongState, uint256(BatchState.FINAL)));
    }

    function test_accuse_whenPastTheHardCap_thenReverts() external {
        uint24 seq = _drawn(V);
        uint256 closesAt = _batch(seq, 0).committedAt + HARD_CAP;
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        vm.warp(closesAt + 1);
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, _error(IVerification.Verification_TooLate.selector, closesAt));
        vm.warp(closesAt);
        _accuse(seq, 0, 1);
    }

    function test_accuse_whenTheProofIsWrong_thenReverts() external {
        uint24 seq = _drawn(V);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        bytes memory error_ = _error(IVerification.Verification_BadProof.selector, 1);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        (, Sibling[] memory foreign) = _tree(seq, 0, 0);
        _tryAccuse(_leaf(seq, 0, 1), foreign, verdict, error_);
        _tryAccuse(_leaf(seq, 0, 1), new Sibling[](0), verdict, error_);
        Leaf memory leaf = _leaf(seq, 0, 1);
        leaf.weight += 1;
        _tryAccuse(leaf, proof, verdict, error_);
        leaf = _leaf(seq, 0, 1);
        leaf.result = keccak256("another");
        _tryAccuse(leaf, proof, verdict, error_);
        Sibling[] memory longer = new Sibling[](proof.length + 1);
        for (uint256 k; k < proof.length; ++k) {
            longer[k] = proof[k];
        }
        _tryAccuse(_leaf(seq, 0, 1), longer, verdict, error_);
        proof[0].weight -= 1;
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, error_);
    }

    function test_accuse_whenTheVerdictIsOfSomethingElse_thenReverts() external {
        uint24 seq = _drawn(V);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        bytes memory error_ = abi.encodeWithSelector(IVerification.Verification_BadVerdict.selector);
        Verdict[8] memory wrong;
        for (uint256 i; i < 8; ++i) {
            wrong[i] = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        }
        wrong[0].result = uint8(VerdictResult.MATCH);
        wrong[1].result = uint8(VerdictResult.INCOMPARABLE);
        wrong[2].i = 2;
        wrong[3].batchNo = 1;
        wrong[4].seq += 1;
        wrong[5].index += 1;
        wrong[6].provider = stranger;
        wrong[7].leaf = keccak256("another leaf");
        for (uint256 i; i < 8; ++i) {
            _tryAccuse(_leaf(seq, 0, 1), proof, wrong[i], error_);
        }
    }

    function test_accuse_whenNotBothVerifiersSigned_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuseAs(seq, verifier[0], verifier[0], verifier[0]);
        _accuseAs(seq, verifier[0], stranger, stranger);
        _accuseAs(seq, stranger, verifier[1], stranger);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        bytes memory first = _signVerdict(verifier[0], verdict);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, address(0)));
        module.accuse(_leaf(seq, 0, 1), proof, verdict, first, "");
    }

    function test_accuse_whenAccusedContestedOrConvictedBefore_thenReverts() external {
        uint24 seq = _drawn(V);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        bytes memory error_ = _error(IVerification.Verification_WrongSegment.selector, 1);
        _accuse(seq, 0, 1);
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, error_);
        _contest(seq, 0, 1, VerdictResult.MATCH);
        _tryAccuse(_leaf(seq, 0, 1), proof, verdict, error_);
    }

    // ------------------------------------------------------------------------------------------------ contest

    function test_contest_whenAVerifierSaysOtherwise_thenClears() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        vm.expectEmit(address(module));
        emit IVerification.AccusationContested(_key(), seq, 0, 1, verifier[1], 600_000);
        _contest(seq, 0, 1, VerdictResult.INCOMPARABLE);
        _assertState(seq, 0, BatchState.DRAWN);
        assertEq(_bond(), BOND);
        vm.expectRevert(_error(IVerification.Verification_WrongSegment.selector, 1));
        _convict(seq, 0, 1);
        _finalizeClean(seq, 0);
        _assertState(seq, 0, BatchState.PARTIAL);
        assertEq(_cash(buyer), CASH - V - 210_000 + 600_000 + 42_000); // its price and its audit share
        _assertAllSolvent();
    }

    function test_contest_whenNotAccused_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 0);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MATCH);
        bytes memory signature = _signVerdict(verifier[0], verdict);
        vm.expectRevert(_error(IVerification.Verification_WrongSegment.selector, 1));
        module.contest(verdict, signature, _opening(seq, 0, 1));
        Opening memory opening = _opening(seq, 0, 1);
        opening.i = 200;
        vm.expectRevert(_error(IVerification.Verification_WrongSegment.selector, 200));
        module.contest(verdict, signature, opening);
    }

    function test_contest_whenTheWindowIsOver_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        uint256 until = block.timestamp + CHALLENGE;
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MATCH);
        bytes memory signature = _signVerdict(verifier[0], verdict);
        vm.warp(until + 1);
        vm.expectRevert(_error(IVerification.Verification_TooLate.selector, until));
        module.contest(verdict, signature, _opening(seq, 0, 1));
        vm.warp(until);
        module.contest(verdict, signature, _opening(seq, 0, 1));
    }

    function test_contest_whenItIsAMismatchOrNoVerifiers_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        bytes memory signature = _signVerdict(verifier[0], verdict);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadVerdict.selector));
        module.contest(verdict, signature, _opening(seq, 0, 1));
        verdict.result = uint8(VerdictResult.MATCH);
        signature = _signVerdict(provider, verdict);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, provider));
        module.contest(verdict, signature, _opening(seq, 0, 1));
    }

    /// @dev A verdict on one segment clears no other, and its weight is what the tree says.
    function test_contest_whenAnotherSegmentIsShown_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 0);
        _accuse(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MATCH);
        bytes memory signature = _signVerdict(verifier[0], verdict);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadVerdict.selector));
        module.contest(verdict, signature, _opening(seq, 0, 0));
        Opening memory heavier = _opening(seq, 0, 1);
        heavier.weight += 1;
        vm.expectRevert(_error(IVerification.Verification_BadProof.selector, 1));
        module.contest(verdict, signature, heavier);
    }
}
