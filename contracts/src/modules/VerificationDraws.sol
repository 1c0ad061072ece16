// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../interfaces/IVerification.sol";
import {AuditLib} from "../libraries/AuditLib.sol";
import {BatchId, BatchState, Leaf, Sibling} from "../types/Audits.sol";
import {BatchWord} from "../types/BatchWord.sol";
import {ChallengeWord} from "../types/DisputeWord.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {VerificationBase} from "./VerificationBase.sol";

/// @title VerificationDraws: which points of a batch are audited, and who must show what lies there
abstract contract VerificationDraws is VerificationBase {
    uint256 private constant REVEAL_FROM = 2;
    uint256 private constant REVEAL_UNTIL = 256;
    /// @dev EIP-2935: 8,191 block hashes, from one block after the block in question on.
    address private constant BLOCK_HASHES = 0x0000F90827F1C53a10cb7A02335B175320002935;

    // ---------------------------------------------------------------------------------------------- draws

    /// @inheritdoc IVerification
    function reveal(BatchId[] calldata batches, bytes32[] calldata preimages) external {
        if (batches.length != preimages.length) {
            revert Verification_LengthMismatch(batches.length, preimages.length);
        }
        for (uint256 k; k < batches.length; ++k) {
            _reveal(batches[k], preimages[k]);
        }
    }

    function _reveal(BatchId calldata id, bytes32 preimage) private {
        (MachineKey machine,, bytes32 key) = _keysOf(id.provider, id.index, id.seq, id.batchNo);
        Row storage row = _batches[key];
        BatchWord word = row.word;
        // Whoever copies a preimage from a pending call may draw one batch first; the others go on.
        if (word.state() > BatchState.COMMITTED) return;
        _requireState(word, BatchState.COMMITTED);
        uint256 committed = word.blockNumber();
        (uint256 first, uint256 last) = (committed + REVEAL_FROM, committed + REVEAL_UNTIL);
        if (block.number < first || block.number > last) revert Verification_WrongBlock({first: first, last: last});
        bytes32 blockHash = blockhash(committed + 1);
        if (blockHash == 0) revert Verification_NoBlockHash(committed + 1);
        _usePreimage(word.number(), preimage);
        bytes32 seed = AuditLib.seedOf(blockHash, preimage, row.root, key);
        (row.seed, row.word) = (seed, word.withState(BatchState.DRAWN));
        emit BatchDrawn({machineKey: machine, seq: id.seq, batchNo: id.batchNo, seed: seed, preimage: preimage});
    }

    /// @inheritdoc IVerification
    function fallbackSeed(address provider, uint32 index, uint24 seq, uint16 batchNo) external {
        (MachineKey machine,, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        BatchWord word = row.word;
        _requireState(word, BatchState.COMMITTED);
        uint256 first = word.blockNumber() + REVEAL_UNTIL + 1;
        if (block.number < first) revert Verification_WrongBlock({first: first, last: type(uint256).max});
        bytes32 seed = AuditLib.fallbackSeedOf(_olderBlockHash(word.blockNumber() + 1), row.root, key);
        (row.seed, row.word) = (seed, word.withState(BatchState.DRAWN));
        emit BatchDrawn({machineKey: machine, seq: seq, batchNo: batchNo, seed: seed, preimage: 0});
    }

    /// @dev The preimages of a chain are revealed from its end; number k is k+1 hashes away from the anchor. One that
    /// comes after a later one is known to everybody by then, which helps nobody: its batch was committed before.
    function _usePreimage(uint256 number, bytes32 preimage) private {
        Head storage head = _heads[number % 2];
        (bytes32 known, uint256 position, uint256 place) = (head.preimage, head.position, number / 2 + 1);
        if (place > position) {
            if (_hashed(preimage, place - position) != known) revert Verification_BadPreimage(preimage);
            (head.preimage, head.position) = (preimage, uint40(place));
        } else if (_hashed(known, position - place) != preimage) {
            revert Verification_BadPreimage(preimage);
        }
    }

    function _hashed(bytes32 value, uint256 times) private pure returns (bytes32) {
        for (uint256 i; i < times; ++i) {
            value = keccak256(abi.encode(value));
        }
        return value;
    }

    function _olderBlockHash(uint256 number) private view returns (bytes32 found) {
        (bool ok, bytes memory returned) = BLOCK_HASHES.staticcall(abi.encode(number));
        if (ok && returned.length == 32) found = bytes32(returned);
        if (found == 0) revert Verification_NoBlockHash(number);
    }

    // ---------------------------------------------------------------------------------------------- challenges

    /// @inheritdoc IVerification
    function challenge(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 j, uint16 m) external {
        if (!_isVerifier(msg.sender)) revert Verification_NotVerifier(msg.sender);
        (MachineKey machine, Row storage row) = _rowOf(provider, index, seq, batchNo);
        BatchWord word = row.word;
        _requireState(word, BatchState.DRAWN);
        uint256 closesAt = word.committedAt() + HARD_CAP;
        if (block.timestamp > closesAt) revert Verification_TooLate(closesAt);
        ChallengeWord challenges = row.challenges;
        // One m a batch: it is what a silent point costs.
        bool fits = j < m && m <= word.n() && (challenges.points() == 0 || challenges.points() == m);
        if (!fits || challenges.asked() & (1 << j) != 0) revert Verification_WrongPoint(j);
        uint32 until = uint32(block.timestamp + ANSWER);
        row.challenges = challenges.withAsked(j, m, until);
        emit LeafChallenged({machineKey: machine, seq: seq, batchNo: batchNo, j: j, m: m, until: until});
    }

    /// @inheritdoc IVerification
    function openLeaf(uint16 j, Leaf calldata leaf, Sibling[] calldata proof) external {
        (MachineKey machine, Row storage row) = _rowOf(leaf.provider, leaf.index, leaf.seq, leaf.batchNo);
        ChallengeWord challenges = _requireOpen(row, j);
        if (block.timestamp > challenges.until()) revert Verification_TooLate(challenges.until());
        (, uint256 start) = _requireLeaf(row.root, row.word, leaf, proof);
        uint256 point = AuditLib.drawPoint(row.seed, j);
        if (point < start || point >= start + leaf.weight) revert Verification_WrongPoint(j);
        row.challenges = challenges.withAnswered(j);
        emit LeafOpened({
            machineKey: machine,
            seq: leaf.seq,
            batchNo: leaf.batchNo,
            j: j,
            i: leaf.i,
            job: leaf.job,
            result: leaf.result,
            salt: leaf.salt
        });
    }

    function _requireOpen(Row storage row, uint16 j) internal view returns (ChallengeWord challenges) {
        challenges = row.challenges;
        if (j >= AuditLib.SEGMENTS_MAX || challenges.open() & (1 << j) == 0) revert Verification_WrongPoint(j);
    }
}
