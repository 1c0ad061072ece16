// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {
    AuditWindows,
    BatchState,
    Commit,
    Leaf,
    Opening,
    Results,
    Sibling,
    Verdict,
    VerdictResult,
    Verifier
} from "../../../src/types/Audits.sol";
import {CloseReason, SkipCode} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, Voucher} from "../../../src/types/Orders.sol";
import {ReentrantToken} from "../../mocks/Tokens.sol";
import {AuditFixture} from "../verification/AuditFixture.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @dev Attacks on held pay, commitments, draws and verdicts; one test a row of the tables in the design.
contract AttackOnAudits is AuditFixture {
    uint256 private constant V = 3e6;

    function _tryAccuse(Leaf memory leaf, Sibling[] memory proof, bytes memory error_) private {
        Verdict memory verdict = _verdict(leaf.seq, leaf.batchNo, 0, VerdictResult.MISMATCH);
        (verdict.i, verdict.leaf) = (leaf.i, _leafHash(leaf));
        bytes memory first = _signVerdict(verifier[0], verdict);
        bytes memory second = _signVerdict(verifier[1], verdict);
        vm.expectRevert(error_);
        module.accuse(leaf, proof, verdict, first, second);
    }

    function _badProof(uint16 i) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IVerification.Verification_BadProof.selector, i);
    }

    // ------------------------------------------------------------------------------------------------ proofs

    /// @dev A leaf at a place that is none: with n = 3, path 3 would be the last leaf again.
    function test_attack_proofWithIndexBeyondN() external {
        uint24 seq = _drawn(V);
        (, Sibling[] memory proof) = _tree(seq, 0, 2);
        weights.push(weights[2]);
        Leaf memory leaf = _leaf(seq, 0, 3);
        _tryAccuse(leaf, proof, _badProof(3));
        leaf = _leaf(seq, 0, 2);
        leaf.i = type(uint16).max;
        _tryAccuse(leaf, proof, _badProof(type(uint16).max));
    }

    /// @dev The last node of an odd level goes up unchanged; it must not be taken for its own sibling.
    function test_attack_oddLevelTakenAsDoubled() external {
        uint24 seq = _drawn(V);
        (, Sibling[] memory proof) = _tree(seq, 0, 2);
        assertEq(proof.length, 1);
        Sibling[] memory longer = new Sibling[](2);
        (longer[0], longer[1]) = (Sibling(_leafHash(_leaf(seq, 0, 2)), weights[2]), proof[0]);
        _tryAccuse(_leaf(seq, 0, 2), longer, _badProof(2));
    }

    function test_attack_weightsOverflow() external {
        uint24 seq = _drawn(V);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        proof[0].weight = type(uint32).max;
        _tryAccuse(_leaf(seq, 0, 1), proof, _badProof(1));
        (, proof) = _tree(seq, 0, 1);
        Leaf memory leaf = _leaf(seq, 0, 1);
        leaf.weight = 0;
        _tryAccuse(leaf, proof, _badProof(1));
        leaf.weight = type(uint32).max;
        _tryAccuse(leaf, proof, _badProof(1));
    }

    /// @dev An inner node shown as an incomparable leaf would return more than one segment's price.
    function test_attack_innerNodeShownAsALeaf() external {
        _weigh(4, 250_000);
        uint24 seq = _drawn(V);
        (, Sibling[] memory ofFirst) = _tree(seq, 0, 0);
        (, Sibling[] memory ofThird) = _tree(seq, 0, 2);
        Opening[] memory openings = new Opening[](1);
        openings[0].proof = new Sibling[](1);
        openings[0].proof[0] = ofThird[1];
        (openings[0].i, openings[0].weight) = (0, 500_000);
        openings[0].leaf = ofThird[1].hash; // left inner node, over segments 0 and 1
        openings[0].proof[0] = ofFirst[1];
        Results memory results = _results(seq, 0, 1);
        bytes memory signature = _signResults(verifier[0], results);
        vm.expectRevert(_badProof(0));
        _end(results, openings, signature);
    }

    /// @dev A leaf of another lease, batch or machine: bound by its own words.
    function test_attack_leafOfAnotherBatch() external {
        uint24 first = _drawn(1e6);
        uint24 second = _drawn(1e6);
        Leaf memory leaf = _leaf(first, 0, 1);
        (, Sibling[] memory proof) = _tree(first, 0, 1);
        leaf.seq = second;
        _tryAccuse(leaf, proof, _badProof(1));
    }

    // ------------------------------------------------------------------------------------------------ commitments

    /// @dev Two roots for one batch: whoever holds both would show the one that passes.
    function test_attack_equivocation() external {
        uint24 seq = _endedWith(V);
        _commitBatch(seq, 0);
        Commit memory other = _commit(seq, 0);
        other.root = keccak256("another root");
        bytes memory signature = _signCommit(nodeKey, other);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_WrongState.selector, BatchState.COMMITTED));
        module.commitBatch(other, signature);
    }

    function test_attack_commitmentReplayedForAnotherLease() external {
        uint24 first = _endedWith(1e6);
        Commit memory commit = _commit(first, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        module.commitBatch(commit, signature);
        commit.seq = _endedWith(1e6);
        vm.expectPartialRevert(ILeaseBookLog.LeaseBook_NotOwner.selector); // the digest is another one's
        module.commitBatch(commit, signature);
    }

    /// @dev The book's domain is another one: a signature of one contract is none in the other.
    function test_attack_commitmentSignedForTheBook() external {
        uint24 seq = _endedWith(V);
        Commit memory commit = _commit(seq, 0);
        moduleSeparator = domainSeparator;
        bytes memory signature = _signCommit(nodeKey, commit);
        vm.expectPartialRevert(ILeaseBookLog.LeaseBook_NotOwner.selector);
        module.commitBatch(commit, signature);
    }

    /// @dev The whole held pay is the batch's: a small commitment cannot leave the rest outside of the audit.
    function test_attack_providerCommitsOneHonestSegment() external {
        uint24 seq = _endedWith(4e6);
        _weigh(1, 0);
        _commitBatch(seq, 0);
        assertEq(_batch(seq, 0).value, 4e6);
        assertEq(_locked(), 80e6);
        assertEq(_heldOf(seq).amount, 0);
    }

    // ------------------------------------------------------------------------------------------------ draws

    /// @dev The verifier would choose which preimage, and so which draw, serves a batch.
    function test_attack_verifierChoosesAmongPreimages() external {
        uint24 seq = _endedWith(1e6);
        _commitBatch(seq, 0);
        _rollToReveal(seq, 0);
        for (uint256 steps; steps <= CHAIN_LENGTH; ++steps) {
            bytes32 preimage = _preimage(0, steps);
            if (preimage == _preimageFor(0)) continue;
            vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadPreimage.selector, preimage));
            _reveal(seq, 0, preimage);
        }
    }

    /// @dev Revealing in the commitment's own block or the next would let the seed be known before it is fixed.
    function test_attack_drawInTheCommitmentsBlock() external {
        uint24 seq = _endedWith(1e6);
        _commitBatch(seq, 0);
        for (uint256 i; i < 2; ++i) {
            vm.expectPartialRevert(IVerification.Verification_WrongBlock.selector);
            _reveal(seq, 0, _preimageFor(0));
            vm.roll(block.number + 1);
        }
    }

    // ------------------------------------------------------------------------------------------------ verdicts

    /// @dev One verifier alone touches no bond, whatever it signs and whoever posts it.
    function test_attack_oneVerifierFrames() external {
        uint24 seq = _drawn(V);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        bytes memory own = _signVerdict(verifier[0], verdict);
        vm.startPrank(verifier[0]);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, verifier[0]));
        module.accuse(_leaf(seq, 0, 1), proof, verdict, own, own);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NotVerifier.selector, address(0)));
        module.accuse(_leaf(seq, 0, 1), proof, verdict, own, "");
        vm.stopPrank();
        _finalize(seq, 0, 7, new Opening[](0)); // what it can do
        assertEq(_bond(), BOND);
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(audits[0]), 0, "and gains nothing by it");
    }

    function test_attack_convictedTwice() external {
        uint24 seq = _drawn(V);
        _punish(seq, 0, 1);
        bytes memory error_ = abi.encodeWithSelector(IVerification.Verification_WrongSegment.selector, 1);
        vm.expectRevert(error_);
        _convict(seq, 0, 1);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        vm.warp(_batch(seq, 0).committedAt + HARD_CAP);
        _tryAccuse(_leaf(seq, 0, 1), proof, error_);
        _finalizeUnverified(seq, 0);
        _tryAccuse(_leaf(seq, 0, 1), proof, error_);
    }

    /// @dev Accusing one segment after the other could keep the pay back for ever: it ends with the hard cap.
    function test_attack_verifiersStallByAccusing() external {
        uint24 seq = _drawn(V);
        vm.warp(_batch(seq, 0).committedAt + HARD_CAP);
        _accuse(seq, 0, 0);
        skip(CHALLENGE + 1);
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        _tryAccuse(
            _leaf(seq, 0, 1),
            proof,
            abi.encodeWithSelector(IVerification.Verification_TooLate.selector, _batch(seq, 0).committedAt + HARD_CAP)
        );
        _convict(seq, 0, 0);
        vm.prank(stranger);
        _finalizeUnverified(seq, 0);
        _assertAllSolvent();
    }

    function test_attack_resultsReplayedForAnotherBatch() external {
        uint24 first = _drawn(1e6);
        uint24 second = _drawn(1e6);
        Results memory results = _results(first, 0, 0);
        bytes memory signature = _signResults(verifier[0], results);
        _end(results, new Opening[](0), signature);
        results.seq = second;
        vm.expectPartialRevert(IVerification.Verification_NotVerifier.selector);
        _end(results, new Opening[](0), signature);
    }

    // ------------------------------------------------------------------------------------------------ money of others

    /// @dev Buyer B's lease of the same machine neither releases nor is slashed for what buyer A paid.
    function test_attack_heldPayOfOneBuyerTouchedByAnother() external {
        uint24 ofA = _endedWith(3e6);
        address buyerB = _member("buyer b");
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        bid.buyer = buyerB;
        uint24 ofB = _openWith(ask, bid);
        vm.startPrank(buyerB);
        vm.expectPartialRevert(ILeaseBookLog.LeaseBook_TooEarly.selector);
        book.returnHeld(provider, INDEX, ofA);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NothingHeld.selector, ofB));
        book.returnHeld(provider, INDEX, ofB);
        vm.stopPrank();
        _commitBatch(ofA, 0);
        _drawBatch(ofA, 0);
        uint256 before = _cash(buyerB);
        _punish(ofA, 0, 1);
        _finalize(ofA, 0, 4, _openings(_opening(ofA, 0, 2)));
        assertEq(_cash(buyerB), before, "buyer B got something of buyer A's batch");
        assertEq(_heldOf(ofB).audit, CAP * AUDIT_BPS / 10_000);
    }

    function _openings(Opening memory one) private pure returns (Opening[] memory all) {
        all = new Opening[](1);
        all[0] = one;
    }

    /// @dev A penalty takes of the free bond only: leaving early does not pay the lock away to the own sybil buyer.
    function test_attack_penaltyReachesTheLockedBond() external {
        uint24 seq = _endedWith(4_900_000 / 2);
        _weigh(1, 0);
        _commitBatch(seq, 0); // 49 of 100
        seq = _endedWith(4_400_000 / 2);
        _commitBatch(seq, 0); // 44 more
        assertEq(_locked(), 93e6);
        seq = _openVerified();
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", CloseReason.HEALTH);
        assertGe(_bond() * 1e6, _locked());
    }

    /// @dev A lease needs free bond: what is locked for a batch does not open another one.
    function test_attack_oneBondForManyLeases() external {
        uint24 seq = _openVerified();
        skip(2 hours);
        _closeAt(seq, 4_900_000);
        _weigh(1, 0);
        _commitBatch(seq, 0); // 98 of 100; a lease needs 20 % of 22
        _assertSkipped(matcher, _paired(_ask(), _bid()), SkipCode.BOND_TOO_LOW);
    }

    /// @dev A machine that retires at once, and whose provider ends its batch as late as it can, is still there when
    /// the batch can no longer cost it anything.
    function test_attack_unbondingOutrunsALateSlash() external {
        uint24 seq = _endedWith(V);
        vm.prank(provider);
        book.retire(INDEX);
        skip(COMMIT_WINDOW);
        _commitBatch(seq, 0);
        _drawBatch(seq, 0);
        skip(HARD_CAP);
        _finalizeUnverified(seq, 0);
        skip(LATE_SLASH);
        _accuse(seq, 0, 1);
        vm.prank(provider);
        vm.expectPartialRevert(ILeaseBookLog.LeaseBook_TooEarly.selector);
        book.finishRetire(INDEX);
        skip(CHALLENGE + 1);
        _convict(seq, 0, 1);
        assertEq(_bond(), BOND - 13);
    }

    /// @dev A token that calls back while a fine is burnt meets the guard.
    function test_attack_tokenReentersWhileAFineIsBurnt() external {
        uint24 seq = _drawn(V);
        vm.etch(address(token), address(new ReentrantToken()).code);
        ReentrantToken hostile = ReentrantToken(address(token));
        hostile.join(book, 1e6);
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
        hostile.arm(book, abi.encodeCall(book.withdraw, (1e6)));
        _convict(seq, 0, 1);
        assertFalse(hostile.reached());
        assertEq(bytes4(hostile.answer()), ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector);
        assertEq(_bond(), BOND - 12);
    }

    // ------------------------------------------------------------------------------------------------ construction

    function _tryConstruct(Verifier[2] memory who, AuditWindows memory windows, bytes32 field) private {
        bytes memory code =
            abi.encodePacked(vm.getCode("Verification.sol:Verification"), abi.encode(book, who, windows));
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadSetting.selector, field));
        address made;
        assembly {
            made := create(0, add(code, 0x20), mload(code))
        }
    }

    /// @dev A second module for a book that names another one: it could do nothing, and must not look as if.
    function test_attack_anotherModuleForTheBook() external {
        _tryConstruct(_verifiers(), _windows(), "leaseBook");
    }

    function test_construction_whenSettingsAreOutside_thenReverts() external {
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        AuditWindows memory windows = _windows();
        windows.challenge = 0;
        _tryConstruct(_verifiers(), windows, "challenge");
        windows.challenge = 3 days + 1;
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(_verifiers(), windows, "challenge");
        windows = _windows();
        windows.hardCap = 3 days + 1;
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(_verifiers(), windows, "hardCap");
        windows = _windows();
        windows.answer = 1 days + 1;
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(_verifiers(), windows, "answer");
        windows = _windows();
        windows.lateSlash += 1; // with the rest, a second longer than the bond stays
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(_verifiers(), windows, "lateSlash");
        Verifier[2] memory same = _verifiers();
        same[1].signer = same[0].signer;
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(same, _windows(), "verifiers");
        same = _verifiers();
        same[1].anchor = 0;
        vm.mockCall(address(book), abi.encodeCall(book.verification, ()), abi.encode(_nextContract()));
        _tryConstruct(same, _windows(), "verifiers");
    }

    function _nextContract() private view returns (address) {
        return vm.computeCreateAddress(address(this), vm.getNonce(address(this)));
    }
}
