// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ModuleHash} from "../../../src/libraries/ModuleHash.sol";
import {Assignment, FutureOrder, FuturePair, FuturesRules, Series} from "../../../src/types/Futures.sol";
import {CloseReason, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {ModuleAddresses} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev The fixture's world with Futures in it: its buyer is the long, its provider the short, with a second machine.
/// A contract of two units of one day at PRICE: 105.6 tokens a unit, margins of 31.68 and 52.8 in all.
abstract contract FuturesFixture is Fixture {
    uint16 internal constant LONG_BPS = 1500;
    uint16 internal constant SHORT_BPS = 2500;
    uint48 internal constant MARGIN_FLOOR = 1e6;
    uint32 internal constant LEAD = 24 hours;
    uint32 internal constant LEAD_SHORT = 6 hours;
    uint24 internal constant WINDOW = 1 days;
    uint16 internal constant UNITS = 2;
    uint32 internal constant SECOND = 8;
    uint256 internal constant UNIT_CAP = uint256(PRICE) * GPUS * WINDOW / 3600;
    uint256 internal constant LONG_MARGIN = UNIT_CAP * UNITS * LONG_BPS / 10_000;
    uint256 internal constant SHORT_MARGIN = UNIT_CAP * UNITS * SHORT_BPS / 10_000;

    IFutures internal module;
    bytes32 internal moduleSeparator;
    address internal joiner;
    /// @dev The window's start: the second midnight (UTC) from now, since funding closes a day before.
    uint32 internal windowStart;

    uint32 private _nextOrder = 60;

    function setUp() public virtual override {
        super.setUp();
        moduleSeparator = module.DOMAIN_SEPARATOR();
        joiner = _member("joiner");
        windowStart = uint32(block.timestamp / WINDOW * WINDOW + 2 * WINDOW);
        vm.prank(provider);
        book.addMachine(SECOND, BOND, product);
    }

    function _deploy(address token_) internal override returns (ILeaseBook deployed) {
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + BOOK_PARTS);
        deployed = _deployBook(token_, ModuleAddresses(address(0), predicted, address(0)), 0);
        module = IFutures(deployCode("Futures.sol:Futures", abi.encode(deployed, _rules())));
        assertEq(address(module), predicted);
    }

    function _rules() internal pure returns (FuturesRules memory) {
        return FuturesRules({
            longBps: LONG_BPS, shortBps: SHORT_BPS, marginFloor: MARGIN_FLOOR, lead: LEAD, leadShort: LEAD_SHORT
        });
    }

    // ---------------------------------------------------------------------------------------------- what they sign

    function _series() internal view returns (Series memory) {
        return Series({product: product, windowStart: windowStart, windowSeconds: WINDOW});
    }

    function _order(address trader, bool isBuy) internal returns (FutureOrder memory) {
        return FutureOrder({
            trader: trader,
            isBuy: isBuy,
            product: product,
            windowStart: windowStart,
            windowSeconds: WINDOW,
            units: UNITS,
            limitPricePerHour: PRICE,
            startBy: uint32(block.timestamp + 1 hours),
            nonce: _nextOrder++,
            matcher: matcher
        });
    }

    function _signModule(address signer, bytes32 structHash) internal view returns (bytes memory) {
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", moduleSeparator, structHash));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keyOf[signer], digest);
        return abi.encodePacked(r, s, v);
    }

    function _hashOf(FutureOrder memory order) internal pure returns (bytes32) {
        return keccak256(abi.encode(ModuleHash.FUTURE_ORDER, order));
    }

    function _signOrder(address signer, FutureOrder memory order) internal view returns (bytes memory) {
        return _signModule(signer, _hashOf(order));
    }

    function _pairOf(FutureOrder memory buy, FutureOrder memory sell) internal view returns (FuturePair memory) {
        return FuturePair({
            buy: buy,
            sell: sell,
            units: UNITS,
            buySignature: _signOrder(buy.trader, buy),
            sellSignature: _signOrder(sell.trader, sell)
        });
    }

    function _pair() internal returns (FuturePair memory) {
        return _pairOf(_order(buyer, true), _order(provider, false));
    }

    function _assignment(uint40 id, bool isBuy, address from) internal returns (Assignment memory) {
        return Assignment({
            contractId: id,
            isBuy: isBuy,
            leaver: from,
            joiner: joiner,
            leaverPays: 0,
            joinerPays: 0,
            expiry: uint32(block.timestamp + 1 hours),
            nonce: _nextOrder++
        });
    }

    function _signAssignment(address signer, Assignment memory value) internal view returns (bytes memory) {
        return _signModule(signer, keccak256(abi.encode(ModuleHash.ASSIGNMENT, value)));
    }

    // ---------------------------------------------------------------------------------------------- what they do

    function _submitPair(FuturePair memory pair) internal {
        FuturePair[] memory pairs = new FuturePair[](1);
        pairs[0] = pair;
        vm.prank(matcher);
        module.openFutures(_series(), PRICE, pairs);
    }

    function _expectPairSkipped(SkipCode code) internal {
        vm.expectEmit(address(module));
        emit IFutures.PairSkipped(0, code);
    }

    function _openContract() internal returns (uint40 id) {
        _submitPair(_pair());
        id = module.contractCount();
        assertEq(module.contractOf(id).long, buyer, "the contract did not open");
    }

    function _indexes() internal pure returns (uint32[] memory indexes) {
        indexes = new uint32[](2);
        (indexes[0], indexes[1]) = (INDEX, SECOND);
    }

    function _firstOnly() internal pure returns (uint32[] memory indexes) {
        indexes = new uint32[](1);
        indexes[0] = INDEX;
    }

    function _fundIt(uint40 id) internal {
        vm.prank(buyer);
        module.fund(id);
    }

    function _nominateIt(uint40 id, uint32[] memory indexes) internal {
        vm.prank(provider);
        module.nominate(id, indexes);
    }

    /// @dev Both sides did their part, and the window begins now.
    function _readyContract() internal returns (uint40 id) {
        id = _openContract();
        _fundIt(id);
        _nominateIt(id, _indexes());
        vm.warp(windowStart);
    }

    /// @dev Two delivered units, their leases not begun.
    function _delivered() internal returns (uint40 id) {
        id = _readyContract();
        vm.prank(stranger);
        module.deliver(id, _indexes());
        assertEq(_status(), Status.Funded);
    }

    /// @dev The unit of machine INDEX, begun now.
    function _running() internal returns (uint24 seq) {
        _delivered();
        seq = book.machineOf(provider, INDEX).seq;
        _begin(seq, uint32(block.timestamp));
    }

    function _stop(uint24 seq) internal {
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
    }

    function _release(uint24 seq) internal {
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
    }

    function _settleUnit(uint24 seq) internal {
        vm.prank(stranger);
        module.settleUnit(provider, INDEX, seq);
    }

    /// @dev I1 of this world.
    function _assertSolventWithModule() internal view {
        uint256 owed = _cash(buyer) + _cash(provider) + _cash(matcher) + _cash(joiner);
        for (uint32 index = INDEX; index <= SECOND; ++index) {
            uint24 seq = book.machineOf(provider, index).seq;
            owed += uint256(book.machineOf(provider, index).bond) * 1e6;
            owed += book.leaseOf(provider, index, seq).cap - book.leaseOf(provider, index, seq).paid;
        }
        assertEq(token.balanceOf(address(book)), owed + book.moduleCash(address(module)), "I1");
        assertEq(token.balanceOf(address(module)), 0, "the module holds nothing");
    }
}
