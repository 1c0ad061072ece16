// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../types/Orders.sol";
import {ILeaseBookLog} from "./ILeaseBookLog.sol";

/// @title ILeaseTrading: open, start, pay and close a lease, one by one or in batches
interface ILeaseTrading is ILeaseBookLog {
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

    /// @notice Opens a match that the orders' matcher signed (a Match of both struct hashes, price and market): whoever
    /// wants the lease need not wait for the matcher to submit it.
    /// @dev Emits {LeaseOpened}; reverts with {LeaseBook_EntryRefused}. Requirements as of an entry of {openBatch},
    /// the matcher's signature instead of its call.
    function openMatch(
        uint32 product,
        uint64 price,
        uint16 marketId,
        SignedMatch calldata entry,
        bytes calldata signature
    ) external;

    /// @notice Opens one bid over several machines: a lease for each ask, all or none.
    /// @dev Emits {LeaseOpened} per ask; reverts with {LeaseBook_EntryRefused}, which names the ask. Requirements as of
    /// entries of {openBatch}, but that the bid's count is the GPUs of all machines together; its one nonce is used
    /// once.
    function openGang(
        uint32 product,
        uint64 price,
        uint16 marketId,
        Bid calldata bid,
        bytes calldata bidSignature,
        Ask[] calldata asks,
        bytes[] calldata askSignatures
    ) external;

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
}
