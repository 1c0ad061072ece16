// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    AuditWindows,
    Batch,
    BatchState,
    Commit,
    Leaf,
    Opening,
    Results,
    Sibling,
    Verdict,
    Verifier
} from "../types/Audits.sol";
import {MachineKey} from "../types/MachineKey.sol";

/// @title Verification: audits of verified leases, by value at risk
/// @notice A provider commits to the results of a lease under one root before anybody knows which of them will be
/// repeated. What was wrong is not paid and costs twenty times its price of the bond, burnt. Two verifiers, fixed at
/// construction, must agree before a bond is touched; neither ever touches cash; if both fall silent, the provider is
/// paid at the hard cap.
/// @dev It holds no tokens: the money stays in {ILeaseBook}. A batch is named by (provider, index, seq, batchNo).
///
/// First form. `challenge`, `openLeaf` and `convictSilent` (a provider that shows nothing forgoes the price, by a
/// verifier's {Results}, and is not convicted), fraud over several buyers and the auditors' bounty are not here yet.
///
/// Trust: one verifier alone can give pay of a batch back to its buyer, never take it, and never touch a bond. Both
/// together can convict. Which segments a verifier must audit follows from the seed and is recomputed off chain.
interface IVerification {
    /// @notice The provider committed; `value` base units of held pay are the batch's, `locked` of the bond back it.
    event BatchCommitted(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, bytes32 root, uint16 n, uint48 value, uint64 locked
    );
    /// @notice The draw is known. `preimage` is the verifier's; zero: it did not come, and the chain alone drew.
    event BatchDrawn(MachineKey indexed machineKey, uint24 seq, uint16 batchNo, bytes32 seed, bytes32 preimage);
    /// @notice Both verifiers say that segment `i` is wrong; either may take its word back until `until`.
    event SegmentAccused(MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 i, uint32 until);
    /// @notice The verifiers do not agree: the segment is not paid, and nobody is fined.
    event AccusationContested(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 i, address indexed verifier
    );
    /// @notice `refund` went back to the buyer, `fine` of the bond was burnt.
    event SegmentConvicted(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 i, uint48 refund, uint64 fine
    );
    /// @notice The batch ended; the amounts are what each got now.
    event BatchFinalised(
        MachineKey indexed machineKey,
        uint24 seq,
        uint16 batchNo,
        BatchState state,
        uint48 provider,
        uint48 market,
        uint56 audits,
        uint64 buyer,
        uint48 burnt
    );

    /// @notice The batch is in `found`, where the call does not apply.
    error Verification_WrongState(BatchState found);
    /// @notice Possible from time `opensAt` on.
    error Verification_TooEarly(uint256 opensAt);
    /// @notice Was possible until time `closedAt`.
    error Verification_TooLate(uint256 closedAt);
    /// @notice Possible from block `first` to `last`.
    error Verification_WrongBlock(uint256 first, uint256 last);
    /// @notice The chain gives no hash of block `number` any more, or not yet.
    error Verification_NoBlockHash(uint256 number);
    /// @notice Neither the provider nor its Node key made the signature.
    error Verification_BadCommit(address provider);
    /// @notice A batch has 1 to 100 segments under a root.
    error Verification_BadBatch(uint16 n);
    /// @notice It is not the preimage that this batch's place in the hash chain asks for.
    error Verification_BadPreimage(bytes32 preimage);
    /// @notice The leaf is not segment `i` of the batch.
    error Verification_BadProof(uint16 i);
    /// @notice The signature is of `found`, not of a verifier that may say this now.
    error Verification_NotVerifier(address found);
    /// @notice The verdicts do not say what this call needs of this segment.
    error Verification_BadVerdict();
    /// @notice Segment `i` is accused, contested or convicted already, or is not accused.
    error Verification_WrongSegment(uint16 i);
    /// @notice The results leave out segment `i`, whose weight was not shown.
    error Verification_NotShown(uint16 i);
    /// @notice `field` (ASCII) is outside its hard limits, or the two contracts do not name each other.
    error Verification_BadSetting(bytes32 field);

