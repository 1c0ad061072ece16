// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {FIRM, INTERRUPTIBLE, VERIFIED} from "../../../src/types/Flags.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {machineKeyOf} from "../../../src/types/MachineKey.sol";
import {Ask, Bid} from "../../../src/types/Orders.sol";
import {Lease, ModuleAddresses, Opening} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";
import {FirmEar} from "../../mocks/Modules.sol";

/// @dev The fixture's book with an ear for Futures and a name for GroupBuy.
abstract contract StubbedModules is Fixture {
    FirmEar internal ear = new FirmEar();
    address internal pool = makeAddr("group buy");

    function _deploy(address token_) internal override returns (ILeaseBook) {
        return _deployBook(token_, ModuleAddresses(address(0), address(ear), pool), 0);
    }

    function _take(address module, address account, uint256 amount) internal {
        vm.prank(module);
        book.takeCash(account, uint64(amount));
    }

    function _opening() internal view returns (Opening memory) {
        return Opening({
            buyer: buyer, product: product, price: PRICE, duration: DURATION, marketId: 0, name: bytes32(uint256(5))
        });
    }

    function _openFirm() internal returns (uint24 seq) {
        _take(address(ear), buyer, CAP);
        SkipCode code;
        vm.prank(address(ear));
        (code, seq) = book.openFirm(_key(), _opening());
        assertEq(uint8(code), uint8(SkipCode.NONE));
    }

    function _beginFirm() internal returns (uint24 seq) {
        seq = _openFirm();
        _begin(seq, uint32(block.timestamp));
    }
}

contract ModuleCash is StubbedModules {
    function test_takeCash_whenNoModuleCalls_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, stranger));
        vm.prank(stranger);
        book.takeCash(buyer, 1);
    }

    function test_takeCash_whenTheCashIsTooLow_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, CASH, CASH + 1));
        vm.prank(pool);
        book.takeCash(buyer, CASH + 1);
    }

    function test_takeCash_whenAllIsWell_thenTheModuleHoldsIt() external {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.ModuleTook(buyer, pool, 3e6);
        _take(pool, buyer, 3e6);
        assertEq(_cash(buyer), CASH - 3e6);
        assertEq(book.moduleCash(pool), 3e6);
        assertEq(book.moduleCash(address(ear)), 0);
    }

    function test_giveCash_whenNoModuleCalls_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, buyer));
        vm.prank(buyer);
        book.giveCash(buyer, 1);
    }

    function test_giveCash_whenOnlyTheOtherModuleHoldsThatMuch_thenReverts() external {
        _take(pool, buyer, 3e6);
        _take(address(ear), buyer, 10e6);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 3e6, 3e6 + 1));
        vm.prank(pool);
        book.giveCash(buyer, 3e6 + 1);
    }

    function test_giveCash_whenTheAccountIsNone_thenReverts() external {
        _take(pool, buyer, 3e6);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        vm.prank(pool);
        book.giveCash(stranger, 1);
    }

    function test_giveCash_whenAllIsWell_thenTheAccountHasIt() external {
        _take(pool, buyer, 3e6);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.ModuleGave(provider, pool, 2e6);
        vm.prank(pool);
        book.giveCash(provider, 2e6);
        assertEq(book.moduleCash(pool), 1e6);
        assertEq(_cash(buyer), CASH - 3e6);
    }

    function test_useNonce_whenNoModuleCalls_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, buyer));
        vm.prank(buyer);
        book.useNonce(buyer, 1);
    }

    function test_useNonce_whenTheAccountIsNone_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        vm.prank(pool);
        book.useNonce(stranger, 1);
    }

    function test_useNonce_whenCancelled_thenReverts() external {
        vm.prank(buyer);
        book.cancelOne(9);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, 9));
        vm.prank(pool);
        book.useNonce(buyer, 9);
    }

    function test_useNonce_whenUsed_thenNoBidOpensByIt() external {
        Bid memory bid = _bid();
        vm.prank(pool);
        book.useNonce(buyer, bid.nonce);
        _assertSkipped(matcher, _paired(_ask(), bid), SkipCode.NONCE_USED);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, bid.nonce));
        vm.prank(address(ear));
        book.useNonce(buyer, bid.nonce);
    }

    function test_modules_whenAsked_thenAreThoseOfTheConstruction() external view {
        assertEq(book.futures(), address(ear));
        assertEq(book.groupBuy(), pool);
    }
}

