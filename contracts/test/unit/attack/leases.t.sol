// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {INTERRUPTIBLE} from "../../../src/types/Flags.sol";
import {CloseReason, Role, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";
import {Wallet} from "../../mocks/Wallets.sol";

/// @dev Attacks on a lease's start, pay and end; one test a row of the table in the design.
contract AttackOnLeases is Fixture {
    uint256 private constant NO_SHOW_AMOUNT = (CAP * NO_SHOW + DURATION - 1) / DURATION;

    function _stop(uint24 seq) private {
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
    }

    // ------------------------------------------------------------------------------------------------ vouchers

    /// @dev A thief of the session key pays the provider ahead: never ahead of the clock, and `stop` ends it.
    function test_attack_stolenSessionKeyPaysAhead() external {
        uint24 seq = _openAndBegin();
        skip(1 minutes);
        Voucher memory all = _voucher(seq, CAP);
        _settle(all, _signVoucher(sessionKey, all));
        assertEq(_leaseOf(seq).paid, CAP * 1 minutes / DURATION);
        _stop(seq);
        skip(1 hours);
        bytes memory signature = _signVoucher(sessionKey, all);
        _expectSkip(0, SkipCode.NOTHING_DUE);
        _settle(all, signature);
        _close(provider, all, signature, "");
        assertEq(_cash(buyer), CASH - CAP * 1 minutes / DURATION);
    }

    function test_attack_buyerSignsAboveTheCeilingThenStopsToVoidTheDebt() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory tooHigh = _voucher(seq, CAP);
        bytes memory signature = _signVoucher(buyer, tooHigh);
        _stop(seq);
        uint256 before = _cash(provider) + _cash(matcher);
        _settle(tooHigh, signature);
        assertEq(_cash(provider) + _cash(matcher) - before, CAP / 5);
    }

    function test_attack_buyerRevokesItsKeyToDisownTheDebt() external {
        uint24 seq = _openAndBegin();
        vm.prank(buyer);
        book.revokeDelegate(sessionKey);
        skip(2 hours); // long past the revocation
        Voucher memory voucher = _voucher(seq, CAP);
        _settle(voucher, _signVoucher(sessionKey, voucher));
        assertEq(_leaseOf(seq).paid, 2 * CAP / 5);
    }

    function test_attack_buyerLetsItsKeyExpireToDisownTheDebt() external {
        address key = _signer("short-lived");
        _delegate(buyer, key, Role.Session, uint32(block.timestamp + 10 minutes));
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP);
        _settle(voucher, _signVoucher(key, voucher));
        assertEq(_leaseOf(seq).paid, CAP / 5);
    }

    /// @dev The other side of it: once a revocation took effect, no new lease starts or is paid by that key.
    function test_attack_revokedKeyStartsANewLease() external {
        vm.prank(buyer);
        book.revokeDelegate(sessionKey);
        skip(START);
        uint24 seq = _open();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, uint32(block.timestamp));
        (bytes memory readySig, bytes memory acceptSig) =
            (_signReady(nodeKey, ready), _signAccept(sessionKey, accepted));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, buyer));
        book.begin(ready, readySig, accepted, acceptSig);
        book.begin(ready, readySig, accepted, _signAccept(buyer, accepted));
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        _expectSkip(0, SkipCode.BAD_VOUCHER_SIGNATURE);
        _settle(voucher, signature);
    }

    /// @dev A buyer that also provides has a Node key on the machine that runs strangers' jobs: it must not pay.
    function test_attack_nodeKeyOfTheBuyerSignsForIt() external {
        address key = _signer("buyer's node key");
        _delegate(buyer, key, Role.Node, uint32(block.timestamp + 1 days));
        uint24 seq = _open();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, uint32(block.timestamp));
        (bytes memory readySig, bytes memory acceptSig) = (_signReady(nodeKey, ready), _signAccept(key, accepted));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, buyer));
        book.begin(ready, readySig, accepted, acceptSig);
        _begin(seq, uint32(block.timestamp));
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        bytes memory signature = _signVoucher(key, voucher);
        _expectSkip(0, SkipCode.BAD_VOUCHER_SIGNATURE);
        _settle(voucher, signature);
    }

    /// @dev A contract can take its signature back, so it is never a voucher: it registers a session key.
    function test_attack_walletSwapsItsOwnerToDisownTheDebt() external {
        Wallet wallet = new Wallet(stranger, Wallet.Mood.Honest);
        token.mint(address(wallet), 1000e6);
        wallet.join(book, 1000e6);
        address key = _signer("wallet's session key");
        uint32 expiry = uint32(block.timestamp + 90 days);
        bytes memory proof = _sign(
            key,
            keccak256(
                abi.encode(
                    keccak256("Delegate(address account,uint8 role,uint32 expiry)"),
                    address(wallet),
                    Role.Session,
                    expiry
                )
            )
        );
        vm.prank(stranger);
        wallet.run(address(book), abi.encodeCall(book.setDelegate, (key, Role.Session, expiry, proof)));
        uint24 seq = _openByWallet(wallet, key);
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 10);
        bytes memory byOwner = _signVoucher(stranger, voucher);
        _expectSkip(0, SkipCode.BAD_VOUCHER_SIGNATURE);
        _settle(voucher, byOwner);
        wallet.changeMood(Wallet.Mood.Reverts);
        _settle(voucher, _signVoucher(key, voucher));
        assertEq(_leaseOf(seq).paid, CAP / 10);
    }

    function _openByWallet(Wallet wallet, address key) private returns (uint24 seq) {
        Bid memory bid = _bidFrom(address(wallet));
        Ask memory ask = _ask();
        (bid.openFrom, seq) = (0, ask.seq);
        bytes memory call = _openCall(ask, bid, _sign(stranger, _hash(bid)));
        vm.prank(stranger);
        wallet.run(address(book), call);
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, uint32(block.timestamp));
        book.begin(ready, _signReady(nodeKey, ready), accepted, _signAccept(key, accepted));
    }

    function _openCall(Ask memory ask, Bid memory bid, bytes memory bidSignature)
        private
        view
        returns (bytes memory)
    {
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = SignedMatch(ask, bid, _sign(nodeKey, _hash(ask)), bidSignature);
        return abi.encodeCall(book.openBatch, (product, PRICE, marketId, entries));
    }

    // ------------------------------------------------------------------------------------------------ closing early

    function test_attack_staleVoucherClosesEarly() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory stale = _voucher(seq, 1);
        bytes memory signature = _signVoucher(sessionKey, stale);
        _expectSkip(0, SkipCode.STILL_RUNNING);
        _close(buyer, stale, signature, "");
        skip(DURATION);
        _expectSkip(0, SkipCode.BAD_FINAL_SIGNATURE);
        _close(buyer, stale, signature, "");
        assertEq(_status(), Status.Active);
    }

    /// @dev A provider holds a voucher from the first minute on: were it a consent to end, it could leave for nothing.
    function test_attack_providerLeavesByItsLastVoucherToSaveThePenalty() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory last = _voucher(seq, CAP / 5);
        bytes memory signature = _signVoucher(sessionKey, last);
        bytes memory final_ = _signFinal(nodeKey, last);
        _expectSkip(0, SkipCode.STILL_RUNNING);
        _close(provider, last, signature, final_);
        uint256 before = _cash(buyer);
        vm.prank(provider);
        book.release(last, signature, CloseReason.RELEASED);
        uint256 rest = CAP - CAP / 5;
        assertEq(_cash(buyer), before + rest + (rest * PENALTY_BPS + 9999) / 10_000);
    }

    function test_attack_thirdPartyClosesWithAnOlderFinal() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        Voucher memory low = _voucher(seq, 1);
        (bytes memory mine, bytes memory theirs) = (_signVoucher(buyer, low), _signFinal(nodeKey, _voucher(seq, 2)));
        _expectSkip(0, SkipCode.BAD_FINAL_SIGNATURE);
        _close(buyer, low, mine, theirs);
    }

    // ------------------------------------------------------------------------------------------------ starting

    function test_attack_providerNeverReady() external {
        uint24 seq = _open();
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        assertEq(_cash(buyer), CASH + NO_SHOW_AMOUNT);
    }

    function test_attack_buyerRefusesAccept() external {
        uint256 before = _cash(provider);
        uint24 seq = _open();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        book.postReady(ready, _signReady(nodeKey, ready));
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        assertEq(_cash(provider), before + NO_SHOW_AMOUNT);
        assertEq(_cash(buyer), CASH - NO_SHOW_AMOUNT);
    }

    /// @dev Leaving a second before the deadline costs what not showing up costs, Ready on chain or not.
    function test_attack_providerReleasesJustBeforeTheDeadline() external {
        uint24 seq = _open();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        book.postReady(ready, _signReady(nodeKey, ready));
        skip(START);
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", CloseReason.HEALTH);
        assertEq(_cash(buyer), CASH + NO_SHOW_AMOUNT);
    }

    function test_attack_backdatedAccept() external {
        uint32 openedAt = uint32(block.timestamp);
        uint24 seq = _open();
        skip(10 minutes);
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, openedAt - 1);
        (bytes memory readySig, bytes memory acceptSig) = (_signReady(nodeKey, ready), _signAccept(buyer, accepted));
        vm.expectRevert(
            abi.encodeWithSelector(
                ILeaseBookLog.LeaseBook_StartOutOfRange.selector, openedAt - 1, openedAt, block.timestamp
            )
        );
        book.begin(ready, readySig, accepted, acceptSig);
    }

    /// @dev A node that could not post `begin` in an outage worked unconfirmed: its lease never began, nothing is paid.
    function test_attack_startUnconfirmedInAnOutage() external {
        uint24 seq = _open();
        skip(START + 1);
        Voucher memory voucher = _voucher(seq, CAP);
        bytes memory signature = _signVoucher(buyer, voucher);
        _expectSkip(0, SkipCode.WRONG_STATE);
        _settle(voucher, signature);
        book.refundUnstarted(provider, INDEX, seq);
        assertEq(_cash(buyer), CASH + NO_SHOW_AMOUNT);
    }

    function test_attack_acceptOfAnOlderLeaseStartsTheNext() external {
        uint24 seq = _open();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, uint32(block.timestamp + 20 minutes));
        (bytes memory readySig, bytes memory acceptSig) =
            (_signReady(nodeKey, ready), _signAccept(sessionKey, accepted));
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        skip(4 minutes);
        uint24 next = _open();
        skip(2 minutes);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, next));
        book.begin(ready, readySig, accepted, acceptSig);
    }

    // ------------------------------------------------------------------------------------------------ vanishing

    function test_attack_providerVanishes() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        _stop(seq); // the unused part is back now
        assertEq(_cash(buyer), CASH - CAP / 5);
        skip(CLAIM + 1);
        vm.prank(stranger);
        book.expire(provider, INDEX, seq);
        assertEq(_cash(buyer), CASH);
    }

    function test_attack_bothVanish() external {
        uint24 seq = _openAndBegin();
        skip(DURATION + CLAIM + 1);
        vm.prank(stranger);
        book.expire(provider, INDEX, seq);
        _assertFree(seq);
        assertEq(_cash(buyer), CASH);
    }

    /// @dev A buyer that takes machines and never signs: the provider is free at once after the end, without penalty,
    /// and before it for the price of leaving.
    function test_attack_buyerRefusesVouchers() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", CloseReason.NO_VOUCHERS);
        assertEq(book.machineOf(provider, INDEX).bond, BOND);
        _assertFree(seq);
    }

    // ------------------------------------------------------------------------------------------------ penalties

    function test_attack_penaltyDodgedByARestBelowOneToken() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.minPricePerHour, ask.minDuration, bid.duration) = (1, 1, 3600);
        bid.maxPricePerHour = 1;
        _submit(matcher, 1, _paired(ask, bid)); // a cap of 2 base units
        _begin(1, uint32(block.timestamp));
        uint256 before = _cash(buyer);
        vm.prank(provider);
        book.release(_voucher(1, 0), "", CloseReason.RELEASED);
        assertEq(_cash(buyer), before + 2 + 1, "ceil(2 * 10 %) is 1");
    }

    function test_attack_penaltyDodgedByRetiringMidLease() external {
        _openAndBegin();
        vm.startPrank(provider);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Active));
        book.retire(INDEX);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Active));
        book.finishRetire(INDEX);
    }

    function test_attack_penaltyDodgedByNoBond() external {
        vm.prank(provider);
        book.addMachine(8, 1, product); // the cap of 22 tokens needs 4.4
        _assertSkipped(matcher, _paired(_askFrom(provider, 8), _bid()), SkipCode.BOND_TOO_LOW);
    }

    function test_attack_penaltyDodgedByAnEarlyNotice() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.flags, bid.flags) = (INTERRUPTIBLE, INTERRUPTIBLE);
        uint24 seq = _openWith(ask, bid);
        vm.startPrank(provider);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Funded));
        book.giveNotice(provider, INDEX, seq); // the notice runs from the start at the earliest
    }

    function test_attack_unbondingOutrunsAClaim() external {
        vm.startPrank(provider);
        book.retire(INDEX);
        skip(RETIRE - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, block.timestamp + 1));
        book.finishRetire(INDEX);
        vm.stopPrank();
        assertGt(RETIRE, CLAIM + 24 hours + 48 hours);
    }

    // ------------------------------------------------------------------------------------------------ money

    function test_attack_feeKeptOnReturnedPay() external {
        uint256 marketBefore = _cash(matcher);
        uint24 seq = _openAndBegin();
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        assertEq(_cash(matcher), marketBefore);
        assertEq(_cash(buyer), CASH);
    }

    function test_attack_selfDealing() external {
        _assertSkipped(matcher, _paired(_ask(), _bidFrom(provider)), SkipCode.SELF_DEALING);
    }

    /// @dev A late or reorganised `stop` must not end the next lease of the same pair.
    function test_attack_callForAnOlderLeaseHitsTheNext() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP);
        _close(provider, voucher, _signVoucher(buyer, voucher), "");
        uint24 next = _openAndBegin();
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, next));
        _stop(seq);
        bytes memory signature = _signVoucher(buyer, voucher);
        skip(1 hours);
        _expectSkip(0, SkipCode.WRONG_STATE);
        _settle(voucher, signature);
    }
}
