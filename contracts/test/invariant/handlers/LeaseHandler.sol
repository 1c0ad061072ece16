// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {INTERRUPTIBLE, READY} from "../../../src/types/Flags.sol";
import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../../../src/types/Orders.sol";
import {Lease, Machine} from "../../../src/types/Rows.sol";
import {MachineHandler} from "./MachineHandler.sol";

/// @dev Leases open, start, pay and end in every way there is.
contract LeaseHandler is MachineHandler {
    // ------------------------------------------------------------------------------------------------ open

    function open(uint256 seed, uint64 price, uint24 duration) external {
        (uint256 i, Slot memory slot, Machine memory machine) = _pick(seed, Status.Free, Status.Free);
        price = uint64(bound(price, 1000, 4_000_000));
        SignedMatch memory entry = _orders(seed, slot, price, duration);
        uint256 cashBefore = _cash(entry.bid.buyer);
        _submit(seed % 5 == 0 ? entry.bid.buyer : matcher, price, entry);

        Lease memory lease = book.leaseOf(slot.provider, slot.index, entry.ask.seq);
        if (machine.status != Status.Free || lease.status != Status.Funded) {
            assertEq(_cash(entry.bid.buyer), cashBefore, "a skipped entry costs nothing");
            ++calls["open skipped"];
            return;
        }
        assertEq(lease.cap, uint256(price) * GPUS * entry.bid.duration / 3600, "cap");
        assertEq(lease.buyer, entry.bid.buyer, "buyer");
        assertEq(_cash(lease.buyer), cashBefore - lease.cap, "only the cap leaves");
        assertGe(uint256(machine.bond) * 1e6 * 10_000, uint256(lease.cap) * MIN_BOND_BPS, "bond");
        assertGt(entry.ask.seq, slot.seq, "lease numbers never fall");
        _slots[i].seq = entry.ask.seq;
        Told storage told = _told[_leaseId(_slots[i])];
        (told.buyer, told.cap, told.duration) = (lease.buyer, lease.cap, lease.duration);
        ++calls["open"];
        if (seed % 4 != 0) _start(_slots[i], lease, seed); // most leases begin
    }

    /// @dev Orders that agree; whether cash, bond, nonce and machine do is left to chance.
    function _orders(uint256 seed, Slot memory slot, uint64 price, uint24 duration)
        private
        returns (SignedMatch memory entry)
    {
        Ask memory ask = _askFrom(slot.provider, slot.index);
        Bid memory bid = _bidFrom(_buyers[(seed >> 8) % _buyers.length]);
        bid.duration = uint24(bound(duration, ask.minDuration, ask.maxDuration));
        (ask.minPricePerHour, bid.maxPricePerHour) = (1000, 4_000_000);
        if (seed % 3 == 0) (ask.flags, bid.flags) = (INTERRUPTIBLE, INTERRUPTIBLE);
        if (seed % 5 == 0) (bid.openFrom, ask.minPricePerHour) = (0, price); // the buyer opens it itself
        bid.nonce = book.accountOf(bid.buyer).nonceBase + uint32(seed % 200);
        return SignedMatch(ask, bid, _sign(slot.provider, _hash(ask)), _sign(bid.buyer, _hash(bid)));
    }

    // ------------------------------------------------------------------------------------------------ start

    function postReady(uint256 seed) external {
        (, Slot memory slot,) = _pick(seed, Status.Funded, Status.Funded);
        Lease memory lease = _leaseAt(slot);
        bool late = block.timestamp > lease.start || lease.flags & READY != 0;
        if (lease.status != Status.Funded || late) return;
        Ready memory ready = _readyOf(slot.provider, slot.index, slot.seq);
        book.postReady(ready, _signReady(slot.provider, ready));
        ++calls["postReady"];
    }

    function begin(uint256 seed) external {
        (, Slot memory slot,) = _pick(seed, Status.Funded, Status.Funded);
        Lease memory lease = _leaseAt(slot);
        if (lease.status == Status.Funded && block.timestamp <= lease.start) _start(slot, lease, seed);
    }

    function _start(Slot memory slot, Lease memory lease, uint256 seed) private {
        uint256 openedAt = lease.start - START;
        uint32 startedAt = uint32(openedAt + (seed >> 16) % (block.timestamp - openedAt + 1));
        Ready memory ready = _readyOf(slot.provider, slot.index, slot.seq);
        Accept memory accepted = Accept(slot.provider, slot.index, slot.seq, startedAt);
        bytes memory acceptSignature = _signAccept(lease.buyer, accepted);
        _told[_leaseId(slot)].accepted = true;
        book.begin(ready, _signReady(slot.provider, ready), accepted, acceptSignature);
        assertEq(_leaseAt(slot).start, startedAt);
        ++calls["begin"];
    }

    function refundUnstarted(uint256 seed) external {
        (uint256 i, Slot memory slot,) = _pick(seed, Status.Funded, Status.Funded);
        Lease memory lease = _leaseAt(slot);
        if (lease.status != Status.Funded || block.timestamp <= lease.start) return;
        uint256 amount = _noShow(lease);
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(lease.buyer), _cash(slot.provider));
        book.refundUnstarted(slot.provider, slot.index, slot.seq);
        if (lease.flags & READY != 0) {
            assertEq(_cash(lease.buyer), buyerBefore + lease.cap - amount, "all but the no-show amount");
            assertEq(_cash(slot.provider), providerBefore + amount);
        } else {
            _assertPenalty(i, slot, lease, amount, buyerBefore + lease.cap, providerBefore);
        }
        ++calls["refundUnstarted"];
    }

    // ------------------------------------------------------------------------------------------------ pay

    function settle(uint256 seed, uint48 amount) external {
        (, Slot memory slot,) = _pick(seed, Status.Active, Status.Stopped);
        Lease memory lease = _leaseAt(slot);
        if (!_isRunning(lease.status)) return;
        Voucher memory voucher = _signed(slot, lease, seed, amount);
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(lease.buyer), _cash(slot.provider));
        _settle(voucher, _signVoucher(lease.buyer, voucher));
        assertEq(_cash(lease.buyer), buyerBefore, "settling leaves the buyer's cash alone");
        assertGe(_cash(slot.provider), providerBefore, "I10");
        _count(lease, _leaseAt(slot).paid);
        ++calls["settle"];
    }

    /// @dev A voucher, with or without a Final of the buyer, with or without one of the provider, from anybody.
    function close(uint256 seed, uint48 amount) external {
        (, Slot memory slot,) = _pick(seed, Status.Active, Status.Stopped);
        Lease memory lease = _leaseAt(slot);
        if (!_isRunning(lease.status)) return;
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(lease.buyer), _cash(slot.provider));
        _tryClose(seed, slot, lease, amount);
        assertGe(_cash(lease.buyer), buyerBefore, "I10");
        assertGe(_cash(slot.provider), providerBefore, "I10");
        if (_leaseAt(slot).status != Status.None) {
            ++calls["close skipped"];
            return;
        }
        uint256 paid = lease.cap - (_cash(lease.buyer) - buyerBefore);
        bool early = lease.status == Status.Active && block.timestamp < uint256(lease.start) + lease.duration;
        assertTrue(!early || seed % 3 == 0, "early only with the buyer's Final");
        assertTrue(paid == lease.cap || seed % 2 == 0 || seed % 7 == 0, "the provider agreed");
        assertGe(paid, lease.paid, "nothing is taken back");
        assertLe(paid, lease.ceiling, "I2");
        assertLe(paid, _told[_leaseId(slot)].signed, "I3");
        _count(lease, paid);
        ++calls["close"];
    }

    function _tryClose(uint256 seed, Slot memory slot, Lease memory lease, uint48 amount) private {
        Voucher memory voucher = _signed(slot, lease, seed, amount);
        bytes memory mine = seed % 3 == 0 ? _signFinal(lease.buyer, voucher) : _signVoucher(lease.buyer, voucher);
        bytes memory theirs = seed % 2 == 0 ? _signFinal(slot.provider, voucher) : bytes("");
        _close(seed % 7 == 0 ? slot.provider : stranger, voucher, mine, theirs);
    }

    // ------------------------------------------------------------------------------------------------ leave

    function stop(uint256 seed) external {
        (, Slot memory slot,) = _pick(seed, Status.Active, Status.Active);
        Lease memory lease = _leaseAt(slot);
        if (lease.status != Status.Active) return;
        uint256 before = _cash(lease.buyer);
        vm.prank(lease.buyer);
        book.stop(slot.provider, slot.index, slot.seq);
        assertEq(_cash(lease.buyer), before + lease.cap - lease.ceiling, "the rest is back now");
        assertEq(_leaseAt(slot).ceiling, lease.ceiling, "what had accrued is frozen");
        ++calls["stop"];
    }

    function giveNotice(uint256 seed) external {
        (, Slot memory slot,) = _pick(seed, Status.Active, Status.Active);
        Lease memory lease = _leaseAt(slot);
        if (lease.status != Status.Active || lease.noticeAt != 0) return;
        vm.prank(slot.provider);
        book.giveNotice(slot.provider, slot.index, slot.seq);
        ++calls["giveNotice"];
    }

    function release(uint256 seed, uint48 amount) external {
        (uint256 i, Slot memory slot,) = _pick(seed, Status.Active, seed % 4 == 0 ? Status.Funded : Status.Stopped);
        Lease memory lease = _leaseAt(slot);
        if (lease.status == Status.Funded) _releaseFunded(i, slot, lease);
        else if (_isRunning(lease.status)) _releaseRunning(i, slot, lease, seed, amount);
    }

    function _releaseFunded(uint256 i, Slot memory slot, Lease memory lease) private {
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(lease.buyer), _cash(slot.provider));
        vm.prank(slot.provider);
        book.release(_named(slot, 0), "", CloseReason.HEALTH);
        _assertPenalty(i, slot, lease, _noShow(lease), buyerBefore + lease.cap, providerBefore);
        ++calls["release funded"];
    }

    function _releaseRunning(uint256 i, Slot memory slot, Lease memory lease, uint256 seed, uint48 amount) private {
        Voucher memory voucher = seed % 2 == 0 ? _named(slot, 0) : _signed(slot, lease, seed, amount);
        uint256 paid = voucher.amount < lease.ceiling ? voucher.amount : lease.ceiling;
        if (paid < lease.paid) paid = lease.paid;
        uint256 gain = paid - lease.paid;
        if (lease.marketId != 0) gain -= gain * FEE_BPS / 10_000;
        (uint256 buyerNeeded, uint256 providerNeeded) =
            (_cash(lease.buyer) + lease.cap - paid, _cash(slot.provider) + gain);
        bytes memory signature = _signVoucher(lease.buyer, voucher);
        vm.prank(slot.provider);
        book.release(voucher, signature, CloseReason.HEALTH);
        _assertPenalty(i, slot, lease, _leavingPenalty(lease, lease.cap - paid), buyerNeeded, providerNeeded);
        _count(lease, paid);
        ++calls["release"];
    }

    function expire(uint256 seed) external {
        (, Slot memory slot,) = _pick(seed, Status.Active, Status.Stopped);
        Lease memory lease = _leaseAt(slot);
        uint256 opensAt = uint256(lease.start) + lease.duration + CLAIM + 1;
        if (!_isRunning(lease.status)) return;
        if (seed % 8 == 0 && block.timestamp < opensAt) vm.warp(opensAt);
        if (block.timestamp < opensAt) return;
        uint256 before = _cash(lease.buyer);
        vm.prank(stranger);
        book.expire(slot.provider, slot.index, slot.seq);
        assertEq(_cash(lease.buyer), before + lease.cap - lease.paid);
        ++calls["expire"];
    }

    // ------------------------------------------------------------------------------------------------ counting

    function _named(Slot memory slot, uint48 amount) private pure returns (Voucher memory) {
        return Voucher({provider: slot.provider, index: slot.index, seq: slot.seq, amount: amount});
    }

    /// @dev A voucher as a buyer signs it: about what has accrued, now and then anything.
    function _signed(Slot memory slot, Lease memory lease, uint256 seed, uint48 amount)
        private
        returns (Voucher memory)
    {
        if (seed % 4 != 0) amount = uint48(bound(amount, lease.ceiling / 2, uint256(lease.ceiling) + 1000));
        Told storage told = _told[_leaseId(slot)];
        if (amount > told.signed) told.signed = amount;
        return _named(slot, amount);
    }

    function _noShow(Lease memory lease) private pure returns (uint256) {
        uint256 amount = (uint256(lease.cap) * NO_SHOW + lease.duration - 1) / lease.duration;
        return amount < lease.cap ? amount : lease.cap;
    }

    function _leavingPenalty(Lease memory lease, uint256 rest) private view returns (uint256) {
        bool ended = block.timestamp >= uint256(lease.start) + lease.duration;
        bool noticed = lease.flags & INTERRUPTIBLE != 0 && lease.noticeAt != 0
            && block.timestamp >= uint256(lease.noticeAt) + NOTICE;
        if (lease.status == Status.Stopped || ended || noticed) return 0;
        return (rest * PENALTY_BPS + 9999) / 10_000;
    }

    /// @dev `amount` of the bond, or all of it, is the buyer's; the bond fell by whole tokens, the change is cash.
    function _assertPenalty(
        uint256 i,
        Slot memory slot,
        Lease memory lease,
        uint256 amount,
        uint256 buyerNeeded,
        uint256 providerNeeded
    ) private {
        uint256 bond = _slots[i].bond * 1e6;
        if (amount > bond) amount = bond;
        uint256 units = (amount + 1e6 - 1) / 1e6;
        _slots[i].bond -= units;
        assertEq(_cash(lease.buyer), buyerNeeded + amount, "penalty to the buyer");
        assertEq(_cash(slot.provider), providerNeeded + units * 1e6 - amount, "change to the provider");
    }

    function _count(Lease memory lease, uint256 paid) private {
        if (lease.marketId != 0) paidThroughMarket += paid - lease.paid;
    }

    // ------------------------------------------------------------------------------------------------ the end

    /// @dev I7: nobody who has a stake acts until every machine is free; then everybody leaves.
    function drain() external {
        skip(24 hours + CLAIM + 1);
        for (uint256 i; i < _slots.length; ++i) {
            Slot memory slot = _slots[i];
            Lease memory lease = _leaseAt(slot);
            vm.startPrank(stranger);
            if (lease.status == Status.Funded) book.refundUnstarted(slot.provider, slot.index, slot.seq);
            else if (lease.status != Status.None) book.expire(slot.provider, slot.index, slot.seq);
            vm.stopPrank();
            Status status = book.machineOf(slot.provider, slot.index).status;
            assertTrue(status != Status.Funded && !_isRunning(status), "I7: a machine is still leased");
            vm.startPrank(slot.provider);
            if (status == Status.Free || status == Status.Paused) book.retire(slot.index);
            vm.stopPrank();
        }
        vm.prank(provider);
        book.retire(INDEX);
        skip(RETIRE);
        for (uint256 i; i < _slots.length; ++i) {
            if (book.machineOf(_slots[i].provider, _slots[i].index).status != Status.Retiring) continue;
            vm.prank(_slots[i].provider);
            book.finishRetire(_slots[i].index);
        }
        vm.prank(provider);
        book.finishRetire(INDEX);
        address[] memory all = accounts();
        for (uint256 i; i < all.length; ++i) {
            uint64 cash = uint64(_cash(all[i]));
            if (cash == 0) continue;
            vm.prank(all[i]);
            book.withdraw(cash);
        }
        assertEq(token.balanceOf(address(book)), 0, "I7: something is left in the vault");
    }
}
