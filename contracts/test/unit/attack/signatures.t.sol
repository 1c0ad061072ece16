// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Role, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";
import {Wallet} from "../../mocks/Wallets.sol";

/// @dev Attacks with signatures, wallets and keys; one test a row of the table in the design.
contract AttackOnSignatures is Fixture {
    uint256 private constant CURVE_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

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
