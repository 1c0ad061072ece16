// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Commit, Leaf, Opening, Sibling, VerdictResult} from "../../../src/types/Audits.sol";
import {History} from "../../mocks/History.sol";
import {AuditFixture} from "../verification/AuditFixture.sol";

/// @dev The rows of the design's table of attacks on audits that a contract can decide, and are not in audits.t.sol:
/// weights, heavy segments, trust and the hardware challenge are the verifiers' to check.
contract AttackOnVerification is AuditFixture {
    uint256 private constant V = 3e6;
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    function _challenge(uint24 seq, uint16 j, uint16 m) private {
        vm.prank(verifier[0]);
        module.challenge(provider, INDEX, seq, 0, j, m);
    }

    // ------------------------------------------------------------------------------------------------ framing

    /// @dev A job that differs on the victim's node: its buyer gets back what it paid and no more, what else it costs
    /// is burnt, and one buyer alone never makes it fraud.
    function test_attack_buyersImageDetectsTheVictimsNode() external {
        uint24 seq = _drawn(V);
        for (uint16 i; i < 3; ++i) {
            _accuse(seq, 0, i);
        }
        skip(CHALLENGE + 1);
        for (uint16 i; i < 3; ++i) {
            _convict(seq, 0, i);
        }
        _finalizeClean(seq, 0);
        assertEq(_cash(buyer), CASH, "the buyer gained by it");
        assertFalse(book.isBarred(provider));
        assertEq(_bond(), BOND - 21, "more than the lock");
        assertGe(token.balanceOf(BURNT), 21e6 * 9 / 10);
        _assertAllSolvent();
    }

    /// @dev Both keys of the verifiers, a sybil buyer and auditors: a bounty of two audits a segment, to an account
    /// that the constructor fixed; whoever sends the calls gets nothing.
    function test_attack_verifiersFrameForTheBounty() external {
        uint24 seq = _drawn(V);
        uint256 before = _cash(stranger);
        vm.startPrank(stranger);
        _punish(seq, 0, 1);
        vm.stopPrank();
        assertEq(_cash(audits[0]), 2 * 600_000);
        assertLe(_cash(audits[0]), 10 * 600_000);
        assertEq(_cash(audits[1]), 0);
        assertEq(_cash(stranger), before);
    }

    // ------------------------------------------------------------------------------------------------ hiding

    function test_attack_providerNeverCommits() external {
        uint24 seq = _endedWith(V);
        skip(COMMIT_WINDOW + 1);
        vm.prank(stranger);
        book.returnHeld(provider, INDEX, seq);
        assertEq(_cash(buyer), CASH);
    }

    /// @dev A root over nothing cannot be opened at any point: nothing is paid, and the lock burns.
    function test_attack_garbageRoot() external {
        uint24 seq = _endedWith(V);
        Commit memory commit = _commit(seq, 0);
        commit.root = keccak256("garbage");
        module.commitBatch(commit, _signCommit(nodeKey, commit));
        _drawBatch(seq, 0);
        for (uint16 j; j < 3; ++j) {
            _challenge(seq, j, 3);
        }
        (, Sibling[] memory proof) = _tree(seq, 0, 0);
        Leaf memory leaf = _leaf(seq, 0, 0);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadProof.selector, 0));
        module.openLeaf(0, leaf, proof);
        skip(ANSWER + 1);
        uint256 before = _cash(provider);
        for (uint16 j; j < 3; ++j) {
            module.convictSilent(provider, INDEX, seq, 0, j);
        }
        _finalizeClean(seq, 0);
        assertEq(_cash(provider) - before, 20, "paid for nothing, but for the bond's change");
        assertGe(_cash(buyer), CASH - 3, "but for rounding, all is the buyer's");
        assertEq(_bond(), BOND - 21);
        _assertAllSolvent();
    }

    /// @dev Showing what was asked for after all does not undo a conviction, nor can it be had twice.
    function test_attack_silenceConvictedTwice() external {
        uint24 seq = _drawn(V);
        _challenge(seq, 0, 3);
        skip(ANSWER + 1);
        module.convictSilent(provider, INDEX, seq, 0, 0);
        bytes memory error_ = abi.encodeWithSelector(IVerification.Verification_WrongPoint.selector, 0);
        vm.expectRevert(error_);
        module.convictSilent(provider, INDEX, seq, 0, 0);
        vm.expectRevert(error_);
        _challenge(seq, 0, 3);
        uint16 i = _segmentAt(_batch(seq, 0).seed, 0);
        (, Sibling[] memory proof) = _tree(seq, 0, i);
        Leaf memory leaf = _leaf(seq, 0, i);
        vm.expectRevert(error_);
        module.openLeaf(0, leaf, proof);
    }

    /// @dev Challenging to the last second keeps the pay back by one more window, no longer.
    function test_attack_verifierStallsByChallenging() external {
        uint24 seq = _drawn(V);
        uint256 hardCap = _batch(seq, 0).committedAt + HARD_CAP;
        for (uint16 j; j < 3; ++j) {
            vm.warp(hardCap - 2 + j);
            _challenge(seq, j, 3);
            uint16 i = _segmentAt(_batch(seq, 0).seed, j);
            (, Sibling[] memory proof) = _tree(seq, 0, i);
            module.openLeaf(j, _leaf(seq, 0, i), proof);
        }
        vm.warp(hardCap + 1);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_TooLate.selector, hardCap));
        _challenge(seq, 0, 3);
        vm.prank(stranger);
        _finalizeUnverified(seq, 0);
        _assertState(seq, 0, BatchState.FINAL_UNVERIFIED);
    }

    // ------------------------------------------------------------------------------------------------ draws

    /// @dev The verifier's last block and the chain's first: whoever is later changes nothing, so nobody has two seeds
    /// to choose from.
    function test_attack_fallbackRace() external {
        vm.etch(HISTORY, type(History).runtimeCode);
        uint24 seq = _endedWith(V);
        _commitBatch(seq, 0);
        uint256 committed = block.number;
        vm.roll(committed + 256);
        vm.setBlockhash(committed + 1, BLOCK_HASH);
        uint256 snapshot = vm.snapshotState();
        _reveal(seq, 0, _preimageFor(0));
        bytes32 seed = _batch(seq, 0).seed;
        vm.roll(committed + 257);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_WrongState.selector, BatchState.DRAWN));
        module.fallbackSeed(provider, INDEX, seq, 0);
        assertEq(_batch(seq, 0).seed, seed);
        vm.revertToState(snapshot);
        vm.roll(committed + 257);
        module.fallbackSeed(provider, INDEX, seq, 0);
        bytes32 other = _batch(seq, 0).seed;
        _reveal(seq, 0, _preimageFor(0)); // left out
        assertEq(_batch(seq, 0).seed, other);
    }

    // ------------------------------------------------------------------------------------------------ pay

    /// @dev A verifier that says nothing, to get the work free or to extort: the hard cap pays.
    function test_attack_verifierIsSilent() external {
        uint24 seq = _endedWith(V);
        _commitBatch(seq, 0); // it cannot keep anybody from that
        uint256 before = _cash(provider);
        skip(HARD_CAP);
        vm.prank(provider);
        _finalizeUnverified(seq, 0);
        assertEq(_cash(provider) - before, V - V * FEE_BPS / 10_000);
        assertEq(_cash(audits[0]) + _cash(audits[1]), 0);
    }

    /// @dev Splitting work into tiny batches secures as much as one segment's fine: twenty times its price.
    function test_attack_tinyBatchesEscapeTheFine() external {
        uint24 seq = _endedWith(V);
        _weigh(1, 0);
        _commitBatch(seq, 0);
        assertEq(_locked(), 60e6);
        _drawBatch(seq, 0);
        _punish(seq, 0, 0);
        assertEq(_bond(), BOND - 60);
    }

    /// @dev A verifier may give a whole batch back to its buyer, and has nothing of it.
    function test_attack_verifierGivesPayBackToItsSybilBuyer() external {
        uint24 seq = _drawn(V);
        _finalize(seq, 0, 7, new Opening[](0));
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(audits[0]), 0);
        assertEq(_bond(), BOND);
    }

    /// @dev What is contested is nobody's fault and the buyer's price, once.
    function test_attack_contestedSegmentIsNamedInResultsToo() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        _contest(seq, 0, 1, VerdictResult.INCOMPARABLE);
        _finalize(seq, 0, 2, new Opening[](0));
        assertEq(_cash(buyer), CASH - V - 210_000 + 600_000 + 42_000);
        _assertAllSolvent();
    }
}
