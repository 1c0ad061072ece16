// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeasePacked} from "../interfaces/ILeasePacked.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {PackedBatch} from "../libraries/PackedBatch.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {FIRM, INTERRUPTIBLE, PAY_AS_ASK, VERIFIED} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {CloseReason, Role, SkipCode, Status, endingOf} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Market} from "../types/Rows.sol";
import {Openings} from "./Openings.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title PackedTrading: open, begin and close in calldata without padding
/// @dev The same rules in the same order as {Openings}, {Starts} and {Payments}, written a second time for gas: an
/// entry is read where it lies, nothing is copied. Twin tests hold both to the same events and the same storage.
/// Bounds that make `unchecked` safe here: fields are as narrow as the layout says, sums as {AccountWord} says.
abstract contract PackedTrading is ILeasePacked, Openings {
    using PackedBatch for uint256;

    // Fields are masked, not cast: a cast is a call of its own in what the compiler makes of it.
    uint256 private constant U8 = 0xff;
    uint256 private constant U16 = 0xffff;
    uint256 private constant U24 = 0xffffff;
    uint256 private constant U32 = 0xffffffff;
    uint256 private constant U48 = 0xffffffffffff;
    uint256 private constant U64 = 0xffffffffffffffff;

    /// @dev The buyer whose matches come one after the other: its account is loaded and stored once.
    struct Purse {
        address buyer;
        AccountWord account;
    }

    /// @dev What a call owes so far. Most closings are of one market, and each provider's come one after the other:
    /// both are credited once, by a sum, so that it does not matter whose account else changes meanwhile.
    struct Dues {
        address provider;
        uint256 pay;
        uint256 marketId;
        address market;
        uint256 feeBps;
        uint256 fees;
    }

    // ---------------------------------------------------------------------------------------------- open

    /// @inheritdoc ILeasePacked
    function openPacked(uint32 product, uint64 price, uint16 marketId, bytes calldata data) external whenOpen {
        _requireEntries(data.length, PackedBatch.MATCH_BYTES);
        Round memory round = _roundOf(product, price, marketId);
        Purse memory purse;
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _openEntry(round, purse, entry);
            if (!code.isNone()) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += PackedBatch.MATCH_BYTES;
            }
        }
        _putBack(purse);
    }

    function _openEntry(Round memory round, Purse memory purse, uint256 entry) private returns (SkipCode) {
        unchecked {
            uint256 terms = (entry + 64).wordAt();
            (uint256 price, SkipCode code) = _priceOf(round, entry, terms);
            if (!code.isNone()) return code;
            (MachineKey key, address provider, address buyer, uint256 nonce, uint256 seq, uint256 duration) =
                entry.partsOfMatch();
            uint256 slot = _leaseSlot(key);
            LeaseWord word = _leaseAt(slot);
            if (!word.isFree()) return SkipCode.MACHINE_NOT_FREE;
            uint256 cap = price * round.sliceGpus * duration / 3600;
            code = _machine(round, seq, word, _machines[key], cap);
            if (!code.isNone()) return code;
            if (!_isAskSigned(round, purse, provider, entry)) return SkipCode.BAD_ASK_SIGNATURE;

            if (buyer != purse.buyer) {
                _putBack(purse);
                (purse.buyer, purse.account) = (buyer, _accounts[buyer]);
            }
            AccountWord account = purse.account;
            if (account.cash() < cap) return SkipCode.CASH_TOO_LOW;
            bool usable;
            (account, usable) = NonceWindow.use(account, nonce);
            if (!usable) return SkipCode.NONCE_USED;
            bytes32 bidHash = entry.bidHash(round.product, round.count, msg.sender);
            if (!_isBidSigned(round, purse, bidHash, entry)) return SkipCode.BAD_BID_SIGNATURE;

            word = word.funded({
                cap_: cap,
                marketId_: round.marketId,
                buyerId_: account.id(),
                deadline: block.timestamp + START_WINDOW,
                duration_: duration,
                seq_: seq,
                flags_: ((terms >> 128) & INTERRUPTIBLE) | (terms & VERIFIED)
            });
            account = account.minus(cap);
            if (terms & VERIFIED != 0) {
                (account, code) = _hold(key, word, account, (terms >> 8) & U16);
                if (!code.isNone()) return code;
            }
            purse.account = account;
            _putLease(slot, word);
            emit LeaseOpened({machineKey: key, bidHash: bidHash, word: LeaseWord.unwrap(word)});
            return SkipCode.NONE;
        }
    }

    /// @dev What {_lane} and {_termsOf} check, for orders whose product, count and matcher are the call's.
    function _priceOf(Round memory round, uint256 entry, uint256 terms)
        private
        view
        returns (uint256 price, SkipCode)
    {
        uint256 ask = entry.wordAt();
        uint256 bid = (entry + 32).wordAt();
        (uint256 provider, uint256 buyer, uint256 askFee, uint256 bidFee) = (0, 0, 0, 0);
        (uint256 duration, uint256 shortest, uint256 longest) = (0, 0, 0);
        (uint256 askBy, uint256 bidBy, uint256 askFlags, uint256 auditBps) = (0, 0, 0, 0);
        assembly ("memory-safe") {
            provider := shr(96, ask)
            buyer := shr(96, bid)
            shortest := and(shr(208, terms), 0xffffff)
            longest := and(shr(184, terms), 0xffffff)
            askBy := and(shr(152, terms), 0xffffffff)
            askFee := and(shr(136, terms), 0xffff)
            askFlags := and(shr(128, terms), 0xff)
            duration := and(shr(104, terms), 0xffffff)
            bidBy := and(shr(72, terms), 0xffffffff)
            bidFee := and(shr(24, terms), 0xffff)
            auditBps := and(shr(8, terms), 0xffff)
        }
        if (round.feeBps > askFee || round.feeBps > bidFee) return (0, SkipCode.FEE_ABOVE_LIMIT);
        price = terms & PAY_AS_ASK != 0 ? (ask & U64) : round.price;
        if (provider == buyer) return (0, SkipCode.SELF_DEALING);
        if (price < (ask & U64) || price > (bid & U64)) return (0, SkipCode.PRICE_OUTSIDE_LIMITS);
        if (duration == 0 || duration < shortest || duration > longest) {
            return (0, SkipCode.DURATION_OUTSIDE_LIMITS);
        }
        if (block.timestamp > askBy || block.timestamp > bidBy) return (0, SkipCode.EXPIRED);
        uint256 bidFlags = terms & 0x7f;
        // Most orders want nothing special.
        if (askFlags | (bidFlags & ~uint256(PAY_AS_ASK)) | auditBps == 0) return (price, SkipCode.NONE);
        return (price, _flags(round, askFlags, bidFlags, auditBps));
    }

    function _putBack(Purse memory purse) private {
        if (purse.buyer != address(0)) _accounts[purse.buyer] = purse.account;
    }

    function _isAskSigned(Round memory round, Purse memory purse, address provider, uint256 entry)
        private
        returns (bool)
    {
        unchecked {
            bytes32 structHash = entry.askHash(round.product, msg.sender);
            uint256 place = entry + PackedBatch.ASK_SIGNATURE;
            address signer = PackedBatch.signerOf(round.domainSeparator, structHash, place);
            if (signer != address(0) && _speaksFor(provider, signer, Role.Node, block.timestamp)) return true;
            _putBack(purse); // a wallet that is asked sees the book as it stands
            bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, structHash);
            return SigCheck.isAcceptedBy(provider, digest, place.signatureAt());
        }
    }

    function _isBidSigned(Round memory round, Purse memory purse, bytes32 bidHash, uint256 entry)
        private
        returns (bool)
    {
        unchecked {
            address buyer = purse.buyer;
            uint256 place = entry + PackedBatch.BID_SIGNATURE;
            address signer = PackedBatch.signerOf(round.domainSeparator, bidHash, place);
            if (signer != address(0) && signer == buyer) return true;
            if (buyer != msg.sender) return false;
            _putBack(purse);
            bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, bidHash);
            return SigCheck.isAcceptedBy(buyer, digest, place.signatureAt());
        }
    }

    // ---------------------------------------------------------------------------------------------- begin

    /// @inheritdoc ILeasePacked
    function beginPacked(address provider, bytes calldata data) external {
        _requireEntries(data.length, PackedBatch.START_BYTES);
        if (!_speaksFor(provider, msg.sender, Role.Node, block.timestamp)) revert LeaseBook_NotOwner(msg.sender);
        bytes32 domainSeparator = _domainSeparatorV4();
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _startEntry(domainSeparator, provider, entry);
            if (!code.isNone()) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += PackedBatch.START_BYTES;
            }
        }
    }

    function _startEntry(bytes32 domainSeparator, address provider, uint256 entry) private returns (SkipCode code) {
        unchecked {
            uint256 head = PackedBatch.wordAt(entry);
            bytes32 structHash = PackedBatch.acceptHash(entry, provider);
            uint256 place = entry + PackedBatch.ACCEPT_SIGNATURE;
            address signer = PackedBatch.signerOf(domainSeparator, structHash, place);
            MachineKey key = machineKeyOf(provider, uint32(head >> 224));
            (, code) = _start(key, uint24(head >> 200), uint32(head >> 168), signer);
        }
    }

    // ---------------------------------------------------------------------------------------------- close

    /// @inheritdoc ILeasePacked
    function closePacked(bytes calldata data, bool withFinals) external {
        uint256 size = PackedBatch.CLOSING_BYTES + (withFinals ? PackedBatch.SIGNATURE_BYTES : 0);
        _requireEntries(data.length, size);
        Dues memory dues;
        bytes32 domainSeparator = _domainSeparatorV4();
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _closeEntry(dues, domainSeparator, entry, withFinals);
            if (!code.isNone()) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += size;
            }
        }
        if (dues.pay != 0) _credit(dues.provider, dues.pay);
        if (dues.fees != 0) _credit(dues.market, dues.fees);
    }

    function _closeEntry(Dues memory dues, bytes32 domainSeparator, uint256 entry, bool withFinal)
        private
        returns (SkipCode)
    {
        unchecked {
            MachineKey key = entry.machineAt();
            uint256 slot = _leaseSlot(key);
            LeaseWord word = _leaseAt(slot);
            if (!word.isRunning() || word.seqBits() != ((entry.wordAt() >> 40) & U24)) return SkipCode.WRONG_STATE;
            (uint256 cap, uint256 before, uint256 start, uint256 duration) = word.meter();
            uint256 elapsed = block.timestamp - start;
            uint256 ceiling = SettlementLib.accrued(cap, elapsed, duration);
            uint256 paid = SettlementLib.paidAfter((entry + 1).wordAt() & U48, ceiling, before);
            bool stopped = word.isStopped();
            bool early = !stopped && elapsed < duration;

            address buyer;
            AccountWord account;
            if (!early) (buyer, account) = _payer(domainSeparator, entry, word, OrderHash.VOUCHER);
            if (buyer == address(0)) (buyer, account) = _payer(domainSeparator, entry, word, OrderHash.FINAL);
            if (buyer == address(0)) return early ? SkipCode.STILL_RUNNING : SkipCode.BAD_VOUCHER_SIGNATURE;
            if (paid != cap && !_isFinal(domainSeparator, entry, withFinal)) {
                return SkipCode.BAD_FINAL_SIGNATURE;
            }
            CloseReason reason = stopped || early ? CloseReason.STOPPED : CloseReason.END_OF_TIME;
            if (word.has(VERIFIED | FIRM)) {
                _pay(key, word, paid);
                _free(key, word, buyer, paid, reason);
            } else {
                if (cap != paid) _accounts[buyer] = account.plus(cap - paid);
                _owe(dues, key, word, paid - before);
                _putLease(slot, word.idle(Status.Free));
                emit LeaseClosed({machineKey: key, ending: endingOf(paid, word.seqBits(), reason)});
            }
            return SkipCode.NONE;
        }
    }

    /// @dev {_pay} of a lease whose pay is not held, once for a row of one provider's.
    function _owe(Dues memory dues, MachineKey key, LeaseWord word, uint256 amount) private {
        if (amount == 0) return;
        unchecked {
            address provider = _providerOf(key);
            if (provider != dues.provider) {
                if (dues.pay != 0) _credit(dues.provider, dues.pay);
                (dues.provider, dues.pay) = (provider, 0);
            }
            dues.pay += amount - _takeFee(dues, word.marketId(), amount);
        }
    }

    /// @dev The market's fee out of `amount`, added to what the call owes that market.
    function _takeFee(Dues memory dues, uint256 id, uint256 amount) private returns (uint256 fee) {
        if (id == 0) return 0;
        if (id != dues.marketId) {
            if (dues.fees != 0) _credit(dues.market, dues.fees);
            Market storage market = _markets[uint16(id)];
            (dues.marketId, dues.market, dues.feeBps, dues.fees) = (id, market.account, market.feeBps, 0);
        }
        fee = SettlementLib.shareDown(amount, dues.feeBps);
        unchecked {
            dues.fees += fee;
        }
    }

    function _payer(bytes32 domainSeparator, uint256 entry, LeaseWord word, bytes32 typeHash)
        private
        view
        returns (address buyer, AccountWord account)
    {
        unchecked {
            bytes32 structHash = entry.closingHash(typeHash);
            uint256 place = entry + PackedBatch.BUYER_SIGNATURE;
            buyer = PackedBatch.signerOf(domainSeparator, structHash, place);
            if (buyer == address(0)) return (buyer, account);
            account = _accounts[buyer];
            if (account.id() == word.buyerId()) return (buyer, account);
            buyer = _accountOfKey(word.buyerId(), buyer, word.start());
            account = _accounts[buyer];
        }
    }

    function _isFinal(bytes32 domainSeparator, uint256 entry, bool withFinal) private view returns (bool) {
        unchecked {
            address signer = msg.sender;
            if (withFinal) {
                bytes32 structHash = entry.closingHash(OrderHash.FINAL);
                uint256 place = entry + PackedBatch.PROVIDER_SIGNATURE;
                signer = PackedBatch.signerOf(domainSeparator, structHash, place);
                if (signer == address(0)) return false;
            }
            return _speaksFor(address(uint160(entry.wordAt() >> 96)), signer, Role.Node, block.timestamp);
        }
    }

    // ---------------------------------------------------------------------------------------------- slots

    /// @dev Where `_leases[key]` lies: worked out once for the load and the store.
    function _leaseSlot(MachineKey key) private pure returns (uint256 slot) {
        assembly ("memory-safe") {
            mstore(0x00, key)
            mstore(0x20, _leases.slot)
            slot := keccak256(0x00, 0x40)
        }
    }

    function _leaseAt(uint256 slot) private view returns (LeaseWord word) {
        assembly ("memory-safe") {
            word := sload(slot)
        }
    }

    function _putLease(uint256 slot, LeaseWord word) private {
        assembly ("memory-safe") {
            sstore(slot, word)
        }
    }
}
