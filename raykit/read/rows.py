"""Rows of one series of one run: verified while they are read, one segment at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from raykit import history
from raykit.errors import CorruptError, InvalidInput
from raykit.records import EvaluationRow, MonitorRow, Row, Segment, Series, Superseded
from raykit.store.base import ObjectStore
from raykit.store.segments import read_segment

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

R = TypeVar("R", Row, EvaluationRow, MonitorRow)

_INTEGERS = frozenset({"attempt", "update", "epoch", "rows", "elements", "samples_first", "samples_end"})
_BOOLEANS = frozenset({"clipped", "skipped", "best", "collapsed"})
_TEXTS = frozenset({"no_reference", "space"})


class RowTable(Generic[R]):
    """The rows that count of one series, in the order of updates. Superseded rows are cut away, and counted."""

    def __init__(self, store: ObjectStore, events: Sequence[object], series: Series, kind: type[R]) -> None:
        self._store = store
        self._spans = history.lineage(events, series)
        self._kind: type[R] = kind
        self.series = series
        self.superseded = _superseded(events, series)
        """How many updates were recorded and are no longer part of the run: the cost of its interruptions."""

    @property
    def last_update(self) -> int:
        """The last update that has a row here; 0 if none has."""
        return self._spans[-1].last if self._spans else 0

    def rows(self) -> Iterator[R]:
        """Every row. For `train`, updates 1 to N without a gap.

        Raises:
            CorruptError: a segment is missing or changed, or a row is missing or there twice.
            StoreUnavailableError: the store did not answer.
        """
        before = 0 if self.series == "train" else -1
        for span in self._spans:
            for row in self._read(span):
                if row.update <= before or (self.series == "train" and row.update != before + 1):
                    raise CorruptError(
                        f"the {self.series} history has update {row.update} after update {before}",
                        field="update",
                        value=row.update,
                        rule="each update once, in order, without a gap",
                    )
                before = row.update
                yield row

    __iter__ = rows

    def tail(self, count: int) -> list[R]:
        """The last `count` rows; only the segments that hold them are read.

        Raises:
            CorruptError: one of those segments is missing or changed.
            StoreUnavailableError: the store did not answer.
        """
        found: list[R] = []
        for span in reversed(self._spans):
            if len(found) >= count:
                break
            found[:0] = self._read(span)
        return found[-count:] if count else []

    def coverage(self) -> dict[str, int]:
        """How many examples of each source the whole run has trained on, counted each time.

        Raises:
            InvalidInput: the series has no coverage: only `train` has.
            CorruptError: as `rows`.
            StoreUnavailableError: the store did not answer.
        """
        if self.series != "train":
            raise InvalidInput(f"{self.series} rows have no coverage", field="series", rule="train")
        total: dict[str, int] = {}
        for row in self.rows():
            assert isinstance(row, Row)
            for source, count in row.sources.items():
                total[source] = total.get(source, 0) + count
        return dict(sorted(total.items()))

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table; what is nested gets dotted names, such as `terms.recon.ratio`.

        Raises:
            CorruptError: as `rows`.
            StoreUnavailableError: the store did not answer.
        """
        import pyarrow as pa

        flat = [_flat(row) for row in self.rows()]
        names = dict.fromkeys(name for row in flat for name in row)
        schema = pa.schema([(name, _type(name)) for name in names])
        return pa.Table.from_pylist(flat, schema=schema)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame, with the columns of `to_arrow`.

        Raises:
            InvalidInput: pandas is not installed.
            CorruptError: as `rows`.
            StoreUnavailableError: the store did not answer.
        """
        try:
            import pandas as pd  # noqa: F401
        except ImportError as error:
            raise InvalidInput(
                "pandas is not installed", remedy="pip install pandas, or use to_arrow() or rows()"
            ) from error
        return self.to_arrow().to_pandas()

    def _read(self, span: history.Span) -> Iterator[R]:
        for row in read_segment(self._store, span.segment):
            if span.first <= row.update <= span.last:
                assert isinstance(row, self._kind)
                yield row


def _superseded(events: Iterable[object], series: Series) -> int:
    count = last = 0
    for event in events:
        if isinstance(event, Segment) and event.series == series:
            last = event.last
        elif isinstance(event, Superseded):
            count += max(0, last - max(1, event.from_) + 1)  # at update 0 nothing is trained yet
            last = max(0, min(last, event.from_ - 1))
    return count


# --- flat rows ----------------------------------------------------------------------------------------------


def _flat(row: Row | EvaluationRow | MonitorRow) -> dict[str, Any]:
    plain = row.plain()
    del plain["schema"]
    if isinstance(row, Row):
        plain["samples_first"], plain["samples_end"] = plain.pop("samples")
        plain["sources"] = sorted(plain["sources"].items())
    for nested in ("terms", "fields"):
        for name, values in plain.pop(nested, {}).items():
            plain |= {f"{nested}.{name}.{key}": value for key, value in values.items()}
    plain |= {f"metrics.{name}": value for name, value in plain.pop("metrics", {}).items()}
    return plain


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    last = name.rpartition(".")[2] if name.startswith(("terms.", "fields.")) else name
    if last in _INTEGERS:
        return pa.int64()
    if last in _BOOLEANS:
        return pa.bool_()
    if last in _TEXTS:
        return pa.string()
    if last == "sources":
        return pa.map_(pa.string(), pa.int64())
    if last == "lr":
        return pa.list_(pa.float64())
    if last == "nonfinite":
        return pa.list_(pa.string())
    return pa.float64()
