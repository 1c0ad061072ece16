// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Market, ModuleAddresses, Product, Windows} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Tables is Fixture {
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    function _assertRefused(Product memory rules, bytes32 field) private {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadProduct.selector, field));
        vm.prank(matcher);
        book.registerProduct(rules);
    }

    function test_registerProduct_whenSound_thenStoresItAndBurnsTheFee() external {
        Product memory rules = _product();
        rules.gpuClass = "H100-SXM5-80GB";
        (uint256 cash, uint256 burnt) = (_cash(buyer), token.balanceOf(BURNT));
        vm.expectEmit(address(book));
        emit ILeaseBookLog.ProductRegistered(product + 1, buyer, rules);
        vm.prank(buyer);
        assertEq(book.registerProduct(rules), product + 1);
        assertEq(keccak256(abi.encode(book.productOf(product + 1))), keccak256(abi.encode(rules)));
        assertEq(_cash(buyer), cash - FEE_TO_REGISTER);
        assertEq(token.balanceOf(BURNT), burnt + FEE_TO_REGISTER);
        _assertSolvent();
    }

    function test_registerProduct_whenUnsound_thenReverts() external {
        Product memory rules = _product();
        rules.gpuClass = 0;
        _assertRefused(rules, "gpuClass");
        rules = _product();
        rules.sliceGpus = 0;
        _assertRefused(rules, "sliceGpus");
        rules = _product();
        rules.penaltyBps = rules.minBondBps + 1;
        _assertRefused(rules, "penaltyBps");
        rules = _product();
        rules.flags = 8;
        _assertRefused(rules, "flags");
    }

    function test_registerProduct_whenFeeIsNotCovered_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 0, FEE_TO_REGISTER));
        vm.prank(stranger);
        book.registerProduct(_product());
    }

    function test_registerMarket_whenSound_thenStoresItAndBurnsTheFee() external {
        uint256 cash = _cash(buyer);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.MarketRegistered(marketId + 1, buyer, 1000);
        vm.prank(buyer);
        assertEq(book.registerMarket(1000), marketId + 1);
        Market memory market = book.marketOf(marketId + 1);
        assertEq(market.account, buyer);
        assertEq(market.feeBps, 1000);
        assertEq(_cash(buyer), cash - FEE_TO_REGISTER);
    }

    function test_registerMarket_whenFeeIsAboveTheMaximum_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_FeeTooHigh.selector, 1001, 1000));
        vm.prank(matcher);
        book.registerMarket(1001);
    }

    function test_registerMarket_whenNotRegistered_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger));
        vm.prank(stranger);
        book.registerMarket(0);
    }

    function test_views_whenAsked_thenAnswerFromOneAddress() external view {
        (uint32 accounts, uint32 products, uint16 markets) = book.counts();
        assertEq(accounts, 3);
        assertEq(products, 1);
        assertEq(markets, 1);
        assertEq(book.token(), address(token));
        assertEq(book.bondUnit(), 1e6);
        assertEq(book.registrationFee(), FEE_TO_REGISTER);
        assertEq(book.guardian(), guardian);
        assertEq(book.pausedUntil(), 0);
        Windows memory windows = book.windows();
        assertEq(windows.start, START);
        assertEq(windows.claim, CLAIM);
        assertEq(windows.retire, RETIRE);
        assertEq(windows.noShow, NO_SHOW);
    }
}

contract Construction is Fixture {
    function _try(Windows memory windows, bytes memory error_) private {
        _try(windows, address(0), 0, error_);
    }

    function _try(Windows memory windows, address verification, uint32 commitWindow, bytes memory error_) private {
        ModuleAddresses memory modules = ModuleAddresses(verification, address(0), address(0));
        bytes memory code = abi.encodePacked(
            vm.getCode("BackOffice.sol:BackOffice"),
            abi.encode(address(token), windows, FEE_TO_REGISTER, guardian, modules, commitWindow)
        );
        (address made, bytes memory answer) = _tryCreate(code);
        assertEq(made == address(0), error_.length != 0);
        assertEq(answer, error_);
    }

    function _bad(bytes32 field, uint256 given) private pure returns (bytes memory) {
        return abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadWindow.selector, field, given);
    }

    function test_construction_whenWindowsAreWithinTheMaxima_thenDeploys() external {
        _try(Windows({start: 1 hours, claim: 7 days, retire: 30 days, noShow: 15 minutes}), "");
        _try(Windows({start: 10, claim: 15, retire: 25, noShow: 0}), ""); // a development network's
    }

    function test_construction_whenAWindowIsOutside_thenReverts() external {
        _try(Windows({start: 0, claim: 15, retire: 25, noShow: 0}), _bad("start", 0));
        _try(Windows({start: 3601, claim: 15, retire: 30 days, noShow: 0}), _bad("start", 3601));
        _try(Windows({start: 10, claim: 0, retire: 25, noShow: 0}), _bad("claim", 0));
        _try(Windows({start: 10, claim: 604_801, retire: 30 days, noShow: 0}), _bad("claim", 604_801));
        _try(Windows({start: 10, claim: 15, retire: 24, noShow: 0}), _bad("retire", 24));
        _try(Windows({start: 10, claim: 15, retire: 2_592_001, noShow: 0}), _bad("retire", 2_592_001));
        _try(Windows({start: 10, claim: 15, retire: 25, noShow: 901}), _bad("noShow", 901));
        Windows memory good = Windows({start: 10, claim: 15, retire: 25, noShow: 0});
        _try(good, address(1), 0, _bad("commit", 0));
        _try(good, address(1), 604_801, _bad("commit", 604_801));
        _try(good, address(1), 604_800, "");
    }

    /// @dev The other parts of the book must count by the same rules.
    function test_construction_whenAnOfficeHasOtherSettings_thenReverts() external {
        Windows memory windows = book.windows();
        ModuleAddresses memory none;
        bytes memory arguments = abi.encode(token, windows, FEE_TO_REGISTER, guardian, none, uint32(0));
        bytes memory others = abi.encode(token, windows, FEE_TO_REGISTER, stranger, none, uint32(0));
        address other = deployCode("BackOffice.sol:BackOffice", others);
        bytes memory creation = bytes.concat(vm.getCode("LeaseBook.sol:LeaseBook"), arguments);
        for (uint256 i; i < 2; ++i) {
            bytes memory offices = i == 0 ? abi.encode(other, office) : abi.encode(front, other);
            (address made, bytes memory answer) = _tryCreate(bytes.concat(creation, offices));
            assertEq(made, address(0));
            assertEq(answer, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongOffice.selector, other));
        }
    }
}
