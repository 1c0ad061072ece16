// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditLib} from "../src/libraries/AuditLib.sol";
import {MarginLib} from "../src/libraries/MarginLib.sol";
import {ModuleHash} from "../src/libraries/ModuleHash.sol";
import {OrderHash} from "../src/libraries/OrderHash.sol";
import {PackedBatch} from "../src/libraries/PackedBatch.sol";
import {SettlementLib} from "../src/libraries/SettlementLib.sol";
import {Commit, Leaf, Results, Sibling, Verdict} from "../src/types/Audits.sol";
import {Assignment, FutureOrder} from "../src/types/Futures.sol";
import {Campaign, Pledge} from "../src/types/GroupBuys.sol";
import {machineKeyOf} from "../src/types/MachineKey.sol";
import {Accept, Ask, Bid, Match, Ready, Voucher} from "../src/types/Orders.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

// The libraries as contracts, many cases a call: `tests/property/test_twins.py` draws the cases and compares.

/// @dev Digests of everything that is signed, under the domain separators that the deployed contracts name.
contract SignedTwins {
    struct Delegation {
        address account;
        uint8 role;
        uint32 expiry;
    }

    function ask(bytes32 domain, Ask[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i]));
        }
    }

    function bid(bytes32 domain, Bid[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i]));
        }
    }

    function matched(bytes32 domain, Match[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i]));
        }
    }

    function ready(bytes32 domain, Ready[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i]));
        }
    }

    function accepted(bytes32 domain, Accept[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i]));
        }
    }

    function voucher(bytes32 domain, Voucher[] calldata values) external pure returns (bytes32[] memory) {
        return _ofAmounts(domain, OrderHash.VOUCHER, values);
    }

    function finals(bytes32 domain, Voucher[] calldata values) external pure returns (bytes32[] memory) {
        return _ofAmounts(domain, OrderHash.FINAL, values);
    }

    function _ofAmounts(bytes32 domain, bytes32 typeHash, Voucher[] calldata values)
        private
        pure
        returns (bytes32[] memory found)
    {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, OrderHash.hash(values[i], typeHash));
        }
    }

    function delegation(bytes32 domain, Delegation[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            bytes32 structHash = OrderHash.hashDelegate(values[i].account, values[i].role, values[i].expiry);
            found[i] = MessageHashUtils.toTypedDataHash(domain, structHash);
        }
    }

    function commitment(bytes32 domain, Commit[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, AuditLib.hash(values[i]));
        }
    }

    function verdict(bytes32 domain, Verdict[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, AuditLib.hash(values[i]));
        }
    }

    function results(bytes32 domain, Results[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, AuditLib.hash(values[i]));
        }
    }

    function futureOrder(bytes32 domain, FutureOrder[] calldata values)
        external
        pure
        returns (bytes32[] memory found)
    {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, ModuleHash.hash(values[i]));
        }
    }

    function assignment(bytes32 domain, Assignment[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, ModuleHash.hash(values[i]));
        }
    }

    function pledge(bytes32 domain, Pledge[] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = MessageHashUtils.toTypedDataHash(domain, ModuleHash.hash(values[i]));
        }
    }
}

