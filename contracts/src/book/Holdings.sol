// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseHolding} from "../interfaces/ILeaseHolding.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {Held, Payout} from "../types/Audits.sol";
import {HELD_SLOTS, HeldWord} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Ledger} from "./Ledger.sol";

/// @title Holdings: held pay, and what Verification may do with it and with bonds
/// @dev Verification's code is fixed, and still it is not trusted with the vault: it can pay out no more than it took
/// (`_batched`), touches no cash but by adding to it, and takes of a bond only what nothing else locks.
abstract contract Holdings is ILeaseHolding, Ledger {
    modifier onlyVerification() {
        if (msg.sender != VERIFICATION || msg.sender == address(0)) revert LeaseBook_NotOwner(msg.sender);
        _;
    }

    /// @inheritdoc ILeaseHolding
    function returnHeld(address provider, uint32 index, uint24 seq) external {
        MachineKey key = machineKeyOf(provider, index);
        HeldWord held = _heldPay(key, seq);
        if (held.endedAt() == 0) revert LeaseBook_WrongStatus(_leases[key].status());
        uint256 opensAt = held.endedAt() + COMMIT_WINDOW + 1;
        if (block.timestamp < opensAt) revert LeaseBook_TooEarly(opensAt);
        _held[key][seq % HELD_SLOTS] = HeldWord.wrap(0);
        uint256 amount = held.amount() + held.audit();
        _credit(_addressOf[held.buyerId()], amount);
        emit HeldReturned({machineKey: key, seq: seq, amount: uint64(amount)});
    }

    /// @inheritdoc ILeaseHolding
    function takeHeld(MachineKey key, uint24 seq, uint16 batchNo)
        external
        onlyVerification
        returns (uint256 amount, uint256 audit, uint32 buyerId, uint16 marketId)
    {
        HeldWord held = _heldPay(key, seq);
        if (batchNo != held.nextBatchNo()) revert LeaseBook_WrongBatch(held.nextBatchNo());
        if (held.endedAt() != 0 && block.timestamp > held.endedAt() + COMMIT_WINDOW) {
            revert LeaseBook_TooLate(held.endedAt() + COMMIT_WINDOW);
        }
        (amount, buyerId, marketId) = (held.amount(), held.buyerId(), held.marketId());
        audit = SettlementLib.shareDown(amount, held.auditBps());
        // A lease that ended holds just its share for the rest, see {_endHeld}: nothing stays in the slot.
        _held[key][seq % HELD_SLOTS] = held.endedAt() == 0 ? held.taken(audit) : HeldWord.wrap(0);
        _batched += uint64(amount + audit);
    }

    /// @inheritdoc ILeaseHolding
    function payHeld(MachineKey key, Payout calldata payout)
        external
        onlyVerification
        nonReentrant
        returns (uint256 fee)
    {
        _batched -= payout.pay + payout.toBuyer + payout.auditPay + payout.burnt;
        fee = _share(_providerOf(key), payout.marketId, payout.pay);
        if (payout.toBuyer != 0) _credit(_addressOf[payout.buyerId], payout.toBuyer);
        if (payout.auditPay != 0) _credit(payout.audits, payout.auditPay);
        if (payout.burnt != 0) _burn(payout.burnt);
    }

    /// @inheritdoc ILeaseHolding
    function lockBond(MachineKey key, uint256 amount) external onlyVerification returns (uint256 locked) {
        ProductWord machine = _machines[key];
        // Whole units, since the bond falls by them: what one lock secures is never cut by another one's slash.
        locked = (amount + BOND_UNIT - 1) / BOND_UNIT * BOND_UNIT;
        uint256 free = _freeBond(_leases[key], machine) * BOND_UNIT;
        if (free < locked) revert LeaseBook_BondTooLow({have: free, need: locked});
        _machines[key] = machine.withLocked(machine.locked() + locked);
    }

    /// @inheritdoc ILeaseHolding
    function unlockBond(MachineKey key, uint256 amount) external onlyVerification {
        ProductWord machine = _machines[key];
        _machines[key] = machine.withLocked(machine.locked() - amount);
    }

    /// @inheritdoc ILeaseHolding
    function slashBond(MachineKey key, uint32 buyerId, uint256 refund, uint256 fine)
        external
        onlyVerification
        nonReentrant
        returns (uint256 refunded, uint256 burnt)
    {
        LeaseWord word = _leases[key];
        uint256 free = _freeBond(word, _machines[key]) * BOND_UNIT;
        refunded = refund < free ? refund : free;
        burnt = fine < free - refunded ? fine : free - refunded;
        uint256 units = (refunded + burnt + BOND_UNIT - 1) / BOND_UNIT;
        if (units == 0) return (0, 0);
        _leases[key] = word.withBond(word.bond() - units);
        if (refunded != 0) _credit(_addressOf[buyerId], refunded);
        _credit(_providerOf(key), units * BOND_UNIT - refunded - burnt);
        emit BondSlashed({machineKey: key, refunded: uint64(refunded), burnt: uint64(burnt)});
        if (burnt != 0) _burn(burnt);
    }

    function _heldPay(MachineKey key, uint24 seq) private view returns (HeldWord held) {
        held = _held[key][seq % HELD_SLOTS];
        if (held.seq() != seq || held.amount() == 0) revert LeaseBook_NothingHeld(seq);
    }

    // ----------------------------------------------------------------------------------------------- views

    /// @inheritdoc ILeaseHolding
    function heldOf(address provider, uint32 index, uint24 seq) external view returns (Held memory found) {
        HeldWord held = _held[machineKeyOf(provider, index)][seq % HELD_SLOTS];
        if (held.seq() != seq) return found;
        return Held({
            amount: uint48(held.amount()),
            audit: uint56(held.audit()),
            buyer: _addressOf[held.buyerId()],
            marketId: held.marketId(),
            auditBps: held.auditBps(),
            endedAt: held.endedAt(),
            nextBatchNo: held.nextBatchNo()
        });
    }

    /// @inheritdoc ILeaseHolding
    function batched() external view returns (uint64) {
        return _batched;
    }

    /// @inheritdoc ILeaseHolding
    function verification() external view returns (address) {
        return VERIFICATION;
    }

    /// @inheritdoc ILeaseHolding
    function commitWindow() external view returns (uint32) {
        return uint32(COMMIT_WINDOW);
    }
}
