// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason, Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {Product} from "../types/Rows.sol";

/// @title ILeaseBookLog: what LeaseBook says happened, and why it refuses
/// @dev The events alone are enough to rebuild every account, machine and lease.
interface ILeaseBookLog {
    /// @notice An account joined; leases name a buyer by this id.
    event AccountRegistered(address indexed account, uint32 indexed id);
    /// @notice `amount` base units came in for `account`, paid by `payer`.
    event Deposited(address indexed account, address indexed payer, uint64 amount);
    /// @notice `amount` base units went out to their owner.
    event Withdrawn(address indexed account, uint64 amount);
    /// @notice `signer` may sign in `role` for `account` until `expiry` (exclusive).
    event DelegateSet(address indexed account, address indexed signer, Role role, uint32 expiry);
    /// @notice `signer` stops signing for `account` from `effectiveAt` on; for leases begun before, it never stops.
    event DelegateRevoked(address indexed account, address indexed signer, uint32 effectiveAt);
    /// @notice Every bid of `account` with this nonce is void.
    event NonceCancelled(address indexed account, uint32 nonce);
    /// @notice Every bid of `account` with a nonce below `nonceBase` is void.
    event NoncesCancelled(address indexed account, uint32 nonceBase);

    /// @notice A row was added to the table of products; it never changes.
    event ProductRegistered(uint32 indexed id, address indexed by, Product product);
    /// @notice A row was added to the table of markets; its rate never changes.
    event MarketRegistered(uint16 indexed id, address indexed account, uint16 feeBps);

    /// @notice A machine of `product` is for rent, with `bond` whole tokens behind it.
    event MachineAdded(MachineKey indexed machineKey, uint32 indexed product, uint24 bond);
    /// @notice `added` whole tokens joined the machine's bond.
    event BondAdded(MachineKey indexed machineKey, uint24 added);
    /// @notice The machine takes no new lease (`paused`), or does again.
    event MachinePaused(MachineKey indexed machineKey, bool paused);
    /// @notice The machine leaves; its bond returns from `finishableAt` on.
    event MachineRetiring(MachineKey indexed machineKey, uint32 finishableAt);
    /// @notice The machine left; `bond` whole tokens became its provider's cash.
    event MachineRetired(MachineKey indexed machineKey, uint24 bond);
    /// @notice Asks for a lease number below `nextSeq` are void.
    event OrdersCancelled(MachineKey indexed machineKey, uint24 nextSeq);

    /// @notice A lease is funded.
    /// @param word The machine's lease word as stored, from the lowest bit: cap 48, paid 48, marketId 16, buyerId 32,
    /// start deadline 32, duration 24, seq 24, bond 24, status 4, flags 4.
    /// @param bidHash EIP-712 struct hash of the bid that opened it; a futures contract's number, a campaign's id.
    event LeaseOpened(MachineKey indexed machineKey, bytes32 indexed bidHash, uint256 word);
    /// @notice The provider's Ready is on chain: if the lease does not begin, the buyer failed to show up.
    event LeaseReady(MachineKey indexed machineKey, uint24 seq, bytes32 runtimeHash);
    /// @notice The meter runs from `startedAt`.
    event LeaseStarted(MachineKey indexed machineKey, uint24 seq, uint32 startedAt);
    /// @notice `paid` base units in all left the lease's escrow for the provider, the market's fee included.
    event LeaseSettled(MachineKey indexed machineKey, uint24 seq, uint48 paid);
    /// @notice The buyer stopped the lease; what exceeds `ceiling` is the buyer's again.
    event LeaseStopped(MachineKey indexed machineKey, uint24 seq, uint48 ceiling);
    /// @notice The provider of an active lease will leave. From `releasableAt` on that is free of the penalty, if the
    /// lease is interruptible.
    event NoticeGiven(MachineKey indexed machineKey, uint24 seq, uint64 releasableAt);
    /// @notice The lease ended; `paid` in all went to the provider (fee included), the rest of its escrow to the buyer.
    /// @param ending From the lowest bit: paid 48, seq 24, reason 8 ({CloseReason}).
    event LeaseClosed(MachineKey indexed machineKey, uint256 ending);
    /// @notice `amount` base units of the machine's bond went to the lease's buyer (no-show or early release).
    event PenaltyPaid(MachineKey indexed machineKey, uint24 seq, uint64 amount);
    /// @notice Held pay of an ended lease, `amount` with its audit share, went back to the buyer: nobody committed.
    event HeldReturned(MachineKey indexed machineKey, uint24 seq, uint64 amount);
    /// @notice A conviction took `refunded` for the buyer and `burnt` for nobody out of the bond.
    event BondSlashed(MachineKey indexed machineKey, uint64 refunded, uint64 burnt);
    /// @notice `amount` of an account's cash became a module's: a margin, a funded price, a pledge.
    event ModuleTook(address indexed account, address indexed module, uint64 amount);
    /// @notice `amount` that a module held became the account's cash; or its lease's escrow, opened next in the log.
    event ModuleGave(address indexed account, address indexed module, uint64 amount);
    /// @notice Entry `index` of a batch was left out.
    event EntrySkipped(uint256 index, SkipCode code);

