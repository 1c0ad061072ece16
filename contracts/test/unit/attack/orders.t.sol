// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Role, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Product} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";
import {Wallet} from "../../mocks/Wallets.sol";

/// @dev Attacks on orders and on who may open them; one test a row of the table in the design.
contract AttackOnOrders is Fixture {
    uint256 private constant CURVE_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

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

    // ------------------------------------------------------------------------------------------------ signatures

    function test_attack_malleableSignature() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.bidSignature = _mirror(entry.bidSignature);
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
    }

    function test_attack_zeroEmptyAndOddSignatures() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        bytes memory honest = entry.bidSignature;
        bytes[5] memory bad = [bytes(""), new bytes(65), new bytes(64), hex"00", bytes.concat(honest, hex"00")];
        for (uint256 i; i < bad.length; ++i) {
            entry.bidSignature = bad[i];
            _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        }
        entry.bidSignature = honest;
        for (uint256 i; i < bad.length - 1; ++i) {
            entry.askSignature = bad[i];
            _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
        }
    }

    /// @dev A zero address as buyer or provider must not match the zero that a failed recovery gives.
    function test_attack_zeroAddressAsSigner() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        (entry.ask.provider, entry.askSignature) = (address(0), new bytes(65));
        _expectSkip(0, SkipCode.MACHINE_NOT_FREE);
        _submit(matcher, PRICE, entry);
        entry = _paired(_ask(), _bid());
        (entry.bid.buyer, entry.bidSignature) = (address(0), new bytes(65));
        _expectSkip(0, SkipCode.CASH_TOO_LOW);
        _submit(matcher, PRICE, entry);
    }

    /// @dev Bits above a field's width would be hashed but not read: the decoder refuses them.
    function test_attack_dirtyBitsInAField() external {
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = _paired(_ask(), _bid());
        bytes memory input = abi.encodeCall(book.openBatch, (product, PRICE, marketId, entries));
        uint256 countAt = 4 + 4 * 32 + 32 + 32 + 11 * 32 + 2 * 32; // the bid's count in the first entry
        uint256 found;
        assembly ("memory-safe") {
            let word := add(add(input, 0x20), countAt)
            found := mload(word)
            mstore(word, or(found, shl(64, 1)))
        }
        assertEq(found, GPUS, "not the count's place");
        vm.prank(matcher);
        (bool ok,) = address(book).call(input);
        assertFalse(ok);
        assertEq(_status(), Status.Free);
    }

    function _mirror(bytes memory signature) private pure returns (bytes memory) {
        (bytes32 r, uint256 s, uint8 v) = (bytes32(0), 0, uint8(signature[64]));
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            s := mload(add(signature, 0x40))
        }
        return abi.encodePacked(r, CURVE_ORDER - s, v == 27 ? uint8(28) : uint8(27));
    }

    // ------------------------------------------------------------------------------------------------ wallets

    function _wallet(address owner, Wallet.Mood mood) private returns (Wallet wallet) {
        wallet = new Wallet(owner, mood);
        token.mint(address(wallet), 1000e6);
        wallet.join(book, 1000e6);
    }

    /// @dev A provider's wallet may answer for an ask, and may answer badly: its entry is left out at a bounded cost.
    function test_attack_hostileWalletInABatch() external {
        Wallet.Mood[6] memory moods = [
            Wallet.Mood.Honest,
            Wallet.Mood.BurnsGas,
            Wallet.Mood.ReturnsTooMuch,
            Wallet.Mood.Reverts,
            Wallet.Mood.ReturnsNothing,
            Wallet.Mood.ReturnsHalfAWord
        ];
        SignedMatch[] memory entries = new SignedMatch[](moods.length + 1);
        for (uint256 i; i < moods.length; ++i) {
            Wallet wallet = _wallet(stranger, moods[i]);
            vm.prank(stranger);
            wallet.run(address(book), abi.encodeCall(book.addMachine, (INDEX, 50, product)));
            Ask memory ask = _askFrom(address(wallet), INDEX);
            Bid memory bid = _bid();
            entries[i] = SignedMatch(ask, bid, _sign(stranger, _hash(ask)), _sign(buyer, _hash(bid)));
        }
        entries[moods.length] = _paired(_ask(), _bid());
        for (uint256 i = 1; i < moods.length; ++i) {
            _expectSkip(i, SkipCode.BAD_ASK_SIGNATURE);
        }
        vm.prank(matcher);
        uint256 before = gasleft();
        book.openBatch(product, PRICE, marketId, entries);
        assertLt(before - gasleft(), 600_000);
        assertEq(book.machineOf(entries[0].ask.provider, INDEX).status, Status.Funded);
        assertEq(_status(), Status.Funded);
    }

    /// @dev A wallet can change its mind after the market asked it: its bids open only by its own call.
    function test_attack_walletBidInSomebodyElsesBatch() external {
        Wallet wallet = _wallet(stranger, Wallet.Mood.SaysYesToAll);
        Bid memory bid = _bidFrom(address(wallet));
        Ask memory ask = _ask();
        SignedMatch memory entry = SignedMatch(ask, bid, _sign(nodeKey, _hash(ask)), "");
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
    }

    function test_attack_walletBidSentByTheWalletOpens() external {
        Wallet wallet = _wallet(stranger, Wallet.Mood.Honest);
        Bid memory bid = _bidFrom(address(wallet));
        Ask memory ask = _ask();
        vm.warp(bid.openFrom);
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = SignedMatch(ask, bid, _sign(nodeKey, _hash(ask)), _sign(stranger, _hash(bid)));
        bytes memory call = abi.encodeCall(book.openBatch, (product, PRICE, marketId, entries));
        vm.prank(stranger);
        wallet.run(address(book), call);
        assertEq(_leaseOf(1).buyer, address(wallet));
    }

    /// @dev An account that delegated its code (EIP-7702) still signs with its key, whatever that code says.
    function test_attack_accountWithCodeIsLockedOut() external {
        Wallet hostile = new Wallet(stranger, Wallet.Mood.Reverts);
        vm.etch(buyer, address(hostile).code);
        vm.etch(provider, address(hostile).code);
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.askSignature = _sign(provider, _hash(entry.ask));
        _submit(matcher, PRICE, entry);
        assertEq(_status(), Status.Funded);
    }

    // ------------------------------------------------------------------------------------------------ keys

    function test_attack_anothersKeyRegistered() external {
        address key = _signer("victim's key");
        bytes memory stolen = _sign(buyer, keccak256("whatever the attacker can sign"));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, key));
        vm.prank(buyer);
        book.setDelegate(key, Role.Session, uint32(block.timestamp + 1 days), stolen);
    }

    function test_attack_stolenSessionKeySpends() external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.bidSignature = _sign(sessionKey, _hash(entry.bid));
        _assertSkipped(matcher, entry, SkipCode.BAD_BID_SIGNATURE);
        vm.startPrank(sessionKey);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 0, 1));
        book.withdraw(1);
        vm.stopPrank();
    }

    function test_attack_stolenNodeKeyTakesTheBond() external {
        vm.startPrank(nodeKey);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.None));
        book.retire(INDEX); // its own machine of that index, which is none
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 0, 1));
        book.withdraw(1);
        vm.stopPrank();
        assertEq(_status(), Status.Free);
    }

    function test_attack_sessionKeySignsAnAsk() external {
        address session = _signer("provider's session key");
        _delegate(provider, session, Role.Session, uint32(block.timestamp + 1 days));
        SignedMatch memory entry = _paired(_ask(), _bid());
        entry.askSignature = _sign(session, _hash(entry.ask));
        _assertSkipped(matcher, entry, SkipCode.BAD_ASK_SIGNATURE);
    }

    function test_attack_revokedNodeKeySignsAsks() external {
        vm.prank(provider);
        book.revokeDelegate(nodeKey);
        uint256 effectiveAt = block.timestamp + START;
        vm.warp(effectiveAt - 1);
        uint256 snapshot = vm.snapshotState();
        _open(); // still good: nobody is surprised by a revocation it could not have seen
        vm.revertToState(snapshot);
        vm.warp(effectiveAt);
        _assertSkipped(matcher, _paired(_ask(), _bid()), SkipCode.BAD_ASK_SIGNATURE);
    }
}
