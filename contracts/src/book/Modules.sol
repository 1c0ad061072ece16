// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseModules} from "../interfaces/ILeaseModules.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {FIRM, VERIFIED} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Ask} from "../types/Orders.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Opening, Product} from "../types/Rows.sol";
import {Ledger} from "./Ledger.sol";

/// @title Modules: money and leases of Futures and GroupBuy
/// @dev Their code is fixed and debits only what an account signed or calls for; still, whatever a module did, it
/// cannot give out or spend more than it took.
abstract contract Modules is ILeaseModules, Ledger {
    modifier only(address module) {
        if (msg.sender != module || msg.sender == address(0)) revert LeaseBook_NotOwner(msg.sender);
        _;
    }

    modifier onlyModule() {
        bool known = msg.sender == FUTURES || msg.sender == GROUP_BUY;
        if (!known || msg.sender == address(0)) revert LeaseBook_NotOwner(msg.sender);
        _;
    }

    /// @inheritdoc ILeaseModules
    function takeCash(address account, uint64 amount) external onlyModule {
        _debit(account, amount);
        _moduleCash[msg.sender] += amount;
        emit ModuleTook({account: account, module: msg.sender, amount: amount});
    }

    /// @inheritdoc ILeaseModules
    function giveCash(address account, uint64 amount) external onlyModule {
        if (_accounts[account].id() == 0) revert LeaseBook_NotRegistered(account);
        _spend(account, amount);
        _credit(account, amount);
    }

    /// @inheritdoc ILeaseModules
    function useNonce(address account, uint32 nonce) external onlyModule {
        (AccountWord used, bool usable) = NonceWindow.use(_accounts[account], nonce);
        if (used.id() == 0) revert LeaseBook_NotRegistered(account);
        if (!usable) revert LeaseBook_NonceUnusable(nonce);
        _accounts[account] = used;
    }

    /// @inheritdoc ILeaseModules
    function openFirm(MachineKey machineKey, Opening calldata opening)
        external
        only(FUTURES)
        returns (SkipCode code, uint24 seq)
    {
        LeaseWord word = _leases[machineKey];
        Status status = word.status();
        if (status != Status.Free && status != Status.Paused) return (SkipCode.MACHINE_NOT_FREE, 0);
        return _openFor(machineKey, word, opening, FIRM);
    }

    /// @inheritdoc ILeaseModules
    function openPledged(Ask calldata ask, bytes calldata signature, Opening calldata opening)
        external
        only(GROUP_BUY)
        returns (SkipCode code)
    {
        code = _askFits(ask, opening);
        if (code != SkipCode.NONE) return code;
        MachineKey key = machineKeyOf(ask.provider, ask.index);
        LeaseWord word = _leases[key];
        if (word.status() != Status.Free) return SkipCode.MACHINE_NOT_FREE;
        if (ask.seq != _nextSeq(word, _machines[key])) return SkipCode.STALE_SEQUENCE;
        if (!_isAskSigned(ask.provider, _digest(OrderHash.hash(ask)), signature)) return SkipCode.BAD_ASK_SIGNATURE;
        (code,) = _openFor(key, word, opening, 0);
    }

    /// @dev The limits of {openBatch} on an ask, without a look at its machine.
    function _askFits(Ask calldata ask, Opening calldata opening) private view returns (SkipCode) {
        if (ask.matcher != msg.sender) return SkipCode.WRONG_MATCHER;
        if (ask.product != opening.product) return SkipCode.WRONG_PRODUCT;
        if (opening.price < ask.minPricePerHour) return SkipCode.PRICE_OUTSIDE_LIMITS;
        uint256 duration = opening.duration;
        if (duration == 0 || duration < ask.minDuration || duration > ask.maxDuration) {
            return SkipCode.DURATION_OUTSIDE_LIMITS;
        }
        if (block.timestamp > ask.startBy) return SkipCode.EXPIRED;
        if (_markets[opening.marketId].feeBps > ask.maxFeeBps) return SkipCode.FEE_ABOVE_LIMIT;
        // Nobody pledged for an interruptible lease; what a verified ask offers besides is not taken up.
        if (ask.flags & ~VERIFIED != 0) return SkipCode.FLAGS_DIFFER;
        return SkipCode.NONE;
    }

    function _openFor(MachineKey key, LeaseWord word, Opening calldata opening, uint256 flags)
        private
        returns (SkipCode, uint24 seq)
    {
        ProductWord machine = _machines[key];
        if (machine.product() != opening.product) return (SkipCode.WRONG_PRODUCT, 0);
        if (_providerOf(key) == opening.buyer) return (SkipCode.SELF_DEALING, 0);
        uint256 next = _nextSeq(word, machine);
        if (next > type(uint24).max) return (SkipCode.STALE_SEQUENCE, 0);
        Product storage rules = _products[opening.product];
        uint256 cap = SettlementLib.costDown(opening.price, rules.sliceGpus, opening.duration);
        if (cap == 0 || cap > CAP_MAX) return (SkipCode.CAP_OUT_OF_RANGE, 0);
        uint256 free = _freeBond(word, machine) * BOND_UNIT;
        if (free < SettlementLib.shareUp(cap, rules.minBondBps)) return (SkipCode.BOND_TOO_LOW, 0);
        uint32 buyerId = _accounts[opening.buyer].id();
        if (buyerId == 0) revert LeaseBook_NotRegistered(opening.buyer);
        seq = uint24(next);
        word = word.funded({
            cap_: cap,
            marketId_: opening.marketId,
            buyerId_: buyerId,
            deadline: block.timestamp + START_WINDOW,
            duration_: opening.duration,
            seq_: seq,
            flags_: flags
        });
        _leases[key] = word;
        // Told as cash given and spent at once, so that who counts cash by events counts as for any other lease.
        _spend(opening.buyer, uint64(cap));
        emit LeaseOpened({machineKey: key, bidHash: opening.name, word: LeaseWord.unwrap(word)});
        return (SkipCode.NONE, seq);
    }

    function _spend(address account, uint64 amount) private {
        uint64 held = _moduleCash[msg.sender];
        if (held < amount) revert LeaseBook_CashTooLow({have: held, need: amount});
        _moduleCash[msg.sender] = held - amount;
        emit ModuleGave({account: account, module: msg.sender, amount: amount});
    }

    // ----------------------------------------------------------------------------------------------- views

    /// @inheritdoc ILeaseModules
    function futures() external view returns (address) {
        return FUTURES;
    }

    /// @inheritdoc ILeaseModules
    function groupBuy() external view returns (address) {
        return GROUP_BUY;
    }

    /// @inheritdoc ILeaseModules
    function moduleCash(address module) external view returns (uint64) {
        return _moduleCash[module];
    }
}