    /// @notice No lease opens and no deposit enters before `until`.
    event Paused(uint32 until);

    // ------------------------------------------------------------------------------------------------ errors

    /// @notice `caller` may not do this.
    error LeaseBook_NotOwner(address caller);
    /// @notice The machine or lease is in `found`, where the call does not apply.
    error LeaseBook_WrongStatus(Status found);
    /// @notice The machine's newest lease is `found`, not the one named.
    error LeaseBook_WrongLease(uint24 found);
    /// @notice Possible from `opensAt` on.
    error LeaseBook_TooEarly(uint256 opensAt);
    /// @notice Was possible until `closedAt`.
    error LeaseBook_TooLate(uint256 closedAt);
    /// @notice The account holds `have`, needs `need` base units.
    error LeaseBook_CashTooLow(uint256 have, uint256 need);
    error LeaseBook_NotRegistered(address account);
    error LeaseBook_AlreadyRegistered(address account);
    error LeaseBook_AmountZero();
    /// @notice The token moved `received` where `expected` was asked.
    error LeaseBook_TransferMismatch(uint256 received, uint256 expected);
    /// @notice The vault would hold `total`, more than a 64-bit account can count.
    error LeaseBook_VaultFull(uint256 total);
    /// @notice `signer` is an account, or already another account's key, or was revoked.
    error LeaseBook_DelegateTaken(address signer);
    /// @notice Neither `account` nor a key it may use here made the signature.
    error LeaseBook_BadSignature(address account);
    error LeaseBook_BadRole(Role role);
    /// @notice The expiry is past, or earlier than the one already set.
    error LeaseBook_BadExpiry(uint32 expiry);
    /// @notice The nonce was used, cancelled, or lies more than 65,535 ahead of the window.
    error LeaseBook_NonceUnusable(uint32 nonce);
    error LeaseBook_UnknownProduct(uint32 product);
    error LeaseBook_UnknownMarket(uint16 marketId);
    /// @notice The rules of a product contradict each other or a hard limit; `field` is its ASCII name.
    error LeaseBook_BadProduct(bytes32 field);
    error LeaseBook_FeeTooHigh(uint256 feeBps, uint256 limit);
    error LeaseBook_TableFull();
    /// @notice A bond word counts at most 2^24-1 whole tokens.
    error LeaseBook_BondTooHigh(uint256 bond);
    /// @notice `seq` is not beyond the next lease's number.
    error LeaseBook_StaleSequence(uint24 seq, uint256 next);
    /// @notice A start lies between the opening and now.
    error LeaseBook_StartOutOfRange(uint32 startedAt, uint256 earliest, uint256 latest);
    /// @notice A provider may name RELEASED, NO_VOUCHERS or HEALTH.
    error LeaseBook_BadReason(CloseReason reason);
    error LeaseBook_NoticeGiven(uint32 noticeAt);
    /// @notice Some of the bond secures something else.
    error LeaseBook_BondLocked(uint256 locked);
    /// @notice `have` of the bond is free, `need` base units are needed.
    error LeaseBook_BondTooLow(uint256 have, uint256 need);
    /// @notice Lease `seq` holds no pay.
    error LeaseBook_NothingHeld(uint24 seq);
    /// @notice Pay of lease `seq` is still held.
    error LeaseBook_HeldNotCleared(uint24 seq);
    /// @notice The lease's next batch is `next`.
    error LeaseBook_WrongBatch(uint16 next);
    /// @notice Fraud cost the provider its verified leases.
    error LeaseBook_Barred(address provider);
    error LeaseBook_LengthMismatch(uint256 entries, uint256 signatures);
    /// @notice Packed calldata of `length` bytes is not made of entries of `entrySize`.
    error LeaseBook_BadLength(uint256 length, uint256 entrySize);
    /// @notice Entry `index` of what opens whole or not at all.
    error LeaseBook_EntryRefused(uint256 index, SkipCode code);
    error LeaseBook_OpeningsPaused(uint256 until);
    error LeaseBook_DecimalsTooMany(uint8 decimals);
    /// @notice `office` was made with other settings.
    error LeaseBook_WrongOffice(address office);
    /// @notice A window (`field`, ASCII) is outside its hard limits.
    error LeaseBook_BadWindow(bytes32 field, uint256 given);
}
