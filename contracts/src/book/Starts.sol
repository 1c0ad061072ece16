// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {READY} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Accept, Ready} from "../types/Orders.sol";
import {Ledger} from "./Ledger.sol";

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
        address signer = SigCheck.recover(_digest(OrderHash.hash(accepted)), acceptSignature);
        MachineKey key = machineKeyOf(ready.provider, ready.index);
        (LeaseWord word, SkipCode code) = _start(key, ready.seq, accepted.startedAt, signer);
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

    function _requireReadySigned(Ready calldata ready, bytes calldata signature) private view {
        address signer = SigCheck.recover(_digest(OrderHash.hash(ready)), signature);
        if (signer == address(0) || !_speaksFor(ready.provider, signer, Role.Node, block.timestamp)) {
            revert LeaseBook_BadSignature(ready.provider);
        }
    }
}
