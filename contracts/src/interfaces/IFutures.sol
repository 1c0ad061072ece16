// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Assignment,
    ContractEnd,
    FutureContract,
    FuturePair,
    FutureUnit,
    FuturesRules,
    Series,
    UnitEnd
} from "../types/Futures.sol";
import {SkipCode} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {IFirmLeases} from "./IFirmLeases.sol";

/// @title IFutures: GPU time bought ahead, delivered as leases
/// @notice A contract is bilateral: a long that will buy `units` machine windows at a price, a short that will lease
/// them. Both lock a margin. Before the window the long funds the price and the short names machines; from its start
/// anyone delivers: a firm lease a machine. Whoever breaks its side pays its margin, pro rata of what was broken, to
/// the other; nobody rules on anything, and every state has an exit that anyone may take.
/// @dev All money is LeaseBook's vault's; this contract holds no tokens. It has no owner. A contract's life:
///
/// open → settleDefault (a side did not do its part by the deadline), or deliver (in LeaseBook's start window from the
/// window's start), or lapse (after it: nobody delivered). A delivered unit → settleUnit after its lease's end or stop.
///
/// What margins do not decide: work done and not paid, pay without work. In a firm lease as in any other, a buyer that
/// signs no vouchers loses the job and a provider that works without them its pay.
interface IFutures is IFirmLeases {
    /// @notice A contract begins.
    event FutureOpened(
        uint40 indexed contractId,
        address indexed long,
        address indexed short,
        Series series,
        uint64 price,
        uint16 units,
        uint64 longMargin,
        uint64 shortMargin,
        bytes32 buyHash,
        bytes32 sellHash
    );
    /// @notice An order opens no more contracts. It says nothing unless `trader` is the order's own.
    event FutureOrderClosed(bytes32 indexed orderHash, address indexed trader);
    /// @notice Pair `index` of a call was left out.
    event PairSkipped(uint256 index, SkipCode code);
    /// @notice `joiner` stands where `leaver` stood.
    event FutureAssigned(uint40 indexed contractId, bool isBuy, address indexed leaver, address indexed joiner);
    /// @notice The long locked the whole price.
    event FutureFunded(uint40 indexed contractId, uint64 amount);
    /// @notice The short will deliver these machines of its own, in place of any it named before.
    event MachinesNominated(uint40 indexed contractId, uint32[] indexes);
    /// @notice A unit's lease is open, with margins behind it.
    event UnitDelivered(
        uint40 indexed contractId, MachineKey indexed machineKey, uint24 seq, uint48 longMargin, uint48 shortMargin
    );
    /// @notice A nominated machine could not be leased, for `code`.
    event UnitFailed(uint40 indexed contractId, MachineKey indexed machineKey, SkipCode code);
    /// @notice All machines were tried; `toLong` and `toShort` went to the sides at once, the rest stands behind leases.
    event FutureDelivered(uint40 indexed contractId, uint16 delivered, uint64 toLong, uint64 toShort);
    /// @notice The contract ended without delivery.
    event FutureEnded(uint40 indexed contractId, ContractEnd end, uint64 toLong, uint64 toShort);
    /// @notice The lease of a unit ended or was stopped, `left` seconds early.
    event UnitEnded(uint40 indexed contractId, MachineKey indexed machineKey, uint24 seq, UnitEnd end, uint24 left);
    /// @notice The margins of a unit went to the sides.
    event UnitSettled(
        uint40 indexed contractId, MachineKey indexed machineKey, uint24 seq, uint64 toLong, uint64 toShort
    );

    // ------------------------------------------------------------------------------------------------ errors

    error Futures_BadSetting(bytes32 field);
    /// @notice `caller` may not do this.
    error Futures_NotOwner(address caller);
    error Futures_OpeningsPaused(uint256 until);
    /// @notice No such window of that product: `field` (ASCII) is at fault.
    error Futures_BadSeries(bytes32 field);
    /// @notice Possible from `opensAt` on.
    error Futures_TooEarly(uint256 opensAt);
    /// @notice Was possible until `closedAt`.
    error Futures_TooLate(uint256 closedAt);
    /// @notice There is no open contract of this number: it never was, or it ended.
    error Futures_NoContract(uint40 contractId);
    /// @notice The side did its part already.
    error Futures_AlreadyDone(uint40 contractId);
    /// @notice Both sides did their part: there is no default.
    error Futures_NoDefault(uint40 contractId);
    /// @notice A side has not done its part: there is nothing to deliver.
    error Futures_NotReady(uint40 contractId);
    /// @notice `joiner` is no account, or a side of the contract.
    error Futures_BadAssignment(address leaver, address joiner);
    error Futures_BadSignature(address account);
    /// @notice 1 to `limit` machines, found `found`.
    error Futures_WrongCount(uint256 found, uint256 limit);
    /// @notice Machine `index` of the short is not of the contract's product.
    error Futures_WrongMachine(uint32 index);
    /// @notice Not the machines that were nominated.
    error Futures_NotNominated(uint40 contractId);
    /// @notice No margins stand behind that lease, or they were settled.
    error Futures_NoUnit(MachineKey machineKey, uint24 seq);
    /// @notice That lease has not ended.
    error Futures_StillRunning(MachineKey machineKey, uint24 seq);

