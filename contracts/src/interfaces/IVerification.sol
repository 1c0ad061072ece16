// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    AuditWindows,
    Batch,
    BatchId,
    BatchState,
    Commit,
    Ending,
    Leaf,
    Opening,
    Sibling,
    Verdict,
    Verifier
} from "../types/Audits.sol";
import {MachineKey} from "../types/MachineKey.sol";

/// @title Verification: audits of verified leases, by value at risk
/// @notice A provider commits to the results of a lease under one root before anybody knows which of them will be
/// repeated. What was wrong is not paid and costs twenty times its price of the bond, nine tenths of it burnt. Two
/// verifiers, fixed at construction, must agree before a result is called wrong; neither ever touches cash; if both
/// fall silent, the provider is paid at the hard cap.
/// @dev It holds no tokens: the money stays in {ILeaseBook}. A batch is named by (provider, index, seq, batchNo).
///
/// Trust: one verifier alone can give pay of a batch back to its buyer, never take it. It can ask to see a leaf, which
/// the provider, or anybody who has it, shows; only who shows nothing is convicted on one verifier's word. Both
/// together can convict of a wrong result. Which segments a verifier must audit follows from the seed and is
/// recomputed off chain.
///
/// Bounty: two prices of the convicted segment, out of the fine, to the audit account of the verifier whose turn the
/// batch was; that account pays the auditors. No verdict, caller or takeover directs it, so that nobody who could
/// have caused a fault chooses who profits. The page allows ten; two are what the runs of a conviction cost.
///
/// Fraud: two convictions of a provider, in jobs of different buyers, at most 30 days apart. LeaseBook keeps who is
/// barred, since it alone can refuse an opening; only verified leases read it.
interface IVerification {
    /// @notice The provider committed; `value` base units of held pay are the batch's, `locked` of the bond back it.
    event BatchCommitted(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, bytes32 root, uint16 n, uint48 value, uint64 locked
    );
    /// @notice The draw is known. `preimage` is the verifier's; zero: it did not come, and the chain alone drew.
    event BatchDrawn(MachineKey indexed machineKey, uint24 seq, uint16 batchNo, bytes32 seed, bytes32 preimage);
    /// @notice Both verifiers say that the segment is wrong; either may take its word back until `until`. `opening` is
    /// what {contest} and {convict} ask for: whoever follows the logs can go on.
    event SegmentAccused(MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint32 until, Opening opening);
    /// @notice The verifiers do not agree: `refund`, the segment's price, went back to the buyer, nobody is fined.
    event AccusationContested(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 i, address indexed verifier, uint48 refund
    );
    /// @notice `refund` went back to the buyer, `fine` was taken of the bond: `bounty` of it for audits, the rest burnt.
    event SegmentConvicted(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 i, uint48 refund, uint64 fine, uint64 bounty
    );
    /// @notice A verifier asks to see the leaf at drawn point `j`, one of `m`, until `until`.
    event LeafChallenged(MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 j, uint16 m, uint32 until);
    /// @notice The leaf at point `j` is segment `i`, and this is its preimage.
    event LeafOpened(
        MachineKey indexed machineKey,
        uint24 seq,
        uint16 batchNo,
        uint16 j,
        uint16 i,
        bytes32 job,
        bytes32 result,
        bytes32 salt
    );
    /// @notice Nobody showed the leaf at point `j`: `refund` went back to the buyer, `fine` of the bond was burnt.
    event SilenceConvicted(
        MachineKey indexed machineKey, uint24 seq, uint16 batchNo, uint16 j, uint48 refund, uint64 fine
    );
    /// @notice The batch ended; the amounts are what each got now. SLASHED: for fraud, maybe after it had ended
    /// unverified.
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
    /// @notice Point `j` is none of the `m`, was asked for already, is not asked for, or lies elsewhere.
    error Verification_WrongPoint(uint16 j);
    /// @notice Leaves at the points of these bits are still to be shown, or their silence to be convicted.
    error Verification_Challenged(uint256 points);
    error Verification_LengthMismatch(uint256 batches, uint256 preimages);
    /// @notice Segment `i` is accused, contested or convicted already, or is not accused.
    error Verification_WrongSegment(uint16 i);
    /// @notice The results leave out segment `i`, whose weight was not shown.
    error Verification_NotShown(uint16 i);
    /// @notice `field` (ASCII) is outside its hard limits, or the two contracts do not name each other.
    error Verification_BadSetting(bytes32 field);