contract OpenFirm is StubbedModules {
    function _refused(Opening memory opening, SkipCode code) private {
        _take(address(ear), buyer, CASH - 1);
        vm.prank(address(ear));
        (SkipCode found, uint24 seq) = book.openFirm(_key(), opening);
        assertEq(uint8(found), uint8(code));
        assertEq(seq, 0);
        assertEq(book.moduleCash(address(ear)), CASH - 1);
    }

    function test_openFirm_whenAnotherCalls_thenReverts() external {
        _take(pool, buyer, CAP);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, pool));
        vm.prank(pool);
        book.openFirm(_key(), _opening());
    }

    function test_openFirm_whenFuturesHoldsTooLittle_thenReverts() external {
        _take(address(ear), buyer, CAP - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, CAP - 1, CAP));
        vm.prank(address(ear));
        book.openFirm(_key(), _opening());
    }

    function test_openFirm_whenTheMachineIsTaken_thenSaysSo() external {
        _openAndBegin();
        vm.prank(address(ear));
        (SkipCode code,) = book.openFirm(_key(), _opening());
        assertEq(uint8(code), uint8(SkipCode.MACHINE_NOT_FREE));
    }

    function test_openFirm_whenTheMachineRetires_thenSaysSo() external {
        vm.prank(provider);
        book.retire(INDEX);
        _refused(_opening(), SkipCode.MACHINE_NOT_FREE);
    }

    function test_openFirm_whenThereIsNoMachine_thenSaysSo() external {
        vm.prank(address(ear));
        (SkipCode code,) = book.openFirm(machineKeyOf(provider, 99), _opening());
        assertEq(uint8(code), uint8(SkipCode.MACHINE_NOT_FREE));
    }

    function test_openFirm_whenOfAnotherProduct_thenSaysSo() external {
        Opening memory opening = _opening();
        opening.product = _registerProduct(_product());
        _refused(opening, SkipCode.WRONG_PRODUCT);
    }

    function test_openFirm_whenTheMachineIsTheBuyers_thenSaysSo() external {
        Opening memory opening = _opening();
        opening.buyer = provider;
        _refused(opening, SkipCode.SELF_DEALING);
    }

    function test_openFirm_whenTheCapIsOutOfRange_thenSaysSo() external {
        Opening memory opening = _opening();
        opening.price = 0;
        _refused(opening, SkipCode.CAP_OUT_OF_RANGE);
        opening.price = uint64(uint256(2 ** 48) * 3600 / GPUS / DURATION + 1);
        vm.prank(address(ear));
        (SkipCode code,) = book.openFirm(_key(), opening);
        assertEq(uint8(code), uint8(SkipCode.CAP_OUT_OF_RANGE));
    }

    function test_openFirm_whenTheBondIsTooLow_thenSaysSo() external {
        Opening memory opening = _opening();
        // One base unit above what a bond of 100 tokens allows at 20 %.
        opening.price = uint64((500e6 + 1) * uint256(3600) / GPUS / DURATION + 1);
        _refused(opening, SkipCode.BOND_TOO_LOW);
    }

    function test_openFirm_whenNoNumberIsLeft_thenSaysSo() external {
        vm.prank(provider);
        book.cancelAsks(INDEX, type(uint24).max);
        uint24 seq = _openFirm();
        assertEq(seq, type(uint24).max);
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        _take(address(ear), buyer, CAP);
        vm.prank(address(ear));
        (SkipCode code,) = book.openFirm(_key(), _opening());
        assertEq(uint8(code), uint8(SkipCode.STALE_SEQUENCE));
    }

    function test_openFirm_whenAllIsWell_thenOpensOutOfWhatFuturesHolds() external {
        uint24 seq = _openFirm();
        Lease memory lease = _leaseOf(seq);
        assertEq(lease.status, Status.Funded);
        assertEq(lease.buyer, buyer);
        assertEq(lease.cap, CAP);
        assertEq(lease.duration, DURATION);
        assertEq(lease.start, block.timestamp + START);
        assertEq(lease.flags, FIRM);
        assertEq(lease.marketId, 0);
        assertEq(book.moduleCash(address(ear)), 0);
        assertEq(_cash(buyer), CASH - CAP);
        _assertSolvent();
    }

    function test_openFirm_whenTheMachineIsPausedAndOpeningsToo_thenOpens() external {
        vm.prank(provider);
        book.pause(INDEX);
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        _openFirm();
    }
}

