"""The matching kernel: numpy arrays in, numpy arrays out, integers only; it knows no order.

`ladder`: a continuous book of one series.
"""

from market.kernel.ladder import Ladder

__all__ = ["Ladder"]
