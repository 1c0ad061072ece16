// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseHolding} from "../interfaces/ILeaseHolding.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {Held, Payout, Slash} from "../types/Audits.sol";
import {HELD_SLOTS, HeldWord} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Role} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Ledger} from "./Ledger.sol";

/// @title Holdings: held pay, and what Verification may do with it and with bonds
/// @dev Verification's code is fixed, and still it is not trusted with the vault: it can pay out no more than it took
/// (`_batched`), touches no cash but by adding to it, and takes of a bond only what nothing else locks.
abstract contract Holdings is ILeaseHolding, Ledger {
    /// @dev Nobody gets more than a tenth of a fine, whatever the module says: who reports a fault must not live off it.
    uint256 private constant BOUNTY_PART = 10;

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
    function takeHeld(MachineKey key, uint24 seq, uint16 batchNo, address signer, uint256 times)
        external
        onlyVerification
        returns (uint256 amount, uint256 auditBps, uint32 buyerId, uint16 marketId, uint256 units)
    {
        address provider = _providerOf(key);
        if (!_speaksFor(provider, signer, Role.Node, block.timestamp)) revert LeaseBook_NotOwner(signer);
        if (_barred[provider]) revert LeaseBook_Barred(provider);
        HeldWord held = _heldPay(key, seq);
        if (batchNo != held.nextBatchNo()) revert LeaseBook_WrongBatch(held.nextBatchNo());
        if (held.endedAt() != 0 && block.timestamp > held.endedAt() + COMMIT_WINDOW) {
            revert LeaseBook_TooLate(held.endedAt() + COMMIT_WINDOW);
        }
        (amount, auditBps, buyerId, marketId) = (held.amount(), held.auditBps(), held.buyerId(), held.marketId());
        uint256 audit = SettlementLib.shareDown(amount, auditBps);
        // A lease that ended holds just its share for the rest, see {_endHeld}: nothing stays in the slot.
        _held[key][seq % HELD_SLOTS] = held.endedAt() == 0 ? held.taken(audit) : HeldWord.wrap(0);
        _batched += uint64(amount + audit);
        units = _lock(key, amount * times);
    }

    /// @dev Whole units, since the bond falls by them: what one lock secures is never cut by another one's slash.
    function _lock(MachineKey key, uint256 amount) private returns (uint256 units) {
        ProductWord machine = _machines[key];
        units = (amount + BOND_UNIT - 1) / BOND_UNIT;
        uint256 free = _freeBond(_leases[key], machine);
        if (free < units) revert LeaseBook_BondTooLow({have: free * BOND_UNIT, need: units * BOND_UNIT});
        _machines[key] = machine.withLocked(machine.locked() + units * BOND_UNIT);
    }

    /// @inheritdoc ILeaseHolding
    function payHeld(MachineKey key, Payout calldata payout)
        external
        onlyVerification
        nonReentrant
        returns (uint256 fee)
    {
        _batched -= payout.pay + payout.toBuyer + payout.auditPay + payout.burnt;
        if (payout.unlock != 0) _unlock(key, payout.unlock);
        fee = _share(_providerOf(key), payout.marketId, payout.pay);
        if (payout.toBuyer != 0) _credit(_addressOf[payout.buyerId], payout.toBuyer);
        if (payout.auditPay != 0) _credit(payout.audits, payout.auditPay);
        if (payout.burnt != 0) _burn(payout.burnt);
    }

    function _unlock(MachineKey key, uint256 units) private returns (ProductWord machine) {
        machine = _machines[key];
        machine = machine.withLocked(machine.locked() - units * BOND_UNIT);
        _machines[key] = machine;
    }

    /// @inheritdoc ILeaseHolding
    function slashBond(MachineKey key, Slash calldata slash)
        external
        onlyVerification
        nonReentrant
        returns (uint256 refunded, uint256 fine, uint256 bounty)
    {
        address provider = _providerOf(key);
        if (slash.bar) _barred[provider] = true;
        LeaseWord word = _leases[key];
        uint256 free = _freeBond(word, _unlock(key, slash.unlock)) * BOND_UNIT;
        refunded = slash.fromBond < free ? slash.fromBond : free;
        fine = slash.fine < free - refunded ? slash.fine : free - refunded;
        bounty = slash.bounty < fine / BOUNTY_PART ? slash.bounty : fine / BOUNTY_PART;
        uint256 units = (refunded + fine + BOND_UNIT - 1) / BOND_UNIT;
        _leases[key] = word.withBond(word.bond() - units);
        _batched -= slash.fromBatch;
        uint256 toBuyer = slash.fromBatch + refunded;
        if (toBuyer != 0) _credit(_addressOf[slash.buyerId], toBuyer);
        if (bounty != 0) _credit(slash.audits, bounty);
        uint256 change = units * BOND_UNIT - refunded - fine;
        if (change != 0) _credit(provider, change);
        if (units != 0) {
            emit BondSlashed({machineKey: key, refunded: uint64(refunded), burnt: uint64(fine - bounty)});
        }
        if (fine != bounty) _burn(fine - bounty);
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
    function isBarred(address provider) external view returns (bool) {
        return _barred[provider];
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
