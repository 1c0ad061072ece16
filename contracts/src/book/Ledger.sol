// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBookPart} from "../interfaces/IBookPart.sol";
import {IFirmLeases} from "../interfaces/IFirmLeases.sol";
import {ILeaseBookLog} from "../interfaces/ILeaseBookLog.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {FIRM, VERIFIED} from "../types/Flags.sol";
import {HELD_SLOTS, HeldWord} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {CloseReason, Role, SkipCode, Status, endingOf} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Delegate, Market, ModuleAddresses, Product, Windows} from "../types/Rows.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Ledger: everything LeaseBook stores, and how money and words move in it
/// @dev The only storage declarations: {LeaseBook} and {BackOffice}, which runs in its storage, both inherit them and
/// nothing else that stores. Two slots a machine, both reused by every lease: `_leases` (bond and current lease) and
/// `_machines` (product, locks). One slot an account.
abstract contract Ledger is IBookPart, ILeaseBookLog, EIP712, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    uint256 private constant START_MAX = 1 hours;
    uint256 private constant CLAIM_MAX = 7 days;
    uint256 private constant RETIRE_MAX = 30 days;
    uint256 private constant NO_SHOW_MAX = 15 minutes;
    uint256 private constant COMMIT_MAX = 7 days;
    uint8 private constant DECIMALS_MAX = 8;
    uint256 internal constant CAP_MAX = type(uint48).max;
    /// @dev ERC-20 tokens refuse the zero address; nobody has a key for this one.
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    IERC20 internal immutable TOKEN;
    uint256 internal immutable BOND_UNIT;
    uint256 internal immutable START_WINDOW;
    uint256 internal immutable CLAIM_WINDOW;
    uint256 internal immutable RETIRE_DELAY;
    uint256 internal immutable NO_SHOW;
    uint64 internal immutable REGISTRATION_FEE;
    address internal immutable GUARDIAN;
    address internal immutable VERIFICATION;
    address internal immutable FUTURES;
    address internal immutable GROUP_BUY;
    uint256 internal immutable COMMIT_WINDOW;
    /// @dev Hash of all of the above: two contracts of the same settings are one book.
    bytes32 internal immutable SETTINGS;

    mapping(address account => AccountWord) internal _accounts;
    mapping(uint32 id => address account) internal _addressOf;
    mapping(address signer => Delegate) internal _delegates;
    mapping(uint32 id => Product) internal _products;
    mapping(uint16 id => Market) internal _markets;
    mapping(MachineKey => LeaseWord) internal _leases;
    mapping(MachineKey => ProductWord) internal _machines;

    uint32 internal _accountCount;
    uint32 internal _productCount;
    uint16 internal _marketCount;
    uint32 internal _pausedUntil;
    uint32 internal _pausableFrom;
    /// @dev Base units that batches hold.
    uint64 internal _batched;
    mapping(MachineKey => HeldWord[HELD_SLOTS]) internal _held;
    /// @dev Base units that Futures (margins, funded caps) and GroupBuy (pledges) hold.
    mapping(address module => uint64) internal _moduleCash;
    /// @dev By provider, since an index more costs nothing.
    mapping(address provider => bool) internal _barred;

    constructor(
        IERC20Metadata token_,
        Windows memory windows_,
        uint64 registrationFee_,
        address guardian_,
        ModuleAddresses memory modules_,
        uint32 commitWindow_
    ) EIP712("LeaseBook", "1") {
        uint8 decimals = token_.decimals();
        if (decimals > DECIMALS_MAX) revert LeaseBook_DecimalsTooMany(decimals);
        if (windows_.start == 0 || windows_.start > START_MAX) revert LeaseBook_BadWindow("start", windows_.start);
        if (windows_.claim == 0 || windows_.claim > CLAIM_MAX) revert LeaseBook_BadWindow("claim", windows_.claim);
        if (windows_.retire < windows_.start + windows_.claim || windows_.retire > RETIRE_MAX) {
            revert LeaseBook_BadWindow("retire", windows_.retire);
        }
        if (windows_.noShow > NO_SHOW_MAX) revert LeaseBook_BadWindow("noShow", windows_.noShow);
        bool timed = commitWindow_ != 0 && commitWindow_ <= COMMIT_MAX;
        if (modules_.verification != address(0) && !timed) revert LeaseBook_BadWindow("commit", commitWindow_);
        TOKEN = token_;
        BOND_UNIT = 10 ** decimals;
        START_WINDOW = windows_.start;
        CLAIM_WINDOW = windows_.claim;
        RETIRE_DELAY = windows_.retire;
        NO_SHOW = windows_.noShow;
        REGISTRATION_FEE = registrationFee_;
        GUARDIAN = guardian_;
        VERIFICATION = modules_.verification;
        FUTURES = modules_.futures;
        GROUP_BUY = modules_.groupBuy;
        COMMIT_WINDOW = commitWindow_;
        SETTINGS = keccak256(abi.encode(token_, windows_, registrationFee_, guardian_, modules_, commitWindow_));
    }

    /// @inheritdoc IBookPart
    function settings() external view returns (bytes32) {
        return SETTINGS;
    }

    modifier whenOpen() {
        if (block.timestamp < _pausedUntil) revert LeaseBook_OpeningsPaused(_pausedUntil);
        _;
    }

    // ---------------------------------------------------------------------------------------------- cash

    /// @dev Bound: all cash together is at most the vault's balance, which no deposit lifts to 2^64.
    function _credit(address account, uint256 amount) internal {
        _accounts[account] = _accounts[account].plus(amount);
    }

    function _debit(address account, uint256 amount) internal {
        AccountWord word = _accounts[account];
        if (word.cash() < amount) revert LeaseBook_CashTooLow({have: word.cash(), need: amount});
        _accounts[account] = word.minus(amount);
    }

    /// @dev Takes tokens that are no account's out of the world.
    function _burn(uint256 amount) internal {
        TOKEN.safeTransfer(BURNT, amount);
    }

    // ---------------------------------------------------------------------------------------------- keys

    /// @dev Whether `signer` is the account's own key or its delegate in `role` at time `when`.
    function _speaksFor(address account, address signer, Role role, uint256 when) internal view returns (bool) {
        if (signer == account) return signer != address(0);
        Delegate storage delegate = _delegates[signer];
        return delegate.account == account && delegate.role == role && _isGood(delegate, when);
    }

    /// @dev ECDSA first: it needs no foreign code, and lets an EIP-7702 account sign with its key.
    function _isAskSigned(address provider, bytes32 digest, bytes calldata signature) internal view returns (bool) {
        address signer = SigCheck.recover(digest, signature);
        if (signer != address(0) && _speaksFor(provider, signer, Role.Node, block.timestamp)) return true;
        return SigCheck.isAcceptedBy(provider, digest, signature);
    }

    /// @dev The account numbered `id` if it, or a Session key of it that was good at time `when`, signed; else zero.
    /// ERC-1271 is left out on purpose: a contract can take its word back, a debt must not be.
    function _accountBehind(uint32 id, bytes32 digest, bytes calldata signature, uint256 when)
        internal
        view
        returns (address)
    {
        address signer = SigCheck.recover(digest, signature);
        return signer == address(0) ? signer : _accountOfKey(id, signer, when);
    }

    /// @dev The account numbered `id` if `signer` is it, or a Session key of it that was good at time `when`.
    function _accountOfKey(uint32 id, address signer, uint256 when) internal view returns (address) {
        if (_accounts[signer].id() == id) return signer;
        Delegate storage delegate = _delegates[signer];
        address account = delegate.account;
        bool good = delegate.role == Role.Session && _isGood(delegate, when) && _accounts[account].id() == id;
        return good ? account : address(0);
    }

    function _isGood(Delegate storage delegate, uint256 when) private view returns (bool) {
        return when < delegate.expiry && (delegate.revokedAt == 0 || when < delegate.revokedAt);
    }

    /// @dev Packed calldata holds whole entries.
    function _requireEntries(uint256 length, uint256 entrySize) internal pure {
        if (length % entrySize != 0) revert LeaseBook_BadLength({length: length, entrySize: entrySize});
    }

    function _digest(bytes32 structHash) internal view returns (bytes32) {
        return MessageHashUtils.toTypedDataHash(_domainSeparatorV4(), structHash);
    }

    // ---------------------------------------------------------------------------------------------- machines and leases

    /// @dev The number that the next ask must carry; 2^24, which no ask can carry, once all are used up.
    function _nextSeq(LeaseWord word, ProductWord machine) internal pure returns (uint256) {
        uint256 next = uint256(word.seq()) + 1;
        uint256 floor = machine.askFloor();
        return next > floor ? next : floor;
    }

    function _requireStatus(LeaseWord word, Status needed) internal pure {
        Status found = word.status();
        if (found != needed) revert LeaseBook_WrongStatus(found);
    }

    /// @dev What nothing else has a claim on, in whole tokens: what opening needs and what penalties may take.
    function _freeBond(LeaseWord word, ProductWord machine) internal view returns (uint256) {
        uint256 locked = machine.locked();
        if (locked == 0) return word.bond();
        uint256 lockedUnits = (locked + BOND_UNIT - 1) / BOND_UNIT;
        return word.bond() > lockedUnits ? word.bond() - lockedUnits : 0;
    }

    function _ceiling(LeaseWord word) internal view returns (uint256) {
        return SettlementLib.accrued(word.cap(), block.timestamp - word.start(), word.duration());
    }

    function _end(LeaseWord word) internal pure returns (uint256) {
        return word.start() + word.duration();
    }

    /// @dev Starts the lease if the buyer accepted; writes nothing unless it returns NONE.
    /// @param signer Of the Accept; zero: nobody.
    /// @return word The lease as it was.
    function _start(MachineKey key, uint24 seq, uint32 startedAt, address signer)
        internal
        returns (LeaseWord word, SkipCode)
    {
        word = _leases[key];
        if (word.status() != Status.Funded || word.seq() != seq) return (word, SkipCode.WRONG_STATE);
        uint256 deadline = word.start();
        if (block.timestamp > deadline) return (word, SkipCode.EXPIRED);
        if (startedAt < deadline - START_WINDOW || startedAt > block.timestamp) {
            return (word, SkipCode.START_OUT_OF_RANGE);
        }
        // By address, not by account number: one slot fewer for a Session key. ERC-1271 is left out on purpose, see
        // {_accountBehind}.
        if (signer == address(0) || !_speaksFor(_addressOf[word.buyerId()], signer, Role.Session, startedAt)) {
            return (word, SkipCode.BAD_ACCEPT_SIGNATURE);
        }
        _leases[key] = word.withStart(startedAt).withStatus(Status.Active);
        emit LeaseStarted({machineKey: key, seq: seq, startedAt: startedAt});
        return (word, SkipCode.NONE);
    }

    /// @dev Pays the provider up to `paid` in all, the market's fee out of it; for a verified lease, into its slot.
    /// Does not store the word.
    function _pay(MachineKey key, LeaseWord word, uint256 paid) internal {
        uint256 delta = paid - word.paid();
        if (delta == 0) return;
        if (word.has(VERIFIED)) {
            HeldWord[HELD_SLOTS] storage slots = _held[key];
            slots[word.seq() % HELD_SLOTS] = slots[word.seq() % HELD_SLOTS].plus(delta);
        } else {
            _share(_providerOf(key), word.marketId(), delta);
        }
    }

    /// @dev Credits `amount` to the provider, the market's fee out of it.
    function _share(address provider, uint16 marketId, uint256 amount) internal returns (uint256 fee) {
        if (amount == 0) return 0;
        if (marketId != 0) {
            Market storage market = _markets[marketId];
            fee = SettlementLib.shareDown(amount, market.feeBps);
            if (fee != 0) _credit(market.account, fee);
        }
        _credit(provider, amount - fee);
    }

    /// @dev Ends the lease: what was not paid is the buyer's, the machine is free.
    function _free(MachineKey key, LeaseWord word, address buyer, uint256 paid, CloseReason reason) internal {
        uint256 rest = word.cap() - paid;
        if (word.has(VERIFIED)) rest += _endHeld(key, word.seq());
        if (rest != 0) _credit(buyer, rest);
        _leases[key] = word.idle(Status.Free);
        emit LeaseClosed({machineKey: key, ending: endingOf(paid, word.seq(), reason)});
        if (word.has(FIRM)) _tellEnd(key, word, reason);
    }

    /// @dev The margins behind a firm lease follow its end: how it came, and how much of it was left. A stop is told
    /// when it happens, so what follows it is not. A plain call, not a tried one: whoever chooses the gas could else
    /// make it fail alone. Futures' code is fixed and only writes down what it hears.
    function _tellEnd(MachineKey key, LeaseWord word, CloseReason reason) internal {
        if (word.status() == Status.Stopped) return;
        uint256 left = word.duration();
        if (word.status() == Status.Active) left = _end(word) > block.timestamp ? _end(word) - block.timestamp : 0;
        IFirmLeases(FUTURES).leaseEnded(key, word.seq(), reason, uint24(left));
    }

    /// @dev The lease ended: what is held waits for its commitment, the audit share of nothing is the buyer's again.
    /// Shares round down, and down per batch: what is left of the whole covers what is left of the pay.
    function _endHeld(MachineKey key, uint24 seq) private returns (uint256 back) {
        HeldWord[HELD_SLOTS] storage slots = _held[key];
        HeldWord held = slots[seq % HELD_SLOTS];
        uint256 needed = SettlementLib.shareDown(held.amount(), held.auditBps());
        back = held.audit() - needed;
        bool empty = held.amount() == 0;
        slots[seq % HELD_SLOTS] = empty ? HeldWord.wrap(0) : held.withAudit(needed).withEnd(block.timestamp);
    }

    function _providerOf(MachineKey key) internal pure returns (address) {
        return address(uint160(uint256(MachineKey.unwrap(key)) >> 96));
    }
}
