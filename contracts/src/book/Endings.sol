// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseOffice} from "../interfaces/ILeaseOffice.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {FIRM, INTERRUPTIBLE, READY} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {CloseReason, Role, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Voucher} from "../types/Orders.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Product} from "../types/Rows.sol";
import {Machines} from "./Machines.sol";

/// @title Endings: the one-sided ends of a lease
/// @dev Each state has an exit that anyone may take: {refundUnstarted} and {expire}.
abstract contract Endings is Machines {
    /// @inheritdoc ILeaseOffice
    function stop(address provider, uint32 index, uint24 seq) external {
        (MachineKey key, LeaseWord word) = _leaseIn(provider, index, seq, Status.Active);
        if (_accounts[msg.sender].id() != word.buyerId()) revert LeaseBook_NotOwner(msg.sender);
        if (word.has(FIRM)) _tellEnd(key, word, CloseReason.STOPPED);
        uint256 used = block.timestamp - word.start();
        uint256 ceiling = word.cap();
        word = word.withStatus(Status.Stopped);
        if (used < word.duration()) {
            // The frozen ceiling becomes the cap and the stop the end: from now on all of the cap has accrued.
            ceiling = SettlementLib.accrued(word.cap(), used, word.duration());
            _credit(msg.sender, word.cap() - ceiling);
            word = word.withCap(ceiling).withDuration(used);
        }
        _leases[key] = word;
        emit LeaseStopped({machineKey: key, seq: seq, ceiling: uint48(ceiling)});
    }

    /// @inheritdoc ILeaseOffice
    function giveNotice(address provider, uint32 index, uint24 seq) external {
        (MachineKey key,) = _leaseIn(provider, index, seq, Status.Active);
        if (!_speaksFor(provider, msg.sender, Role.Node, block.timestamp)) revert LeaseBook_NotOwner(msg.sender);
        uint32 noticeAt = _machines[key].noticeAt(seq);
        if (noticeAt != 0) revert LeaseBook_NoticeGiven(noticeAt);
        _machines[key] = _machines[key].withNotice(seq, block.timestamp);
        uint256 releasableAt = block.timestamp + _products[_machines[key].product()].notice;
        emit NoticeGiven({machineKey: key, seq: seq, releasableAt: uint64(releasableAt)});
    }

    /// @inheritdoc ILeaseOffice
    function release(Voucher calldata voucher, bytes calldata signature, CloseReason reason) external {
        bool named =
            reason == CloseReason.RELEASED || reason == CloseReason.NO_VOUCHERS || reason == CloseReason.HEALTH;
        if (!named) revert LeaseBook_BadReason(reason);
        (MachineKey key, LeaseWord word) = _lease(voucher.provider, voucher.index, voucher.seq);
        _requireMayRelease(voucher.provider, key, word);
        if (word.status() == Status.Funded) {
            word = _penalise(key, word, _noShow(word));
            _free(key, word, _addressOf[word.buyerId()], 0, CloseReason.RELEASED_UNSTARTED);
            return;
        }
        if (!word.isRunning()) revert LeaseBook_WrongStatus(word.status());

        address buyer = _addressOf[word.buyerId()];
        uint256 paid = word.paid();
        if (voucher.amount > paid) {
            bytes32 digest = _digest(OrderHash.hash(voucher, OrderHash.VOUCHER));
            if (_accountBehind(word.buyerId(), digest, signature, word.start()) == address(0)) {
                revert LeaseBook_BadSignature(buyer);
            }
            paid = SettlementLib.paidAfter(voucher.amount, _ceiling(word), paid);
            _pay(key, word, paid);
        }
        if (word.status() == Status.Stopped) {
            reason = CloseReason.STOPPED;
        } else if (block.timestamp >= _end(word)) {
            reason = CloseReason.END_OF_TIME;
        } else {
            uint256 penalty;
            (penalty, reason) = _priceOfLeaving(key, word, word.cap() - paid, reason);
            word = _penalise(key, word, penalty);
        }
        _free(key, word, buyer, paid, reason);
    }

    /// @inheritdoc ILeaseOffice
    function refundUnstarted(address provider, uint32 index, uint24 seq) external {
        (MachineKey key, LeaseWord word) = _leaseIn(provider, index, seq, Status.Funded);
        if (block.timestamp <= word.start()) revert LeaseBook_TooEarly(word.start() + 1);
        address buyer = _addressOf[word.buyerId()];
        uint256 amount = _noShow(word);
        if (word.has(READY)) {
            _credit(provider, amount);
            _free(key, word, buyer, amount, CloseReason.BUYER_NO_SHOW);
        } else {
            _free(key, _penalise(key, word, amount), buyer, 0, CloseReason.PROVIDER_NO_SHOW);
        }
    }

    /// @inheritdoc ILeaseOffice
    function expire(address provider, uint32 index, uint24 seq) external {
        (MachineKey key, LeaseWord word) = _lease(provider, index, seq);
        if (!word.isRunning()) revert LeaseBook_WrongStatus(word.status());
        uint256 opensAt = _end(word) + CLAIM_WINDOW + 1;
        if (block.timestamp < opensAt) revert LeaseBook_TooEarly(opensAt);
        _free(key, word, _addressOf[word.buyerId()], word.paid(), CloseReason.EXPIRED);
    }

    /// @dev What a side that failed to show up owes; nothing of a firm lease, where its margin does.
    function _noShow(LeaseWord word) private view returns (uint256) {
        return word.has(FIRM) ? 0 : SettlementLib.noShow(word.cap(), word.duration(), NO_SHOW);
    }

    /// @dev What leaving now costs, and how it is called: nothing after an interruptible lease's notice, nor of a firm
    /// lease, whose margin pays.
    function _priceOfLeaving(MachineKey key, LeaseWord word, uint256 rest, CloseReason reason)
        private
        view
        returns (uint256, CloseReason)
    {
        if (word.has(FIRM)) return (0, reason);
        if (_noticeHasRun(key, word)) return (0, CloseReason.NOTICE);
        return (SettlementLib.shareUp(rest, _products[_machines[key].product()].penaltyBps), reason);
    }

    function _noticeHasRun(MachineKey key, LeaseWord word) private view returns (bool) {
        ProductWord machine = _machines[key];
        Product storage rules = _products[machine.product()];
        uint256 noticeAt = machine.noticeAt(word.seq());
        if (!word.has(INTERRUPTIBLE) || noticeAt == 0) return false;
        return block.timestamp >= noticeAt + rules.notice;
    }

    /// @dev The node that gave notice also ends it, since nobody keeps the wallet's key there: then and only then
    /// leaving touches no bond.
    function _requireMayRelease(address provider, MachineKey key, LeaseWord word) private view {
        if (msg.sender == provider) return;
        bool free = word.status() == Status.Active && _noticeHasRun(key, word);
        if (!free || !_speaksFor(provider, msg.sender, Role.Node, block.timestamp)) {
            revert LeaseBook_NotOwner(msg.sender);
        }
    }

    /// @dev Takes `amount` (at most what is free) from the bond for the buyer. The bond counts whole tokens, so it
    /// falls by whole ones and the change becomes the provider's cash.
    function _penalise(MachineKey key, LeaseWord word, uint256 amount) private returns (LeaseWord) {
        uint256 free = _freeBond(word, _machines[key]) * BOND_UNIT;
        if (amount > free) amount = free;
        if (amount == 0) return word;
        uint256 units = (amount + BOND_UNIT - 1) / BOND_UNIT;
        _credit(_addressOf[word.buyerId()], amount);
        _credit(_providerOf(key), units * BOND_UNIT - amount);
        emit PenaltyPaid({machineKey: key, seq: word.seq(), amount: uint64(amount)});
        return word.withBond(word.bond() - units);
    }

    // ---------------------------------------------------------------------------------------------- lookups

    function _lease(address provider, uint32 index, uint24 seq)
        private
        view
        returns (MachineKey key, LeaseWord word)
    {
        key = machineKeyOf(provider, index);
        word = _leases[key];
        if (word.seq() != seq) revert LeaseBook_WrongLease(word.seq());
    }

    function _leaseIn(address provider, uint32 index, uint24 seq, Status needed)
        private
        view
        returns (MachineKey key, LeaseWord word)
    {
        (key, word) = _lease(provider, index, seq);
        _requireStatus(word, needed);
    }
}
