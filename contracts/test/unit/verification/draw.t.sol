// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchId, BatchState} from "../../../src/types/Audits.sol";
import {History} from "../../mocks/History.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Draw is AuditFixture {
    function _reveal(uint24 seq, bytes32 preimage) private {
        _reveal(seq, 0, preimage);
    }

    function _fallback(uint24 seq) private {
        module.fallbackSeed(provider, INDEX, seq, 0);
    }

    function _wrongState(BatchState found) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IVerification.Verification_WrongState.selector, found);
    }

    function _batchKey(uint24 seq) private view returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(_key(), seq)), uint256(0)));
    }

    function _committed() private returns (uint24 seq) {
        seq = _endedWith(1e6);
        _commitBatch(seq, 0);
    }

    // ------------------------------------------------------------------------------------------------ reveal

    function test_reveal_whenAllIsWell_thenStoresTheSeed() external {
        uint24 seq = _committed();
        _rollToReveal(seq, 0);
        bytes32 preimage = _preimageFor(0);
        bytes32 seed = keccak256(abi.encode(BLOCK_HASH, preimage, _root(seq, 0), _batchKey(seq)));
        vm.expectEmit(address(module));
        emit IVerification.BatchDrawn(_key(), seq, 0, seed, preimage);
        vm.prank(stranger); // to know it is enough
        _reveal(seq, preimage);
        assertEq(_batch(seq, 0).seed, seed);
        _assertState(seq, 0, BatchState.DRAWN);
    }

    function test_reveal_whenNotCommitted_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        vm.expectRevert(_wrongState(BatchState.NONE));
        _reveal(seq, _preimageFor(0));
    }

    /// @dev Somebody was faster with one of them: the others are drawn all the same.
    function test_reveal_whenOneIsDrawnAlready_thenLeavesItOut() external {
        (uint24 first, uint24 second, uint24 third) = (_committed(), _committed(), _committed());
        _drawBatch(first, 0);
        bytes32 seed = _batch(first, 0).seed;
        _rollToReveal(third, 0);
        vm.setBlockhash(_batch(second, 0).blockNumber + 1, BLOCK_HASH);
        BatchId[] memory ids = new BatchId[](3);
        bytes32[] memory preimages = new bytes32[](3);
        uint24[3] memory seqs = [first, second, third];
        for (uint256 k; k < 3; ++k) {
            (ids[k], preimages[k]) = (BatchId(provider, INDEX, seqs[k], 0), _preimageFor(k));
        }
        preimages[0] = 0; // not even looked at
        module.reveal(ids, preimages);
        assertEq(_batch(first, 0).seed, seed);
        _assertState(second, 0, BatchState.DRAWN);
        _assertState(third, 0, BatchState.DRAWN);
    }

    function test_reveal_whenTheListsDiffer_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_LengthMismatch.selector, 2, 1));
        module.reveal(new BatchId[](2), new bytes32[](1));
    }

    function test_reveal_whenTooEarlyOrTooLate_thenReverts() external {
        uint24 seq = _committed();
        uint256 committed = block.number;
        bytes memory error_ =
            abi.encodeWithSelector(IVerification.Verification_WrongBlock.selector, committed + 2, committed + 256);
        for (uint256 i; i < 2; ++i) {
            vm.roll(committed + i);
            vm.expectRevert(error_);
            _reveal(seq, _preimageFor(0));
        }
        vm.roll(committed + 257);
        vm.expectRevert(error_);
        _reveal(seq, _preimageFor(0));
        vm.roll(committed + 256);
        vm.setBlockhash(committed + 1, BLOCK_HASH);
        _reveal(seq, _preimageFor(0));
    }

    function test_reveal_whenTheChainHasNoHash_thenReverts() external {
        uint24 seq = _committed();
        uint256 committed = block.number;
        vm.roll(committed + 2);
        vm.setBlockhash(committed + 1, 0);
        vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_NoBlockHash.selector, committed + 1));
        _reveal(seq, _preimageFor(0));
    }

    function test_reveal_whenThePreimageIsNotThisBatches_thenReverts() external {
        uint24 seq = _committed();
        _rollToReveal(seq, 0);
        bytes32[4] memory wrong =
            [bytes32(0), _preimage(0, CHAIN_LENGTH), _preimage(0, CHAIN_LENGTH - 2), _preimageFor(1)];
        for (uint256 i; i < 4; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IVerification.Verification_BadPreimage.selector, wrong[i]));
            _reveal(seq, wrong[i]);
        }
        (bytes32 head, uint40 position) = module.headOf(0);
        assertEq(head, _preimage(0, CHAIN_LENGTH));
        assertEq(position, 0);
    }

    function test_reveal_whenBatchesAreDrawnOutOfOrder_thenEachHasItsOwnPreimage() external {
        uint24[5] memory seqs;
        for (uint256 i; i < 4; ++i) {
            seqs[i] = _committed();
        }
        seqs[4] = _committed();
        uint8[5] memory order = [4, 1, 0, 3, 2];
        for (uint256 i; i < 5; ++i) {
            uint24 seq = seqs[order[i]];
            uint256 number = _batch(seq, 0).number;
            assertEq(number, order[i]);
            _rollToReveal(seq, 0);
            vm.expectRevert(
                abi.encodeWithSelector(IVerification.Verification_BadPreimage.selector, _preimageFor(number + 2))
            );
            _reveal(seq, _preimageFor(number + 2));
            _reveal(seq, _preimageFor(number));
        }
        (bytes32 head, uint40 position) = module.headOf(0);
        assertEq(head, _preimage(0, CHAIN_LENGTH - 3));
        assertEq(position, 3);
    }

    function test_reveal_whenDrawsWereMissed_thenTheChainGoesOn() external {
        for (uint256 i; i < 4; ++i) {
            _committed(); // nobody comes
        }
        uint24 seq = _committed();
        _drawBatch(seq, 0);
        (, uint40 position) = module.headOf(0);
        assertEq(position, 3);
    }

    // ------------------------------------------------------------------------------------------------ fallback

    function test_fallbackSeed_whenTheVerifierDidNotCome_thenTheChainDraws() external {
        vm.etch(HISTORY, type(History).runtimeCode);
        uint24 seq = _committed();
        uint256 committed = block.number;
        vm.roll(committed + 257);
        bytes32 blockHash = keccak256(abi.encode("history", committed + 1));
        bytes32 seed = keccak256(abi.encode(blockHash, _root(seq, 0), _batchKey(seq)));
        vm.expectEmit(address(module));
        emit IVerification.BatchDrawn(_key(), seq, 0, seed, 0);
        vm.prank(stranger);
        _fallback(seq);
        assertEq(_batch(seq, 0).seed, seed);
        (, uint40 position) = module.headOf(0);
        assertEq(position, 0);
    }

    function test_fallbackSeed_whenTooEarly_thenReverts() external {
        vm.etch(HISTORY, type(History).runtimeCode);
        uint24 seq = _committed();
        uint256 committed = block.number;
        vm.roll(committed + 256);
        bytes memory error_ = abi.encodeWithSelector(
            IVerification.Verification_WrongBlock.selector, committed + 257, type(uint256).max
        );
        vm.expectRevert(error_);
        _fallback(seq);
    }

    function test_fallbackSeed_whenNotCommitted_thenReverts() external {
        vm.etch(HISTORY, type(History).runtimeCode);
        uint24 seq = _committed();
        _drawBatch(seq, 0);
        vm.roll(block.number + 300);
        vm.expectRevert(_wrongState(BatchState.DRAWN));
        _fallback(seq);
    }

    function test_fallbackSeed_whenTheChainKnowsNoHash_thenRevertsAndTheHardCapPays() external {
        uint24 seq = _committed();
        uint256 number = block.number + 1;
        bytes memory error_ = abi.encodeWithSelector(IVerification.Verification_NoBlockHash.selector, number);
        vm.roll(number + 300);
        vm.expectRevert(error_); // no EIP-2935
        _fallback(seq);
        vm.etch(HISTORY, type(History).runtimeCode);
        vm.roll(number + 8192);
        vm.expectRevert(error_); // too old
        _fallback(seq);
        skip(HARD_CAP);
        _finalizeUnverified(seq, 0);
        _assertState(seq, 0, BatchState.FINAL_UNVERIFIED);
    }
}
