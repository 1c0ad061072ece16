// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Campaign, CampaignState, LockedPledge, Pledge, PledgedAsk} from "../types/GroupBuys.sol";
import {SkipCode} from "../types/Lifecycle.sol";

/// @title IGroupBuy: buyers who pledge for a block of machines, and lease them one by one
/// @notice A campaign is a hash of all that its buyers agree on. Pledges are locked; once there are enough, anyone may
/// close it with providers' asks, and every slice becomes an ordinary lease of its own buyer. If nobody does in time,
/// every pledge goes back.
/// @dev All money is LeaseBook's vault's; this contract holds no tokens. It has no owner, and organisers no rights.
interface IGroupBuy {
    /// @notice `amount` is locked for `slices` leases; `place` names the pledge.
    event PledgeLocked(
        bytes32 indexed campaignId, address indexed buyer, uint256 place, uint16 slices, uint64 amount
    );
    /// @notice `leases` opened, to the pledges in their order.
    event CampaignClosed(bytes32 indexed campaignId, uint256 leases);
    /// @notice `amount` went back: the campaign failed, or closed without some or all of the pledge's slices.
    event PledgeRefunded(bytes32 indexed campaignId, address indexed buyer, uint256 place, uint64 amount);

    // ------------------------------------------------------------------------------------------------ errors

    error GroupBuy_BadSetting(bytes32 field);
    error GroupBuy_OpeningsPaused(uint256 until);
    /// @notice A campaign nobody can pledge to: `field` (ASCII) is at fault.
    error GroupBuy_BadCampaign(bytes32 field);
    /// @notice The pledge is for campaign `found`.
    error GroupBuy_WrongCampaign(bytes32 found);
    error GroupBuy_BadSignature(address account);
    /// @notice Possible from `opensAt` on.
    error GroupBuy_TooEarly(uint256 opensAt);
    /// @notice Was possible until `closedAt`.
    error GroupBuy_TooLate(uint256 closedAt);
    /// @notice Pledges and slices number at most `limit` each.
    error GroupBuy_Full(uint256 limit);
    /// @notice The slices cost `amount`, the pledge allows `limit`.
    error GroupBuy_AmountAboveLimit(uint256 amount, uint256 limit);
    /// @notice `found` asks, where at least `goal` and at most `slices` are served.
    error GroupBuy_WrongCount(uint256 found, uint256 goal, uint256 slices);
    error GroupBuy_AlreadyClosed(bytes32 campaignId);
    /// @notice The list is not the one that the campaign names.
    error GroupBuy_WrongProviders();
    /// @notice Ask `index` opens no lease, for `code`; so none opens.
    error GroupBuy_AskRefused(uint256 index, SkipCode code);
    /// @notice There is no such pledge, or it was refunded or served.
    error GroupBuy_NoPledge(uint256 place);

    // ------------------------------------------------------------------------------------------------ functions

    /// @notice Locks a buyer's pledge; it cannot be withdrawn.
    /// @dev Emits {PledgeLocked}. Requirements: openings are not paused; the campaign's product exists, its price for a
    /// lease, floor(price * gpus * duration / 3600), is 1 to 2^48-1, its goal 1 to 100, its market exists; it closes at
    /// the earliest before it closes at the latest, which is at most 14 days away and not past; it is not closed; the
    /// slices are above 0, cost at most maxAmount, and fill neither 100 pledges nor 100 slices; the cash covers them;
    /// the nonce is unused; the buyer signed, or is the caller (then the signature may be empty).
    /// @return place The pledge's place in the campaign, from 0.
    function lockPledge(Campaign calldata campaign, Pledge calldata pledge, bytes calldata signature)
        external
        returns (uint256 place);

    /// @notice Opens one lease an ask, to the pledges in the order in which they were locked, all or none; anyone may.
    /// @dev Emits {CampaignClosed}, and {PledgeRefunded} for what is pledged beyond the asks: a late pledge cannot keep
    /// those before it from being served. Requirements: between windowStart and deadline; at least goal and at most all
    /// pledged slices; each ask as in {ILeaseModules-openPledged}, at most the campaign's price, by a provider of its
    /// list.
    /// @param providers The campaign's list; empty where anybody may serve it.
    function closeCampaign(Campaign calldata campaign, address[] calldata providers, PledgedAsk[] calldata asks)
        external;

    /// @notice Returns a pledge of a campaign that was not closed by its deadline; anyone may.
    /// @dev Emits {PledgeRefunded}.
    function refundPledge(Campaign calldata campaign, uint256 place) external;

    // ----------------------------------------------------------------------------------------------- views

    function idOf(Campaign calldata campaign) external view returns (bytes32);
    function stateOf(bytes32 campaignId) external view returns (CampaignState memory);
    function pledgeOf(bytes32 campaignId, uint256 place) external view returns (LockedPledge memory);
    function leaseBook() external view returns (address);
    /// @notice EIP-712 domain separator of ("GroupBuy", "1", chain, this contract).
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}
