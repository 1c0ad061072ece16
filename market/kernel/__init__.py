"""The matching kernel: numpy arrays in, numpy arrays out, integers only; it knows no order.

`ladder` is a continuous book of one series; `capacity` serves bids from asks over time
(`allocation`, greedily, and `ejection`, by a search after it). `compiling` says how they are
compiled, where that is kept, and how to do without.
"""

from market.kernel.capacity import Capacity
from market.kernel.ladder import Ladder

__all__ = ["Capacity", "Ladder"]