    /// @notice Commits to the results of a lease: all of its held pay becomes the batch's.
    /// @dev Emits {BatchCommitted}. Locks value * max(1, ceil(20 / n)) of the bond, rounded up to whole bond units.
    /// Requirements: as {ILeaseHolding.takeHeld} has them; n is 1 to 100.
    /// @param signature The provider's or its Node key's; empty: one of them is the caller.
    function commitBatch(Commit calldata commit, bytes calldata signature) external;

    /// @notice Draws: a seed is keccak256(hash of the block after the commitment, preimage, root, batch key).
    /// @dev Emits {BatchDrawn} for each; one that is drawn already is left out. Requirements: 2 to 256 blocks after the
    /// commitment; the preimage is the one for this batch's number in the chain of the verifier whose turn it is.
    /// Knowing it is enough: anyone may send it.
    function reveal(BatchId[] calldata batches, bytes32[] calldata preimages) external;

    /// @notice Draws without a verifier, by the same block's hash (EIP-2935); anyone may.
    /// @dev Emits {BatchDrawn}. Requirements: from block 257 after the commitment, as long as the chain knows the hash.
    function fallbackSeed(address provider, uint32 index, uint24 seq, uint16 batchNo) external;

    /// @notice Asks to see the leaf at point `j` of the `m` points that the caller audits.
    /// @dev Emits {LeafChallenged}. Requirements: the caller is a verifier; drawn, before the hard cap; j < m <= n;
    /// `m` as in the batch's first challenge; each point once. Every challenge restarts the batch's window,
    /// {AuditWindows.answer}.
    function challenge(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 j, uint16 m) external;

    /// @notice Shows the leaf at a challenged point; anyone may.
    /// @dev Emits {LeafOpened}. Requirements: within the window; the leaf lies under the root, and the point in it.
    function openLeaf(uint16 j, Leaf calldata leaf, Sibling[] calldata proof) external;

    /// @notice Convicts silence at a challenged point; anyone may, when the window has passed.
    /// @dev Emits {SilenceConvicted}. An unknown leaf's price is value / m: with all m silent, as behind a garbage
    /// root, nothing is paid. The fine is as in {convict}, all of it burnt, and it counts in the lease as one; it is
    /// never fraud, for an outage must not cost an identity.
    function convictSilent(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 j) external;

    /// @notice Accuses a segment: the leaf under the drawn root, and both verifiers' signatures on one verdict, MISMATCH.
    /// @dev Emits {SegmentAccused}. Requirements: drawn, before the hard cap; or ended without results, until
    /// {AuditWindows.lateSlash} after the hard cap. A segment is accused once, and not where it was silent. The leaf need
    /// not hold a drawn point: which other segments are audited always (heavy ones, new images, probation) only the
    /// published draw can tell. Every accusation restarts the batch's window, {AuditWindows.challenge}.
    /// @param first One verifier's signature, `second` the other's, in any order.
    function accuse(
        Leaf calldata leaf,
        Sibling[] calldata proof,
        Verdict calldata verdict,
        bytes calldata first,
        bytes calldata second
    ) external;

    /// @notice Clears an accusation: a verifier says MATCH or INCOMPARABLE of the segment.
    /// @dev Emits {AccusationContested}. The segment's price goes to the buyer, unless the batch ended unverified.
    /// Requirements: accused, not past the window.
    /// @param opening The segment.
    function contest(Verdict calldata verdict, bytes calldata signature, Opening calldata opening) external;

    /// @notice Convicts an accused segment; anyone may, when the window has passed.
    /// @dev Emits {SegmentConvicted}. Its price, value * weight / 10^6 rounded down, goes to the buyer, twenty times
    /// as much is taken of the locked bond (as far as the lock goes). From the second conviction of a lease on, the
    /// rest of the batch is forfeit and will be burnt. After an end without results both come out of the free bond.
    /// Fraud: all that no other batch locks of the bond is taken, what is left of the batch burnt, the provider barred;
    /// the batch is SLASHED, see {BatchFinalised}.
    /// @param opening The segment.
    function convict(address provider, uint32 index, uint24 seq, uint16 batchNo, Opening calldata opening) external;

    /// @notice Ends batches and frees their locks: the pay less what is the buyer's or forfeit goes to the provider, the
    /// market's fee out of it; the audit share of that pay to the verifier's account, the rest of it to the buyer.
    /// @dev Emits {BatchFinalised} for each; one that has ended is left out. Requirements: no accusation and no
    /// challenge open. Without results: from the hard cap on, by anyone; no audit share is paid, and segments may still
    /// be accused. With results: drawn; signed by the verifier whose turn it is, or from half of the hard cap on by
    /// either.
    function finalize(Ending[] calldata endings) external;

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
