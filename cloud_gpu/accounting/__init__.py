"""Who had what before and after, and why: pure bookkeeping over chain reads and chain events."""

from cloud_gpu.accounting.books import BURN, AuditPayees, Books, Change, GasUse, Holding, explain
from cloud_gpu.accounting.following import lease_lives, market_accounts
from cloud_gpu.accounting.lives import AccusedSegment, BatchKey, BatchLife, LeaseLife

__all__ = [
    "BURN",
    "AccusedSegment",
    "AuditPayees",
    "BatchKey",
    "BatchLife",
    "Books",
    "Change",
    "GasUse",
    "Holding",
    "LeaseLife",
    "explain",
    "lease_lives",
    "market_accounts",
]
