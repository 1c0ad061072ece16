// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Ending, Opening, Results, VerdictResult} from "../../../src/types/Audits.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Finalize is AuditFixture {
    uint256 private constant V = 3e6;
    uint256 private constant SHARE = 210_000;

    function _wrongState(BatchState found) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IVerification.Verification_WrongState.selector, found);
    }

    function _none() private pure returns (Opening[] memory) {
        return new Opening[](0);
    }

    function _shown(uint24 seq, uint16 i) private view returns (Opening[] memory openings) {
        openings = new Opening[](1);
        openings[0] = _opening(seq, 0, i);
    }

    function _earned(uint256 pay) private pure returns (uint256) {
        return pay - pay * FEE_BPS / 10_000;
    }

    function _tryFinalize(uint24 seq, uint128 bits, Opening[] memory openings, address signer, bytes memory error_)
        private
    {
        Results memory results = _results(seq, 0, bits);
        bytes memory signature = _signResults(signer, results);
        vm.expectRevert(error_);
        _end(results, openings, signature);
    }

    // ------------------------------------------------------------------------------------------------ with results

    function test_finalize_whenEverythingMatched_thenPaysAllAndFreesTheLock() external {
        uint24 seq = _drawn(V);
        uint256 before = _cash(provider);
        uint256 marketBefore = _cash(matcher);
        Results memory results = _results(seq, 0, 0);
        bytes memory signature = _signResults(verifier[0], results);
        vm.expectEmit(address(module));
        emit IVerification.BatchFinalised(
            _key(), seq, 0, BatchState.FINAL, uint48(_earned(V)), 75_000, uint56(SHARE), 0, 0
        );
        vm.prank(stranger);
        _end(results, _none(), signature);
        assertEq(_cash(provider) - before, _earned(V));
        assertEq(_cash(matcher) - marketBefore, 75_000);
        assertEq(_cash(audits[0]), SHARE);
        assertEq(_cash(buyer), CASH - V - SHARE);
        assertEq(_locked(), 0);
        assertEq(book.batched(), 0);
        _assertState(seq, 0, BatchState.FINAL);
        _assertAllSolvent();
    }

    function test_finalize_whenASegmentIsIncomparable_thenReturnsItsPrice() external {
        uint24 seq = _drawn(V);
        uint256 before = _cash(provider);
        _finalize(seq, 0, 4, _shown(seq, 2)); // 60 %
        assertEq(_cash(provider) - before, _earned(1_200_000));
        assertEq(_cash(audits[0]), 84_000);
        assertEq(_cash(buyer), CASH - V - SHARE + 1_800_000 + 126_000);
        _assertState(seq, 0, BatchState.PARTIAL);
        _assertAllSolvent();
    }

    function test_finalize_whenAllAreIncomparable_thenReturnsAllAndNothingNeedBeShown() external {
        uint24 seq = _drawn(V);
        uint256 before = _cash(provider);
        _finalize(seq, 0, 7, _none());
        assertEq(_cash(provider), before);
        assertEq(_cash(buyer), CASH);
        assertEq(_locked(), 0);
        _assertState(seq, 0, BatchState.PARTIAL);
        _assertAllSolvent();
    }

    function test_finalize_whenTheRestWasContestedAndConvicted_thenItIsAllAsWell() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        _contest(seq, 0, 1, VerdictResult.MATCH);
        _punish(seq, 0, 0);
        uint256 before = _cash(provider);
        _finalize(seq, 0, 4, _none());
        assertEq(_cash(provider), before);
        assertEq(_cash(buyer), CASH);
        _assertAllSolvent();
    }

    function test_finalize_whenAContestedSegmentIsNamedAgain_thenItCountsOnce() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        _contest(seq, 0, 1, VerdictResult.MATCH);
        uint256 before = _cash(provider);
        _finalize(seq, 0, 3, _shown(seq, 0));
        assertEq(_cash(provider) - before, _earned(1_800_000));
        _assertAllSolvent();
    }

    function test_finalize_whenSegmentsAreNotShown_thenReverts() external {
        uint24 seq = _drawn(V);
        bytes4 notShown = IVerification.Verification_NotShown.selector;
        _tryFinalize(seq, 1, _none(), verifier[0], abi.encodeWithSelector(notShown, 0));
        _tryFinalize(seq, 1, _shown(seq, 1), verifier[0], abi.encodeWithSelector(notShown, 0));
        _tryFinalize(seq, 5, _shown(seq, 0), verifier[0], abi.encodeWithSelector(notShown, 2));
        Opening[] memory lighter = _shown(seq, 2);
        lighter[0].weight -= 1;
        bytes4 badProof = IVerification.Verification_BadProof.selector;
        _tryFinalize(seq, 4, lighter, verifier[0], abi.encodeWithSelector(badProof, 2));
        bytes4 wrongSegment = IVerification.Verification_WrongSegment.selector;
        _tryFinalize(seq, 8, _none(), verifier[0], abi.encodeWithSelector(wrongSegment, 3));
    }

    function test_finalize_whenNotDrawn_thenReverts() external {
        uint24 seq = _endedWith(V);
        _tryFinalize(seq, 0, _none(), verifier[0], _wrongState(BatchState.NONE));
        _commitBatch(seq, 0);
        _tryFinalize(seq, 0, _none(), verifier[0], _wrongState(BatchState.COMMITTED));
    }

    function test_finalize_whenAnAccusationIsOpen_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        _tryFinalize(seq, 0, _none(), verifier[0], _wrongState(BatchState.ACCUSED));
        skip(HARD_CAP + CHALLENGE);
        vm.expectRevert(_wrongState(BatchState.ACCUSED));
        _finalizeUnverified(seq, 0);
        _convict(seq, 0, 1); // anyone can, and so it ends
        _finalizeUnverified(seq, 0);
    }

    /// @dev Somebody was faster with one of them: the others end all the same, and nothing is paid twice.
    function test_finalize_whenOneHasEnded_thenLeavesItOut() external {
        (uint24 first, uint24 second) = (_drawn(V), _drawn(V));
        _finalizeClean(first, 0);
        uint256 before = _cash(provider);
        Ending[] memory endings = new Ending[](2);
        for (uint256 k; k < 2; ++k) {
            Results memory results = _results(k == 0 ? first : second, 0, 0);
            endings[k] = Ending(results, _none(), _signResults(verifier[k], results));
        }
        module.finalize(endings);
        assertEq(_cash(provider), before + _earned(V));
        _assertState(second, 0, BatchState.FINAL);
        skip(HARD_CAP);
        _finalizeUnverified(first, 0);
        assertEq(_cash(provider), before + _earned(V));
        _assertState(first, 0, BatchState.FINAL);
        _assertAllSolvent();
    }

    function test_finalize_whenSomebodyElseSigned_thenReverts() external {
        uint24 seq = _drawn(V);
        bytes4 notVerifier = IVerification.Verification_NotVerifier.selector;
        _tryFinalize(seq, 0, _none(), provider, abi.encodeWithSelector(notVerifier, provider));
        Results memory results = _results(seq, 0, 0);
        bytes memory signature = _signResults(verifier[0], results);
        results.incomparable = 7;
        vm.expectPartialRevert(notVerifier); // the digest is another one's
        _end(results, _none(), signature);
    }

    /// @dev The audit share goes to whose audits they were; the other one may step in from half of the hard cap on.
    function test_finalize_whenTheOtherVerifierSigns_thenOnlyFromHalfOfTheHardCap() external {
        uint24 seq = _drawn(V);
        bytes4 notVerifier = IVerification.Verification_NotVerifier.selector;
        vm.warp(_batch(seq, 0).committedAt + HARD_CAP / 2 - 1);
        _tryFinalize(seq, 0, _none(), verifier[1], abi.encodeWithSelector(notVerifier, verifier[1]));
        skip(1);
        Results memory results = _results(seq, 0, 0);
        _end(results, _none(), _signResults(verifier[1], results));
        assertEq(_cash(audits[1]), SHARE);
        assertEq(_cash(audits[0]), 0);
    }

    // ------------------------------------------------------------------------------------------------ without

    function test_finalize_whenNoResultsAndBeforeTheHardCap_thenReverts() external {
        uint24 seq = _drawn(V);
        uint256 opensAt = _batch(seq, 0).committedAt + HARD_CAP;
        vm.warp(opensAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_TooEarly.selector, opensAt));
        _finalizeUnverified(seq, 0);
    }

    function test_finalize_whenNoResultsAtTheHardCap_thenPaysWithoutAudits() external {
        uint24[2] memory seqs = [_drawn(V), _endedWith(V)];
        _commitBatch(seqs[1], 0); // never drawn
        skip(HARD_CAP);
        for (uint256 i; i < 2; ++i) {
            uint256 before = _cash(provider);
            uint256 buyerBefore = _cash(buyer);
            vm.prank(stranger);
            _finalizeUnverified(seqs[i], 0);
            assertEq(_cash(provider) - before, _earned(V));
            assertEq(_cash(buyer) - buyerBefore, SHARE);
            _assertState(seqs[i], 0, BatchState.FINAL_UNVERIFIED);
        }
        assertEq(_locked(), 0);
        _assertAllSolvent();
    }

    function test_finalize_whenNoResultsAndContested_thenItsPriceIsTheBuyers() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        _contest(seq, 0, 1, VerdictResult.MATCH);
        skip(HARD_CAP);
        uint256 before = _cash(provider);
        _finalizeUnverified(seq, 0);
        assertEq(_cash(provider) - before, _earned(2_400_000));
        _assertAllSolvent();
    }

    function test_finalize_whenNoResultsAndForfeit_thenBurnsTheRest() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 0);
        _accuse(seq, 0, 1);
        skip(HARD_CAP + CHALLENGE);
        _convict(seq, 0, 0);
        _convict(seq, 0, 1);
        uint256 before = _cash(provider);
        _finalizeUnverified(seq, 0);
        assertEq(_cash(provider), before);
        _assertState(seq, 0, BatchState.PARTIAL);
        _assertAllSolvent();
    }

    /// @dev Any division of any value, whatever was contested, convicted and incomparable: nothing is lost or made.
    function testFuzz_finalize_conserves(uint48 value, uint32 each, uint8 fates) external {
        value = uint48(bound(value, 1, 4_000_000));
        _weigh(4, uint32(bound(each, 1, 333_333)));
        uint24 seq = _drawn(value);
        uint128 bits;
        uint256 shown;
        for (uint16 i; i < 4; ++i) {
            uint256 fate = (fates >> (2 * i)) & 3;
            if (fate == 1 || fate == 2) _accuse(seq, 0, i);
            if (fate == 1) _contest(seq, 0, i, VerdictResult.INCOMPARABLE);
            if (fate == 3) (bits, shown) = (bits | uint128(1 << i), shown + 1);
        }
        skip(CHALLENGE + 1);
        Opening[] memory openings = new Opening[](shown);
        uint256 next;
        for (uint16 i; i < 4; ++i) {
            uint256 fate = (fates >> (2 * i)) & 3;
            if (fate == 2) _convict(seq, 0, i);
            if (fate == 3) openings[next++] = _opening(seq, 0, i);
            _assertAllSolvent();
        }
        _finalize(seq, 0, bits, openings);
        assertEq(book.batched(), 0);
        assertEq(_locked(), 0);
        _assertAllSolvent();
    }
}
