"""A search from its store alone: the registered table with what became of each row. Needs no Ray, and writes nothing.

    read = raykit.open("./store").search("digits-lr")
    print(read.progress, read.pick_words, read.verdict)
    read.to_pandas().plot.scatter(x="params.lr", y="value", logx=True)

Of rows that are at work their own run is read as well; of all others the search's own log says everything.

reader    from the store to the view, looked at again and again
view      the whole search: how far it is, who is waited for, the pick
row       one row of its table
verdict   what the pick is worth beside the setting of today
table     the rows as an Arrow table
"""

from __future__ import annotations

from raykit.read.search.reader import SearchReader, read_search
from raykit.read.search.row import ENDS, RowRead, RowStatus
from raykit.read.search.verdict import Verdict, verdict_of
from raykit.read.search.view import PickDue, SearchRead

__all__ = [
    "ENDS",
    "PickDue",
    "RowRead",
    "RowStatus",
    "SearchRead",
    "SearchReader",
    "Verdict",
    "read_search",
    "verdict_of",
]
