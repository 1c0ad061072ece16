// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {ILeasePacked} from "../../../src/interfaces/ILeasePacked.sol";
import {ILeaseTrading} from "../../../src/interfaces/ILeaseTrading.sol";
import {INTERRUPTIBLE, PAY_AS_ASK, VERIFIED} from "../../../src/types/Flags.sol";
import {SkipCode} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Packing} from "../../Packing.sol";
import {Wallet} from "../../mocks/Wallets.sol";

contract OpenPacked is Packing {
    uint32 private constant MACHINES = 4;

    function setUp() public override {
        super.setUp();
        for (uint32 i = 1; i <= MACHINES; ++i) {
            vm.prank(provider);
            book.addMachine(i, BOND, product);
        }
    }

    function _calls(SignedMatch[] memory entries) private view returns (bytes memory plain, bytes memory packed) {
        plain = abi.encodeCall(ILeaseTrading.openBatch, (product, PRICE, marketId, entries));
        packed = abi.encodeCall(ILeasePacked.openPacked, (product, PRICE, marketId, _packMatches(entries)));
    }

    function _one(SignedMatch memory entry) private pure returns (SignedMatch[] memory entries) {
        entries = new SignedMatch[](1);
        entries[0] = entry;
    }

    function _assertTwin(SignedMatch[] memory entries) private {
        (bytes memory plain, bytes memory packed) = _calls(entries);
        assertEq(_assertTwins(matcher, plain, packed), entries.length, "one event an entry");
    }

    // ------------------------------------------------------------------------------------------------ the call

    function test_openPacked_whenLengthIsNoWholeNumberOfEntries_thenReverts() external {
        bytes memory data = bytes.concat(_packMatch(_paired(_ask(), _bid())), hex"00");
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadLength.selector, 257, 256));
        vm.prank(matcher);
        book.openPacked(product, PRICE, marketId, data);
    }

    function test_openPacked_whenPaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        bytes memory data = _packMatch(_paired(_ask(), _bid()));
        uint256 until = block.timestamp + 1 days;
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_OpeningsPaused.selector, until));
        vm.prank(matcher);
        book.openPacked(product, PRICE, marketId, data);
    }

    // ------------------------------------------------------------------------------------------------ twins

    function test_openPacked_whenAnEntryOpens_thenDoesWhatOpenBatchDoes() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        _assertTwin(_one(_paired(ask, bid)));
        bid.provider = provider;
        _assertTwin(_one(_paired(ask, bid)));
        bid.flags = PAY_AS_ASK | INTERRUPTIBLE;
        ask.flags = INTERRUPTIBLE;
        _assertTwin(_one(_paired(ask, bid)));
    }

    /// @dev Every field of an entry, changed one by one, signed and unsigned.
    function testFuzz_openPacked_thenSkipsAndOpensLikeOpenBatch(uint256 seed, uint256 value, bool resign) external {
        SignedMatch memory entry = _paired(_ask(), _bid());
        _change(entry, seed % 17, value);
        if (resign) entry = _paired(entry.ask, entry.bid);
        _assertTwin(_one(entry));
    }

    /// @dev A buyer's account is loaded once for a row of its entries, and again when it comes back later.
    /// forge-config: default.fuzz.runs = 64
    function testFuzz_openPacked_whenManyEntries_thenDoesWhatOpenBatchDoes(uint256 seed) external {
        address[3] memory buyers = [buyer, _member("other buyer"), _signer("nobody")];
        SignedMatch[] memory entries = new SignedMatch[](MACHINES + 2);
        for (uint256 i; i < entries.length; ++i) {
            uint256 dice = uint256(keccak256(abi.encode(seed, i)));
            // Two entries for one machine: the second comes too late.
            Ask memory ask = _askFrom(provider, uint32(1 + i % MACHINES));
            entries[i] = _paired(ask, _bidFrom(buyers[(dice >> 200) % 3]));
            if (dice % 3 == 0) {
                _change(entries[i], (dice >> 8) % 17, dice >> 16);
                if (dice & 16 != 0) entries[i] = _paired(entries[i].ask, entries[i].bid);
            }
        }
        _assertTwin(entries);
    }

    function test_openPacked_whenBuyerAndProviderAreOne_thenSkips() external {
        SignedMatch[] memory entries = _one(_paired(_ask(), _bidFrom(provider)));
        _assertTwin(entries);
        _expectSkip(0, SkipCode.SELF_DEALING);
        _submitPacked(entries);
    }

    function test_openPacked_whenCashIsOneUnitShort_thenSkips() external {
        uint64 spare = uint64(_cash(buyer) - CAP + 1);
        vm.prank(buyer);
        book.withdraw(spare);
        SignedMatch[] memory entries = _one(_paired(_ask(), _bid()));
        _assertTwin(entries);
        _expectSkip(0, SkipCode.CASH_TOO_LOW);
        _submitPacked(entries);
    }

    function _submitPacked(SignedMatch[] memory entries) private {
        bytes memory data = _packMatches(entries);
        vm.prank(matcher);
        book.openPacked(product, PRICE, marketId, data);
    }

    /// @dev Contract wallets answer for themselves here too, if 64 bytes are enough for them.
    function test_openPacked_whenWalletsAreContracts_thenDoesWhatOpenBatchDoes() external {
        for (uint256 mood; mood <= uint256(Wallet.Mood.ReturnsHalfAWord); ++mood) {
            Wallet seller = new Wallet(stranger, Wallet.Mood(mood));
            token.mint(address(seller), CASH);
            seller.join(book, CASH);
            vm.prank(address(seller));
            book.addMachine(INDEX, BOND, product);
            Ask memory ask = _askFrom(address(seller), INDEX);
            Bid memory bid = _bid();
            bytes memory signature = _sign(matcher, _hash(ask)); // of somebody else
            _assertTwin(_one(SignedMatch(ask, bid, signature, _sign(buyer, _hash(bid)))));
        }
    }

    function test_openPacked_whenAnOrderNamesAnotherMatcherProductOrCount_thenSkips() external {
        for (uint256 i; i < 5; ++i) {
            (Ask memory ask, Bid memory bid) = (_ask(), _bid());
            if (i == 0) ask.matcher = stranger;
            if (i == 1) ask.product = product + 1;
            if (i == 2) bid.matcher = stranger;
            if (i == 3) bid.product = product + 1;
            if (i == 4) bid.count = GPUS + 1;
            SkipCode code = i < 2 ? SkipCode.BAD_ASK_SIGNATURE : SkipCode.BAD_BID_SIGNATURE;
            bytes memory data = _packMatch(_paired(ask, bid));
            _expectSkip(0, code);
            vm.prank(matcher);
            book.openPacked(product, PRICE, marketId, data);
        }
    }

    /// @dev Field `which` of an entry gets a value out of or just at its range.
    function _change(SignedMatch memory entry, uint256 which, uint256 value) private view {
        (Ask memory ask, Bid memory bid) = (entry.ask, entry.bid);
        if (which == 0) ask.index = uint32(value % 9);
        else if (which == 1) ask.minPricePerHour = uint64(value);
        else if (which == 2) ask.seq = uint24(value % 3);
        else if (which == 3) ask.minDuration = uint24(value);
        else if (which == 4) ask.maxDuration = uint24(value);
        else if (which == 5) ask.startBy = uint32(block.timestamp - 1 + value % 3);
        else if (which == 6) ask.maxFeeBps = uint16(value % 600);
        else if (which == 7) ask.flags = uint8(value);
        else if (which == 8) bid.maxPricePerHour = uint64(value);
        else if (which == 9) bid.nonce = uint32(value);
        else if (which == 10) bid.duration = uint24(value);
        else if (which == 11) bid.startBy = uint32(block.timestamp - 1 + value % 3);
        else if (which == 12) bid.openFrom = uint32(value);
        else if (which == 13) bid.maxFeeBps = uint16(value % 600);
        else if (which == 14) bid.auditBps = uint16(value % 13_000);
        // Bit 7 is the pin's in packed calldata; an order that sets it is refused either way.
        else if (which == 15) bid.flags = uint8(value & 0x7f);
        else (bid.terms, bid.flags) = (bytes32(value), VERIFIED);
    }
}
