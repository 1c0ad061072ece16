// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev One lease from order to settlement, with every balance written out.
contract LifeOfALease is Fixture {
    function test_life_whenBothSidesDoTheirPart_thenEachHasItsShare() external {
        (uint256 buyerBefore, uint256 providerBefore, uint256 marketBefore) =
            (_cash(buyer), _cash(provider), _cash(matcher));

        uint24 seq = _open();
        assertEq(seq, 1);
        assertEq(_cash(buyer), buyerBefore - CAP);
        _assertSolvent();

        skip(2 minutes);
        _begin(seq, uint32(block.timestamp));
        assertEq(_status(), Status.Active);

        skip(1 hours);
        uint256 first = CAP / 5; // one hour of five
        Voucher memory voucher = _voucher(seq, first);
        _settle(voucher, _signVoucher(sessionKey, voucher));
        assertEq(_cash(provider), providerBefore + first - first * FEE_BPS / 10_000);
        assertEq(_cash(matcher), marketBefore + first * FEE_BPS / 10_000);
        _assertSolvent();

        skip(1 hours);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        uint256 used = 2 * CAP / 5;
        assertEq(_cash(buyer), buyerBefore - used);
        _assertSolvent();

        skip(1 hours);
        voucher = _voucher(seq, used - 1_000_000);
        _expectClosed(seq, CloseReason.STOPPED, used - 1_000_000);
        _close(nodeKey, voucher, _signVoucher(sessionKey, voucher), "");
        _assertFree(seq);
        _assertSolvent();
        uint256 fees = first * FEE_BPS / 10_000 + (used - 1_000_000 - first) * FEE_BPS / 10_000;
        assertEq(_cash(buyer), buyerBefore - used + 1_000_000);
        assertEq(_cash(provider), providerBefore + used - 1_000_000 - fees);
        assertEq(_cash(matcher), marketBefore + fees);
    }
}
