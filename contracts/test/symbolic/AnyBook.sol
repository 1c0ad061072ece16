// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFirmLeases} from "../../src/interfaces/IFirmLeases.sol";
import {ILeaseBook} from "../../src/interfaces/ILeaseBook.sol";
import {SettlementLib} from "../../src/libraries/SettlementLib.sol";
import {HeldWord} from "../../src/types/HeldWord.sol";
import {LeaseWord} from "../../src/types/LeaseWord.sol";
import {CloseReason, Status} from "../../src/types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../../src/types/MachineKey.sol";
import {ModuleAddresses, Windows} from "../../src/types/Rows.sol";
import {Vm} from "forge-std/Vm.sol";

interface Symbolic {
    function enableSymbolicStorage(address target) external;
}

/// @notice The deployed LeaseBook, all three parts, in any state: every word of its storage is a variable of the proof,
/// but for what {_look} says. A signature recovers to anybody, or to nobody.
/// @dev Fixed, so that no solver has to ask which words are one: the addresses of provider, buyer and market, which
/// differ; their account numbers, the machine's index and product, the lease's number and state. The token has no
/// decimals: a bond's unit is one, and its change nothing. What rounds to whole tokens is left to `test/fuzz`, and so is
/// what divides: a quotient is any number up to the dividend here.
abstract contract AnyBook is IFirmLeases {
    Vm internal constant vm = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);
    Symbolic private constant SVM = Symbolic(0xF3993A62377BCd56AE39D773740A5390411E8BC9);

    address internal constant PROVIDER = address(0x1001);
    address internal constant BUYER = address(0x1002);
    address internal constant MARKET = address(0x1003);
    uint32 internal constant INDEX = 7;
    uint24 internal constant SEQ = 5;
    uint32 internal constant BUYER_ID = 12;
    uint16 internal constant MARKET_ID = 3;
    uint32 internal constant PRODUCT = 2;
    uint32 internal constant START = 15 minutes;
    uint256 private constant CASH_MAX = 2 ** 63;
    uint256 private constant FEE_BPS_MAX = 1000;
    uint256 private constant LOWER_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    // Of Ledger, see snapshots/storage_layout.json.
    uint256 private constant ACCOUNTS = 2;
    uint256 private constant ADDRESS_OF = 3;
    uint256 private constant MARKETS = 6;
    uint256 private constant LEASES = 7;
    uint256 private constant MACHINES = 8;
    uint256 private constant COUNTS = 9;
    uint256 private constant HELD = 10;

    /// @dev The words that a call about one lease may change, and when it comes.
    struct Words {
        uint256 lease;
        uint256 machine;
        uint256 held;
        uint256 provider;
        uint256 buyer;
        uint256 market;
        uint16 feeBps;
        uint32 time;
    }

    /// @dev The same words before a call.
    struct Seen {
        LeaseWord lease;
        HeldWord held;
        uint256 counts;
        uint256 provider;
        uint256 buyer;
        uint256 market;
    }

    ILeaseBook internal book;

    function setUp() external {
        Windows memory windows = Windows({start: START, claim: 48 hours, retire: 10 days, noShow: 5 minutes});
        ModuleAddresses memory modules = ModuleAddresses(address(this), address(this), address(0));
        bytes memory settings = abi.encode(address(this), windows, uint64(0), address(0), modules, uint32(24 hours));
        address front = _create("FrontOffice", settings);
        address back = _create("BackOffice", settings);
        book = ILeaseBook(_create("LeaseBook", bytes.concat(settings, abi.encode(front, back))));
        SVM.enableSymbolicStorage(address(book));
    }

    /// @dev As [profile.prove] built it.
    function _create(string memory name, bytes memory arguments) private returns (address made) {
        string memory artifact = string.concat("out/prove/", name, ".sol/", name, ".json");
        bytes memory code = bytes.concat(vm.getCode(artifact), arguments);
        assembly ("memory-safe") {
            made := create(0, add(code, 0x20), mload(code))
        }
        assert(made != address(0));
    }

    /// @dev The token's, which no call here moves.
    function decimals() external pure returns (uint8) {
        return 0;
    }

    /// @inheritdoc IFirmLeases
    function leaseEnded(MachineKey, uint24, CloseReason, uint24) external {}

    // ---------------------------------------------------------------------------------------------- before and after

    /// @dev The book before a call: `words`, with what is fixed. Assumed: I2 of the lease ({_isSound}), nobody's cash
    /// above 2^63 (all that the vault holds is below 2^64), the market's fee within its limit, a time before 2106.
    function _look(Words memory words, Status status, uint24 seq) internal returns (Seen memory seen) {
        vm.assume(words.time < type(uint32).max - START);
        vm.assume(words.feeBps <= FEE_BPS_MAX);
        vm.warp(words.time);
        bytes32 key = MachineKey.unwrap(_key());
        uint256 lease = _pin(words.lease, 112, 32, BUYER_ID);
        lease = _pin(_pin(lease, 96, 16, MARKET_ID), 200, 24, seq);
        _store(_slotOf(key, LEASES), _pin(lease, 248, 4, uint256(status)));
        _store(_slotOf(key, MACHINES), _pin(words.machine, 0, 32, PRODUCT));
        _store(_heldSlot(), words.held);
        _store(_accountSlot(PROVIDER), _pin(words.provider, 64, 32, 11));
        _store(_accountSlot(BUYER), _pin(words.buyer, 64, 32, BUYER_ID));
        _store(_accountSlot(MARKET), _pin(words.market, 64, 32, 13));
        _store(_slotOf(bytes32(uint256(BUYER_ID)), ADDRESS_OF), uint160(BUYER));
        _store(_slotOf(bytes32(uint256(MARKET_ID)), MARKETS), uint160(MARKET) | (uint256(words.feeBps) << 160));
        seen = _see();
        vm.assume(_isSound(seen.lease));
        vm.assume(seen.held.amount() <= seen.lease.paid());
        vm.assume(uint64(seen.provider) < CASH_MAX);
        vm.assume(uint64(seen.buyer) < CASH_MAX);
        vm.assume(uint64(seen.market) < CASH_MAX);
    }

    function _see() internal view returns (Seen memory) {
        return Seen({
            lease: _lease(),
            held: HeldWord.wrap(_load(_heldSlot())),
            counts: _load(bytes32(COUNTS)),
            provider: _load(_accountSlot(PROVIDER)),
            buyer: _load(_accountSlot(BUYER)),
            market: _load(_accountSlot(MARKET))
        });
    }

    /// @dev I1: what the accounts got is what the lease's escrow, its held pay and its bond lost. Nobody lost cash, nor
    /// got more than that. Words are subtracted whole, since cash is their lowest field: nothing else in them changed.
    /// @param status Where the call leaves the machine: Free, or a state of its lease.
    function _assertConserved(Seen memory a, Status status) internal view {
        Seen memory b = _see();
        assert(b.lease.bond() == a.lease.bond());
        _assertMoved(a, b, status, 0);
    }

    /// @dev {_assertConserved} of a call that may take of the bond.
    function _assertConservedWithBond(Seen memory a, Status status) internal view {
        Seen memory b = _see();
        assert(b.lease.bond() <= a.lease.bond());
        _assertMoved(a, b, status, a.lease.bond() - b.lease.bond());
    }

    function _assertMoved(Seen memory a, Seen memory b, Status status, uint256 slashed) private pure {
        assert(_both(a.counts == b.counts, (LeaseWord.unwrap(b.lease) >> 248) & 0xf == uint256(status)));
        unchecked {
            uint256 unpaid = status == Status.Free ? 0 : b.lease.cap() - b.lease.paid();
            uint256 lost = a.lease.cap() - a.lease.paid() - unpaid;
            uint256 held = b.held.amount() - a.held.amount();
            uint256 audit = a.held.audit() - b.held.audit();
            (uint256 toProvider, uint256 toBuyer, uint256 toMarket) =
                (b.provider - a.provider, b.buyer - a.buyer, b.market - a.market);
            assert(toProvider + toBuyer + toMarket + held == lost + slashed + audit);
            bool bounded = _both(toProvider <= lost + slashed, toBuyer <= lost + slashed + audit);
            assert(_both(_both(lost <= a.lease.cap(), toMarket <= lost), bounded));
        }
    }

    /// @dev `a && b` is a branch, and so a path more.
    function _both(bool a, bool b) private pure returns (bool both) {
        assembly ("memory-safe") {
            both := and(a, b)
        }
    }

    /// @dev I2: paid <= ceiling <= cap, nothing paid while Funded; a lease that runs began before now.
    function _isSound(LeaseWord word) internal view returns (bool) {
        if (word.status() == Status.Funded) return word.paid() == 0;
        if (!word.isRunning()) return true;
        if (word.start() > block.timestamp) return false;
        uint256 ceiling = _ceiling(word);
        return word.paid() <= ceiling && ceiling <= word.cap();
    }

    // ---------------------------------------------------------------------------------------------- words

    function _key() internal pure returns (MachineKey) {
        return machineKeyOf(PROVIDER, INDEX);
    }

    function _lease() internal view returns (LeaseWord) {
        return LeaseWord.wrap(_load(_slotOf(MachineKey.unwrap(_key()), LEASES)));
    }

    function _ceiling(LeaseWord word) internal view returns (uint256) {
        return SettlementLib.accrued(word.cap(), block.timestamp - word.start(), word.duration());
    }

    /// @dev {_look} at a lease of these flags, and no other.
    function _lookAt(Words memory words, Status status, uint8 flags) internal returns (Seen memory) {
        words.lease = _pin(words.lease, 252, 4, flags);
        return _look(words, status, SEQ);
    }

    /// @dev The buyer itself signed.
    function _assumeSigned(bytes32 structHash, bytes32 r, bytes32 vs) internal view {
        (uint8 v, bytes32 s) = (uint8(27 + (uint256(vs) >> 255)), vs & bytes32(type(uint256).max >> 1));
        vm.assume(uint256(s) <= LOWER_S);
        vm.assume(ecrecover(_digest(structHash), v, r, s) == BUYER);
    }

    function _digest(bytes32 structHash) internal view returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", book.DOMAIN_SEPARATOR(), structHash));
    }

    function _pin(uint256 word, uint256 shift, uint256 bits, uint256 value) internal pure returns (uint256) {
        return (word & ~(((1 << bits) - 1) << shift)) | (value << shift);
    }

    function _heldSlot() private pure returns (bytes32) {
        return bytes32(uint256(_slotOf(MachineKey.unwrap(machineKeyOf(PROVIDER, INDEX)), HELD)) + SEQ % 4);
    }

    function _accountSlot(address who) internal pure returns (bytes32) {
        return _slotOf(bytes32(uint256(uint160(who))), ACCOUNTS);
    }

    function _slotOf(bytes32 key, uint256 mapping_) private pure returns (bytes32) {
        return keccak256(abi.encode(key, mapping_));
    }

    function _load(bytes32 slot) internal view returns (uint256) {
        return uint256(vm.load(address(book), slot));
    }

    function _store(bytes32 slot, uint256 word) private {
        vm.store(address(book), slot, bytes32(word));
    }
}
