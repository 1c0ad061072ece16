// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {INTERRUPTIBLE, PAY_AS_ASK, READY, VERIFIED} from "../types/Flags.sol";
import {HELD_SLOTS, HeldWordLibrary} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Accept, Ask, Bid, Ready, SignedMatch} from "../types/Orders.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Product} from "../types/Rows.sol";
import {Ledger} from "./Ledger.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Openings: from two signed orders to a lease that runs
/// @dev The hot path. One load and one store a word, one lookup of product and market a call, no memory kept per
/// entry. Whatever a signer, a wallet or a machine does, one entry never reverts the batch; malformed calldata does,
/// and that is the submitter's own.
abstract contract Openings is ILeaseTrading, Ledger {
    uint256 private constant CAP_MAX = type(uint48).max;
    uint256 private constant AUDIT_BPS_MAX = 12_000;

    /// @dev What all entries of a call share.
    struct Round {
        bytes32 domainSeparator;
        uint256 product;
        uint256 sliceGpus;
        uint256 minBondBps;
        uint256 productFlags;
        uint256 price;
        uint256 marketId;
        uint256 feeBps;
    }

    /// @inheritdoc ILeaseTrading
    function openBatch(uint32 product, uint64 price, uint16 marketId, SignedMatch[] calldata matches)
        external
        whenOpen
    {
        if (product == 0 || product > _productCount) revert LeaseBook_UnknownProduct(product);
        if (marketId > _marketCount) revert LeaseBook_UnknownMarket(marketId);
        Product storage rules = _products[product];
        Round memory round = Round({
            domainSeparator: _domainSeparatorV4(),
            product: product,
            sliceGpus: rules.sliceGpus,
            minBondBps: rules.minBondBps,
            productFlags: rules.flags,
            price: price,
            marketId: marketId,
            feeBps: marketId == 0 ? 0 : _markets[marketId].feeBps
        });
        for (uint256 i; i < matches.length; ++i) {
            SkipCode code = _open(round, matches[i]);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
        }
    }

    function _open(Round memory round, SignedMatch calldata entry) private returns (SkipCode) {
        Ask calldata ask = entry.ask;
        Bid calldata bid = entry.bid;
        (uint256 price, uint256 marketId, SkipCode code) = _lane(round, ask, bid);
        if (code != SkipCode.NONE) return code;
        code = _termsOf(round, ask, bid, price);
        if (code != SkipCode.NONE) return code;

        MachineKey key = machineKeyOf(ask.provider, ask.index);
        LeaseWord word = _leases[key];
        if (word.status() != Status.Free) return SkipCode.MACHINE_NOT_FREE;
        uint256 cap = SettlementLib.costDown(price, round.sliceGpus, bid.duration);
        code = _machine(round, ask, word, _machines[key], cap);
        if (code != SkipCode.NONE) return code;

        AccountWord account = _accounts[bid.buyer];
        if (account.cash() < cap) return SkipCode.CASH_TOO_LOW;
        bool usable;
        (account, usable) = NonceWindow.use(account, bid.nonce);
        if (!usable) return SkipCode.NONCE_USED;

        bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, OrderHash.hash(ask));
        if (!_isAskSigned(ask.provider, digest, entry.askSignature)) return SkipCode.BAD_ASK_SIGNATURE;
        bytes32 bidHash = OrderHash.hash(bid);
        digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, bidHash);
        if (!_isBidSigned(bid.buyer, digest, entry.bidSignature)) return SkipCode.BAD_BID_SIGNATURE;

        word = word.funded({
            cap_: cap,
            marketId_: marketId,
            buyerId_: account.id(),
            deadline: block.timestamp + START_WINDOW,
            duration_: bid.duration,
            seq_: ask.seq,
            flags_: (ask.flags & INTERRUPTIBLE) | (bid.flags & VERIFIED)
        });
        account = account.minus(cap);
        if (word.has(VERIFIED)) {
            (account, code) = _hold(key, word, account, bid.auditBps);
            if (code != SkipCode.NONE) return code;
        }
        _accounts[bid.buyer] = account;
        _leases[key] = word;
        emit LeaseOpened({machineKey: key, bidHash: bidHash, word: LeaseWord.unwrap(word)});
        return SkipCode.NONE;
    }

    /// @dev A verified lease's slot, and the share for audits that waits in it. Writes nothing when it skips.
    function _hold(MachineKey key, LeaseWord word, AccountWord account, uint256 auditBps)
        private
        returns (AccountWord, SkipCode)
    {
        uint256 slot = word.seq() % HELD_SLOTS;
        if (!_held[key][slot].isClear()) return (account, SkipCode.HELD_NOT_CLEARED);
        uint256 audit = SettlementLib.shareDown(word.cap(), auditBps);
        if (account.cash() < audit) return (account, SkipCode.CASH_TOO_LOW);
        _held[key][slot] = HeldWordLibrary.opened({
            seq_: word.seq(), audit_: audit, buyerId_: word.buyerId(), marketId_: word.marketId(), auditBps_: auditBps
        });
        return (account.minus(audit), SkipCode.NONE);
    }

    /// @dev Who may submit, and so at which price, for which market. The matcher of both orders may pick any price
    /// within both limits; a buyer by itself takes the ask as it stands, and owes no fee.
    function _lane(Round memory round, Ask calldata ask, Bid calldata bid)
        private
        view
        returns (uint256 price, uint256 marketId, SkipCode)
    {
        if (ask.matcher == msg.sender && bid.matcher == msg.sender) {
            if (round.feeBps > ask.maxFeeBps || round.feeBps > bid.maxFeeBps) {
                return (0, 0, SkipCode.FEE_ABOVE_LIMIT);
            }
            price = bid.flags & PAY_AS_ASK != 0 ? ask.minPricePerHour : round.price;
            return (price, round.marketId, SkipCode.NONE);
        }
        if (bid.buyer == msg.sender && block.timestamp >= bid.openFrom) {
            return (ask.minPricePerHour, 0, SkipCode.NONE);
        }
        return (0, 0, SkipCode.WRONG_MATCHER);
    }

    /// @dev What the two orders say, without a look at any state.
    function _termsOf(Round memory round, Ask calldata ask, Bid calldata bid, uint256 price)
        private
        view
        returns (SkipCode)
    {
        if (ask.product != round.product || bid.product != round.product) return SkipCode.WRONG_PRODUCT;
        if (bid.count != round.sliceGpus) return SkipCode.WRONG_COUNT;
        if (bid.provider != address(0) && bid.provider != ask.provider) return SkipCode.WRONG_PROVIDER;
        if (ask.provider == bid.buyer) return SkipCode.SELF_DEALING;
        if (price < ask.minPricePerHour || price > bid.maxPricePerHour) return SkipCode.PRICE_OUTSIDE_LIMITS;
        uint256 duration = bid.duration;
        if (duration == 0 || duration < ask.minDuration || duration > ask.maxDuration) {
            return SkipCode.DURATION_OUTSIDE_LIMITS;
        }
        if (block.timestamp > ask.startBy || block.timestamp > bid.startBy) return SkipCode.EXPIRED;
        return _flags(round, ask.flags, bid.flags, bid.auditBps);
    }

    function _flags(Round memory round, uint256 askFlags, uint256 bidFlags, uint256 auditBps)
        private
        view
        returns (SkipCode)
    {
        // An unknown bit may mean anything to whoever signed it.
        if (askFlags & ~uint256(INTERRUPTIBLE | VERIFIED) != 0) return SkipCode.FLAGS_DIFFER;
        if (bidFlags & ~uint256(INTERRUPTIBLE | VERIFIED | PAY_AS_ASK) != 0) return SkipCode.FLAGS_DIFFER;
        if (askFlags & INTERRUPTIBLE & ~(bidFlags & round.productFlags) != 0) return SkipCode.FLAGS_DIFFER;
        if (bidFlags & VERIFIED != 0) {
            if (askFlags & round.productFlags & VERIFIED == 0) return SkipCode.FLAGS_DIFFER;
            if (VERIFICATION == address(0)) return SkipCode.VERIFIED_CLOSED;
            return auditBps <= AUDIT_BPS_MAX ? SkipCode.NONE : SkipCode.FLAGS_DIFFER;
        }
        return auditBps == 0 ? SkipCode.NONE : SkipCode.FLAGS_DIFFER;
    }

    function _machine(Round memory round, Ask calldata ask, LeaseWord word, ProductWord machine, uint256 cap)
        private
        view
        returns (SkipCode)
    {
        if (machine.product() != round.product) return SkipCode.WRONG_PRODUCT;
        if (ask.seq != _nextSeq(word, machine)) return SkipCode.STALE_SEQUENCE;
        if (cap == 0 || cap > CAP_MAX) return SkipCode.CAP_OUT_OF_RANGE;
        uint256 free = _freeBond(word, machine) * BOND_UNIT;
        if (free < SettlementLib.shareUp(cap, round.minBondBps)) return SkipCode.BOND_TOO_LOW;
        return SkipCode.NONE;
    }

    /// @dev ECDSA first: it needs no foreign code, and lets an EIP-7702 account sign with its key.
    function _isAskSigned(address provider, bytes32 digest, bytes calldata signature) private view returns (bool) {
        address signer = SigCheck.recover(digest, signature);
        if (signer != address(0) && _speaksFor(provider, signer, Role.Node, block.timestamp)) return true;
        return SigCheck.isAcceptedBy(provider, digest, signature);
    }

    /// @dev No delegate: a session key must not spend. A wallet that decides by contract opens its own matches, so
    /// that changing its mind costs nobody else.
    function _isBidSigned(address buyer, bytes32 digest, bytes calldata signature) private view returns (bool) {
        address signer = SigCheck.recover(digest, signature);
        if (signer != address(0) && signer == buyer) return true;
        return buyer == msg.sender && SigCheck.isAcceptedBy(buyer, digest, signature);
    }

    // ---------------------------------------------------------------------------------------------- start

    /// @inheritdoc ILeaseTrading
    function postReady(Ready calldata ready, bytes calldata signature) external {
        (MachineKey key, LeaseWord word) = _fundedLease(ready);
        if (word.has(READY)) revert LeaseBook_WrongStatus(Status.Funded);
        _requireReadySigned(ready, signature);
        _leases[key] = word.withFlag(READY);
        emit LeaseReady({machineKey: key, seq: ready.seq, runtimeHash: ready.runtimeHash});
    }

    /// @inheritdoc ILeaseTrading
    function begin(
        Ready calldata ready,
        bytes calldata readySignature,
        Accept calldata accepted,
        bytes calldata acceptSignature
    ) external {
        // Checks
        (MachineKey key, LeaseWord word) = _fundedLease(ready);
        bool same = accepted.provider == ready.provider && accepted.index == ready.index && accepted.seq == ready.seq;
        if (!same) revert LeaseBook_WrongLease(ready.seq);
        uint256 startedAt = accepted.startedAt;
        uint256 openedAt = word.start() - START_WINDOW;
        if (startedAt < openedAt || startedAt > block.timestamp) {
            revert LeaseBook_StartOutOfRange({
                startedAt: accepted.startedAt, earliest: openedAt, latest: block.timestamp
            });
        }
        _requireReadySigned(ready, readySignature);
        bytes32 digest = _digest(OrderHash.hash(accepted));
        address buyer = _accountBehind(word.buyerId(), digest, acceptSignature, startedAt);
        if (buyer == address(0)) revert LeaseBook_BadSignature(_addressOf[word.buyerId()]);
        // Effects
        _leases[key] = word.withStart(startedAt).withStatus(Status.Active);
        emit LeaseStarted({machineKey: key, seq: ready.seq, startedAt: accepted.startedAt});
    }

    function _fundedLease(Ready calldata ready) private view returns (MachineKey key, LeaseWord word) {
        key = machineKeyOf(ready.provider, ready.index);
        word = _leases[key];
        _requireStatus(word, Status.Funded);
        if (word.seq() != ready.seq) revert LeaseBook_WrongLease(word.seq());
        if (block.timestamp > word.start()) revert LeaseBook_TooLate(word.start());
    }

    function _requireReadySigned(Ready calldata ready, bytes calldata signature) private view {
        address signer = SigCheck.recover(_digest(OrderHash.hash(ready)), signature);
        if (signer == address(0) || !_speaksFor(ready.provider, signer, Role.Node, block.timestamp)) {
            revert LeaseBook_BadSignature(ready.provider);
        }
    }
}