contract OpenPledged is StubbedModules {
    function _pledgedAsk() private view returns (Ask memory ask) {
        ask = _ask();
        ask.matcher = pool;
    }

    function _openBy(Ask memory ask, Opening memory opening) private returns (SkipCode code) {
        if (book.moduleCash(pool) == 0) _take(pool, buyer, CAP);
        bytes memory signature = _sign(nodeKey, _hash(ask));
        vm.prank(pool);
        code = book.openPledged(ask, signature, opening);
    }

    function _refused(Ask memory ask, SkipCode code) private {
        assertEq(uint8(_openBy(ask, _opening())), uint8(code));
        assertEq(book.moduleCash(pool), CAP);
        assertEq(_status(), Status.Free);
    }

    function test_openPledged_whenAnotherCalls_thenReverts() external {
        Ask memory ask = _pledgedAsk();
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, address(ear)));
        vm.prank(address(ear));
        book.openPledged(ask, "", _opening());
    }

    function test_openPledged_whenALimitOfTheAskIsBroken_thenSaysWhich() external {
        Ask memory ask = _pledgedAsk();
        ask.matcher = matcher;
        _refused(ask, SkipCode.WRONG_MATCHER);
        (ask.matcher, ask.product) = (pool, product + 1);
        _refused(ask, SkipCode.WRONG_PRODUCT);
        (ask.product, ask.minPricePerHour) = (product, PRICE + 1);
        _refused(ask, SkipCode.PRICE_OUTSIDE_LIMITS);
        (ask.minPricePerHour, ask.minDuration) = (PRICE, DURATION + 1);
        _refused(ask, SkipCode.DURATION_OUTSIDE_LIMITS);
        (ask.minDuration, ask.maxDuration) = (1, DURATION - 1);
        _refused(ask, SkipCode.DURATION_OUTSIDE_LIMITS);
        (ask.maxDuration, ask.startBy) = (DURATION, uint32(block.timestamp - 1));
        _refused(ask, SkipCode.EXPIRED);
        (ask.startBy, ask.flags) = (uint32(block.timestamp), INTERRUPTIBLE);
        _refused(ask, SkipCode.FLAGS_DIFFER);
        (ask.flags, ask.seq) = (8, ask.seq);
        _refused(ask, SkipCode.FLAGS_DIFFER);
        (ask.flags, ask.seq) = (VERIFIED, ask.seq + 1);
        _refused(ask, SkipCode.STALE_SEQUENCE);
        ask.seq -= 1;
        assertEq(uint8(_openBy(ask, _opening())), uint8(SkipCode.NONE));
    }

    function test_openPledged_whenTheFeeIsAboveTheAsks_thenSaysSo() external {
        Ask memory ask = _pledgedAsk();
        ask.maxFeeBps = FEE_BPS - 1;
        Opening memory opening = _opening();
        opening.marketId = marketId;
        assertEq(uint8(_openBy(ask, opening)), uint8(SkipCode.FEE_ABOVE_LIMIT));
        ask.maxFeeBps = FEE_BPS;
        assertEq(uint8(_openBy(ask, opening)), uint8(SkipCode.NONE));
    }

    function test_openPledged_whenTheDurationIsNone_thenSaysSo() external {
        Ask memory ask = _pledgedAsk();
        ask.minDuration = 0;
        Opening memory opening = _opening();
        opening.duration = 0;
        assertEq(uint8(_openBy(ask, opening)), uint8(SkipCode.DURATION_OUTSIDE_LIMITS));
    }

    function test_openPledged_whenTheMachineIsPaused_thenSaysSo() external {
        vm.prank(provider);
        book.pause(INDEX);
        assertEq(uint8(_openBy(_pledgedAsk(), _opening())), uint8(SkipCode.MACHINE_NOT_FREE));
    }

    function test_openPledged_whenAnotherSigned_thenSaysSo() external {
        Ask memory ask = _pledgedAsk();
        _take(pool, buyer, CAP);
        bytes memory signature = _sign(sessionKey, _hash(ask));
        vm.prank(pool);
        assertEq(uint8(book.openPledged(ask, signature, _opening())), uint8(SkipCode.BAD_ASK_SIGNATURE));
    }

    function test_openPledged_whenAllIsWell_thenOpensAnOrdinaryLease() external {
        Ask memory ask = _pledgedAsk();
        assertEq(uint8(_openBy(ask, _opening())), uint8(SkipCode.NONE));
        Lease memory lease = _leaseOf(ask.seq);
        assertEq(lease.status, Status.Funded);
        assertEq(lease.buyer, buyer);
        assertEq(lease.cap, CAP);
        assertEq(lease.flags, 0);
        _assertSolvent();
    }
}
