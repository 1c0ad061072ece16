// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    BatchId,
    Commit,
    Ending,
    Leaf,
    Opening,
    Results,
    Sibling,
    Verdict,
    VerdictResult
} from "../../src/types/Audits.sol";
import {Role} from "../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../src/types/Orders.sol";
import {AuditFixture} from "../unit/verification/AuditFixture.sol";

/// @dev Gas of a verified lease's own calls, each its own transaction, with batches of 100 segments; ten batches are
/// ten providers' and take turns between the verifiers. Every machine and account had such a lease before.
/// forge-config: default.isolate = true
contract AuditGas is AuditFixture {
    uint256 private constant TEN = 10;

    address[TEN] private providers;
    address[TEN] private nodeKeys;
    uint24 private newest;

    function setUp() public override {
        super.setUp();
        _weigh(100, 10_000);
        for (uint256 k; k < TEN; ++k) {
            (providers[k], nodeKeys[k]) = (_member(_name("provider", k)), _signer(_name("node", k)));
            _actAs(k);
            vm.prank(provider);
            book.addMachine(INDEX, BOND, product);
            _delegate(provider, nodeKey, Role.Node, uint32(block.timestamp + 90 days));
        }
        newest = 1;
        for (uint256 k; k < TEN; ++k) {
            _actAs(k);
            assertEq(_drawn(3e6), newest);
        }
        vm.warp(block.timestamp + HARD_CAP / 2);
        for (uint256 k; k < TEN; ++k) {
            _actAs(k);
            _finalizeClean(newest, 0);
        }
    }

    function _name(string memory what, uint256 k) private pure returns (string memory) {
        return string.concat(what, " ", vm.toString(k));
    }

    function _actAs(uint256 k) private {
        (provider, nodeKey) = (providers[k], nodeKeys[k]);
    }

    function _record(string memory step) private {
        vm.snapshotValue("gas_per_batch", step, vm.lastCallGas().gasTotalUsed);
    }

    function _recordTenth(string memory step) private returns (uint256 each) {
        each = vm.lastCallGas().gasTotalUsed / TEN;
        vm.snapshotValue("gas_per_batch", step, each);
    }

    /// @dev Opens, closes and commits the next lease of provider k; records what the last one's calls took.
    function _committed(uint256 k) private returns (uint256 gas) {
        _actAs(k);
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(ask, bid);
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        if (k == 9) _record("open n=1");
        newest = ask.seq;
        _begin(newest, uint32(block.timestamp));
        skip(1 hours);
        _closeAt(newest, 3e6);
        if (k == 9) _record("close n=1");
        Commit memory commit = _commit(newest, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        module.commitBatch(commit, signature);
        gas = vm.lastCallGas().gasTotalUsed;
        if (k == 9) _record("commit");
    }

    function test_gas_tenBatchesThatMatched() external {
        uint256 each;
        for (uint256 k; k < TEN; ++k) {
            each = _committed(k);
        }
        BatchId[] memory ids = new BatchId[](TEN);
        bytes32[] memory preimages = new bytes32[](TEN);
        Ending[] memory endings = new Ending[](TEN);
        for (uint256 k; k < TEN; ++k) {
            _actAs(k);
            ids[k] = BatchId(provider, INDEX, newest, 0);
            uint256 number = _batch(newest, 0).number;
            preimages[k] = _preimageFor(number);
            Results memory results = _results(newest, 0, 0);
            endings[k] = Ending(results, new Opening[](0), _signResults(verifier[number % 2], results));
        }
        _rollToReveal(newest, 0);
        module.reveal(ids, preimages);
        each += _recordTenth("reveal n=10, each");
        module.finalize(endings);
        each += _recordTenth("finalize n=10, each");
        vm.snapshotValue("gas_per_batch", "batch: commit, reveal n=10, finalize n=10", each);
        vm.snapshotValue("gas_per_batch", "segment of a hundred", each / 100);
        assertLe(each, 200_000, "a segment costs more than 2,000 gas");
    }

    function test_gas_oneBatchThatMatched() external {
        _committed(0);
        _rollToReveal(newest, 0);
        _reveal(newest, 0, _preimageFor(_batch(newest, 0).number));
        _record("reveal n=1");
        _finalizeClean(newest, 0);
        _record("finalize n=1");
    }

    function _drawnBatch() private {
        _committed(0);
        _drawBatch(newest, 0);
    }

    function test_gas_batchWithAFault() external {
        _drawnBatch();
        (, Sibling[] memory proof) = _tree(newest, 0, 41);
        Leaf memory leaf = _leaf(newest, 0, 41);
        Verdict memory verdict = _verdict(newest, 0, 41, VerdictResult.MISMATCH);
        bytes memory first = _signVerdict(verifier[0], verdict);
        bytes memory second = _signVerdict(verifier[1], verdict);
        module.accuse(leaf, proof, verdict, first, second);
        _record("accuse");
        skip(CHALLENGE + 1);
        Opening memory opening = _opening(newest, 0, 41);
        module.convict(provider, INDEX, newest, 0, opening);
        _record("convict");
        assertLe(vm.lastCallGas().gasTotalUsed, 150_000, "a slash costs more than 150,000 gas");
        Opening[] memory openings = new Opening[](1);
        openings[0] = _opening(newest, 0, 7);
        _finalize(newest, 0, 1 << 7, openings);
        _record("finalize n=1 with one opening");
    }

    function test_gas_challenge() external {
        _drawnBatch();
        vm.prank(verifier[0]);
        module.challenge(provider, INDEX, newest, 0, 0, 5);
        _record("challenge");
        vm.prank(verifier[0]);
        module.challenge(provider, INDEX, newest, 0, 1, 5);
        uint16 i = _segmentAt(_batch(newest, 0).seed, 0);
        (, Sibling[] memory proof) = _tree(newest, 0, i);
        module.openLeaf(0, _leaf(newest, 0, i), proof);
        _record("openLeaf");
        skip(ANSWER + 1);
        module.convictSilent(provider, INDEX, newest, 0, 1);
        _record("convictSilent");
    }
}
