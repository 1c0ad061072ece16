// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {CloseReason, Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Voucher} from "../types/Orders.sol";
import {Ledger} from "./Ledger.sol";

/// @title Payments: vouchers paid, leases closed by agreement
/// @dev Pay is min(voucher, ceiling), so a voucher may be signed ahead and none is ever refused for being high.
abstract contract Payments is ILeaseTrading, Ledger {
    /// @inheritdoc ILeaseTrading
    function settleBatch(Voucher[] calldata vouchers, bytes[] calldata signatures) external {
        _requireLength(vouchers.length, signatures.length);
        for (uint256 i; i < vouchers.length; ++i) {
            SkipCode code = _settle(vouchers[i], signatures[i]);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
        }
    }

    /// @inheritdoc ILeaseTrading
    function closeBatch(
        Voucher[] calldata vouchers,
        bytes[] calldata buyerSignatures,
        bytes[] calldata providerSignatures
    ) external {
        _requireLength(vouchers.length, buyerSignatures.length);
        _requireLength(vouchers.length, providerSignatures.length);
        for (uint256 i; i < vouchers.length; ++i) {
            SkipCode code = _closeAgreed(vouchers[i], buyerSignatures[i], providerSignatures[i]);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
        }
    }

    function _settle(Voucher memory voucher, bytes calldata signature) private returns (SkipCode) {
        MachineKey key = machineKeyOf(voucher.provider, voucher.index);
        LeaseWord word = _leases[key];
        if (!word.isRunning() || word.seq() != voucher.seq) return SkipCode.WRONG_STATE;
        uint256 paid = SettlementLib.paidAfter(voucher.amount, _ceiling(word), word.paid());
        if (paid == word.paid()) return SkipCode.NOTHING_DUE;
        bytes32 digest = _digest(OrderHash.hash(voucher, OrderHash.VOUCHER));
        if (_accountBehind(word.buyerId(), digest, signature, word.start()) == address(0)) {
            return SkipCode.BAD_VOUCHER_SIGNATURE;
        }
        _pay(key, word, paid);
        _leases[key] = word.withPaid(paid);
        emit LeaseSettled({machineKey: key, seq: voucher.seq, paid: uint48(paid)});
        return SkipCode.NONE;
    }

    /// @dev A voucher is a debt, not a consent to end: before the end of an Active lease only the buyer's Final is,
    /// or a provider could leave by its last voucher and skip the penalty of {release}. After it, either will do.
    function _closeAgreed(Voucher memory voucher, bytes calldata buyerSignature, bytes calldata providerSignature)
        private
        returns (SkipCode)
    {
        MachineKey key = machineKeyOf(voucher.provider, voucher.index);
        LeaseWord word = _leases[key];
        if (!word.isRunning() || word.seq() != voucher.seq) return SkipCode.WRONG_STATE;
        uint256 paid = SettlementLib.paidAfter(voucher.amount, _ceiling(word), word.paid());
        bool stopped = word.status() == Status.Stopped;
        bool early = !stopped && block.timestamp < _end(word);

        address buyer;
        if (!early) {
            bytes32 digest = _digest(OrderHash.hash(voucher, OrderHash.VOUCHER));
            buyer = _accountBehind(word.buyerId(), digest, buyerSignature, word.start());
        }
        if (buyer == address(0)) {
            bytes32 digest = _digest(OrderHash.hash(voucher, OrderHash.FINAL));
            buyer = _accountBehind(word.buyerId(), digest, buyerSignature, word.start());
        }
        if (buyer == address(0)) return early ? SkipCode.STILL_RUNNING : SkipCode.BAD_VOUCHER_SIGNATURE;
        if (paid != word.cap() && !_isFinal(voucher, providerSignature)) return SkipCode.BAD_FINAL_SIGNATURE;

        _pay(key, word, paid);
        _free(key, word, buyer, paid, stopped || early ? CloseReason.STOPPED : CloseReason.END_OF_TIME);
        return SkipCode.NONE;
    }

    /// @dev Whether the provider agrees that `voucher` is the last: it or its Node key sends this, or signed a Final.
    function _isFinal(Voucher memory voucher, bytes calldata signature) private view returns (bool) {
        address signer = msg.sender;
        if (signature.length != 0) {
            signer = SigCheck.recover(_digest(OrderHash.hash(voucher, OrderHash.FINAL)), signature);
            if (signer == address(0)) return false;
        }
        return _speaksFor(voucher.provider, signer, Role.Node, block.timestamp);
    }

    function _requireLength(uint256 entries, uint256 signatures) private pure {
        if (entries != signatures) revert LeaseBook_LengthMismatch({entries: entries, signatures: signatures});
    }
}
