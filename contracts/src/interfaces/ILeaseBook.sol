// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason, Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {Accept, Ready, SignedMatch, Voucher} from "../types/Orders.sol";
import {Account, Delegate, Lease, Machine, Market, Product, Windows} from "../types/Rows.sol";

/// @title LeaseBook: the vault, the machines and their leases
/// @notice Holds every token of the marketplace. A buyer's signed bid and a provider's signed ask, paired by a market
/// within both limits, open a lease and lock its price; vouchers move it, never ahead of the clock; every state has
/// an exit that anyone may take after a time-out. Nobody arbitrates, nobody can change a rule.
/// @dev Amounts are base units of the token, prices base units per GPU-hour, bonds whole tokens, times Unix seconds,
/// durations seconds, shares basis points. A lease is named by (provider, index, seq) everywhere.
///
/// Assumptions (safety): the token neither takes a fee on transfer nor changes balances by itself; block timestamps
/// are honest to the minute. Assumptions (liveness): a transaction is included within the claim window.
interface ILeaseBook {
    // ------------------------------------------------------------------------------------------------ events

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
    /// @param bidHash EIP-712 struct hash of the bid that opened it.
    event LeaseOpened(MachineKey indexed machineKey, bytes32 indexed bidHash, uint256 word);
    /// @notice The provider's Ready is on chain: if the lease does not begin, the buyer failed to show up.
    event LeaseReady(MachineKey indexed machineKey, uint24 seq, bytes32 runtimeHash);
    /// @notice The meter runs from `startedAt`.
    event LeaseStarted(MachineKey indexed machineKey, uint24 seq, uint32 startedAt);
    /// @notice `paid` base units in all left the lease's escrow for the provider, the market's fee included.
    event LeaseSettled(MachineKey indexed machineKey, uint24 seq, uint48 paid);
    /// @notice The buyer stopped the lease; what exceeds `ceiling` is the buyer's again.
    event LeaseStopped(MachineKey indexed machineKey, uint24 seq, uint48 ceiling);
    /// @notice The provider of an active lease will leave.
    event NoticeGiven(MachineKey indexed machineKey, uint24 seq);
    /// @notice The lease ended; `paid` in all went to the provider (fee included), the rest of its escrow to the buyer.
    event LeaseClosed(MachineKey indexed machineKey, uint24 seq, CloseReason reason, uint48 paid);
    /// @notice `amount` base units of the machine's bond went to the lease's buyer (no-show or early release).
    event PenaltyPaid(MachineKey indexed machineKey, uint24 seq, uint64 amount);
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
    /// @notice Machines need a bond.
    error LeaseBook_BondTooLow(uint256 have, uint256 need);
    /// @notice `seq` is not beyond the next lease's number.
    error LeaseBook_StaleSequence(uint24 seq, uint256 next);
    /// @notice A start lies between the opening and now.
    error LeaseBook_StartOutOfRange(uint32 startedAt, uint256 earliest, uint256 latest);
    /// @notice A provider may name RELEASED, NO_VOUCHERS or HEALTH.
    error LeaseBook_BadReason(CloseReason reason);
    error LeaseBook_NoticeGiven(uint32 noticeAt);
    /// @notice Some of the bond secures something else.
    error LeaseBook_BondLocked(uint256 locked);
    error LeaseBook_LengthMismatch(uint256 entries, uint256 signatures);
    error LeaseBook_OpeningsPaused(uint256 until);
    error LeaseBook_DecimalsTooMany(uint8 decimals);
    /// @notice A window (`field`, ASCII) is outside its hard limits.
    error LeaseBook_BadWindow(bytes32 field, uint256 given);

    // ------------------------------------------------------------------------------------------------ accounts

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

    // ------------------------------------------------------------------------------------------------ tables

    /// @notice Adds a product; anyone may, for `registrationFee()` of its cash, which is burnt.
    /// @dev Emits {ProductRegistered}. Requirements: sliceGpus above 0; penaltyBps at most minBondBps, so that the
    /// bond covers the penalty; no unknown flag.
    /// @return id The product's number, from 1.
    function registerProduct(Product calldata product) external returns (uint32 id);

