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
import {CloseReason, Role, SkipCode, Status} from "../types/Lifecycle.sol";
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

    /// @dev What a call owes one market so far: most batches are of one market, which is credited once.
    struct Fees {
        uint256 marketId;
        address account;
        uint256 feeBps;
        uint256 sum;
    }

    // ---------------------------------------------------------------------------------------------- open

    /// @inheritdoc ILeasePacked
    function openPacked(uint32 product, uint64 price, uint16 marketId, bytes calldata data) external whenOpen {
        _requireEntries(data.length, PackedBatch.MATCH_BYTES);
        Round memory round = _roundOf(product, price, marketId);
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _openEntry(round, entry);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += PackedBatch.MATCH_BYTES;
            }
        }
    }

    function _openEntry(Round memory round, uint256 entry) private returns (SkipCode) {
        unchecked {
            uint256 terms = (entry + 64).wordAt();
            (uint256 price, SkipCode code) = _priceOf(round, entry, terms);
            if (code != SkipCode.NONE) return code;
            MachineKey key = _keyOf(entry);
            LeaseWord word = _leases[key];
            if (!word.isFree()) return SkipCode.MACHINE_NOT_FREE;
            uint256 cap = price * round.sliceGpus * ((terms >> 104) & U24) / 3600;
            code = _machine(round, terms >> 232, word, _machines[key], cap);
            if (code != SkipCode.NONE) return code;
            if (!_isAskSigned(round, entry)) return SkipCode.BAD_ASK_SIGNATURE;

            address buyer = address(uint160((entry + 32).wordAt() >> 96));
            AccountWord account = _accounts[buyer];
            if (account.cash() < cap) return SkipCode.CASH_TOO_LOW;
            bool usable;
            (account, usable) = NonceWindow.use(account, ((entry + 32).wordAt() >> 64) & U32);
            if (!usable) return SkipCode.NONCE_USED;
            bytes32 bidHash = entry.bidHash(round.product, round.count, msg.sender);
            if (!_isBidSigned(round, buyer, bidHash, entry)) return SkipCode.BAD_BID_SIGNATURE;

            word = word.funded({
                cap_: cap,
                marketId_: round.marketId,
                buyerId_: account.id(),
                deadline: block.timestamp + START_WINDOW,
                duration_: (terms >> 104) & U24,
                seq_: terms >> 232,
                flags_: ((terms >> 128) & INTERRUPTIBLE) | (terms & VERIFIED)
            });
            account = account.minus(cap);
            if (terms & VERIFIED != 0) {
                (account, code) = _hold(key, word, account, (terms >> 8) & U16);
                if (code != SkipCode.NONE) return code;
            }
            _accounts[buyer] = account;
            _leases[key] = word;
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
        unchecked {
            uint256 ask = entry.wordAt();
            uint256 bid = (entry + 32).wordAt();
            if (round.feeBps > ((terms >> 136) & U16) || round.feeBps > ((terms >> 24) & U16)) {
                return (0, SkipCode.FEE_ABOVE_LIMIT);
            }
            price = terms & PAY_AS_ASK != 0 ? (ask & U64) : round.price;
            if (ask >> 96 == bid >> 96) return (0, SkipCode.SELF_DEALING);
            if (price < (ask & U64) || price > (bid & U64)) return (0, SkipCode.PRICE_OUTSIDE_LIMITS);
            uint256 duration = (terms >> 104) & U24;
            if (duration == 0 || duration < ((terms >> 208) & U24) || duration > ((terms >> 184) & U24)) {
                return (0, SkipCode.DURATION_OUTSIDE_LIMITS);
            }
            if (block.timestamp > ((terms >> 152) & U32) || block.timestamp > ((terms >> 72) & U32)) {
                return (0, SkipCode.EXPIRED);
            }
            uint256 askFlags = (terms >> 128) & U8;
            uint256 bidFlags = terms & 0x7f;
            uint256 auditBps = (terms >> 8) & U16;
            // Most orders want nothing special.
            if (askFlags | (bidFlags & ~uint256(PAY_AS_ASK)) | auditBps == 0) return (price, SkipCode.NONE);
            return (price, _flags(round, askFlags, bidFlags, auditBps));
        }
    }

    function _isAskSigned(Round memory round, uint256 entry) private view returns (bool) {
        unchecked {
            bytes32 structHash = entry.askHash(round.product, msg.sender);
            uint256 place = entry + PackedBatch.ASK_SIGNATURE;
            address provider = address(uint160(entry.wordAt() >> 96));
            address signer = PackedBatch.signerOf(round.domainSeparator, structHash, place);
            if (signer != address(0) && _speaksFor(provider, signer, Role.Node, block.timestamp)) return true;
            bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, structHash);
            return SigCheck.isAcceptedBy(provider, digest, place.signatureAt());
        }
    }

    function _isBidSigned(Round memory round, address buyer, bytes32 bidHash, uint256 entry)
        private
        view
        returns (bool)
    {
        unchecked {
            uint256 place = entry + PackedBatch.BID_SIGNATURE;
            address signer = PackedBatch.signerOf(round.domainSeparator, bidHash, place);
            if (signer != address(0) && signer == buyer) return true;
            if (buyer != msg.sender) return false;
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
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
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
        Fees memory fees;
        bytes32 domainSeparator = _domainSeparatorV4();
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _closeEntry(fees, domainSeparator, entry, withFinals);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += size;
            }
        }
        if (fees.sum != 0) _credit(fees.account, fees.sum);
    }

    function _closeEntry(Fees memory fees, bytes32 domainSeparator, uint256 entry, bool withFinal)
        private
        returns (SkipCode)
    {
        unchecked {
            MachineKey key = _keyOf(entry);
            LeaseWord word = _leases[key];
            if (!word.isRunning() || word.seqBits() != ((entry.wordAt() >> 40) & U24)) return SkipCode.WRONG_STATE;
            uint256 elapsed = block.timestamp - word.start();
            uint256 ceiling = SettlementLib.accrued(word.cap(), elapsed, word.duration());
            uint256 paid = SettlementLib.paidAfter((entry + 1).wordAt() & U48, ceiling, word.paid());
            bool stopped = word.isStopped();
            bool early = !stopped && elapsed < word.duration();

            address buyer;
            if (!early) buyer = _payer(domainSeparator, entry, word, OrderHash.VOUCHER);
            if (buyer == address(0)) buyer = _payer(domainSeparator, entry, word, OrderHash.FINAL);
            if (buyer == address(0)) return early ? SkipCode.STILL_RUNNING : SkipCode.BAD_VOUCHER_SIGNATURE;
            if (paid != word.cap() && !_isFinal(domainSeparator, entry, withFinal)) {
                return SkipCode.BAD_FINAL_SIGNATURE;
            }
            CloseReason reason = stopped || early ? CloseReason.STOPPED : CloseReason.END_OF_TIME;
            if (word.has(VERIFIED | FIRM)) {
                _pay(key, word, paid);
                _free(key, word, buyer, paid, reason);
            } else {
                _closePlain(fees, key, word, buyer, paid, reason);
            }
            return SkipCode.NONE;
        }
    }

    /// @dev {_pay} and {_free} of a lease whose pay is neither held nor backed by margins.
    function _closePlain(
        Fees memory fees,
        MachineKey key,
        LeaseWord word,
        address buyer,
        uint256 paid,
        CloseReason reason
    ) private {
        unchecked {
            if (word.cap() != paid) _credit(buyer, word.cap() - paid);
            uint256 delta = paid - word.paid();
            if (delta != 0) _credit(_providerOf(key), delta - _takeFee(fees, word, delta));
            _leases[key] = word.idle(Status.Free);
            emit LeaseClosed({machineKey: key, seq: word.seq(), reason: reason, paid: uint48(paid)});
        }
    }

    /// @dev The market's fee out of `delta`, added to what the call owes that market.
    function _takeFee(Fees memory fees, LeaseWord word, uint256 delta) private returns (uint256 fee) {
        uint256 id = word.marketId();
        if (id == 0) return 0;
        if (id != fees.marketId) {
            if (fees.sum != 0) _credit(fees.account, fees.sum);
            Market storage market = _markets[uint16(id)];
            (fees.marketId, fees.account, fees.feeBps, fees.sum) = (id, market.account, market.feeBps, 0);
        }
        fee = SettlementLib.shareDown(delta, fees.feeBps);
        unchecked {
            fees.sum += fee;
        }
    }

    function _payer(bytes32 domainSeparator, uint256 entry, LeaseWord word, bytes32 typeHash)
        private
        view
        returns (address)
    {
        unchecked {
            bytes32 structHash = entry.closingHash(typeHash);
            uint256 place = entry + PackedBatch.BUYER_SIGNATURE;
            address signer = PackedBatch.signerOf(domainSeparator, structHash, place);
            return signer == address(0) ? signer : _accountOfKey(word.buyerId(), signer, word.start());
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

    /// @dev Provider and index lead a match and a closing alike.
    function _keyOf(uint256 entry) private pure returns (MachineKey) {
        uint256 head = entry.wordAt();
        return MachineKey.wrap(bytes32((head >> 96 << 96) | ((head >> 64) & U32)));
    }
}
