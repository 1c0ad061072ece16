// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {INTERRUPTIBLE, PAY_AS_ASK, VERIFIED} from "../../../src/types/Flags.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Product} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev What two signed orders do not allow, and what machine and account cannot.
contract OpenBatchLimits is Fixture {
    function _assertSkip(Ask memory ask, Bid memory bid, SkipCode code) private {
        _assertSkipped(matcher, _paired(ask, bid), code);
    }

    // ------------------------------------------------------------------------------------------------ limits

    function test_openBatch_whenFeeIsAboveALimit_thenSkips() external {
        Ask memory ask = _ask();
        ask.maxFeeBps = FEE_BPS - 1;
        _assertSkip(ask, _bid(), SkipCode.FEE_ABOVE_LIMIT);
        Bid memory bid = _bid();
        bid.maxFeeBps = FEE_BPS - 1;
        _assertSkip(_ask(), bid, SkipCode.FEE_ABOVE_LIMIT);
    }

    function test_openBatch_whenFeeIsExactlyTheLimit_thenOpens() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.maxFeeBps, bid.maxFeeBps) = (FEE_BPS, FEE_BPS);
        _openWith(ask, bid);
    }

    function test_openBatch_whenPriceIsOutsideALimit_thenSkips() external {
        Ask memory ask = _ask();
        ask.minPricePerHour = PRICE + 1;
        _assertSkip(ask, _bid(), SkipCode.PRICE_OUTSIDE_LIMITS);
        Bid memory bid = _bid();
        bid.maxPricePerHour = PRICE - 1;
        _assertSkip(_ask(), bid, SkipCode.PRICE_OUTSIDE_LIMITS);
    }

    function test_openBatch_whenPriceIsExactlyBothLimits_thenOpens() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.minPricePerHour, bid.maxPricePerHour) = (PRICE, PRICE);
        _openWith(ask, bid);
    }

    function test_openBatch_whenAnOrderNamesAnotherProduct_thenSkips() external {
        uint32 other = _registerProduct(_product());
        Ask memory ask = _ask();
        ask.product = other;
        _assertSkip(ask, _bid(), SkipCode.WRONG_PRODUCT);
        Bid memory bid = _bid();
        bid.product = other;
        _assertSkip(_ask(), bid, SkipCode.WRONG_PRODUCT);
    }

    function test_openBatch_whenCountIsNotTheSlices_thenSkips() external {
        Bid memory bid = _bid();
        bid.count = GPUS - 1;
        _assertSkip(_ask(), bid, SkipCode.WRONG_COUNT);
        bid.count = GPUS + 1;
        _assertSkip(_ask(), bid, SkipCode.WRONG_COUNT);
    }

    function test_openBatch_whenBidNamesAnotherProvider_thenSkips() external {
        Bid memory bid = _bid();
        bid.provider = stranger;
        _assertSkip(_ask(), bid, SkipCode.WRONG_PROVIDER);
        bid.provider = provider;
        _openWith(_ask(), bid);
    }

    function test_openBatch_whenBuyerIsTheProvider_thenSkips() external {
        _assertSkip(_ask(), _bidFrom(provider), SkipCode.SELF_DEALING);
    }

    function test_openBatch_whenDurationIsOutsideTheAsks_thenSkips() external {
        Bid memory bid = _bid();
        Ask memory ask = _ask();
        bid.duration = ask.minDuration - 1;
        _assertSkip(ask, bid, SkipCode.DURATION_OUTSIDE_LIMITS);
        bid.duration = ask.maxDuration + 1;
        _assertSkip(ask, bid, SkipCode.DURATION_OUTSIDE_LIMITS);
        (bid.duration, ask.minDuration) = (0, 0);
        _assertSkip(ask, bid, SkipCode.DURATION_OUTSIDE_LIMITS);
    }

    function test_openBatch_whenAnOrderIsPastItsStartBy_thenSkips() external {
        Ask memory ask = _ask();
        ask.startBy = uint32(block.timestamp - 1);
        _assertSkip(ask, _bid(), SkipCode.EXPIRED);
        Bid memory bid = _bid();
        bid.startBy = uint32(block.timestamp - 1);
        _assertSkip(_ask(), bid, SkipCode.EXPIRED);
    }

    function test_openBatch_whenOrdersEndThisSecond_thenOpens() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.startBy, bid.startBy) = (uint32(block.timestamp), uint32(block.timestamp));
        _openWith(ask, bid);
    }

    function test_openBatch_whenFlagsDoNotAgree_thenSkips() external {
        Ask memory ask = _ask();
        ask.flags = INTERRUPTIBLE;
        _assertSkip(ask, _bid(), SkipCode.FLAGS_DIFFER);
        ask.flags = 4;
        _assertSkip(ask, _bid(), SkipCode.FLAGS_DIFFER);
        Bid memory bid = _bid();
        bid.flags = 8;
        _assertSkip(_ask(), bid, SkipCode.FLAGS_DIFFER);
        bid.flags = VERIFIED;
        _assertSkip(_ask(), bid, SkipCode.FLAGS_DIFFER);
        (bid.flags, bid.auditBps) = (0, 1);
        _assertSkip(_ask(), bid, SkipCode.FLAGS_DIFFER);
    }

    function test_openBatch_whenProductForbidsWhatBothWant_thenSkips() external {
        Product memory plain = _product();
        plain.flags = 0;
        product = _registerProduct(plain);
        vm.prank(provider);
        book.addMachine(9, BOND, product);
        (Ask memory ask, Bid memory bid) = (_askFrom(provider, 9), _bid());
        (ask.flags, bid.flags) = (INTERRUPTIBLE, INTERRUPTIBLE);
        _assertSkip(ask, bid, SkipCode.FLAGS_DIFFER);
        (ask.flags, bid.flags) = (VERIFIED, VERIFIED);
        _assertSkip(ask, bid, SkipCode.FLAGS_DIFFER);
    }

    /// @dev This book was made without a Verification module. With one: test/unit/verification.
    function test_openBatch_whenVerifiedAndTheBookHasNoModule_thenSkips() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.flags, bid.flags, bid.auditBps) = (VERIFIED, VERIFIED, 600);
        _assertSkip(ask, bid, SkipCode.VERIFIED_CLOSED);
    }

    // ------------------------------------------------------------------------------------------------ state

    function test_openBatch_whenMachineIsNotFree_thenSkips() external {
        _open();
        Ask memory ask = _ask();
        _assertSkip(ask, _bid(), SkipCode.MACHINE_NOT_FREE);
    }

    function test_openBatch_whenMachineIsPausedOrRetiringOrAbsent_thenSkips() external {
        vm.prank(provider);
        book.pause(INDEX);
        _assertSkip(_ask(), _bid(), SkipCode.MACHINE_NOT_FREE);
        vm.prank(provider);
        book.retire(INDEX);
        _assertSkip(_ask(), _bid(), SkipCode.MACHINE_NOT_FREE);
        _assertSkip(_askFrom(provider, 99), _bid(), SkipCode.MACHINE_NOT_FREE);
    }

    function test_openBatch_whenAskIsNotForTheNextLease_thenSkips() external {
        Ask memory ask = _ask();
        ask.seq = 0;
        _assertSkip(ask, _bid(), SkipCode.STALE_SEQUENCE);
        ask.seq = 2;
        _assertSkip(ask, _bid(), SkipCode.STALE_SEQUENCE);
    }

    function test_openBatch_whenCapIsZero_thenSkips() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.minPricePerHour, ask.minDuration, bid.duration, bid.flags) = (1, 1, 1799, PAY_AS_ASK);
        _assertSkip(ask, bid, SkipCode.CAP_OUT_OF_RANGE); // floor(1 * 2 * 1799 / 3600) is 0
        bid.duration = 1800;
        _openWith(ask, bid);
        assertEq(_leaseOf(1).cap, 1);
    }

    function test_openBatch_whenCapIsAbove48Bits_thenSkips() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.minPricePerHour, bid.maxPricePerHour) = (type(uint64).max, type(uint64).max);
        bid.flags = PAY_AS_ASK;
        _assertSkip(ask, bid, SkipCode.CAP_OUT_OF_RANGE);
    }

    function test_openBatch_whenBondIsAUnitShort_thenSkips() external {
        // 2,000 bps of the cap must be free: a bond of 4 tokens covers a cap of exactly 20 tokens.
        vm.prank(provider);
        book.addMachine(9, 4, product);
        (Ask memory ask, Bid memory bid) = (_askFrom(provider, 9), _bid());
        (ask.minPricePerHour, ask.minDuration, bid.maxPricePerHour) = (1, 1, 20_000_000);
        (bid.duration, bid.flags) = (3600, 0);
        SignedMatch memory entry = _paired(ask, bid);
        bytes32 before = keccak256(abi.encode(book.accountOf(buyer)));
        _expectSkip(0, SkipCode.BOND_TOO_LOW);
        _submit(matcher, 10_000_001, entry); // cap 20,000,002 needs 4,000,001 after rounding up
        assertEq(keccak256(abi.encode(book.accountOf(buyer))), before);
        _submit(matcher, 10_000_000, entry);
        assertEq(book.machineOf(provider, 9).status, Status.Funded);
    }

    function test_openBatch_whenCashIsAUnitShort_thenSkips() external {
        uint64 excess = uint64(_cash(buyer) - CAP + 1);
        vm.prank(buyer);
        book.withdraw(excess);
        _assertSkip(_ask(), _bid(), SkipCode.CASH_TOO_LOW);
        vm.startPrank(buyer);
        token.approve(address(book), 1);
        book.deposit(buyer, 1);
        vm.stopPrank();
        _open();
        assertEq(_cash(buyer), 0);
    }

    function test_openBatch_whenBuyerHasNoAccount_thenSkips() external {
        _assertSkip(_ask(), _bidFrom(stranger), SkipCode.CASH_TOO_LOW);
    }

    function test_openBatch_whenNonceIsUsed_thenSkips() external {
        Bid memory bid = _bid();
        vm.prank(buyer);
        book.cancelOne(bid.nonce);
        _assertSkip(_ask(), bid, SkipCode.NONCE_USED);
    }
}
