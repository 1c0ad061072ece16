// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseOffice} from "../interfaces/ILeaseOffice.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {Role} from "../types/Lifecycle.sol";
import {Delegate} from "../types/Rows.sol";
import {Ledger} from "./Ledger.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title Accounts: cash, keys and the guardian's pause
/// @dev The only place where tokens come in or go out. Every function that calls the token holds the reentrancy
/// guard, so that a balance difference measures one transfer.
abstract contract Accounts is ILeaseOffice, Ledger {
    using SafeERC20 for IERC20;

    uint256 private constant PAUSE_MAX = 7 days;
    uint256 private constant PAUSE_EVERY = 30 days;

    // ---------------------------------------------------------------------------------------------- cash

    /// @inheritdoc ILeaseOffice
    function register() external returns (uint32 id) {
        if (_accounts[msg.sender].id() != 0) revert LeaseBook_AlreadyRegistered(msg.sender);
        id = ++_accountCount;
        _accounts[msg.sender] = _accounts[msg.sender].withId(id);
        _addressOf[id] = msg.sender;
        emit AccountRegistered({account: msg.sender, id: id});
    }

    /// @inheritdoc ILeaseOffice
    function deposit(address to, uint64 amount) external nonReentrant whenOpen {
        _deposit(to, amount);
    }

    /// @inheritdoc ILeaseOffice
    function depositWithPermit(address to, uint64 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        nonReentrant
        whenOpen
    {
        // A permit seen in the mempool can be sent ahead of us; what counts is whether the allowance stands.
        try IERC20Permit(address(TOKEN)).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
        _deposit(to, amount);
    }

    /// @inheritdoc ILeaseOffice
    function withdraw(uint64 amount) external nonReentrant {
        if (amount == 0) revert LeaseBook_AmountZero();
        _debit(msg.sender, amount);
        emit Withdrawn({account: msg.sender, amount: amount});
        TOKEN.safeTransfer(msg.sender, amount);
    }

    function _deposit(address to, uint64 amount) private {
        // Checks
        if (amount == 0) revert LeaseBook_AmountZero();
        if (_accounts[to].id() == 0) revert LeaseBook_NotRegistered(to);
        // Interactions: first, since what arrives decides
        uint256 before = TOKEN.balanceOf(address(this));
        TOKEN.safeTransferFrom(msg.sender, address(this), amount);
        uint256 total = TOKEN.balanceOf(address(this));
        if (total != before + amount) {
            revert LeaseBook_TransferMismatch({received: total - before, expected: amount});
        }
        if (total > type(uint64).max) revert LeaseBook_VaultFull(total);
        // Effects
        _credit(to, amount);
        emit Deposited({account: to, payer: msg.sender, amount: amount});
    }

    /// @dev Takes the registration fee from the caller's cash and out of the world.
    function _burnFee() internal {
        if (REGISTRATION_FEE == 0) return;
        _debit(msg.sender, REGISTRATION_FEE);
        _burn(REGISTRATION_FEE);
    }

    // ---------------------------------------------------------------------------------------------- keys

    /// @inheritdoc ILeaseOffice
    function setDelegate(address signer, Role role, uint32 expiry, bytes calldata proof) external {
        if (_accounts[msg.sender].id() == 0) revert LeaseBook_NotRegistered(msg.sender);
        if (role == Role.None) revert LeaseBook_BadRole(role);
        Delegate storage delegate = _delegates[signer];
        bool foreign = delegate.account != address(0)
            && (delegate.account != msg.sender || delegate.role != role || delegate.revokedAt != 0);
        if (foreign || _accounts[signer].id() != 0) revert LeaseBook_DelegateTaken(signer);
        if (expiry <= block.timestamp || expiry <= delegate.expiry) revert LeaseBook_BadExpiry(expiry);
        bytes32 digest = _digest(OrderHash.hashDelegate(msg.sender, uint8(role), expiry));
        address found = SigCheck.recover(digest, proof);
        if (found == address(0) || found != signer) revert LeaseBook_BadSignature(signer);
        (delegate.account, delegate.role, delegate.expiry) = (msg.sender, role, expiry);
        emit DelegateSet({account: msg.sender, signer: signer, role: role, expiry: expiry});
    }

    /// @inheritdoc ILeaseOffice
    function revokeDelegate(address signer) external {
        Delegate storage delegate = _delegates[signer];
        if (delegate.account != msg.sender) revert LeaseBook_NotOwner(msg.sender);
        if (delegate.revokedAt != 0) revert LeaseBook_DelegateTaken(signer);
        uint32 effectiveAt = uint32(block.timestamp + START_WINDOW);
        delegate.revokedAt = effectiveAt;
        emit DelegateRevoked({account: msg.sender, signer: signer, effectiveAt: effectiveAt});
    }

    // ---------------------------------------------------------------------------------------------- nonces

    /// @inheritdoc ILeaseOffice
    function cancelOne(uint32 nonce) external {
        (AccountWord used, bool usable) = NonceWindow.use(_accounts[msg.sender], nonce);
        if (used.id() == 0) revert LeaseBook_NotRegistered(msg.sender);
        if (!usable) revert LeaseBook_NonceUnusable(nonce);
        _accounts[msg.sender] = used;
        emit NonceCancelled({account: msg.sender, nonce: nonce});
    }

    /// @inheritdoc ILeaseOffice
    function cancelBelow(uint32 newBase) external {
        AccountWord word = _accounts[msg.sender];
        if (word.id() == 0) revert LeaseBook_NotRegistered(msg.sender);
        if (newBase <= word.nonceBase()) revert LeaseBook_NonceUnusable(newBase);
        _accounts[msg.sender] = NonceWindow.raise(word, newBase);
        emit NoncesCancelled({account: msg.sender, nonceBase: newBase});
    }

    // ---------------------------------------------------------------------------------------------- guardian

    /// @inheritdoc ILeaseOffice
    function pauseOpenings(uint32 duration) external {
        if (msg.sender != GUARDIAN) revert LeaseBook_NotOwner(msg.sender);
        if (duration > PAUSE_MAX) revert LeaseBook_BadWindow("pause", duration);
        if (block.timestamp < _pausableFrom) revert LeaseBook_TooEarly(_pausableFrom);
        _pausedUntil = uint32(block.timestamp + duration);
        _pausableFrom = uint32(block.timestamp + PAUSE_EVERY);
        emit Paused(_pausedUntil);
    }
}