    // ------------------------------------------------------------------------------------------------ functions

    /// @notice Opens contracts of one series at one price; a pair that breaks a limit of either order is left out and
    /// the rest goes on.
    /// @dev Emits {FutureOpened} or {PairSkipped} per pair. Requirements: openings are not paused; the series exists
    /// and its funding deadline has not passed; one unit's price, floor(price * gpus * window / 3600), is 1 to 2^48-1.
    ///
    /// Requirements of a pair: a buy and a sell order of the series, of two traders, with the caller as matcher and not
    /// past startBy; the price is within both limits; the units are 1 to 64 and within what is left of both orders;
    /// neither is closed; both cash balances cover the margins; each trader signed, or, where the trader is the caller,
    /// its contract accepts the signature (ERC-1271).
    ///
    /// An order opens contracts until its units are used up, each with a margin of its own. Its first uses its nonce,
    /// which must be usable and voids every other order with it; for a later one no `cancelBelow`, and no newer nonce
    /// 128 ahead, may have passed the nonce.
    function openFutures(Series calldata series, uint64 price, FuturePair[] calldata pairs) external;

    /// @notice Takes back what is left of an order of the caller's, or all of it, named by its EIP-712 struct hash; its
    /// contracts stay. Other orders with its nonce stay usable where it has opened none.
    /// @dev Emits {FutureOrderClosed}, also for a hash that is no order's. Possible at any time, while openings are
    /// paused, too. Before the order's first contract, LeaseBook's `cancelOne` ends it as well.
    function closeOrder(bytes32 orderHash) external;

    /// @notice Hands a side on: the joiner posts the margin, the leaver has its own back, and they pay each other what
    /// they agreed on.
    /// @dev Emits {FutureAssigned}. Requirements: not past the funding deadline, and the side has not funded or
    /// nominated yet; the caller holds the side; the joiner signed, its nonce is unused and the expiry not past; it is
    /// neither side.
    function assign(Assignment calldata assignment, bytes calldata signature) external;

    /// @notice The long locks the price of all units.
    /// @dev Emits {FutureFunded}. Requirements: the caller is the long; not past the funding deadline; not done before.
    function fund(uint40 contractId) external;

    /// @notice The short names the machines it will deliver; again before the deadline, to replace them. They may be
    /// paused: delivery opens paused machines too. A machine cannot serve two windows that touch.
    /// @dev Emits {MachinesNominated}. Requirements: the caller is the short; not past the funding deadline; 1 to units
    /// machines of its own, of the product. Those it does not name count as undelivered.
    function nominate(uint40 contractId, uint32[] calldata indexes) external;

    /// @notice Ends a contract whose side, or sides, did not do their part by the deadline; anyone may.
    /// @dev Emits {FutureEnded}. Long unfunded: its margin goes to the short. Nothing nominated: the short's goes to
    /// the long. Both: both have their own back. What the long funded is the long's again.
    function settleDefault(uint40 contractId) external;

    /// @notice Opens a firm lease for each nominated machine; anyone may, from the window's start for LeaseBook's start
    /// window.
    /// @dev Emits {UnitDelivered} or {UnitFailed} per machine, and {FutureDelivered}. A machine that cannot be leased
    /// counts as undelivered: its part of the price, of the long's margin and of the short's goes to the long.
    /// @param indexes As in the last {MachinesNominated}.
    function deliver(uint40 contractId, uint32[] calldata indexes) external;

    /// @notice Gives everything back when nobody delivered in time; anyone may.
    /// @dev Emits {FutureEnded}.
    function lapse(uint40 contractId) external;

    /// @notice Pays out the margins of a delivered unit after its lease's end or stop; anyone may.
    /// @dev Emits {UnitSettled}. The long broke it (stop, an early close that it signed, no Accept after a Ready on
    /// chain): its part pro rata of the time left goes to the short. The short did (release, no Ready): the other way
    /// round. Nobody did: each has its own.
    function settleUnit(address provider, uint32 index, uint24 seq) external;

    // ----------------------------------------------------------------------------------------------- views

    function contractOf(uint40 contractId) external view returns (FutureContract memory);
    function unitOf(address provider, uint32 index, uint24 seq) external view returns (FutureUnit memory);
    /// @notice How many units of an order are in contracts, and whether its trader closed it. 0, too, for an order that
    /// its first contract used up.
    function progressOf(address trader, bytes32 orderHash) external view returns (uint16 filled, bool closed);
    /// @notice Until when a series' contracts are opened, assigned, funded and nominated for.
    function deadlineOf(uint32 windowStart, uint24 windowSeconds) external view returns (uint256);
    function rules() external view returns (FuturesRules memory);
    /// @notice The newest contract's number; they count from 1.
    function contractCount() external view returns (uint40);
    function leaseBook() external view returns (address);
    /// @notice EIP-712 domain separator of ("Futures", "1", chain, this contract).
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}