/// @dev What is hashed or proven unsigned, what lies packed in calldata, and what is counted.
contract OtherTwins {
    /// @dev What a call of packed matches says of each entry.
    struct Unpacked {
        bytes32 askHash;
        bytes32 bidHash;
        address askSigner;
        address bidSigner;
    }

    struct Proof {
        bytes32 root;
        uint256 n;
        uint256 i;
        bytes32 leaf;
        uint256 weight;
        Sibling[] steps;
    }

    // ---------------------------------------------------------------------------------------------- names

    function campaign(address groupBuy, Campaign[] calldata values) external view returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = ModuleHash.campaignId(groupBuy, values[i]);
        }
    }

    function providers(address[][] calldata values) external pure returns (bytes32[] memory found) {
        found = new bytes32[](values.length);
        for (uint256 i; i < values.length; ++i) {
            found[i] = ModuleHash.providersHash(values[i]);
        }
    }

    // ---------------------------------------------------------------------------------------------- audits

    /// @return found The hash of each leaf, and the key of the batch that it names.
    function leaves(address verification, Leaf[] calldata values) external view returns (bytes32[2][] memory found) {
        found = new bytes32[2][](values.length);
        for (uint256 i; i < values.length; ++i) {
            Leaf calldata leaf = values[i];
            bytes32 leaseKey = AuditLib.leaseKey(machineKeyOf(leaf.provider, leaf.index), leaf.seq);
            found[i] = [AuditLib.hashLeaf(verification, leaf), AuditLib.batchKey(leaseKey, leaf.batchNo)];
        }
    }

    /// @return found Where each leaf's interval begins, one more; 0: it is not proven.
    function proofs(Proof[] calldata values) external pure returns (uint256[] memory found) {
        found = new uint256[](values.length);
        for (uint256 i; i < values.length; ++i) {
            Proof calldata each = values[i];
            (bool ok, uint256 start) = AuditLib.prove(each.root, each.n, each.i, each.leaf, each.weight, each.steps);
            if (ok) found[i] = start + 1;
        }
    }

    /// @param values Of each draw: hash of a block, preimage, root, key of the batch.
    function draws(bytes32[4][] calldata values, uint256 j) external pure returns (uint256[2][] memory found) {
        found = new uint256[2][](values.length);
        for (uint256 i; i < values.length; ++i) {
            bytes32 seed = AuditLib.seedOf(values[i][0], values[i][1], values[i][2], values[i][3]);
            found[i] = [uint256(seed), AuditLib.drawPoint(seed, j)];
        }
    }

    // ---------------------------------------------------------------------------------------------- packed calldata

    function matches(bytes32 domain, bytes calldata data, uint256 product, uint256 count, address matcher)
        external
        view
        returns (Unpacked[] memory found)
    {
        found = new Unpacked[](data.length / PackedBatch.MATCH_BYTES);
        uint256 entry = PackedBatch.first(data);
        for (uint256 i; i < found.length; ++i) {
            found[i].askHash = PackedBatch.askHash(entry, product, matcher);
            found[i].bidHash = PackedBatch.bidHash(entry, product, count, matcher);
            found[i].askSigner = PackedBatch.signerOf(domain, found[i].askHash, entry + PackedBatch.ASK_SIGNATURE);
            found[i].bidSigner = PackedBatch.signerOf(domain, found[i].bidHash, entry + PackedBatch.BID_SIGNATURE);
            entry += PackedBatch.MATCH_BYTES;
        }
    }

    function starts(bytes32 domain, address provider, bytes calldata data)
        external
        view
        returns (bytes32[] memory hashes, address[] memory signers)
    {
        uint256 n = data.length / PackedBatch.START_BYTES;
        (hashes, signers) = (new bytes32[](n), new address[](n));
        uint256 entry = PackedBatch.first(data);
        for (uint256 i; i < n; ++i) {
            hashes[i] = PackedBatch.acceptHash(entry, provider);
            signers[i] = PackedBatch.signerOf(domain, hashes[i], entry + PackedBatch.ACCEPT_SIGNATURE);
            entry += PackedBatch.START_BYTES;
        }
    }

    /// @return found Of each closing: the voucher's struct hash, the Final's, the buyer's key (under the voucher, under
    /// the Final) and the provider's.
    function closings(bytes32 domain, bytes calldata data) external view returns (bytes32[5][] memory found) {
        uint256 size = PackedBatch.CLOSING_BYTES + PackedBatch.SIGNATURE_BYTES;
        found = new bytes32[5][](data.length / size);
        uint256 entry = PackedBatch.first(data);
        for (uint256 i; i < found.length; ++i) {
            bytes32 voucher = PackedBatch.closingHash(entry, OrderHash.VOUCHER);
            bytes32 last = PackedBatch.closingHash(entry, OrderHash.FINAL);
            uint256 buyer = entry + PackedBatch.BUYER_SIGNATURE;
            found[i] = [
                voucher,
                last,
                _word(PackedBatch.signerOf(domain, voucher, buyer)),
                _word(PackedBatch.signerOf(domain, last, buyer)),
                _word(PackedBatch.signerOf(domain, last, entry + PackedBatch.PROVIDER_SIGNATURE))
            ];
            entry += size;
        }
    }

    function _word(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    // ---------------------------------------------------------------------------------------------- arithmetic

    /// @param values Of each lease: cap, elapsed, duration, voucher, paid, share, window.
    /// @return found Accrued, paid after the voucher, share down, share up, no-show amount; of the cap.
    function settlements(uint256[7][] calldata values) external pure returns (uint256[5][] memory found) {
        found = new uint256[5][](values.length);
        for (uint256 i; i < values.length; ++i) {
            uint256[7] calldata v = values[i];
            uint256 ceiling = SettlementLib.accrued(v[0], v[1], v[2]);
            found[i] = [
                ceiling,
                SettlementLib.paidAfter(v[3], ceiling, v[4]),
                SettlementLib.shareDown(v[0], v[5]),
                SettlementLib.shareUp(v[0], v[5]),
                SettlementLib.noShow(v[0], v[2], v[6])
            ];
        }
    }

    /// @param values Of each contract: price, GPUs, units, window, share, floor, seconds left.
    /// @return found Cost of a unit, margin, a unit's part of it, what of that is forfeit.
    function margins(uint256[7][] calldata values) external pure returns (uint256[4][] memory found) {
        found = new uint256[4][](values.length);
        for (uint256 i; i < values.length; ++i) {
            uint256[7] calldata v = values[i];
            uint256 margin = MarginLib.margin(v[0], v[1], v[2], v[3], v[4], v[5]);
            uint256 part = MarginLib.part(margin, v[2]);
            found[i] = [SettlementLib.costDown(v[0], v[1], v[3]), margin, part, MarginLib.forfeit(part, v[6], v[3])];
        }
    }
}
