// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {OrderHash} from "../../../src/libraries/OrderHash.sol";
import {Role} from "../../../src/types/Lifecycle.sol";
import {Delegate} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Keys is Fixture {
    address private key;
    uint32 private expiry;

    function setUp() public override {
        super.setUp();
        key = _signer("key");
        expiry = uint32(block.timestamp + 7 days);
    }

    function _proof(address signer, address account, Role role, uint32 until) private view returns (bytes memory) {
        return _sign(signer, keccak256(abi.encode(OrderHash.DELEGATE, account, role, until)));
    }

    function _assertRefused(address account, address signer, Role role, uint32 until, bytes memory error_) private {
        bytes memory proof = _proof(signer, account, role, until);
        vm.expectRevert(error_);
        vm.prank(account);
        book.setDelegate(signer, role, until, proof);
    }

    function test_setDelegate_whenProven_thenStoresTheKey() external {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.DelegateSet(buyer, key, Role.Session, expiry);
        _delegate(buyer, key, Role.Session, expiry);
        Delegate memory found = book.delegateOf(key);
        assertEq(found.account, buyer);
        assertEq(uint8(found.role), uint8(Role.Session));
        assertEq(found.expiry, expiry);
        assertEq(found.revokedAt, 0);
    }

    function test_setDelegate_whenLater_thenExtends() external {
        _delegate(buyer, key, Role.Session, expiry);
        _delegate(buyer, key, Role.Session, expiry + 1 days);
        assertEq(book.delegateOf(key).expiry, expiry + 1 days);
    }

    function test_setDelegate_whenExpiryIsNotLater_thenReverts() external {
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadExpiry.selector, block.timestamp);
        _assertRefused(buyer, key, Role.Session, uint32(block.timestamp), bad);
        _delegate(buyer, key, Role.Session, expiry);
        bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadExpiry.selector, expiry);
        _assertRefused(buyer, key, Role.Session, expiry, bad);
    }

    function test_setDelegate_whenCallerHasNoAccount_thenReverts() external {
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotRegistered.selector, stranger);
        _assertRefused(stranger, key, Role.Session, expiry, bad);
    }

    function test_setDelegate_whenRoleIsNone_thenReverts() external {
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadRole.selector, Role.None);
        _assertRefused(buyer, key, Role.None, expiry, bad);
    }

    function test_setDelegate_whenSignerIsTaken_thenReverts() external {
        bytes memory taken = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_DelegateTaken.selector, provider);
        _assertRefused(buyer, provider, Role.Session, expiry, taken); // an account
        taken = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_DelegateTaken.selector, nodeKey);
        _assertRefused(buyer, nodeKey, Role.Session, expiry, taken); // another account's key
        _assertRefused(provider, nodeKey, Role.Session, expiry + 365 days, taken); // another role
    }

    function test_setDelegate_whenRevokedBefore_thenReverts() external {
        vm.prank(buyer);
        book.revokeDelegate(sessionKey);
        bytes memory taken = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_DelegateTaken.selector, sessionKey);
        _assertRefused(buyer, sessionKey, Role.Session, expiry + 365 days, taken);
    }

    function test_setDelegate_whenProofIsForSomethingElse_thenReverts() external {
        bytes memory bad = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, key);
        bytes[4] memory proofs = [
            _proof(key, provider, Role.Session, expiry),
            _proof(key, buyer, Role.Node, expiry),
            _proof(key, buyer, Role.Session, expiry + 1),
            _proof(buyer, buyer, Role.Session, expiry)
        ];
        for (uint256 i; i < proofs.length; ++i) {
            vm.expectRevert(bad);
            vm.prank(buyer);
            book.setDelegate(key, Role.Session, expiry, proofs[i]);
        }
    }

    function test_setDelegate_whenSignerIsZero_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, address(0)));
        vm.prank(buyer);
        book.setDelegate(address(0), Role.Session, expiry, new bytes(65));
    }

    function test_revokeDelegate_whenOwn_thenEndsItAStartWindowFromNow() external {
        uint32 effectiveAt = uint32(block.timestamp + START);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.DelegateRevoked(buyer, sessionKey, effectiveAt);
        vm.prank(buyer);
        book.revokeDelegate(sessionKey);
        assertEq(book.delegateOf(sessionKey).revokedAt, effectiveAt);
    }

    function test_revokeDelegate_whenNotOwn_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, provider));
        vm.prank(provider);
        book.revokeDelegate(sessionKey);
    }

    function test_revokeDelegate_whenRevoked_thenReverts() external {
        vm.startPrank(buyer);
        book.revokeDelegate(sessionKey);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_DelegateTaken.selector, sessionKey));
        book.revokeDelegate(sessionKey);
    }
}
