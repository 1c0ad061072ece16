// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {PackedBatch} from "../libraries/PackedBatch.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {READY} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Accept, Ready} from "../types/Orders.sol";
import {Ledger} from "./Ledger.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Starts: from a funded lease to one that runs
abstract contract Starts is ILeaseTrading, Ledger {
    /// @inheritdoc ILeaseTrading
    function postReady(Ready calldata ready, bytes calldata signature) external {
        MachineKey key = machineKeyOf(ready.provider, ready.index);
        LeaseWord word = _leases[key];
        _requireStatus(word, Status.Funded);
        if (word.seq() != ready.seq) revert LeaseBook_WrongLease(word.seq());
        if (block.timestamp > word.start()) revert LeaseBook_TooLate(word.start());
        if (word.has(READY)) revert LeaseBook_WrongStatus(Status.Funded);
        _requireReadySigned(ready, signature);
        _leases[key] = word.withFlag(READY);
        emit LeaseReady({machineKey: key, seq: ready.seq, runtimeHash: ready.runtimeHash});
    }

    /// @inheritdoc ILeaseTrading
    function begin(
        Ready calldata ready,
        bytes calldata readySignature,
        Accept calldata accepted,
        bytes calldata acceptSignature
    ) external {
        bool same = accepted.provider == ready.provider && accepted.index == ready.index && accepted.seq == ready.seq;
        if (!same) revert LeaseBook_WrongLease(ready.seq);
        (LeaseWord word, SkipCode code) = _start(_domainSeparatorV4(), accepted, acceptSignature);
        if (code == SkipCode.WRONG_STATE) {
            _requireStatus(word, Status.Funded);
            revert LeaseBook_WrongLease(word.seq());
        }
        if (code == SkipCode.EXPIRED) revert LeaseBook_TooLate(word.start());
        if (code == SkipCode.START_OUT_OF_RANGE) {
            revert LeaseBook_StartOutOfRange({
                startedAt: accepted.startedAt, earliest: word.start() - START_WINDOW, latest: block.timestamp
            });
        }
        if (code != SkipCode.NONE) revert LeaseBook_BadSignature(_addressOf[word.buyerId()]);
        _requireReadySigned(ready, readySignature);
    }

    /// @inheritdoc ILeaseTrading
    function beginPacked(address provider, bytes calldata data) external {
        _requireEntries(data.length, PackedBatch.START_BYTES);
        if (!_speaksFor(provider, msg.sender, Role.Node, block.timestamp)) revert LeaseBook_NotOwner(msg.sender);
        bytes32 domainSeparator = _domainSeparatorV4();
        Accept memory accepted;
        accepted.provider = provider;
        uint256 i;
        for (uint256 offset; offset < data.length; offset += PackedBatch.START_BYTES) {
            PackedBatch.readStart(data, offset, accepted);
            (, SkipCode code) = _start(domainSeparator, accepted, PackedBatch.startSignature(data, offset));
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
            }
        }
    }

    /// @dev Starts the lease if the buyer accepted; writes nothing unless it returns NONE.
    /// @return word The lease as it was.
    function _start(bytes32 domainSeparator, Accept memory accepted, bytes calldata signature)
        private
        returns (LeaseWord word, SkipCode)
    {
        MachineKey key = machineKeyOf(accepted.provider, accepted.index);
        word = _leases[key];
        if (word.status() != Status.Funded || word.seq() != accepted.seq) return (word, SkipCode.WRONG_STATE);
        if (block.timestamp > word.start()) return (word, SkipCode.EXPIRED);
        uint256 startedAt = accepted.startedAt;
        if (startedAt < word.start() - START_WINDOW || startedAt > block.timestamp) {
            return (word, SkipCode.START_OUT_OF_RANGE);
        }
        bytes32 digest = MessageHashUtils.toTypedDataHash(domainSeparator, OrderHash.hash(accepted));
        if (!_isBuyers(_addressOf[word.buyerId()], SigCheck.recover(digest, signature), startedAt)) {
            return (word, SkipCode.BAD_ACCEPT_SIGNATURE);
        }
        _leases[key] = word.withStart(startedAt).withStatus(Status.Active);
        emit LeaseStarted({machineKey: key, seq: accepted.seq, startedAt: accepted.startedAt});
        return (word, SkipCode.NONE);
    }

    /// @dev ERC-1271 is left out on purpose, see {_accountBehind}.
    function _isBuyers(address buyer, address signer, uint256 when) private view returns (bool) {
        return signer != address(0) && _speaksFor(buyer, signer, Role.Session, when);
    }

    function _requireReadySigned(Ready calldata ready, bytes calldata signature) private view {
        address signer = SigCheck.recover(_digest(OrderHash.hash(ready)), signature);
        if (signer == address(0) || !_speaksFor(ready.provider, signer, Role.Node, block.timestamp)) {
            revert LeaseBook_BadSignature(ready.provider);
        }
    }
}
