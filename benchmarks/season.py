"""A season of random trade on Anvil, honest and foul, after which everybody goes: nothing is left.

`--operations` moves of providers, buyers, verifiers and strangers, chosen by `--seed`, with time
passing between them. Every so often, and at the end, the book's tokens are what it owes; at last
they are exactly 0. Prints a table, then one JSON line; exit 1 where the contracts broke a rule.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks._audited import AUDITS
from benchmarks._chain import running_chain
from benchmarks._parties import Market
from benchmarks._season import Broken, Season
from benchmarks._season_audits import AUDITS_MOVES
from benchmarks._season_exit import balance, everybody_exits, margins, owed, pledged
from benchmarks._season_fouls import FOUL
from benchmarks._season_futures import FUTURES_MOVES
from benchmarks._season_groups import GROUP_MOVES
from benchmarks._season_module_fouls import MODULE_FOUL
from benchmarks._season_moves import HONEST
from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.deployment import DeploymentTerms
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseFlags, Windows

PROVIDERS, BUYERS, MACHINES_EACH = 4, 4, 3
CHECK_EVERY = 200
BEGAN_AT = 1_800_000_000
"""Unix seconds: windows of futures begin at full hours, so a seed needs the same clock."""
SHOWN = ("leases", "futures", "group buys", "challenges", "convicted")
"""What the JSON line counts."""
WINDOWS = Windows(start=900, claim=3_600, retire=864_000)
RULES = FuturesRules(lead=7_200, lead_short=1_800)
TERMS = DeploymentTerms(windows=WINDOWS, audits=AUDITS, futures=RULES)
MOVES = (*HONEST, *AUDITS_MOVES, *FUTURES_MOVES, *GROUP_MOVES, *FOUL, *MODULE_FOUL)


@dataclass(frozen=True)
class Outcome:
    """What became of a season."""

    operations: int
    done: int
    refused: int
    fouls: int
    left: int
    """Base units in the book when everybody has gone."""
    facts: Counter[str]
    """Leases, futures, group buys, ... and how often each."""
    moves: Counter[str]


def play(operations: int, seed: int) -> Outcome:
    """Raises Broken with the seed and the place where a rule was broken."""
    with running_chain(TERMS, "--timestamp", str(BEGAN_AT)) as chain:
        market = Market(chain, flags=int(LeaseFlags.VERIFIED))
        for number in range(2):
            chain.key(f"verifier {number}")
            market.member(f"audits {number}", 1)
        season = _begun(market, random.Random(seed))
        moves, weights = [move for move, _ in MOVES], [weight for _, weight in MOVES]
        counted = Counter[str]()
        for operation in range(operations):
            move = season.dice.choices(moves, weights)[0]
            counted[move.__name__] += 1
            try:
                move(season)
                if operation % CHECK_EVERY == 0:
                    _check(season)
            except Broken as broken:
                where = f"seed {seed}, operation {operation}, {move.__name__}"
                raise Broken(f"{where}: {broken}") from broken
        _check(season)
        everybody_exits(season)
        return Outcome(
            operations=operations,
            done=season.done,
            refused=season.refused,
            fouls=season.fouls,
            left=balance(season),
            facts=season.facts,
            moves=counted,
        )


def _begun(market: Market, dice: random.Random) -> Season:
    providers = [
        market.party(f"provider {n}", KeyRole.NODE, own_key=True) for n in range(PROVIDERS)
    ]
    buyers = [market.party(f"buyer {n}", KeyRole.SESSION, own_key=True) for n in range(BUYERS)]
    machines = [
        market.machine(provider, index) for provider in providers for index in range(MACHINES_EACH)
    ]
    return Season(market.chain, market, providers, buyers, machines, dice)


def _check(season: Season) -> None:
    held, needed = balance(season), owed(season)
    if held != needed:
        raise Broken(f"the book holds {held} base units and owes {needed}")
    modules = season.chain.deployment
    for name, module, due in (
        ("Futures", modules.futures, margins(season)),
        ("GroupBuy", modules.group_buy, pledged(season)),
    ):
        taken = season.chain.ask(lease_book.module_cash(module))
        if taken != due:
            raise Broken(f"{name} holds {taken} base units and owes {due}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    try:
        outcome = play(asked.operations, asked.seed)
    except Broken as broken:
        print(f"broken: {broken}", file=sys.stderr)
        return 1
    for name, count in (*outcome.moves.most_common(), *outcome.facts.most_common()):
        print(f"{name:<32}{count:>8}")
    line = {
        "operations": outcome.operations,
        "seed": asked.seed,
        "done": outcome.done,
        "refused": outcome.refused,
        "fouls_refused": outcome.fouls,
        **{name.replace(" ", "_"): outcome.facts[name] for name in SHOWN},
        "left_base_units": outcome.left,
        "seconds": round(time.monotonic() - began, 1),
    }
    print()
    print(json.dumps(line))
    return 1 if outcome.left else 0


if __name__ == "__main__":
    sys.exit(main())
