// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../src/interfaces/ILeaseBook.sol";
import {ILeaseBookLog} from "../src/interfaces/ILeaseBookLog.sol";
import {OrderHash} from "../src/libraries/OrderHash.sol";
import {CHALLENGE, INTERRUPTIBLE, VERIFIED} from "../src/types/Flags.sol";
import {CloseReason, Role, SkipCode, Status, endingOf} from "../src/types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../src/types/MachineKey.sol";
import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../src/types/Orders.sol";
import {Lease, ModuleAddresses, Product, Windows} from "../src/types/Rows.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {Test} from "forge-std/Test.sol";

interface IMintable is IERC20, IERC20Permit {
    function mint(address to, uint256 amount) external;
}

/// @dev A book with a buyer, a provider with one machine and a node key, a market, and builders for what they sign.
/// Digests are built with abi.encode here and by copying calldata in the contract: two ways, one answer.
abstract contract Fixture is Test {
    uint32 internal constant START = 15 minutes;
    uint32 internal constant CLAIM = 48 hours;
    uint32 internal constant RETIRE = 10 days;
    uint32 internal constant NO_SHOW = 5 minutes;
    uint64 internal constant FEE_TO_REGISTER = 1e6;
    uint16 internal constant FEE_BPS = 250;
    uint16 internal constant MIN_BOND_BPS = 2000;
    uint16 internal constant PENALTY_BPS = 1000;
    uint32 internal constant NOTICE = 10 minutes;

    uint32 internal constant INDEX = 7;
    uint24 internal constant BOND = 100;
    uint16 internal constant GPUS = 2;
    uint64 internal constant PRICE = 2_200_000;
    uint24 internal constant DURATION = 5 hours;
    uint256 internal constant CAP = uint256(PRICE) * GPUS * DURATION / 3600;
    uint64 internal constant CASH = 10_000e6;

    IMintable internal token;
    ILeaseBook internal book;
    /// @dev The newest book's.
    address internal front;
    address internal office;
    bytes32 internal domainSeparator;
    uint32 internal product;
    uint16 internal marketId;

    address internal buyer;
    address internal provider;
    address internal matcher;
    address internal stranger;
    address internal guardian = makeAddr("guardian");
    address internal sessionKey;
    address internal nodeKey;
    mapping(address signer => uint256 key) internal keyOf;

    uint32 private _nextNonce;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        token = IMintable(deployCode("PaymentToken.sol:PaymentToken"));
        book = _deploy(address(token));
        domainSeparator = book.DOMAIN_SEPARATOR();
        (buyer, provider, matcher) = (_member("buyer"), _member("provider"), _member("matcher"));
        (stranger, sessionKey, nodeKey) = (_signer("stranger"), _signer("session"), _signer("node"));
        product = _registerProduct(_product());
        vm.prank(matcher);
        marketId = book.registerMarket(FEE_BPS);
        vm.prank(provider);
        book.addMachine(INDEX, BOND, product);
        _delegate(provider, nodeKey, Role.Node, uint32(block.timestamp + 90 days));
        _delegate(buyer, sessionKey, Role.Session, uint32(block.timestamp + 90 days));
    }

    // ---------------------------------------------------------------------------------------------- the world

    function _deploy(address token_) internal virtual returns (ILeaseBook) {
        return _deployBook(token_, ModuleAddresses(address(0), address(0), address(0)), 0);
    }

    /// @dev How many contracts {_deployBook} creates: one created next has an address so many further on.
    uint256 internal constant BOOK_PARTS = 3;

    function _deployBook(address token_, ModuleAddresses memory modules, uint32 commitWindow)
        internal
        returns (ILeaseBook)
    {
        Windows memory windows = Windows({start: START, claim: CLAIM, retire: RETIRE, noShow: NO_SHOW});
        bytes memory arguments = abi.encode(token_, windows, FEE_TO_REGISTER, guardian, modules, commitWindow);
        front = deployCode("FrontOffice.sol:FrontOffice", arguments);
        office = deployCode("BackOffice.sol:BackOffice", arguments);
        return ILeaseBook(deployCode("LeaseBook.sol:LeaseBook", bytes.concat(arguments, abi.encode(front, office))));
    }

    /// @dev Raw, since expectRevert does not see a `create` that succeeds.
    function _tryCreate(bytes memory code) internal returns (address made, bytes memory answer) {
        assembly ("memory-safe") {
            made := create(0, add(code, 0x20), mload(code))
            answer := mload(0x40)
            mstore(answer, returndatasize())
            returndatacopy(add(answer, 0x20), 0, returndatasize())
            mstore(0x40, and(add(add(answer, returndatasize()), 0x3f), not(0x1f)))
        }
    }

    function _signer(string memory name) internal returns (address who) {
        uint256 key;
        (who, key) = makeAddrAndKey(name);
        keyOf[who] = key;
    }

    function _member(string memory name) internal returns (address who) {
        who = _signer(name);
        _join(who, CASH);
    }

    function _join(address who, uint64 amount) internal {
        token.mint(who, amount);
        vm.startPrank(who);
        token.approve(address(book), type(uint256).max);
        book.register();
        book.deposit(who, amount);
        vm.stopPrank();
    }

    function _product() internal pure returns (Product memory) {
        return Product({
            gpuClass: "A100-SXM4-80GB",
            sheetHash: keccak256("sheet"),
            regionGroup: "eu",
            sliceGpus: GPUS,
            minBondBps: MIN_BOND_BPS,
            penaltyBps: PENALTY_BPS,
            notice: NOTICE,
            flags: INTERRUPTIBLE | VERIFIED | CHALLENGE
        });
    }

    function _registerProduct(Product memory rules) internal returns (uint32 id) {
        vm.prank(matcher);
        id = book.registerProduct(rules);
    }

    function _delegate(address account, address signer, Role role, uint32 expiry) internal {
        bytes memory proof = _sign(signer, keccak256(abi.encode(OrderHash.DELEGATE, account, role, expiry)));
        vm.prank(account);
        book.setDelegate(signer, role, expiry, proof);
    }

    // ---------------------------------------------------------------------------------------------- what they sign

    function _sign(address signer, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keyOf[signer], _digest(structHash));
        return abi.encodePacked(r, s, v);
    }

    function _digest(bytes32 structHash) internal view returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", domainSeparator, structHash));
    }

    function _askFrom(address who, uint32 index) internal view returns (Ask memory) {
        return Ask({
            provider: who,
            index: index,
            seq: uint24(book.machineOf(who, index).nextSeq),
            product: product,
            minPricePerHour: PRICE - 200_000,
            minDuration: 10 minutes,
            maxDuration: 24 hours,
            startBy: uint32(block.timestamp + 1 hours),
            matcher: matcher,
            maxFeeBps: 500,
            flags: 0
        });
    }

    function _ask() internal view returns (Ask memory) {
        return _askFrom(provider, INDEX);
    }

    function _bidFrom(address who) internal returns (Bid memory) {
        return Bid({
            buyer: who,
            product: product,
            count: GPUS,
            maxPricePerHour: PRICE + 300_000,
            duration: DURATION,
            startBy: uint32(block.timestamp + 1 hours),
            openFrom: uint32(block.timestamp + 10 minutes),
            provider: address(0),
            nonce: _nextNonce++,
            matcher: matcher,
            maxFeeBps: 300,
            auditBps: 0,
            flags: 0,
            terms: keccak256("terms")
        });
    }

    function _bid() internal returns (Bid memory) {
        return _bidFrom(buyer);
    }

    function _hash(Ask memory ask) internal pure returns (bytes32) {
        return keccak256(abi.encode(OrderHash.ASK, ask));
    }

    function _hash(Bid memory bid) internal pure returns (bytes32) {
        return keccak256(abi.encode(OrderHash.BID, bid));
    }

    function _paired(Ask memory ask, Bid memory bid) internal view returns (SignedMatch memory) {
        return SignedMatch({
            ask: ask,
            bid: bid,
            askSignature: _sign(ask.provider == provider ? nodeKey : ask.provider, _hash(ask)),
            bidSignature: _sign(bid.buyer, _hash(bid))
        });
    }

    function _readyOf(address who, uint32 index, uint24 seq) internal pure returns (Ready memory) {
        return Ready({provider: who, index: index, seq: seq, runtimeHash: keccak256("runtime")});
    }

    function _signReady(address signer, Ready memory ready) internal view returns (bytes memory) {
        return _sign(signer, keccak256(abi.encode(OrderHash.READY, ready)));
    }

    function _signAccept(address signer, Accept memory accepted) internal view returns (bytes memory) {
        return _sign(signer, keccak256(abi.encode(OrderHash.ACCEPT, accepted)));
    }

    function _voucher(uint24 seq, uint256 amount) internal view returns (Voucher memory) {
        return Voucher({provider: provider, index: INDEX, seq: seq, amount: uint48(amount)});
    }

    function _signVoucher(address signer, Voucher memory voucher) internal view returns (bytes memory) {
        return _sign(signer, keccak256(abi.encode(OrderHash.VOUCHER, voucher)));
    }

    function _signFinal(address signer, Voucher memory voucher) internal view returns (bytes memory) {
        return _sign(signer, keccak256(abi.encode(OrderHash.FINAL, voucher)));
    }

    // ---------------------------------------------------------------------------------------------- what they do

    function _submit(address sender, uint64 price, SignedMatch memory entry) internal {
        SignedMatch[] memory entries = new SignedMatch[](1);
        entries[0] = entry;
        vm.prank(sender);
        book.openBatch(product, price, marketId, entries);
    }

    function _expectSkip(uint256 index, SkipCode code) internal {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.EntrySkipped(index, code);
    }

    /// @dev Submits an entry that must be left out for `code`, and checks that nothing moved.
    function _assertSkipped(address sender, SignedMatch memory entry, SkipCode code) internal {
        bytes32 before = _stateOf(entry);
        _expectSkip(0, code);
        _submit(sender, PRICE, entry);
        assertEq(_stateOf(entry), before, "a skipped entry changed something");
    }

    function _stateOf(SignedMatch memory entry) private view returns (bytes32) {
        return keccak256(
            abi.encode(
                book.accountOf(entry.bid.buyer),
                book.accountOf(entry.ask.provider),
                book.machineOf(entry.ask.provider, entry.ask.index)
            )
        );
    }

    /// @dev Opens a lease of the fixture's machine; returns its number.
    function _open() internal returns (uint24 seq) {
        return _openWith(_ask(), _bid());
    }

    function _openWith(Ask memory ask, Bid memory bid) internal returns (uint24 seq) {
        _submit(matcher, PRICE, _paired(ask, bid));
        seq = ask.seq;
        assertEq(uint8(_leaseOf(seq).status), uint8(Status.Funded), "the lease did not open");
    }

    function _begin(uint24 seq, uint32 startedAt) internal {
        _beginAt(INDEX, seq, startedAt);
    }

    /// @dev Begins the first lease of another machine of the provider, now.
    function _beginMachine(uint32 index) internal {
        _beginAt(index, 1, uint32(block.timestamp));
    }

    function _beginAt(uint32 index, uint24 seq, uint32 startedAt) private {
        Ready memory ready = _readyOf(provider, index, seq);
        Accept memory accepted = Accept({provider: provider, index: index, seq: seq, startedAt: startedAt});
        book.begin(ready, _signReady(nodeKey, ready), accepted, _signAccept(sessionKey, accepted));
    }

    /// @dev A lease that began at the present time.
    function _openAndBegin() internal returns (uint24 seq) {
        seq = _open();
        _begin(seq, uint32(block.timestamp));
    }

    function _settle(Voucher memory voucher, bytes memory signature) internal {
        (Voucher[] memory vouchers, bytes[] memory signatures) = _one(voucher, signature);
        book.settleBatch(vouchers, signatures);
    }

    function _close(address sender, Voucher memory voucher, bytes memory buyerSig, bytes memory providerSig)
        internal
    {
        (Voucher[] memory vouchers, bytes[] memory buyerSigs) = _one(voucher, buyerSig);
        bytes[] memory providerSigs = new bytes[](1);
        providerSigs[0] = providerSig;
        vm.prank(sender);
        book.closeBatch(vouchers, buyerSigs, providerSigs);
    }

    function _one(Voucher memory voucher, bytes memory signature)
        internal
        pure
        returns (Voucher[] memory vouchers, bytes[] memory signatures)
    {
        vouchers = new Voucher[](1);
        vouchers[0] = voucher;
        signatures = new bytes[](1);
        signatures[0] = signature;
    }

    // ---------------------------------------------------------------------------------------------- what they see

    function _leaseOf(uint24 seq) internal view returns (Lease memory) {
        return book.leaseOf(provider, INDEX, seq);
    }

    function _cash(address who) internal view returns (uint256) {
        return book.accountOf(who).cash;
    }

    function _status() internal view returns (Status) {
        return book.machineOf(provider, INDEX).status;
    }

    function _key() internal view returns (MachineKey) {
        return machineKeyOf(provider, INDEX);
    }

    function _expectClosed(uint24 seq, CloseReason reason, uint256 paid) internal {
        vm.expectEmit(address(book));
        emit ILeaseBookLog.LeaseClosed(_key(), endingOf(paid, seq, reason));
    }

    function _assertFree(uint24 seq) internal view {
        assertEq(uint8(_status()), uint8(Status.Free), "machine is not free");
        assertEq(book.machineOf(provider, INDEX).seq, seq, "lease number changed");
    }

    /// @dev I1 for a world without other machines than the fixture's.
    function _assertSolvent() internal view {
        uint256 owed = _cash(buyer) + _cash(provider) + _cash(matcher);
        owed += uint256(book.machineOf(provider, INDEX).bond) * book.bondUnit();
        Lease memory lease = _leaseOf(book.machineOf(provider, INDEX).seq);
        owed += lease.cap - lease.paid;
        assertEq(token.balanceOf(address(book)), owed, "vault and accounts differ");
    }

    function assertEq(Status a, Status b) internal pure {
        assertEq(uint8(a), uint8(b));
    }
}
