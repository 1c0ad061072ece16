// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ModuleHash} from "../../../src/libraries/ModuleHash.sol";
import {Assignment, FutureContract, FuturePair, FutureUnit, Series, UnitEnd} from "../../../src/types/Futures.sol";
import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ready, Voucher} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {ModulesWorld} from "./ModulesWorld.sol";

/// @dev Futures from both sides and by strangers, also against the actor's own interest.
abstract contract FuturesHandler is ModulesWorld {
    function openFuture(uint256 seed) external {
        uint32 start = uint32((block.timestamp / HOUR + 2) * HOUR);
        uint64 price = uint64(1 + seed % 5_000_000);
        (address long, address short) = (longs[seed % 2], shorts[(seed >> 8) % 2]);
        FuturePair[] memory pairs = new FuturePair[](1);
        pairs[0].buy = _order(long, true, start, price);
        pairs[0].sell = _order(short, false, start, price);
        pairs[0].units = uint16(1 + (seed >> 16) % 3);
        (pairs[0].buySignature, pairs[0].sellSignature) = (_signOrder(pairs[0].buy), _signOrder(pairs[0].sell));
        if (!_submit(price, pairs)) return;
        ++calls["openFuture"];
        if (seed % 5 != 0) fund(_contracts.length - 1);
        if (seed % 7 != 0) nominate(_contracts.length - 1);
    }

    /// @dev What is left of the last orders, or more than that, or of orders that were closed meanwhile.
    function openRest(uint256 seed) external {
        FuturePair[] memory pairs = new FuturePair[](1);
        pairs[0] = _lastPair;
        uint32 start = pairs[0].buy.windowStart;
        if (start == 0 || block.timestamp > market.deadlineOf(start, HOUR)) return;
        pairs[0].units = uint16(1 + seed % 3);
        if (seed % 11 == 0) {
            address closer = seed % 2 == 0 ? pairs[0].buy.trader : pairs[0].sell.trader;
            vm.prank(closer);
            market.closeOrder(_hashOf(seed % 2 == 0 ? pairs[0].buy : pairs[0].sell));
            ++calls["closeOrder"];
        }
        if (_submit(pairs[0].buy.limitPricePerHour, pairs)) ++calls["openRest"];
    }

    function _submit(uint64 price, FuturePair[] memory pairs) private returns (bool) {
        uint256 before = book.moduleCash(address(market));
        vm.prank(matcher);
        market.openFutures(Series(product, pairs[0].buy.windowStart, HOUR), price, pairs);
        uint256 taken = book.moduleCash(address(market)) - before;
        if (taken == 0) return false;
        marginsIn += taken;
        _contracts.push(market.contractCount());
        _lastPair = pairs[0];
        _filled[_hashOf(pairs[0].buy)] += pairs[0].units;
        _filled[_hashOf(pairs[0].sell)] += pairs[0].units;
        return true;
    }

    function fund(uint256 seed) public {
        (bool found, uint40 id, FutureContract memory row) = _pick(seed);
        bool late = block.timestamp > market.deadlineOf(row.series.windowStart, HOUR);
        if (!found || row.funded || late || _cash(row.long) < row.units * _capOf(row.price)) return;
        vm.prank(row.long);
        market.fund(id);
        ++calls["fund"];
    }

    function nominate(uint256 seed) public {
        (bool found, uint40 id, FutureContract memory row) = _pick(seed);
        if (!found || block.timestamp > market.deadlineOf(row.series.windowStart, HOUR)) return;
        uint32[] memory indexes = new uint32[](1 + seed % row.units);
        for (uint32 i; i < indexes.length; ++i) {
            indexes[i] = uint32((seed % 3 + i) % 3);
        }
        vm.prank(row.short);
        market.nominate(id, indexes);
        _nominated[id] = indexes;
        ++calls["nominate"];
    }

    function assign(uint256 seed) external {
        (bool found, uint40 id, FutureContract memory row) = _pick(seed);
        bool isBuy = seed % 2 == 0;
        bool done = isBuy ? row.funded : row.nominated;
        if (!found || done || block.timestamp > market.deadlineOf(row.series.windowStart, HOUR)) return;
        address leaver = isBuy ? row.long : row.short;
        address[2] storage peers = isBuy ? longs : shorts;
        address joiner = peers[0] == leaver ? peers[1] : peers[0];
        uint256 margin = isBuy ? row.longMargin : row.shortMargin;
        if (_cash(joiner) < margin + 1e6 || _cash(leaver) < 1e6) return;
        (uint64 leaverPays, uint64 joinerPays) = (uint64(seed % 1e6), uint64((seed >> 20) % 1e6));
        Assignment memory value =
            Assignment(id, isBuy, leaver, joiner, leaverPays, joinerPays, uint32(block.timestamp), _nonceOf(joiner));
        bytes32 hash = keccak256(abi.encode(ModuleHash.ASSIGNMENT, value));
        bytes memory signature = _signFor(market.DOMAIN_SEPARATOR(), joiner, hash);
        vm.prank(leaver);
        market.assign(value, signature);
        ++calls["assign"];
    }

    /// @dev Whatever is due, by a stranger: default, delivery, or the lapse.
    function finish(uint256 seed) public {
        (bool found, uint40 id, FutureContract memory row) = _pick(seed);
        if (!found) return;
        uint256 start = row.series.windowStart;
        uint256 before = book.moduleCash(address(market));
        uint256 caps = row.funded ? row.units * _capOf(row.price) : 0;
        if (!row.funded || !row.nominated) {
            if (block.timestamp <= start - 30 minutes) vm.warp(start - 30 minutes + 1);
            vm.prank(stranger);
            market.settleDefault(id);
            ++calls["settleDefault"];
            marginsOut += before - book.moduleCash(address(market)) - caps;
        } else if (seed % 4 == 0 || block.timestamp > start + START) {
            if (block.timestamp <= start + START) vm.warp(start + START + 1);
            market.lapse(id);
            ++calls["lapse"];
            marginsOut += before - book.moduleCash(address(market)) - caps;
        } else {
            if (block.timestamp < start) vm.warp(start);
            market.deliver(id, _nominated[id]);
            _noteUnits(id, row.short);
            ++calls["deliver"];
            marginsOut += before - book.moduleCash(address(market)) - caps;
            // At once, as nodes and buyers do, mostly: later only no-shows are left.
            if (seed % 3 != 0) live(seed >> 16);
            if (seed % 5 != 0) live(seed >> 32);
        }
        _forget(_contracts, id);
    }

    function _noteUnits(uint40 id, address short) private {
        for (uint32 index; index < 3; ++index) {
            uint24 seq = book.machineOf(short, index).seq;
            if (market.unitOf(short, index, seq).contractId == id) _units.push(UnitName(short, index, seq));
        }
    }

    // ------------------------------------------------------------------------------------------------ leases

    /// @dev One step in the life of a unit's lease: begin, stop, release, no-show, close or expiry.
    function live(uint256 seed) public {
        if (_units.length == 0) return;
        UnitName memory name = _units[seed % _units.length];
        Lease memory lease = book.leaseOf(name.provider, name.index, name.seq);
        if (lease.status == Status.Funded) _start(seed >> 8, name, lease);
        else if (lease.status == Status.Active) _end(seed >> 8, name, lease);
        else if (lease.status == Status.Stopped) _release(name);
        else settleUnit(seed);
    }

    function _start(uint256 seed, UnitName memory name, Lease memory lease) private {
        Ready memory ready = Ready(name.provider, name.index, name.seq, bytes32(0));
        bytes memory readySignature = _signReady(name.provider, ready);
        if (block.timestamp > lease.start || seed % 5 == 0) {
            if (block.timestamp <= lease.start) {
                if (seed % 2 == 0) book.postReady(ready, readySignature);
                vm.warp(lease.start + 1);
            }
            book.refundUnstarted(name.provider, name.index, name.seq);
            ++calls["no-show"];
        } else if (seed % 5 == 1) {
            _release(name);
        } else {
            Accept memory accepted = Accept(name.provider, name.index, name.seq, uint32(block.timestamp));
            book.begin(ready, readySignature, accepted, _signAccept(lease.buyer, accepted));
            ++calls["begin"];
        }
    }

    function _end(uint256 seed, UnitName memory name, Lease memory lease) private {
        skip(seed % 40 minutes);
        if (seed % 4 == 0) {
            vm.prank(lease.buyer);
            book.stop(name.provider, name.index, name.seq);
            ++calls["stop"];
        } else if (seed % 4 == 1) {
            _release(name);
        } else if (seed % 4 == 2) {
            lease = book.leaseOf(name.provider, name.index, name.seq);
            Voucher memory last = Voucher(name.provider, name.index, name.seq, lease.ceiling);
            _close(name.provider, last, _signFinal(lease.buyer, last), "");
            ++calls["close"];
        } else {
            uint256 opensAt = uint256(lease.start) + lease.duration + CLAIM + 1;
            if (block.timestamp < opensAt) vm.warp(opensAt);
            book.expire(name.provider, name.index, name.seq);
            ++calls["expire"];
        }
    }

    function _release(UnitName memory name) private {
        vm.prank(name.provider);
        book.release(Voucher(name.provider, name.index, name.seq, 0), "", CloseReason.RELEASED);
        ++calls["release"];
    }

    function settleUnit(uint256 seed) public {
        if (_units.length == 0) return;
        uint256 k = seed % _units.length;
        UnitName memory name = _units[k];
        FutureUnit memory unit = market.unitOf(name.provider, name.index, name.seq);
        if (unit.end == UnitEnd.RUNNING) return;
        (uint256 long, uint256 short) = (_cash(unit.long), _cash(unit.short));
        vm.prank(stranger);
        market.settleUnit(name.provider, name.index, name.seq);
        uint256 toLong = _cash(unit.long) - long;
        uint256 toShort = _cash(unit.short) - short;
        assertEq(toLong + toShort, uint256(unit.longMargin) + unit.shortMargin, "all of the unit's margins");
        if (unit.end != UnitEnd.BROKEN_BY_SHORT) assertLe(toLong, unit.longMargin, "a forfeit without a breach");
        if (unit.end != UnitEnd.BROKEN_BY_LONG) assertLe(toShort, unit.shortMargin, "a forfeit without a breach");
        marginsOut += toLong + toShort;
        _units[k] = _units[_units.length - 1];
        _units.pop();
        ++calls["settleUnit"];
    }

    // ------------------------------------------------------------------------------------------------ lookups

    function _pick(uint256 seed) internal view returns (bool, uint40 id, FutureContract memory row) {
        if (_contracts.length == 0) return (false, 0, row);
        id = _contracts[seed % _contracts.length];
        return (true, id, market.contractOf(id));
    }

    function _forget(uint40[] storage from, uint40 id) private {
        for (uint256 k; k < from.length; ++k) {
            if (from[k] != id) continue;
            from[k] = from[from.length - 1];
            from.pop();
            return;
        }
    }
}
