"""What an experiment may cost, has cost and is going to cost, as people look at it. Reads only.

Amounts are whole micro-units, as in the ledger. What runs now is charged at its worst case; of that, what it has
come to so far is shown as `actual` and the rest as `reserved`, so that their sum is always what is charged.

view         the figures themselves, as people and scripts get them
account      the ledgers of a store, and a whole account
experiment   one experiment: its lines, its open leases, where it ends
"""

from __future__ import annotations

from raykit.read.money.account import Ledgers, account_money
from raykit.read.money.experiment import TRAIN, money_of, stop_rule
from raykit.read.money.view import (
    AccountMoney,
    ApprovalMoney,
    HeldMoney,
    LeaseMoney,
    LineMoney,
    Money,
    Progress,
    RateMoney,
)

__all__ = [
    "TRAIN",
    "AccountMoney",
    "ApprovalMoney",
    "HeldMoney",
    "LeaseMoney",
    "Ledgers",
    "LineMoney",
    "Money",
    "Progress",
    "RateMoney",
    "account_money",
    "money_of",
    "stop_rule",
]
