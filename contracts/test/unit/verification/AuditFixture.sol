// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {AuditLib} from "../../../src/libraries/AuditLib.sol";
import {
    AuditWindows,
    Batch,
    BatchId,
    BatchState,
    Commit,
    Ending,
    Leaf,
    Opening,
    Results,
    Sibling,
    Verdict,
    VerdictResult,
    Verifier
} from "../../../src/types/Audits.sol";
import {Held} from "../../../src/types/Audits.sol";
import {VERIFIED} from "../../../src/types/Flags.sol";
import {Ask, Bid, Voucher} from "../../../src/types/Orders.sol";
import {ModuleAddresses} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev The fixture's world with Verification in it, verified leases, and batches as nodes and verifiers build them.
/// The tree is built here by levels, in the contract it is walked from a leaf: two ways, one root.
abstract contract AuditFixture is Fixture {
    uint32 internal constant COMMIT_WINDOW = 24 hours;
    uint32 internal constant CHALLENGE = 24 hours;
    uint32 internal constant HARD_CAP = 24 hours;
    uint32 internal constant LATE_SLASH = 7 days;
    uint32 internal constant ANSWER = 900;
    uint16 internal constant AUDIT_BPS = 700;
    uint256 internal constant CHAIN_LENGTH = 32;
    bytes32 internal constant BLOCK_HASH = keccak256("the block after the commitment");
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    IVerification internal module;
    address[2] internal verifier;
    address[2] internal audits;
    bytes32 internal moduleSeparator;

    /// @dev Weights of the segments of `_leaves`, in ppm.
    uint32[] internal weights;

    function setUp() public virtual override {
        super.setUp();
        moduleSeparator = module.DOMAIN_SEPARATOR();
        _weigh(3, 200_000); // 200,000 200,000 600,000
    }

    function _deploy(address token_) internal override returns (ILeaseBook deployed) {
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + BOOK_PARTS);
        deployed = _deployBook(token_, ModuleAddresses(predicted, address(0), address(0)), COMMIT_WINDOW);
        for (uint256 i; i < 2; ++i) {
            verifier[i] = _signer(string.concat("verifier ", vm.toString(i)));
            audits[i] = makeAddr(string.concat("audits ", vm.toString(i)));
        }
        module = IVerification(
            deployCode("Verification.sol:Verification", abi.encode(deployed, _verifiers(), _windows()))
        );
        assertEq(address(module), predicted);
    }

    function _verifiers() internal view returns (Verifier[2] memory) {
        return [
            Verifier({signer: verifier[0], anchor: _preimage(0, CHAIN_LENGTH), audits: audits[0]}),
            Verifier({signer: verifier[1], anchor: _preimage(1, CHAIN_LENGTH), audits: audits[1]})
        ];
    }

    function _windows() internal pure returns (AuditWindows memory) {
        return AuditWindows({challenge: CHALLENGE, hardCap: HARD_CAP, lateSlash: LATE_SLASH, answer: ANSWER});
    }

    /// @dev Element `steps` of a verifier's chain, counted from its secret end.
    function _preimage(uint256 who, uint256 steps) internal pure returns (bytes32 value) {
        value = keccak256(abi.encode("preimages", who));
        for (uint256 i; i < steps; ++i) {
            value = keccak256(abi.encode(value));
        }
    }

    /// @dev What a verifier reveals for the batch of this number in the deployment.
    function _preimageFor(uint256 number) internal pure returns (bytes32) {
        return _preimage(number % 2, CHAIN_LENGTH - 1 - number / 2);
    }

    // ---------------------------------------------------------------------------------------------- verified leases

    function _verifiedOrders() internal returns (Ask memory ask, Bid memory bid) {
        (ask, bid) = (_ask(), _bid());
        (ask.flags, bid.flags, bid.auditBps) = (VERIFIED, VERIFIED, AUDIT_BPS);
    }

    function _openVerified() internal returns (uint24 seq) {
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        seq = _openWith(ask, bid);
        _begin(seq, uint32(block.timestamp));
    }

    function _settleAt(uint24 seq, uint256 amount) internal {
        Voucher memory voucher = _voucher(seq, amount);
        _settle(voucher, _signVoucher(sessionKey, voucher));
    }

    function _closeAt(uint24 seq, uint256 amount) internal {
        Voucher memory voucher = _voucher(seq, amount);
        _close(matcher, voucher, _signFinal(sessionKey, voucher), _signFinal(nodeKey, voucher));
    }

    /// @dev A verified lease that ended with `paid` held.
    function _endedWith(uint256 paid) internal returns (uint24 seq) {
        seq = _openVerified();
        skip(1 hours);
        _closeAt(seq, paid);
    }

    function _heldOf(uint24 seq) internal view returns (Held memory) {
        return book.heldOf(provider, INDEX, seq);
    }

    // ---------------------------------------------------------------------------------------------- the tree

    /// @dev `n` segments of `each` ppm, the last one takes the rest.
    function _weigh(uint256 n, uint32 each) internal {
        delete weights;
        for (uint256 i; i + 1 < n; ++i) {
            weights.push(each);
        }
        weights.push(uint32(1_000_000 - (n - 1) * each));
    }

    function _leaf(uint24 seq, uint16 batchNo, uint16 i) internal view returns (Leaf memory) {
        return Leaf({
            provider: provider,
            index: INDEX,
            seq: seq,
            batchNo: batchNo,
            i: i,
            weight: weights[i],
            job: keccak256(abi.encode("job", i)),
            result: keccak256(abi.encode("result", i)),
            salt: keccak256(abi.encode("salt", seq, i))
        });
    }

    function _leafHash(Leaf memory leaf) internal view returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(block.chainid, address(module), leaf))));
    }

    /// @dev All leaves' level; or, with `path` of a leaf, that leaf's proof besides.
    function _tree(uint24 seq, uint16 batchNo, uint16 path)
        internal
        view
        returns (bytes32 root, Sibling[] memory proof)
    {
        uint256 width = weights.length;
        Sibling[] memory level = new Sibling[](width);
        for (uint16 i; i < width; ++i) {
            level[i] = Sibling(_leafHash(_leaf(seq, batchNo, i)), weights[i]);
        }
        Sibling[] memory steps = new Sibling[](8);
        uint256 taken;
        for (uint256 place = path; width > 1; place /= 2) {
            if (place ^ 1 < width) steps[taken++] = level[place ^ 1];
            for (uint256 i; i < width; i += 2) {
                level[i / 2] = i + 1 < width ? _parent(level[i], level[i + 1]) : level[i];
            }
            width = (width + 1) / 2;
        }
        proof = new Sibling[](taken);
        for (uint256 i; i < taken; ++i) {
            proof[i] = steps[i];
        }
        root = keccak256(abi.encodePacked(level[0].hash, level[0].weight, uint16(weights.length)));
    }

    function _parent(Sibling memory a, Sibling memory b) private pure returns (Sibling memory) {
        return Sibling(keccak256(abi.encodePacked(a.hash, b.hash, a.weight, b.weight)), a.weight + b.weight);
    }

    function _root(uint24 seq, uint16 batchNo) internal view returns (bytes32 root) {
        (root,) = _tree(seq, batchNo, 0);
    }

    function _opening(uint24 seq, uint16 batchNo, uint16 i) internal view returns (Opening memory opening) {
        (opening.i, opening.weight) = (i, weights[i]);
        opening.leaf = _leafHash(_leaf(seq, batchNo, i));
        (, opening.proof) = _tree(seq, batchNo, i);
    }

    /// @dev The segment under point j of a seed.
    function _segmentAt(bytes32 seed, uint256 j) internal view returns (uint16 i) {
        uint256 point = AuditLib.drawPoint(seed, j);
        for (uint256 end = weights[0]; point >= end; end += weights[i]) {
            ++i;
        }
    }

    // ---------------------------------------------------------------------------------------------- what they sign

    function _signAudit(address signer, bytes32 structHash) internal view returns (bytes memory) {
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", moduleSeparator, structHash));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keyOf[signer], digest);
        return abi.encodePacked(r, s, v);
    }

    function _commit(uint24 seq, uint16 batchNo) internal view returns (Commit memory) {
        return Commit({
            provider: provider,
            index: INDEX,
            seq: seq,
            batchNo: batchNo,
            root: _root(seq, batchNo),
            n: uint16(weights.length)
        });
    }

    function _signCommit(address signer, Commit memory commit) internal view returns (bytes memory) {
        return _signAudit(signer, keccak256(abi.encode(AuditLib.COMMIT, commit)));
    }

    function _verdict(uint24 seq, uint16 batchNo, uint16 i, VerdictResult result)
        internal
        view
        returns (Verdict memory)
    {
        return Verdict({
            provider: provider,
            index: INDEX,
            seq: seq,
            batchNo: batchNo,
            i: i,
            leaf: _leafHash(_leaf(seq, batchNo, i)),
            digest: keccak256("what the re-execution gave"),
            result: uint8(result)
        });
    }

    function _signVerdict(address signer, Verdict memory verdict) internal view returns (bytes memory) {
        return _signAudit(signer, keccak256(abi.encode(AuditLib.VERDICT, verdict)));
    }

    function _results(uint24 seq, uint16 batchNo, uint128 incomparable) internal view returns (Results memory) {
        return Results({provider: provider, index: INDEX, seq: seq, batchNo: batchNo, incomparable: incomparable});
    }

    function _signResults(address signer, Results memory results) internal view returns (bytes memory) {
        return _signAudit(signer, keccak256(abi.encode(AuditLib.RESULTS, results)));
    }

    // ---------------------------------------------------------------------------------------------- what they do

    function _commitBatch(uint24 seq, uint16 batchNo) internal {
        Commit memory commit = _commit(seq, batchNo);
        module.commitBatch(commit, _signCommit(nodeKey, commit));
    }

    /// @dev Two blocks after the commitment, its next block's hash known.
    function _rollToReveal(uint24 seq, uint16 batchNo) internal {
        uint256 committed = _batch(seq, batchNo).blockNumber;
        vm.roll(committed + 2);
        vm.setBlockhash(committed + 1, BLOCK_HASH);
    }

    function _drawBatch(uint24 seq, uint16 batchNo) internal {
        _rollToReveal(seq, batchNo);
        _reveal(seq, batchNo, _preimageFor(_batch(seq, batchNo).number));
    }

    function _reveal(uint24 seq, uint16 batchNo, bytes32 preimage) internal {
        BatchId[] memory ids = new BatchId[](1);
        bytes32[] memory preimages = new bytes32[](1);
        (ids[0], preimages[0]) = (BatchId(provider, INDEX, seq, batchNo), preimage);
        module.reveal(ids, preimages);
    }

    /// @dev A drawn batch 0 of an ended lease that paid `value`.
    function _drawn(uint256 value) internal returns (uint24 seq) {
        seq = _endedWith(value);
        _commitBatch(seq, 0);
        _drawBatch(seq, 0);
    }

    function _accuse(uint24 seq, uint16 batchNo, uint16 i) internal {
        (, Sibling[] memory proof) = _tree(seq, batchNo, i);
        Verdict memory verdict = _verdict(seq, batchNo, i, VerdictResult.MISMATCH);
        bytes memory first = _signVerdict(verifier[0], verdict);
        module.accuse(_leaf(seq, batchNo, i), proof, verdict, first, _signVerdict(verifier[1], verdict));
    }

    function _convict(uint24 seq, uint16 batchNo, uint16 i) internal {
        module.convict(provider, INDEX, seq, batchNo, _opening(seq, batchNo, i));
    }

    /// @dev Accused, never contested, convicted.
    function _punish(uint24 seq, uint16 batchNo, uint16 i) internal {
        _accuse(seq, batchNo, i);
        skip(CHALLENGE + 1);
        _convict(seq, batchNo, i);
    }

    function _contest(uint24 seq, uint16 batchNo, uint16 i, VerdictResult result) internal {
        Verdict memory verdict = _verdict(seq, batchNo, i, result);
        module.contest(verdict, _signVerdict(verifier[1], verdict), _opening(seq, batchNo, i));
    }

    /// @dev Ends a batch with the results of the verifier whose turn it is.
    function _finalize(uint24 seq, uint16 batchNo, uint128 incomparable, Opening[] memory openings) internal {
        Results memory results = _results(seq, batchNo, incomparable);
        address signer = verifier[_batch(seq, batchNo).number % 2];
        _end(results, openings, _signResults(signer, results));
    }

    function _finalizeClean(uint24 seq, uint16 batchNo) internal {
        _finalize(seq, batchNo, 0, new Opening[](0));
    }

    function _finalizeUnverified(uint24 seq, uint16 batchNo) internal {
        _end(_results(seq, batchNo, 0), new Opening[](0), "");
    }

    function _end(Results memory results, Opening[] memory openings, bytes memory signature) internal {
        Ending[] memory endings = new Ending[](1);
        endings[0] = Ending(results, openings, signature);
        module.finalize(endings);
    }

    // ---------------------------------------------------------------------------------------------- what they see

    function _batch(uint24 seq, uint16 batchNo) internal view returns (Batch memory) {
        return module.batchOf(provider, INDEX, seq, batchNo);
    }

    function _locked() internal view returns (uint256) {
        return book.machineOf(provider, INDEX).locked;
    }

    function _bond() internal view returns (uint256) {
        return book.machineOf(provider, INDEX).bond;
    }

    function _error(bytes4 selector, uint256 value) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(selector, value);
    }

    function _assertState(uint24 seq, uint16 batchNo, BatchState state) internal view {
        assertEq(uint8(_batch(seq, batchNo).state), uint8(state), "state of the batch");
    }

    /// @dev I1 with held pay and batches: of every account there is, every slot of the machine, every batch.
    function _assertAllSolvent() internal view {
        uint256 owed = _cash(buyer) + _cash(provider) + _cash(matcher) + _cash(audits[0]) + _cash(audits[1]);
        owed += _cash(stranger) + uint256(_bond()) * book.bondUnit() + book.batched();
        uint24 newest = book.machineOf(provider, INDEX).seq;
        owed += _leaseOf(newest).cap - _leaseOf(newest).paid;
        for (uint24 seq = 1; seq <= newest; ++seq) {
            owed += uint256(_heldOf(seq).amount) + _heldOf(seq).audit;
        }
        assertEq(token.balanceOf(address(book)), owed, "vault and accounts differ");
        assertEq(token.balanceOf(address(module)), 0, "the module holds tokens");
    }
}
