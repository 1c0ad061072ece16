// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SettlementLib} from "../../src/libraries/SettlementLib.sol";
import {Test} from "forge-std/Test.sol";

/// @dev The arithmetic against what it must never do, over the whole range of its fields.
contract FuzzSettlement is Test {
    uint256 private constant CAP_MAX = type(uint48).max;
    uint256 private constant DURATION_MAX = type(uint24).max;

    function testFuzz_accrued_whenTimeGoesOn_thenGrowsUpToTheCap(uint48 cap, uint24 duration, uint32 a, uint32 b)
        external
        pure
    {
        vm.assume(duration != 0);
        (a, b) = a < b ? (a, b) : (b, a);
        uint256 early = SettlementLib.accrued(cap, a, duration);
        uint256 late = SettlementLib.accrued(cap, b, duration);
        assertLe(early, late);
        assertLe(late, cap);
        assertEq(SettlementLib.accrued(cap, 0, duration), 0);
        assertEq(SettlementLib.accrued(cap, duration, duration), cap);
    }

    function testFuzz_accrued_whenBeforeTheEnd_thenIsTheFloorOfItsShare(uint48 cap, uint24 duration, uint24 elapsed)
        external
        pure
    {
        duration = uint24(bound(duration, 1, DURATION_MAX));
        elapsed = uint24(bound(elapsed, 0, duration - 1));
        uint256 found = SettlementLib.accrued(cap, elapsed, duration);
        assertLe(found * duration, uint256(cap) * elapsed);
        assertGt((found + 1) * duration, uint256(cap) * elapsed);
    }

    function testFuzz_paidAfter_whenAnyVoucherComes_thenNeverFallsNorPassesTheCeiling(
        uint48 amount,
        uint48 ceiling,
        uint48 paid
    ) external pure {
        paid = uint48(bound(paid, 0, ceiling));
        uint256 total = SettlementLib.paidAfter(amount, ceiling, paid);
        assertGe(total, paid);
        assertLe(total, ceiling);
        if (amount > paid) assertEq(total, amount < ceiling ? amount : ceiling);
        else assertEq(total, paid);
    }

    /// @dev Paying in pieces gives the market at most what paying at once does, and at most a unit a piece less.
    function testFuzz_fee_whenPaidInPieces_thenNeverMoreThanAtOnce(uint48[] memory pieces, uint16 feeBps)
        external
        pure
    {
        vm.assume(pieces.length != 0);
        feeBps = uint16(bound(feeBps, 0, 1000));
        (uint256 total, uint256 fees) = (0, 0);
        for (uint256 i; i < pieces.length; ++i) {
            uint256 fee = SettlementLib.shareDown(pieces[i], feeBps);
            assertLe(fee * 10_000, uint256(pieces[i]) * feeBps);
            (total, fees) = (total + pieces[i], fees + fee);
        }
        uint256 atOnce = total * feeBps / 10_000;
        assertLe(fees, atOnce);
        assertLe(atOnce - fees, pieces.length);
    }

    function testFuzz_shareUp_whenComparedWithDown_thenDiffersByTheRemainder(uint64 amount, uint16 bps)
        external
        pure
    {
        (uint256 up, uint256 down) = (SettlementLib.shareUp(amount, bps), SettlementLib.shareDown(amount, bps));
        assertEq(up - down, uint256(amount) * bps % 10_000 == 0 ? 0 : 1);
        if (amount != 0 && bps != 0) assertGt(up, 0); // no penalty rounds away
    }

    function testFuzz_noShow_whenAnyLease_thenIsPositiveAndAtMostTheCap(uint48 cap, uint24 duration, uint16 window)
        external
        pure
    {
        duration = uint24(bound(duration, 1, DURATION_MAX));
        uint256 amount = SettlementLib.noShow(cap, duration, window);
        assertLe(amount, cap);
        if (cap != 0 && window != 0) assertGt(amount, 0);
        if (window < duration) {
            assertGe(amount * duration, uint256(cap) * window);
            if (amount != 0) assertLt((amount - 1) * duration, uint256(cap) * window);
        }
    }

    function testFuzz_costDown_whenAnyOrder_thenIsTheFloor(uint64 price, uint16 gpus, uint24 duration) external pure {
        uint256 cost = SettlementLib.costDown(price, gpus, duration);
        uint256 exact = uint256(price) * gpus * duration;
        assertLe(cost * 3600, exact);
        assertGt((cost + 1) * 3600, exact);
    }

    /// @dev What a stop freezes is what the lease would have paid at that moment: the slope stays.
    function testFuzz_stop_whenFrozen_thenEarlierPayIsNeverAboveIt(
        uint48 cap,
        uint24 duration,
        uint24 usedAtStop,
        uint24 usedAtPay
    ) external pure {
        duration = uint24(bound(duration, 1, DURATION_MAX));
        usedAtStop = uint24(bound(usedAtStop, 0, duration));
        usedAtPay = uint24(bound(usedAtPay, 0, usedAtStop));
        uint256 paid = SettlementLib.accrued(cap, usedAtPay, duration);
        uint256 frozen = SettlementLib.accrued(cap, usedAtStop, duration);
        assertLe(paid, frozen);
        assertLe(frozen, CAP_MAX);
        // From then on all of the frozen cap has accrued, whatever the clock says.
        assertEq(SettlementLib.accrued(frozen, usedAtStop, usedAtStop), frozen);
    }
}
