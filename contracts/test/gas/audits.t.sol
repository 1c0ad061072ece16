// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Commit, Opening, Results, Sibling, Verdict, VerdictResult} from "../../src/types/Audits.sol";
import {Ask, Bid, SignedMatch} from "../../src/types/Orders.sol";
import {AuditFixture} from "../unit/verification/AuditFixture.sol";

/// @dev Gas of a verified lease's own calls, each its own transaction, with batches of 100 segments; the machine and
/// every account have had such a lease before.
/// forge-config: default.isolate = true
contract AuditGas is AuditFixture {
    function setUp() public override {
        super.setUp();
        _weigh(100, 10_000);
        for (uint256 i; i < 4; ++i) {
            uint24 seq = _drawn(3e6);
            vm.warp(block.timestamp + HARD_CAP / 2);
            _finalizeClean(seq, 0);
        }
    }

    function _record(string memory step) private {
        vm.snapshotValue("gas_per_batch", step, vm.lastCallGas().gasTotalUsed);
    }

    function test_gas_batchThatMatched() external {
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(ask, bid);
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        _record("open n=1");
        _begin(ask.seq, uint32(block.timestamp));
        skip(1 hours);
        _closeAt(ask.seq, 3e6);
        _record("close n=1");
        Commit memory commit = _commit(ask.seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        module.commitBatch(commit, signature);
        _record("commit");
        _rollToReveal(ask.seq, 0);
        bytes32 preimage = _preimageFor(_batch(ask.seq, 0).number);
        module.reveal(provider, INDEX, ask.seq, 0, preimage);
        _record("reveal");
        Results memory results = _results(ask.seq, 0, 0);
        signature = _signResults(verifier[0], results);
        module.finalize(results, new Opening[](0), signature);
        _record("finalize");
    }

    function test_gas_batchWithAFault() external {
        uint24 seq = _drawn(3e6);
        (, Sibling[] memory proof) = _tree(seq, 0, 41);
        Verdict memory verdict = _verdict(seq, 0, 41, VerdictResult.MISMATCH);
        bytes memory first = _signVerdict(verifier[0], verdict);
        bytes memory second = _signVerdict(verifier[1], verdict);
        module.accuse(_leaf(seq, 0, 41), proof, verdict, first, second);
        _record("accuse");
        skip(CHALLENGE + 1);
        module.convict(provider, INDEX, seq, 0, 41);
        _record("convict");
        Opening[] memory openings = new Opening[](1);
        openings[0] = _opening(seq, 0, 7);
        Results memory results = _results(seq, 0, 1 << 7);
        bytes memory signature = _signResults(verifier[0], results);
        module.finalize(results, openings, signature);
        _record("finalize with one opening");
    }
}
