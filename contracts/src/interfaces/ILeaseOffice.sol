// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason, Role} from "../types/Lifecycle.sol";
import {Voucher} from "../types/Orders.sol";
import {Account, Delegate, Lease, Machine, Market, Product, Windows} from "../types/Rows.sol";
import {ILeaseBookLog} from "./ILeaseBookLog.sol";

/// @title ILeaseOffice: accounts, keys, tables, machines, the one-sided ends of a lease, and views
interface ILeaseOffice is ILeaseBookLog {
    // -------------------------------------------------------------------------------------------- accounts

    /// @notice Joins with an empty account.
    /// @dev Emits {AccountRegistered}. Requirements: the caller has no account yet.
    /// @return id The account's number, from 1.
    function register() external returns (uint32 id);

    /// @notice Moves `amount` base units of the token from the caller into `to`'s account.
    /// @dev Emits {Deposited}. Requirements: `to` is registered; deposits are not paused; the token was approved and
    /// delivers exactly `amount`.
    function deposit(address to, uint64 amount) external;

    /// @notice {deposit} with an EIP-2612 permit of the caller, so that no approval is needed before.
    /// @dev Emits {Deposited}. A permit that somebody already used is no failure as long as the allowance stands.
    function depositWithPermit(address to, uint64 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Moves `amount` base units of the caller's cash out to it. Never paused.
    /// @dev Emits {Withdrawn}.
    function withdraw(uint64 amount) external;

    /// @notice Lets `signer` sign for the caller in `role` until `expiry`; called again, extends the expiry.
    /// @dev Emits {DelegateSet}. Requirements: the caller is registered, `signer` is not; it is nobody else's key and
    /// was never revoked; `expiry` is later than now and than the one set before.
    /// @param proof `signer`'s own signature over Delegate(account, role, expiry): nobody registers a foreign key.
    function setDelegate(address signer, Role role, uint32 expiry, bytes calldata proof) external;

    /// @notice Ends a key of the caller `windows().start` from now, for good.
    /// @dev Emits {DelegateRevoked}. Vouchers of leases that started before the revocation takes effect stay valid:
    /// revoking is no way to disown a debt. A stolen session key is answered with {stop}.
    function revokeDelegate(address signer) external;

    /// @notice Voids every bid of the caller that carries `nonce`.
    /// @dev Emits {NonceCancelled}. Requirements: the nonce is still usable.
    function cancelOne(uint32 nonce) external;

    /// @notice Voids every bid of the caller with a nonce below `newBase`.
    /// @dev Emits {NoncesCancelled}. Requirements: `newBase` is above the window's base.
    function cancelBelow(uint32 newBase) external;

    // ---------------------------------------------------------------------------------------------- tables

    /// @notice Adds a product; anyone may, for `registrationFee()` of its cash, which is burnt.
    /// @dev Emits {ProductRegistered}. Requirements: sliceGpus above 0; penaltyBps at most minBondBps, so that the
    /// bond covers the penalty; no unknown flag.
    /// @return id The product's number, from 1.
    function registerProduct(Product calldata product) external returns (uint32 id);

    /// @notice Adds a market whose fees go to the caller's account; costs `registrationFee()`, which is burnt.
    /// @dev Emits {MarketRegistered}. Requirements: feeBps at most 1,000.
    /// @return id The market's number, from 1.
    function registerMarket(uint16 feeBps) external returns (uint16 id);

    // -------------------------------------------------------------------------------------------- machines

    /// @notice Puts machine `index` of the caller up for rent.
    /// @dev Emits {MachineAdded}. Requirements: the index holds no machine; the product exists; `bond` is above 0 and
    /// the caller's cash covers it.
    /// @param bond Whole tokens.
    /// @param product Fixed until the machine is retired.
    function addMachine(uint32 index, uint24 bond, uint32 product) external;

    /// @notice Moves `bond` whole tokens of the caller's cash to its machine's bond.
    /// @dev Emits {BondAdded}. Requirements: the machine exists.
    function addBond(uint32 index, uint24 bond) external;

    /// @notice Takes a free machine of the caller off the market.
    /// @dev Emits {MachinePaused}.
    function pause(uint32 index) external;

    /// @notice Puts a paused machine of the caller back on the market.
    /// @dev Emits {MachinePaused}.
    function unpause(uint32 index) external;

    /// @notice Starts the removal of a free or paused machine of the caller.
    /// @dev Emits {MachineRetiring}.
    function retire(uint32 index) external;

    /// @notice Returns a retiring machine's bond to the caller's cash.
    /// @dev Emits {MachineRetired}. Requirements: `windows().retire` has passed and nothing of the bond is locked.
    function finishRetire(uint32 index) external;

    /// @notice Voids every ask of this machine for a lease number below `nextSeq`, in any state; a running lease
    /// keeps its own number.
    /// @dev Emits {OrdersCancelled}. Requirements: `nextSeq` is above the machine's next number.
    function cancelAsks(uint32 index, uint24 nextSeq) external;

    // ---------------------------------------------------------------------------------------------- leases

    /// @notice The buyer ends an active lease now: pay is frozen at what has accrued, the rest is its cash at once;
    /// the provider has `windows().claim` to bring its best voucher.
    /// @dev Emits {LeaseStopped}. Requirements: Active; the caller is the buyer.
    function stop(address provider, uint32 index, uint24 seq) external;

    /// @notice Tells the buyer of an active lease that the provider will leave.
    /// @dev Emits {NoticeGiven}. Requirements: Active; the caller is the provider or its Node key; not given before.
    /// An interruptible lease can be released without penalty `product.notice` seconds later.
    function giveNotice(address provider, uint32 index, uint24 seq) external;

    /// @notice The provider gives the lease up and has its machine back now.
    /// @dev Emits {LeaseClosed}, and {PenaltyPaid} where the bond pays.
    ///
    /// Funded: the whole cap and the no-show amount from the free bond go to the buyer. Active: the voucher is paid,
    /// the rest and penaltyBps of the rest (rounded up, from the free bond) go to the buyer; no penalty after the
    /// end, nor for an interruptible lease whose notice has run. Stopped: the voucher is paid, the rest returned.
    /// Requirements: the caller is the provider, or its Node key once an interruptible lease's notice has run.
    /// @param voucher Names the lease; an amount of 0 needs no signature.
    /// @param reason RELEASED, NO_VOUCHERS or HEALTH, at the same price; what the state decides goes before it.
    function release(Voucher calldata voucher, bytes calldata signature, CloseReason reason) external;

    /// @notice Ends a lease that did not begin by its start deadline; anyone may.
    /// @dev Emits {LeaseClosed}, and {PenaltyPaid} where the bond pays. With the Ready on chain, the no-show amount
    /// goes to the provider and the rest to the buyer; without, the cap and the no-show amount from the free bond go
    /// to the buyer. The amount is min(cap, `windows().noShow` seconds of price), rounded up.
    function refundUnstarted(address provider, uint32 index, uint24 seq) external;

    /// @notice Ends a lease that nobody closed, `windows().claim` after its end or stop; anyone may.
    /// @dev Emits {LeaseClosed}. The unpaid rest returns to the buyer.
    function expire(address provider, uint32 index, uint24 seq) external;

    // -------------------------------------------------------------------------------------------- guardian

    /// @notice Stops new openings and deposits for `duration` seconds, at most 7 days, once in 30 days.
    /// @dev Emits {Paused}. Requirements: the caller is the guardian. Settling, closing and withdrawing never stop.
    function pauseOpenings(uint32 duration) external;

    // ----------------------------------------------------------------------------------------------- views

    function accountOf(address account) external view returns (Account memory);
    function addressOf(uint32 id) external view returns (address);
    function delegateOf(address signer) external view returns (Delegate memory);
    function machineOf(address provider, uint32 index) external view returns (Machine memory);
    function leaseOf(address provider, uint32 index, uint24 seq) external view returns (Lease memory);
    function productOf(uint32 id) external view returns (Product memory);
    function marketOf(uint16 id) external view returns (Market memory);
    /// @notice How many accounts, products and markets there are; the newest ids.
    function counts() external view returns (uint32 accounts, uint32 products, uint16 markets);
    function windows() external view returns (Windows memory);
    function token() external view returns (address);
    /// @notice Base units of one token, the unit of bonds.
    function bondUnit() external view returns (uint256);
    /// @notice Base units burnt by {registerProduct} and {registerMarket}.
    function registrationFee() external view returns (uint64);
    function guardian() external view returns (address);
    /// @notice Until when openings and deposits are paused; past or 0: they are not.
    function pausedUntil() external view returns (uint32);
}
