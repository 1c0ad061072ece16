// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGroupBuy} from "../interfaces/IGroupBuy.sol";
import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {ModuleHash} from "../libraries/ModuleHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {Campaign, CampaignState, LockedPledge, Pledge, PledgedAsk} from "../types/GroupBuys.sol";
import {SkipCode} from "../types/Lifecycle.sol";
import {Opening} from "../types/Rows.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title GroupBuy (see {IGroupBuy})
/// @dev No owner and no way to change anything. LeaseBook is ours and calls nobody on our behalf but the wallets that
/// it asks for a signature, without letting them act.
contract GroupBuy is IGroupBuy, EIP712 {
    uint256 private constant CAP_MAX = type(uint48).max;
    uint256 private constant PLEDGES_MAX = 100;
    uint256 private constant SLICES_MAX = 100;
    uint256 private constant LIFE_MAX = 14 days;

    ILeaseBook private immutable BOOK;

    mapping(bytes32 campaignId => CampaignState) private _campaigns;
    mapping(bytes32 campaignId => mapping(uint256 place => LockedPledge)) private _pledges;

    /// @param book_ Must name this contract as its module for group buys.
    constructor(ILeaseBook book_) EIP712("GroupBuy", "1") {
        if (book_.groupBuy() != address(this)) revert GroupBuy_BadSetting("leaseBook");
        BOOK = book_;
    }

    // ---------------------------------------------------------------------------------------------- pledges

    /// @inheritdoc IGroupBuy
    function lockPledge(Campaign calldata campaign, Pledge calldata pledge, bytes calldata signature)
        external
        returns (uint256 place)
    {
        // Checks
        uint256 until = BOOK.pausedUntil();
        if (block.timestamp < until) revert GroupBuy_OpeningsPaused(until);
        bytes32 id = idOf(campaign);
        if (pledge.campaignId != id) revert GroupBuy_WrongCampaign(pledge.campaignId);
        CampaignState memory state = _campaigns[id];
        if (state.closed) revert GroupBuy_AlreadyClosed(id);
        uint256 cap = _requireSound(campaign);
        uint256 amount = cap * pledge.slices;
        if (amount > pledge.maxAmount) revert GroupBuy_AmountAboveLimit({amount: amount, limit: pledge.maxAmount});
        place = state.pledges;
        if (place == PLEDGES_MAX) revert GroupBuy_Full(PLEDGES_MAX);
        if (pledge.slices == 0 || uint256(state.slices) + pledge.slices > SLICES_MAX) {
            revert GroupBuy_Full(SLICES_MAX);
        }
        _requireSigned(pledge, signature);
        // Effects
        _campaigns[id] =
            CampaignState({slices: state.slices + pledge.slices, pledges: state.pledges + 1, closed: false});
        _pledges[id][place] = LockedPledge({buyer: pledge.buyer, slices: pledge.slices, amount: uint64(amount)});
        // Interactions
        BOOK.useNonce(pledge.buyer, pledge.nonce);
        BOOK.takeCash(pledge.buyer, uint64(amount));
        emit PledgeLocked({
            campaignId: id, buyer: pledge.buyer, place: place, slices: pledge.slices, amount: uint64(amount)
        });
    }

    /// @dev What makes a campaign one that can close; a pledge to any other would only wait for its refund.
    function _requireSound(Campaign calldata campaign) private view returns (uint256 cap) {
        uint256 gpus = BOOK.productOf(campaign.product).sliceGpus;
        if (gpus == 0) revert GroupBuy_BadCampaign("product");
        cap = SettlementLib.costDown(campaign.pricePerHour, gpus, campaign.duration);
        if (cap == 0 || cap > CAP_MAX) revert GroupBuy_BadCampaign("price");
        if (campaign.goal == 0 || campaign.goal > SLICES_MAX) revert GroupBuy_BadCampaign("goal");
        if (campaign.windowStart > campaign.deadline) revert GroupBuy_BadCampaign("windowStart");
        if (campaign.deadline > block.timestamp + LIFE_MAX) revert GroupBuy_BadCampaign("deadline");
        if (block.timestamp > campaign.deadline) revert GroupBuy_TooLate(campaign.deadline);
        (,, uint16 markets) = BOOK.counts();
        if (campaign.marketId > markets) revert GroupBuy_BadCampaign("marketId");
    }

    /// @dev No delegate, since a pledge is money; a buyer that calls has said it by that, contract or not.
    function _requireSigned(Pledge calldata pledge, bytes calldata signature) private view {
        if (msg.sender == pledge.buyer) return;
        address signer = SigCheck.recover(_hashTypedDataV4(ModuleHash.hash(pledge)), signature);
        if (signer == address(0) || signer != pledge.buyer) revert GroupBuy_BadSignature(pledge.buyer);
    }

    // ---------------------------------------------------------------------------------------------- success

    /// @inheritdoc IGroupBuy
    function closeCampaign(Campaign calldata campaign, address[] calldata providers, PledgedAsk[] calldata asks)
        external
    {
        // Checks
        bytes32 id = idOf(campaign);
        CampaignState memory state = _campaigns[id];
        if (state.closed) revert GroupBuy_AlreadyClosed(id);
        if (block.timestamp < campaign.windowStart) revert GroupBuy_TooEarly(campaign.windowStart);
        if (block.timestamp > campaign.deadline) revert GroupBuy_TooLate(campaign.deadline);
        if (asks.length < campaign.goal || asks.length > state.slices || asks.length == 0) {
            revert GroupBuy_WrongCount({found: asks.length, goal: campaign.goal, slices: state.slices});
        }
        bool listed = campaign.providersHash != 0;
        if (listed && ModuleHash.providersHash(providers) != campaign.providersHash) {
            revert GroupBuy_WrongProviders();
        }
        // Effects, and interactions with the book alone
        _campaigns[id] = CampaignState({slices: 0, pledges: state.pledges, closed: true});
        emit CampaignClosed({campaignId: id, leases: asks.length});
        Opening memory opening = Opening({
            buyer: address(0),
            product: campaign.product,
            price: campaign.pricePerHour,
            duration: campaign.duration,
            marketId: campaign.marketId,
            name: id
        });
        uint256 next;
        for (uint256 place; place < state.pledges; ++place) {
            LockedPledge memory row = _pledges[id][place];
            delete _pledges[id][place];
            opening.buyer = row.buyer;
            uint256 served;
            for (; served < row.slices && next < asks.length; ++served) {
                _openLease(opening, asks[next], next, listed, providers);
                ++next;
            }
            if (served < row.slices) _refund(id, place, row, row.amount / row.slices * (row.slices - served));
        }
    }

    function _openLease(
        Opening memory opening,
        PledgedAsk calldata entry,
        uint256 index,
        bool listed,
        address[] calldata providers
    ) private {
        bool known =
            !listed || (entry.place < providers.length && providers[entry.place] == entry.ask.provider);
        SkipCode code = SkipCode.WRONG_PROVIDER;
        if (known) code = BOOK.openPledged(entry.ask, entry.signature, opening);
        if (code != SkipCode.NONE) revert GroupBuy_AskRefused({index: index, code: code});
    }

    // ---------------------------------------------------------------------------------------------- failure

    /// @inheritdoc IGroupBuy
    function refundPledge(Campaign calldata campaign, uint256 place) external {
        bytes32 id = idOf(campaign);
        if (block.timestamp <= campaign.deadline) revert GroupBuy_TooEarly(uint256(campaign.deadline) + 1);
        LockedPledge memory row = _pledges[id][place];
        if (row.buyer == address(0)) revert GroupBuy_NoPledge(place);
        delete _pledges[id][place];
        _refund(id, place, row, row.amount);
    }

    function _refund(bytes32 id, uint256 place, LockedPledge memory row, uint256 amount) private {
        BOOK.giveCash(row.buyer, uint64(amount));
        emit PledgeRefunded({campaignId: id, buyer: row.buyer, place: place, amount: uint64(amount)});
    }

    // ---------------------------------------------------------------------------------------------- views

    /// @inheritdoc IGroupBuy
    function idOf(Campaign calldata campaign) public view returns (bytes32) {
        return ModuleHash.campaignId(address(this), campaign);
    }

    /// @inheritdoc IGroupBuy
    function stateOf(bytes32 campaignId) external view returns (CampaignState memory) {
        return _campaigns[campaignId];
    }

    /// @inheritdoc IGroupBuy
    function pledgeOf(bytes32 campaignId, uint256 place) external view returns (LockedPledge memory) {
        return _pledges[campaignId][place];
    }

    /// @inheritdoc IGroupBuy
    function leaseBook() external view returns (address) {
        return address(BOOK);
    }

    /// @inheritdoc IGroupBuy
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