    /// @notice Adds a market whose fees go to the caller's account; costs `registrationFee()`, which is burnt.
    /// @dev Emits {MarketRegistered}. Requirements: feeBps at most 1,000.
    /// @return id The market's number, from 1.
    function registerMarket(uint16 feeBps) external returns (uint16 id);

    // ------------------------------------------------------------------------------------------------ machines

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

    // ------------------------------------------------------------------------------------------------ leases

    /// @notice Opens the leases of a batch of matches at one clearing price; an entry that breaks a limit of either
    /// order is left out and the rest goes on.
    /// @dev Emits {LeaseOpened} or {EntrySkipped} per entry.
    ///
    /// Requirements of an entry: both orders name `product`, and the machine is of it; the caller is both orders'
    /// matcher, or, from the bid's openFrom on, the bid's buyer (then at the ask's price, with no market and no fee);
    /// the price is within both limits (the ask's own if the bid says PAY_AS_ASK); the duration within the ask's; the
    /// count equals the product's slice; neither order is past its startBy; the bid's provider, if any, is the ask's;
    /// buyer and provider differ; the market's fee is at most both orders' maxFeeBps; flags agree; the machine is
    /// Free and the ask carries its next number; the cap, floor(price * gpus * duration / 3600), is 1 to 2^48-1; the
    /// free bond is at least minBondBps of it, rounded up; the buyer's cash covers it; the nonce is unused; both
    /// signatures stand: the ask's by its provider or a Node key of it, the bid's by its buyer.
    /// A contract wallet's bid (ERC-1271) counts only when the wallet itself is the caller.
    /// @param price Base units per GPU-hour.
    /// @param marketId 0: no market, no fee.
    function openBatch(uint32 product, uint64 price, uint16 marketId, SignedMatch[] calldata matches) external;

    /// @notice Puts the provider's Ready on chain, so that a lease that never begins is the buyer's no-show.
    /// @dev Emits {LeaseReady}. Requirements: Funded, not past the start deadline; signed by the provider or its Node
    /// key.
    function postReady(Ready calldata ready, bytes calldata signature) external;

    /// @notice Starts the lease; anyone may post it, the node does at once.
    /// @dev Emits {LeaseStarted}. Requirements: Funded, not past the start deadline; Ready signed by the provider or
    /// its Node key, Accept by the buyer or its Session key; startedAt between the opening and now.
    function begin(
        Ready calldata ready,
        bytes calldata readySignature,
        Accept calldata accepted,
        bytes calldata acceptSignature
    ) external;

    /// @notice Pays vouchers: min(amount, what has accrued) less what was paid. Anyone may submit; never skipped for
    /// being high, never ahead of the clock.
    /// @dev Emits {LeaseSettled} or {EntrySkipped} per entry. Requirements of an entry: the lease is Active or
    /// Stopped; the voucher is signed by the buyer or its Session key (never ERC-1271).
    function settleBatch(Voucher[] calldata vouchers, bytes[] calldata signatures) external;

    /// @notice Ends leases at a final amount: pays like {settleBatch}, the unpaid rest returns to the buyer.
    /// @dev Emits {LeaseClosed} or {EntrySkipped} per entry.
    ///
    /// Requirements of an entry: the lease is Active or Stopped. The buyer or its Session key signed the Voucher; or
    /// a Final of the same four fields, which alone lets an Active lease close before its end (a buyer's signed stop,
    /// without which leaving early is {release} and its penalty). The provider or its Node key signed a Final of the
    /// same four fields, unless one of them is the caller or the voucher pays the whole cap.
    /// @param providerSignatures Empty entries where none is needed.
    function closeBatch(
        Voucher[] calldata vouchers,
        bytes[] calldata buyerSignatures,
        bytes[] calldata providerSignatures
    ) external;

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
    /// Requirements: the caller is the provider.
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

    // ------------------------------------------------------------------------------------------------ guardian

    /// @notice Stops new openings and deposits for `duration` seconds, at most 7 days, once in 30 days.
    /// @dev Emits {Paused}. Requirements: the caller is the guardian. Settling, closing and withdrawing never stop.
    function pauseOpenings(uint32 duration) external;

    // ------------------------------------------------------------------------------------------------ views

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
    /// @notice EIP-712 domain separator of ("LeaseBook", "1", chain, this contract).
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}
