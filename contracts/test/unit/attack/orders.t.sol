// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Product} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev Attacks on orders and on who may open them; one test a row of the table in the design.
contract AttackOnOrders is Fixture {
    // ------------------------------------------------------------------------------------------------ altered orders

    function test_attack_operatorAltersTheAsk() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory honest = abi.encode(entry);
        entry.ask.minPricePerHour = 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        (entry.ask.minDuration, entry.bid.duration) = (1, DURATION);
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.ask.maxDuration += 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.ask.startBy += 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.ask.maxFeeBps = 1000;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.ask.flags = 2;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    function test_attack_operatorAltersTheBid() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory honest = abi.encode(entry);
        entry.bid.maxPricePerHour = type(uint64).max;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.duration += 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.startBy += 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.openFrom = 0;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.nonce += 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.maxFeeBps = 1000;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.terms = keccak256("weaker terms");
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry = abi.decode(honest, (SignedMatch));
        entry.bid.flags = 1;
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
    }

    function test_attack_operatorSwapsTheProvider() external {
        address other = _member("other provider");
        vm.prank(other);
        book.addMachine(INDEX, BOND, product);
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.ask.provider = other;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    function test_attack_operatorSwapsTheMachine() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.ask.index = 8;
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    /// @dev The machine's product is fixed when it is added: an order cannot bring rules of its own.
    function test_attack_leaseOpenedUnderAnotherProduct() external {
        Product memory lax = _product();
        (lax.minBondBps, lax.penaltyBps) = (0, 0);
        uint32 other = _registerProduct(lax);
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.product, bid.product) = (other, other);
        SignedMatch memory entry = _paired(ask, bid);
        product = other; // the call names it too
        _assertSkipped(matcher, entry, SkipCode.WRONG_PRODUCT);
    }

    // ------------------------------------------------------------------------------------------------ surplus

    function test_attack_submitterStealsTheSurplus() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        // A front-runner that copies the operator's call has no say, at any price.
        _assertSkipped(stranger, entry, SkipCode.WRONG_MATCHER);
        _assertSkipped(provider, entry, SkipCode.WRONG_MATCHER);
        // The buyer alone, before its time, has none either; after it, it takes the ask as it stands, fee and all:
        // whatever price and market it names.
        _assertSkipped(buyer, entry, SkipCode.WRONG_MATCHER);
        vm.warp(entry.bid.openFrom);
        _submit(buyer, 1, entry);
        assertEq(_leaseOf(1).cap, uint256(entry.ask.minPricePerHour) * GPUS * DURATION / 3600);
        assertEq(_leaseOf(1).marketId, 0);
    }

    function test_attack_providerTakesTheWholeSpreadAfterOpenFrom() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        vm.warp(entry.bid.openFrom);
        _assertSkipped(provider, entry, SkipCode.WRONG_MATCHER);
        _assertSkipped(nodeKey, entry, SkipCode.WRONG_MATCHER);
    }

    function test_attack_feeRaisedAfterSigning() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        vm.prank(matcher);
        marketId = book.registerMarket(301); // the bid allows 300
        _assertSkipped(matcher, entry, SkipCode.FEE_ABOVE_LIMIT);
        assertEq(book.marketOf(1).feeBps, FEE_BPS); // rows never change
    }

    // ------------------------------------------------------------------------------------------------ replay

    function test_attack_ordersReplayedOnAnotherContract() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        ILeaseBook original = book;
        book = _deploy(address(token));
        vm.startPrank(provider);
        token.approve(address(book), type(uint256).max);
        book.register();
        vm.stopPrank();
        vm.prank(provider);
        original.withdraw(500e6);
        vm.prank(provider);
        book.deposit(provider, 500e6);
        vm.prank(provider);
        book.registerProduct(_product());
        vm.prank(provider);
        book.addMachine(INDEX, BOND, 1);
        vm.prank(provider);
        book.registerMarket(FEE_BPS);
        vm.prank(buyer);
        original.withdraw(500e6);
        vm.startPrank(buyer);
        token.approve(address(book), type(uint256).max);
        book.register();
        book.deposit(buyer, 500e6);
        vm.stopPrank();
        // The same accounts, machine, product and market exist there: only the domain differs.
        entry.askSignature = _sign(provider, _hash(entry.ask));
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        domainSeparator = book.DOMAIN_SEPARATOR();
        entry.askSignature = _sign(provider, _hash(entry.ask));
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        entry.bidSignature = _sign(buyer, _hash(entry.bid));
        _submit(matcher, PRICE, entry);
        assertEq(_status(), Status.Funded);
    }

    function test_attack_ordersReplayedOnAnotherChain() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        vm.chainId(block.chainid + 1);
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    function test_attack_askFilledTwice() external {
        Ask memory ask = _ask();
        ask.startBy += 30 days;
        Bid memory second = _bid();
        second.startBy += 30 days;
        uint24 seq = _openWith(ask, _bid());
        _begin(seq, uint32(block.timestamp));
        _assertSkipped(matcher, _paired(ask, second), SkipCode.MACHINE_NOT_FREE);
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        _assertSkipped(matcher, _paired(ask, second), SkipCode.STALE_SEQUENCE);
    }

    function test_attack_bidReplayedOnAnotherMachine() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        Bid memory bid = _bid();
        _openWith(_ask(), bid);
        _assertSkipped(matcher, _paired(_askFrom(provider, 8), bid), SkipCode.NONCE_USED);
    }

    function test_attack_alternativesOpenedTwice() external {
        uint32 other = _registerProduct(_product());
        vm.prank(provider);
        book.addMachine(8, BOND, other);
        Bid memory first = _bid();
        Bid memory second = _bid();
        (second.nonce, second.product) = (first.nonce, other);
        _openWith(_ask(), first);
        Ask memory ask = _askFrom(provider, 8);
        ask.product = other;
        product = other;
        _assertSkipped(matcher, _paired(ask, second), SkipCode.NONCE_USED);
    }

    /// @dev Both alternatives in one batch, where the account is read twice before anything is stored for good.
    function test_attack_alternativesOpenedTwiceInOneBatch() external {
        vm.prank(provider);
        book.addMachine(8, BOND, product);
        Bid memory first = _bid();
        Bid memory second = _bid();
        (second.nonce, second.duration) = (first.nonce, first.duration / 2);
        SignedMatch[] memory entries = new SignedMatch[](2);
        (entries[0], entries[1]) = (_paired(_ask(), first), _paired(_askFrom(provider, 8), second));
        _expectSkip(1, SkipCode.NONCE_USED);
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        assertEq(_cash(buyer), CASH - CAP);
    }

    function test_attack_windowPushedFarAhead() external {
        Bid memory bid = _bid();
        bid.nonce = 65_536;
        _assertSkipped(matcher, _paired(_ask(), bid), SkipCode.NONCE_USED);
        bid.nonce = type(uint32).max;
        _assertSkipped(matcher, _paired(_ask(), bid), SkipCode.NONCE_USED);
    }
}
