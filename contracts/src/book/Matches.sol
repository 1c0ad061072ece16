// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {SkipCode} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {Ask, Bid, Match, SignedMatch} from "../types/Orders.sol";
import {Openings} from "./Openings.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Matches: the ways to submit matched orders
/// @dev In a batch one bad entry is left out and the rest goes on; malformed calldata reverts, and that is the
/// submitter's own. A gang, and a match that somebody else submits, open or revert.
abstract contract Matches is ILeaseTrading, Openings {
    /// @inheritdoc ILeaseTrading
    function openBatch(uint32 product, uint64 price, uint16 marketId, SignedMatch[] calldata matches)
        external
        whenOpen
    {
        Round memory round = _roundOf(product, price, marketId);
        for (uint256 i; i < matches.length; ++i) {
            SignedMatch calldata entry = matches[i];
            SkipCode code = _open(round, entry.ask, entry.bid, entry.askSignature, entry.bidSignature);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
        }
    }

    /// @inheritdoc ILeaseTrading
    function openMatch(
        uint32 product,
        uint64 price,
        uint16 marketId,
        SignedMatch calldata entry,
        bytes calldata signature
    ) external whenOpen {
        Round memory round = _roundOf(product, price, marketId);
        (Ask memory ask, Bid memory bid) = (entry.ask, entry.bid);
        Match memory agreed = Match(OrderHash.hash(ask), OrderHash.hash(bid), price, marketId);
        bytes32 digest = MessageHashUtils.toTypedDataHash(round.domainSeparator, OrderHash.hash(agreed));
        round.matcher = SigCheck.recover(digest, signature);
        if (round.matcher == address(0)) revert LeaseBook_BadSignature(ask.matcher);
        _require(0, _open(round, ask, bid, entry.askSignature, entry.bidSignature));
    }

    /// @inheritdoc ILeaseTrading
    function openGang(
        uint32 product,
        uint64 price,
        uint16 marketId,
        Bid calldata bid,
        bytes calldata bidSignature,
        Ask[] calldata asks,
        bytes[] calldata askSignatures
    ) external whenOpen {
        if (asks.length == 0 || asks.length != askSignatures.length) {
            revert LeaseBook_LengthMismatch({entries: asks.length, signatures: askSignatures.length});
        }
        Round memory round = _roundOf(product, price, marketId);
        round.count = asks.length * round.sliceGpus;
        Bid memory wanted = bid;
        (AccountWord account, bytes32 bidHash, SkipCode code) =
            _useBid(round, _accounts[wanted.buyer], wanted, bidSignature);
        _require(0, code);
        for (uint256 i; i < asks.length; ++i) {
            MachineKey key;
            LeaseWord word;
            (key, word, code) = _place(round, asks[i], wanted, askSignatures[i]);
            _require(i, code);
            (account, word, code) = _fund(key, word, account, wanted.auditBps);
            _require(i, code);
            _leases[key] = word;
            emit LeaseOpened({machineKey: key, bidHash: bidHash, word: LeaseWord.unwrap(word)});
        }
        _accounts[wanted.buyer] = account;
    }

    function _require(uint256 index, SkipCode code) private pure {
        if (code != SkipCode.NONE) revert LeaseBook_EntryRefused({index: index, code: code});
    }
}
