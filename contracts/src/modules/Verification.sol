// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {IVerification} from "../interfaces/IVerification.sol";
import {AuditLib} from "../libraries/AuditLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {
    AuditWindows,
    Batch,
    BatchState,
    Commit,
    Leaf,
    Opening,
    Payout,
    Results,
    Sibling,
    Verdict,
    VerdictResult,
    Verifier
} from "../types/Audits.sol";
import {Role} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Delegate} from "../types/Rows.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title Verification (see {IVerification})
/// @dev No owner and no way to change anything. State is written before LeaseBook is called; LeaseBook is ours and
/// calls nothing but the token.
contract Verification is IVerification, EIP712 {
    uint256 private constant CHALLENGE_MAX = 3 days;
    uint256 private constant HARD_CAP_MAX = 3 days;
    uint256 private constant FINE_TIMES = 20;
    uint256 private constant REVEAL_FROM = 2;
    uint256 private constant REVEAL_UNTIL = 256;
    /// @dev EIP-2935: 8,191 block hashes, from one block after the block in question on.
    address private constant BLOCK_HASHES = 0x0000F90827F1C53a10cb7A02335B175320002935;

    /// @dev Five slots, the last of them only for a batch that was ever accused.
    struct Row {
        bytes32 root;
        bytes32 seed;
        uint48 value;
        uint48 left;
        uint56 audit;
        uint64 locked;
        uint8 n;
        BatchState state;
        uint32 buyerId;
        uint16 marketId;
        uint40 number;
        uint48 blockNumber;
        uint32 committedAt;
        /// Weight of the contested segments.
        uint24 contested;
        bool forfeit;
        uint128 accused;
        uint128 settled;
    }

    struct Accusation {
        uint24 weight;
        uint32 until;
    }

    struct Head {
        bytes32 preimage;
        uint40 position;
    }

    ILeaseBook private immutable BOOK;
    uint256 private immutable BOND_UNIT;
    uint256 private immutable CHALLENGE;
    uint256 private immutable HARD_CAP;
    uint256 private immutable LATE_SLASH;

    Verifier[2] private _verifiers;
    Head[2] private _heads;
    uint40 private _batchCount;
    mapping(bytes32 batchKey => Row) private _batches;
    mapping(bytes32 batchKey => mapping(uint256 i => Accusation)) private _accusations;
    mapping(bytes32 leaseKey => uint256) private _convictions;

    /// @param book_ Must name this contract as its Verification.
    /// @param verifiers_ Two different keys; LeaseBook need not know them.
    constructor(ILeaseBook book_, Verifier[2] memory verifiers_, AuditWindows memory windows_)
        EIP712("Verification", "1")
    {
        if (book_.verification() != address(this)) revert Verification_BadSetting("leaseBook");
        if (windows_.challenge == 0 || windows_.challenge > CHALLENGE_MAX) {
            revert Verification_BadSetting("challenge");
        }
        if (windows_.hardCap == 0 || windows_.hardCap > HARD_CAP_MAX) revert Verification_BadSetting("hardCap");
        // A bond must not leave while a batch can still cost it, however late its machine's last lease is committed.
        uint256 latest = uint256(book_.commitWindow()) + windows_.hardCap + windows_.lateSlash + windows_.challenge;
        if (latest > book_.windows().retire) revert Verification_BadSetting("lateSlash");
        if (verifiers_[0].signer == verifiers_[1].signer) revert Verification_BadSetting("verifiers");
        for (uint256 i; i < 2; ++i) {
            Verifier memory verifier = verifiers_[i];
            if (verifier.signer == address(0) || verifier.audits == address(0) || verifier.anchor == 0) {
                revert Verification_BadSetting("verifiers");
            }
            _verifiers[i] = verifier;
            _heads[i].preimage = verifier.anchor;
        }
        BOOK = book_;
        BOND_UNIT = book_.bondUnit();
        CHALLENGE = windows_.challenge;
        HARD_CAP = windows_.hardCap;
        LATE_SLASH = windows_.lateSlash;
    }

    // ---------------------------------------------------------------------------------------------- commit

    /// @inheritdoc IVerification
    function commitBatch(Commit calldata commit, bytes calldata signature) external {
        // Checks
        if (commit.n == 0 || commit.n > AuditLib.SEGMENTS_MAX || commit.root == 0) {
            revert Verification_BadBatch(commit.n);
        }
        address signer = msg.sender;
        if (signature.length != 0) signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(commit)), signature);
        if (!_isNode(commit.provider, signer)) revert Verification_BadCommit(commit.provider);
        (MachineKey machine,, bytes32 key) = _keysOf(commit.provider, commit.index, commit.seq, commit.batchNo);
        Row storage row = _batches[key];
        if (row.state != BatchState.NONE) revert Verification_WrongState(row.state);
        // LeaseBook's own checks; it calls nobody.
        (uint256 value, uint256 audit, uint32 buyerId, uint16 marketId) =
            BOOK.takeHeld(machine, commit.seq, commit.batchNo);
        uint256 times = (FINE_TIMES + commit.n - 1) / commit.n;
        uint256 locked = BOOK.lockBond(machine, value * times);
        // Effects
        row.root = commit.root;
        (row.value, row.left, row.audit, row.locked) = (uint48(value), uint48(value), uint56(audit), uint64(locked));
        (row.n, row.state) = (uint8(commit.n), BatchState.COMMITTED);
        (row.buyerId, row.marketId, row.number) = (buyerId, marketId, _batchCount++);
        (row.blockNumber, row.committedAt) = (uint48(block.number), uint32(block.timestamp));
        emit BatchCommitted({
            machineKey: machine,
            seq: commit.seq,
            batchNo: commit.batchNo,
            root: commit.root,
            n: commit.n,
            value: uint48(value),
            locked: uint64(locked)
        });
    }

    // ---------------------------------------------------------------------------------------------- draw

    /// @inheritdoc IVerification
    function reveal(address provider, uint32 index, uint24 seq, uint16 batchNo, bytes32 preimage) external {
        (MachineKey machine,, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        _requireState(row, BatchState.COMMITTED);
        (uint256 first, uint256 last) = (row.blockNumber + REVEAL_FROM, row.blockNumber + REVEAL_UNTIL);
        if (block.number < first || block.number > last) revert Verification_WrongBlock({first: first, last: last});
        bytes32 blockHash = blockhash(row.blockNumber + 1);
        if (blockHash == 0) revert Verification_NoBlockHash(row.blockNumber + 1);
        _usePreimage(row.number, preimage);
        _draw(row, machine, seq, batchNo, AuditLib.seedOf(blockHash, preimage, row.root, key), preimage);
    }

    /// @inheritdoc IVerification
    function fallbackSeed(address provider, uint32 index, uint24 seq, uint16 batchNo) external {
        (MachineKey machine,, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        _requireState(row, BatchState.COMMITTED);
        uint256 first = row.blockNumber + REVEAL_UNTIL + 1;
        if (block.number < first) revert Verification_WrongBlock({first: first, last: type(uint256).max});
        bytes32 blockHash = _olderBlockHash(row.blockNumber + 1);
        _draw(row, machine, seq, batchNo, AuditLib.fallbackSeedOf(blockHash, row.root, key), 0);
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

    function _draw(Row storage row, MachineKey machine, uint24 seq, uint16 batchNo, bytes32 seed, bytes32 preimage)
        private
    {
        (row.seed, row.state) = (seed, BatchState.DRAWN);
        emit BatchDrawn({machineKey: machine, seq: seq, batchNo: batchNo, seed: seed, preimage: preimage});
    }

    // ---------------------------------------------------------------------------------------------- mismatches

    /// @inheritdoc IVerification
    function accuse(
        Leaf calldata leaf,
        Sibling[] calldata proof,
        Verdict calldata verdict,
        bytes calldata first,
        bytes calldata second
    ) external {
        // Checks
        (MachineKey machine,, bytes32 key) = _keysOf(leaf.provider, leaf.index, leaf.seq, leaf.batchNo);
        Row storage row = _batches[key];
        _requireAccusable(row);
        bytes32 hashed = AuditLib.hashLeaf(address(this), leaf);
        (bool proven,) = AuditLib.prove(row.root, row.n, leaf.i, hashed, leaf.weight, proof);
        if (!proven) revert Verification_BadProof(leaf.i);
        _requireMismatch(leaf, hashed, verdict);
        _requireBoth(_hashTypedDataV4(AuditLib.hash(verdict)), first, second);
        uint128 bit = uint128(1) << leaf.i;
        if ((row.accused | row.settled) & bit != 0) revert Verification_WrongSegment(leaf.i);
        // Effects
        uint32 until = uint32(block.timestamp + CHALLENGE);
        row.accused |= bit;
        _accusations[key][leaf.i] = Accusation({weight: uint24(leaf.weight), until: until});
        emit SegmentAccused({machineKey: machine, seq: leaf.seq, batchNo: leaf.batchNo, i: leaf.i, until: until});
    }

    /// @inheritdoc IVerification
    function contest(Verdict calldata verdict, bytes calldata signature) external {
        (MachineKey machine,, bytes32 key) = _keysOf(verdict.provider, verdict.index, verdict.seq, verdict.batchNo);
        Row storage row = _batches[key];
        Accusation memory accusation = _accusationOf(row, key, verdict.i);
        if (block.timestamp > accusation.until) revert Verification_TooLate(accusation.until);
        bool differs =
            verdict.result == uint8(VerdictResult.MATCH) || verdict.result == uint8(VerdictResult.INCOMPARABLE);
        if (!differs) revert Verification_BadVerdict();
        address signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(verdict)), signature);
        if (!_isVerifier(signer)) revert Verification_NotVerifier(signer);
        _settle(row, verdict.i);
        row.contested += accusation.weight;
        emit AccusationContested({
            machineKey: machine, seq: verdict.seq, batchNo: verdict.batchNo, i: verdict.i, verifier: signer
        });
    }

    /// @inheritdoc IVerification
    function convict(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 i) external {
        // Checks
        (MachineKey machine, bytes32 leaseKey, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        Accusation memory accusation = _accusationOf(row, key, i);
        if (block.timestamp <= accusation.until) revert Verification_TooEarly(uint256(accusation.until) + 1);
        // Effects and interactions
        _settle(row, i);
        bool repeated = ++_convictions[leaseKey] > 1;
        uint256 price = uint256(row.value) * accusation.weight / AuditLib.WEIGHT_ONE;
        (uint256 refund, uint256 fine) = row.state == BatchState.FINAL_UNVERIFIED
            ? BOOK.slashBond(machine, row.buyerId, price, price * FINE_TIMES)
            : _punish(row, machine, price, repeated);
        emit SegmentConvicted({
            machineKey: machine, seq: seq, batchNo: batchNo, i: i, refund: uint48(refund), fine: uint64(fine)
        });
    }

    /// @dev A fault in a batch that is still here: the price out of its pay, the fine out of its lock.
    function _punish(Row storage row, MachineKey machine, uint256 price, bool repeated)
        private
        returns (uint256 refund, uint256 fine)
    {
        refund = price;
        fine = price * FINE_TIMES;
        if (fine > row.locked) fine = row.locked;
        // Locks are whole bond units, so what is freed for the fine is what the bond falls by.
        uint256 freed = (fine + BOND_UNIT - 1) / BOND_UNIT * BOND_UNIT;
        row.left -= uint48(refund);
        row.locked -= uint64(freed);
        if (repeated) row.forfeit = true;
        Payout memory payout;
        (payout.buyerId, payout.toBuyer) = (row.buyerId, uint64(refund));
        if (refund != 0) BOOK.payHeld(machine, payout);
        if (fine == 0) return (refund, 0);
        BOOK.unlockBond(machine, freed);
        (, fine) = BOOK.slashBond(machine, row.buyerId, 0, fine);
    }

    function _settle(Row storage row, uint256 i) private {
        uint128 bit = uint128(1) << uint8(i);
        (row.accused, row.settled) = (row.accused ^ bit, row.settled | bit);
    }

    function _accusationOf(Row storage row, bytes32 key, uint16 i) private view returns (Accusation memory) {
        if (i >= row.n || row.accused & (uint128(1) << i) == 0) revert Verification_WrongSegment(i);
        return _accusations[key][i];
    }

    /// @dev Accusing ends in time, or two verifiers could keep a batch's pay back for ever.
    function _requireAccusable(Row storage row) private view {
        uint256 closesAt = row.committedAt + HARD_CAP;
        if (row.state == BatchState.FINAL_UNVERIFIED) closesAt += LATE_SLASH;
        else _requireState(row, BatchState.DRAWN);
        if (block.timestamp > closesAt) revert Verification_TooLate(closesAt);
    }

    function _requireMismatch(Leaf calldata leaf, bytes32 hashed, Verdict calldata verdict) private pure {
        bool same = verdict.provider == leaf.provider && verdict.index == leaf.index && verdict.seq == leaf.seq
            && verdict.batchNo == leaf.batchNo && verdict.i == leaf.i && verdict.leaf == hashed;
        if (!same || verdict.result != uint8(VerdictResult.MISMATCH)) revert Verification_BadVerdict();
    }

    function _requireBoth(bytes32 digest, bytes calldata first, bytes calldata second) private view {
        (address a, address b) = (SigCheck.recover(digest, first), SigCheck.recover(digest, second));
        if (!_isVerifier(a)) revert Verification_NotVerifier(a);
        if (!_isVerifier(b) || b == a) revert Verification_NotVerifier(b);
    }

    // ---------------------------------------------------------------------------------------------- end

    /// @inheritdoc IVerification
    function finalize(Results calldata results, Opening[] calldata openings, bytes calldata signature) external {
        // Checks
        (MachineKey machine,, bytes32 key) = _keysOf(results.provider, results.index, results.seq, results.batchNo);
        Row storage row = _batches[key];
        (bool audited, address audits) = _requireEnding(row, results, signature);
        // Effects
        uint256 lost = audited ? _lost(row, results.incomparable, openings) : _priceOf(row, row.contested);
        bool whole = lost == 0 && row.settled == 0 && (!audited || results.incomparable == 0);
        Payout memory payout = _split(row, lost, audited, audits);
        BatchState state = whole ? BatchState.FINAL : BatchState.PARTIAL;
        if (!audited && !row.forfeit) state = BatchState.FINAL_UNVERIFIED;
        uint256 locked = row.locked;
        (row.state, row.left, row.audit, row.locked) = (state, 0, 0, 0);
        // Interactions
        uint256 fee = BOOK.payHeld(machine, payout);
        if (locked != 0) BOOK.unlockBond(machine, locked);
        emit BatchFinalised({
            machineKey: machine,
            seq: results.seq,
            batchNo: results.batchNo,
            state: state,
            provider: uint48(payout.pay - fee),
            market: uint48(fee),
            audits: uint56(payout.auditPay),
            buyer: payout.toBuyer,
            burnt: uint48(payout.burnt)
        });
    }

    /// @dev Whether it ends with results, and whose audits they were.
    function _requireEnding(Row storage row, Results calldata results, bytes calldata signature)
        private
        view
        returns (bool audited, address audits)
    {
        BatchState state = _stateOf(row);
        audited = signature.length != 0;
        bool open = state == BatchState.DRAWN || (state == BatchState.COMMITTED && !audited);
        if (!open) revert Verification_WrongState(state);
        if (!audited) {
            uint256 opensAt = row.committedAt + HARD_CAP;
            if (block.timestamp < opensAt) revert Verification_TooEarly(opensAt);
            return (false, address(0));
        }
        address signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(results)), signature);
        Verifier storage verifier = _verifiers[row.number % 2];
        if (signer != verifier.signer) {
            // The other one steps in only where the first left a batch lying: it cannot snatch its audit pay.
            verifier = _verifiers[(row.number + 1) % 2];
            bool late = block.timestamp >= row.committedAt + HARD_CAP / 2;
            if (signer != verifier.signer || !late) revert Verification_NotVerifier(signer);
        }
        audits = verifier.audits;
    }

    /// @dev What of the pay is the buyer's: the price of every segment that is incomparable or was contested.
    function _lost(Row storage row, uint128 incomparable, Opening[] calldata openings)
        private
        view
        returns (uint256)
    {
        uint256 all = (1 << row.n) - 1;
        if (incomparable > all) revert Verification_WrongSegment(row.n);
        uint256 toShow = incomparable & ~row.settled;
        if ((incomparable | row.settled) == all) return row.left;
        uint256 weight = row.contested;
        uint256 next;
        for (uint16 i; toShow != 0; ++i) {
            if (toShow & 1 != 0) {
                if (next == openings.length || openings[next].i != i) revert Verification_NotShown(i);
                Opening calldata shown = openings[next++];
                (bool proven,) = AuditLib.prove(row.root, row.n, i, shown.leaf, shown.weight, shown.proof);
                if (!proven) revert Verification_BadProof(i);
                weight += shown.weight;
            }
            toShow >>= 1;
        }
        return _priceOf(row, weight);
    }

    function _priceOf(Row storage row, uint256 weight) private view returns (uint256) {
        return uint256(row.value) * weight / AuditLib.WEIGHT_ONE;
    }

    /// @dev Conservation: pay + toBuyer + auditPay + burnt is what is left of the value and of the audit share.
    function _split(Row storage row, uint256 lost, bool audited, address audits)
        private
        view
        returns (Payout memory payout)
    {
        (uint256 left, uint256 audit) = (row.left, row.audit);
        // The weights of different segments sum to at most 10^6, and shares are rounded down.
        uint256 rest = left - lost;
        if (row.forfeit) (payout.burnt, rest, lost) = (uint64(left), 0, 0);
        uint256 auditPay = audited ? audit * rest / row.value : 0;
        (payout.buyerId, payout.marketId) = (row.buyerId, row.marketId);
        (payout.pay, payout.toBuyer) = (uint64(rest), uint64(lost + audit - auditPay));
        (payout.audits, payout.auditPay) = (audits, uint64(auditPay));
    }

    // ---------------------------------------------------------------------------------------------- lookups

    function _keysOf(address provider, uint32 index, uint24 seq, uint16 batchNo)
        private
        pure
        returns (MachineKey machine, bytes32 leaseKey, bytes32 key)
    {
        machine = machineKeyOf(provider, index);
        leaseKey = AuditLib.leaseKey(machine, seq);
        key = AuditLib.batchKey(leaseKey, batchNo);
    }

    function _stateOf(Row storage row) private view returns (BatchState) {
        return row.state == BatchState.DRAWN && row.accused != 0 ? BatchState.ACCUSED : row.state;
    }

    function _requireState(Row storage row, BatchState needed) private view {
        if (row.state != needed) revert Verification_WrongState(row.state);
    }

    function _isVerifier(address signer) private view returns (bool) {
        return signer != address(0) && (signer == _verifiers[0].signer || signer == _verifiers[1].signer);
    }

    /// @dev As LeaseBook reads its delegates.
    function _isNode(address provider, address signer) private view returns (bool) {
        if (signer == address(0)) return false;
        if (signer == provider) return true;
        Delegate memory delegate = BOOK.delegateOf(signer);
        bool good =
            block.timestamp < delegate.expiry && (delegate.revokedAt == 0 || block.timestamp < delegate.revokedAt);
        return good && delegate.account == provider && delegate.role == Role.Node;
    }

    // ---------------------------------------------------------------------------------------------- views

    /// @inheritdoc IVerification
    function batchOf(address provider, uint32 index, uint24 seq, uint16 batchNo)
        external
        view
        returns (Batch memory)
    {
        (,, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        return Batch({
            state: _stateOf(row),
            n: row.n,
            root: row.root,
            seed: row.seed,
            value: row.value,
            left: row.left,
            audit: row.audit,
            locked: row.locked,
            number: row.number,
            blockNumber: row.blockNumber,
            committedAt: row.committedAt,
            accused: row.accused,
            settled: row.settled
        });
    }

    /// @inheritdoc IVerification
    function verifiers() external view returns (Verifier[2] memory) {
        return _verifiers;
    }

    /// @inheritdoc IVerification
    function auditWindows() external view returns (AuditWindows memory) {
        return AuditWindows({challenge: uint32(CHALLENGE), hardCap: uint32(HARD_CAP), lateSlash: uint32(LATE_SLASH)});
    }

    /// @inheritdoc IVerification
    function batchCount() external view returns (uint40) {
        return _batchCount;
    }

    /// @inheritdoc IVerification
    function headOf(uint256 verifier) external view returns (bytes32 preimage, uint40 position) {
        return (_heads[verifier].preimage, _heads[verifier].position);
    }

    /// @inheritdoc IVerification
    function leaseBook() external view returns (address) {
        return address(BOOK);
    }

    /// @inheritdoc IVerification
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