    /// @notice Commits to the results of a lease: all of its held pay becomes the batch's.
    /// @dev Emits {BatchCommitted}. Locks value * max(1, ceil(20 / n)) of the bond, rounded up to whole bond units.
    /// Requirements: something is held; `batchNo` is the lease's next; the lease runs, or ended at most LeaseBook's
    /// commit window ago; the free bond covers the lock; n is 1 to 100.
    /// @param signature The provider's or its Node key's; empty: one of them is the caller.
    function commitBatch(Commit calldata commit, bytes calldata signature) external;

    /// @notice Draws: the seed is keccak256(hash of the block after the commitment, preimage, root, batch key).
    /// @dev Emits {BatchDrawn}. Requirements: 2 to 256 blocks after the commitment; the preimage is the one for this
    /// batch's number in the chain of the verifier whose turn it is. Knowing it is enough: anyone may send it.
    function reveal(address provider, uint32 index, uint24 seq, uint16 batchNo, bytes32 preimage) external;

    /// @notice Draws without a verifier, by the same block's hash (EIP-2935); anyone may.
    /// @dev Emits {BatchDrawn}. Requirements: from block 257 after the commitment, as long as the chain knows the hash.
    function fallbackSeed(address provider, uint32 index, uint24 seq, uint16 batchNo) external;

    /// @notice Accuses a segment: the leaf under the drawn root, and both verifiers' signatures on one verdict, MISMATCH.
    /// @dev Emits {SegmentAccused}. Requirements: drawn, before the hard cap; or ended without results, until
    /// {AuditWindows.lateSlash} after the hard cap. A segment is accused once. The leaf need not hold a drawn point: which other
    /// segments are audited always (heavy ones, new images, probation) only the published draw can tell.
    /// @param first One verifier's signature, `second` the other's, in any order.
    function accuse(
        Leaf calldata leaf,
        Sibling[] calldata proof,
        Verdict calldata verdict,
        bytes calldata first,
        bytes calldata second
    ) external;

    /// @notice Clears an accusation: a verifier says MATCH or INCOMPARABLE of the segment.
    /// @dev Emits {AccusationContested}. The segment's price will go to the buyer. Requirements: accused, not past
    /// its window.
    function contest(Verdict calldata verdict, bytes calldata signature) external;

    /// @notice Convicts an accused segment; anyone may, when its window has passed.
    /// @dev Emits {SegmentConvicted}. Its price, value * weight / 10^6 rounded down, goes to the buyer, twenty times
    /// as much of the locked bond is burnt (as far as the lock goes). From the second conviction of a lease on, the
    /// rest of the batch is forfeit and will be burnt. After an end without results both come out of the free bond.
    function convict(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 i) external;

    /// @notice Ends a batch and frees its lock: the pay less what is the buyer's or forfeit goes to the provider, the
    /// market's fee out of it; the audit share of that pay to the verifier's account, the rest of it to the buyer.
    /// @dev Emits {BatchFinalised}. Without results: from the hard cap on, by anyone; no audit share is paid, and
    /// segments may still be accused. Requirements with results: drawn, no accusation open; signed by the verifier
    /// whose turn it is, or from half of the hard cap on by either.
    /// @param openings Hash, weight and proof of each segment that `results` finds incomparable and that was not
    /// contested, ascending; none are needed when nothing of the batch is paid.
    /// @param signature Empty: no results.
    function finalize(Results calldata results, Opening[] calldata openings, bytes calldata signature) external;

    // ----------------------------------------------------------------------------------------------- views

    function batchOf(address provider, uint32 index, uint24 seq, uint16 batchNo) external view returns (Batch memory);
    /// @notice The two verifiers, as constructed.
    function verifiers() external view returns (Verifier[2] memory);
    function auditWindows() external view returns (AuditWindows memory);
    /// @notice How many batches were committed.
    function batchCount() external view returns (uint40);
    /// @notice The newest known preimage of a verifier's chain, and how many draws it is away from the anchor.
    function headOf(uint256 verifier) external view returns (bytes32 preimage, uint40 position);
    function leaseBook() external view returns (address);
    /// @notice EIP-712 domain separator of ("Verification", "1", chain, this contract).
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}
