// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {NonceWindow} from "../libraries/NonceWindow.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {INTERRUPTIBLE, PAY_AS_ASK, VERIFIED} from "../types/Flags.sol";
import {HELD_SLOTS, HeldWordLibrary} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Ask, Bid} from "../types/Orders.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Product} from "../types/Rows.sol";
import {Ledger} from "./Ledger.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Openings: whether two signed orders make a lease, and the lease
/// @dev The hot path. One load and one store a word, one lookup of product and market a call. Nothing here reverts
/// for what a signer, a wallet or a machine did: callers decide what a code means to the rest of their entries.
abstract contract Openings is Ledger {
    uint256 private constant AUDIT_BPS_MAX = 12_000;

    /// @dev What all entries of a call share. `count` is the bid's GPUs, `matcher` who may name the price.
    struct Round {
        bytes32 domainSeparator;
        address matcher;
        uint256 product;
        uint256 sliceGpus;
        uint256 count;
        uint256 minBondBps;
        uint256 productFlags;
        uint256 price;
        uint256 marketId;
        uint256 feeBps;
    }

    function _roundOf(uint32 product, uint64 price, uint16 marketId) internal view returns (Round memory) {
        if (product == 0 || product > _productCount) revert LeaseBook_UnknownProduct(product);
        if (marketId > _marketCount) revert LeaseBook_UnknownMarket(marketId);
        Product storage rules = _products[product];
        uint256 sliceGpus = rules.sliceGpus;
        return Round({
            domainSeparator: _domainSeparatorV4(),
            matcher: msg.sender,
            product: product,
            sliceGpus: sliceGpus,
            count: sliceGpus,
            minBondBps: rules.minBondBps,
            productFlags: rules.flags,
            price: price,
            marketId: marketId,
            feeBps: marketId == 0 ? 0 : _markets[marketId].feeBps
        });
    }

    /// @dev One lease for one bid; writes nothing unless it returns NONE.
    function _open(
        Round memory round,
        Ask memory ask,
        Bid memory bid,
        bytes calldata askSignature,
        bytes calldata bidSignature
    ) internal returns (SkipCode code) {
        MachineKey key;
        LeaseWord word;
        (key, word, code) = _place(round, ask, bid, askSignature);
        if (code != SkipCode.NONE) return code;
        AccountWord account = _accounts[bid.buyer];
        if (account.cash() < word.cap()) return SkipCode.CASH_TOO_LOW;
        bytes32 bidHash;
        (account, bidHash, code) = _useBid(round, account, bid, bidSignature);
        if (code != SkipCode.NONE) return code;
        (account, word, code) = _fund(key, word, account, bid.auditBps);
        if (code != SkipCode.NONE) return code;
        _accounts[bid.buyer] = account;
        _leases[key] = word;
        emit LeaseOpened({machineKey: key, bidHash: bidHash, word: LeaseWord.unwrap(word)});
    }

    // ---------------------------------------------------------------------------------------------- the ask's side

    /// @dev The lease that ask and bid make of a free machine, but for its buyer.
    function _place(Round memory round, Ask memory ask, Bid memory bid, bytes calldata askSignature)
        internal
        view
        returns (MachineKey key, LeaseWord word, SkipCode code)
    {
        uint256 price;
        uint256 marketId;
        (price, marketId, code) = _lane(round, ask, bid);
        if (code == SkipCode.NONE) code = _termsOf(round, ask, bid, price);
        if (code != SkipCode.NONE) return (key, word, code);

        key = machineKeyOf(ask.provider, ask.index);
        word = _leases[key];
        if (word.status() != Status.Free) return (key, word, SkipCode.MACHINE_NOT_FREE);
        uint256 cap = SettlementLib.costDown(price, round.sliceGpus, bid.duration);
        code = _machine(round, ask.seq, word, _machines[key], cap);
        if (code != SkipCode.NONE) return (key, word, code);
        bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, OrderHash.hash(ask));
        if (!_isAskSigned(ask.provider, digest, askSignature)) return (key, word, SkipCode.BAD_ASK_SIGNATURE);

        word = word.funded({
            cap_: cap,
            marketId_: marketId,
            buyerId_: 0,
            deadline: block.timestamp + START_WINDOW,
            duration_: bid.duration,
            seq_: ask.seq,
            flags_: (ask.flags & INTERRUPTIBLE) | (bid.flags & VERIFIED)
        });
    }

    /// @dev Who may submit, and so at which price, for which market. The matcher of both orders may pick any price
    /// within both limits; a buyer by itself takes the ask as it stands, and owes no fee.
    function _lane(Round memory round, Ask memory ask, Bid memory bid)
        private
        view
        returns (uint256 price, uint256 marketId, SkipCode)
    {
        if (ask.matcher == round.matcher && bid.matcher == round.matcher) {
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
    function _termsOf(Round memory round, Ask memory ask, Bid memory bid, uint256 price)
        private
        view
        returns (SkipCode)
    {
        if (ask.product != round.product || bid.product != round.product) return SkipCode.WRONG_PRODUCT;
        if (bid.count != round.count) return SkipCode.WRONG_COUNT;
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
        internal
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

    function _machine(Round memory round, uint256 seq, LeaseWord word, ProductWord machine, uint256 cap)
        internal
        view
        returns (SkipCode)
    {
        if (machine.product() != round.product) return SkipCode.WRONG_PRODUCT;
        if (seq != _nextSeq(word, machine)) return SkipCode.STALE_SEQUENCE;
        if (cap == 0 || cap > CAP_MAX) return SkipCode.CAP_OUT_OF_RANGE;
        unchecked {
            // A bond counts at most 2^24 units of at most 10^8.
            uint256 free = _freeBond(word, machine) * BOND_UNIT;
            return free < SettlementLib.shareUp(cap, round.minBondBps) ? SkipCode.BOND_TOO_LOW : SkipCode.NONE;
        }
    }

    // ---------------------------------------------------------------------------------------------- the bid's side

    /// @dev The buyer's account with the bid's nonce used, if the bid is signed.
    function _useBid(Round memory round, AccountWord account, Bid memory bid, bytes calldata signature)
        internal
        view
        returns (AccountWord, bytes32 bidHash, SkipCode)
    {
        bool usable;
        (account, usable) = NonceWindow.use(account, bid.nonce);
        if (!usable) return (account, bidHash, SkipCode.NONCE_USED);
        bidHash = OrderHash.hash(bid);
        bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, bidHash);
        SkipCode code = _isBidSigned(bid.buyer, digest, signature) ? SkipCode.NONE : SkipCode.BAD_BID_SIGNATURE;
        return (account, bidHash, code);
    }

    /// @dev No delegate: a session key must not spend. A wallet that decides by contract opens its own matches, so
    /// that changing its mind costs nobody else.
    function _isBidSigned(address buyer, bytes32 digest, bytes calldata signature) private view returns (bool) {
        address signer = SigCheck.recover(digest, signature);
        if (signer != address(0) && signer == buyer) return true;
        return buyer == msg.sender && SigCheck.isAcceptedBy(buyer, digest, signature);
    }

    /// @dev The cap leaves the account for the lease. Writes nothing but a verified lease's slot.
    function _fund(MachineKey key, LeaseWord word, AccountWord account, uint256 auditBps)
        internal
        returns (AccountWord, LeaseWord, SkipCode code)
    {
        uint256 cap = word.cap();
        if (account.cash() < cap) return (account, word, SkipCode.CASH_TOO_LOW);
        account = account.minus(cap);
        word = word.withBuyer(account.id());
        if (word.has(VERIFIED)) (account, code) = _hold(key, word, account, auditBps);
        return (account, word, code);
    }

    /// @dev A verified lease's slot, and the share for audits that waits in it. Writes nothing unless it returns NONE.
    function _hold(MachineKey key, LeaseWord word, AccountWord account, uint256 auditBps)
        internal
        returns (AccountWord, SkipCode)
    {
        uint256 slot = word.seq() % HELD_SLOTS;
        if (!_held[key][slot].isClear()) return (account, SkipCode.HELD_NOT_CLEARED);
        if (_barred[_providerOf(key)]) return (account, SkipCode.PROVIDER_BARRED);
        uint256 audit = SettlementLib.shareDown(word.cap(), auditBps);
        if (account.cash() < audit) return (account, SkipCode.CASH_TOO_LOW);
        _held[key][slot] = HeldWordLibrary.opened({
            seq_: word.seq(), audit_: audit, buyerId_: word.buyerId(), marketId_: word.marketId(), auditBps_: auditBps
        });
        return (account.minus(audit), SkipCode.NONE);
    }
}
