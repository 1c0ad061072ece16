// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {IVerification} from "../interfaces/IVerification.sol";
import {AuditLib} from "../libraries/AuditLib.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {AuditWindows, BatchState, Leaf, Sibling, Verifier} from "../types/Audits.sol";
import {BatchWord} from "../types/BatchWord.sol";
import {ChallengeWord, DisputeWord} from "../types/DisputeWord.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title VerificationBase: all that Verification stores, and what its calls share
abstract contract VerificationBase is IVerification, EIP712 {
    uint256 private constant CHALLENGE_MAX = 3 days;
    uint256 private constant HARD_CAP_MAX = 3 days;
    uint256 private constant ANSWER_MAX = 1 days;
    uint256 internal constant FINE_TIMES = 20;

    /// @dev Two slots at the commitment, a third at the draw; the others only where there is a quarrel.
    struct Row {
        bytes32 root;
        BatchWord word;
        bytes32 seed;
        DisputeWord disputes;
        ChallengeWord challenges;
    }

    struct Head {
        bytes32 preimage;
        uint40 position;
    }

    ILeaseBook internal immutable BOOK;
    uint256 internal immutable BOND_UNIT;
    uint256 internal immutable CHALLENGE;
    uint256 internal immutable HARD_CAP;
    uint256 internal immutable LATE_SLASH;
    uint256 internal immutable ANSWER;
    address private immutable SIGNER_0;
    address private immutable SIGNER_1;
    bytes32 private immutable ANCHOR_0;
    bytes32 private immutable ANCHOR_1;
    address private immutable AUDITS_0;
    address private immutable AUDITS_1;

    Head[2] internal _heads;
    uint40 internal _batchCount;
    mapping(bytes32 batchKey => Row) internal _batches;

    constructor(ILeaseBook book_, Verifier[2] memory verifiers_, AuditWindows memory windows_)
        EIP712("Verification", "1")
    {
        if (book_.verification() != address(this)) revert Verification_BadSetting("leaseBook");
        if (windows_.challenge == 0 || windows_.challenge > CHALLENGE_MAX) {
            revert Verification_BadSetting("challenge");
        }
        if (windows_.hardCap == 0 || windows_.hardCap > HARD_CAP_MAX) revert Verification_BadSetting("hardCap");
        if (windows_.answer == 0 || windows_.answer > ANSWER_MAX) revert Verification_BadSetting("answer");
        // A bond must not leave while a batch can still cost it, however late its machine's last lease is committed.
        uint256 latest = uint256(book_.commitWindow()) + windows_.hardCap + windows_.lateSlash + windows_.challenge;
        if (latest > book_.windows().retire) revert Verification_BadSetting("lateSlash");
        if (verifiers_[0].signer == verifiers_[1].signer) revert Verification_BadSetting("verifiers");
        for (uint256 i; i < 2; ++i) {
            Verifier memory verifier = verifiers_[i];
            if (verifier.signer == address(0) || verifier.audits == address(0) || verifier.anchor == 0) {
                revert Verification_BadSetting("verifiers");
            }
            _heads[i].preimage = verifier.anchor;
        }
        (SIGNER_0, SIGNER_1) = (verifiers_[0].signer, verifiers_[1].signer);
        (ANCHOR_0, ANCHOR_1) = (verifiers_[0].anchor, verifiers_[1].anchor);
        (AUDITS_0, AUDITS_1) = (verifiers_[0].audits, verifiers_[1].audits);
        BOOK = book_;
        BOND_UNIT = book_.bondUnit();
        CHALLENGE = windows_.challenge;
        HARD_CAP = windows_.hardCap;
        LATE_SLASH = windows_.lateSlash;
        ANSWER = windows_.answer;
    }

    // ---------------------------------------------------------------------------------------------- who

    function _signerOf(uint256 verifier) internal view returns (address) {
        return verifier % 2 == 0 ? SIGNER_0 : SIGNER_1;
    }

    /// @dev Whose cash a batch's audit share, and a fine's bounty, becomes.
    function _auditsOf(uint256 verifier) internal view returns (address) {
        return verifier % 2 == 0 ? AUDITS_0 : AUDITS_1;
    }

    function _verifier(uint256 which) internal view returns (Verifier memory) {
        bytes32 anchor = which == 0 ? ANCHOR_0 : ANCHOR_1;
        return Verifier({signer: _signerOf(which), anchor: anchor, audits: _auditsOf(which)});
    }

    function _isVerifier(address signer) internal view returns (bool) {
        return signer != address(0) && (signer == SIGNER_0 || signer == SIGNER_1);
    }

    // ---------------------------------------------------------------------------------------------- which

    function _keysOf(address provider, uint32 index, uint24 seq, uint16 batchNo)
        internal
        pure
        returns (MachineKey machine, bytes32 leaseKey, bytes32 key)
    {
        machine = machineKeyOf(provider, index);
        leaseKey = AuditLib.leaseKey(machine, seq);
        key = AuditLib.batchKey(leaseKey, batchNo);
    }

    function _rowOf(address provider, uint32 index, uint24 seq, uint16 batchNo)
        internal
        view
        returns (MachineKey machine, Row storage row)
    {
        bytes32 key;
        (machine,, key) = _keysOf(provider, index, seq, batchNo);
        row = _batches[key];
    }

    /// @dev Whether the batch is over: what is late then is not an error of who sent it.
    function _hasEnded(BatchState state) internal pure returns (bool) {
        return state >= BatchState.FINAL;
    }

    function _requireState(BatchWord word, BatchState needed) internal pure {
        BatchState found = word.state();
        if (found != needed) revert Verification_WrongState(found);
    }

    // ---------------------------------------------------------------------------------------------- how much

    function _priceOf(BatchWord word, uint256 weight) internal pure returns (uint256) {
        return word.value() * weight / AuditLib.WEIGHT_ONE;
    }

    /// @dev As LeaseBook took it, beside the value.
    function _auditOf(BatchWord word) internal pure returns (uint256) {
        return SettlementLib.shareDown(word.value(), word.auditBps());
    }

    /// @dev The price of `weight` goes back to the buyer; of all that goes back the weights sum to 10^6 at most.
    function _giveBack(BatchWord word, DisputeWord disputes, uint256 weight)
        internal
        pure
        returns (DisputeWord, uint256 price)
    {
        uint256 before = disputes.returned();
        uint256 sum = before + weight;
        if (sum > AuditLib.WEIGHT_ONE) sum = AuditLib.WEIGHT_ONE;
        return (disputes.withReturned(sum), _priceOf(word, sum) - _priceOf(word, before));
    }

    // ---------------------------------------------------------------------------------------------- leaves

    function _requireLeaf(bytes32 root, BatchWord word, Leaf calldata leaf, Sibling[] calldata proof)
        internal
        view
        returns (bytes32 hashed, uint256 start)
    {
        hashed = AuditLib.hashLeaf(address(this), leaf);
        start = _requireProof(root, word, leaf.i, hashed, leaf.weight, proof);
    }

    function _requireProof(
        bytes32 root,
        BatchWord word,
        uint16 i,
        bytes32 leaf,
        uint256 weight,
        Sibling[] calldata proof
    ) internal pure returns (uint256 start) {
        bool proven;
        (proven, start) = AuditLib.prove(root, word.n(), i, leaf, weight, proof);
        if (!proven) revert Verification_BadProof(i);
    }
}
