"""The examinations of a made run, without any torch: a suite, its roster, receipts, and what people say of them.

    maker = QcMaker(store)                      # a RunMaker whose plan has [qc]: strata "0", "1", "2" of 2 units each
    maker.freeze(); maker.launch(); maker.begin(); maker.rows(10); maker.commit(); ...
    maker.examine(0); maker.examine(10, ratio=0.3)      # one receipt each; update 0 first
    maker.review(10, by="ada")                          # passed, or verdict="failed"
    make_examined(store)                        # all of that for a completed run: every required checkpoint is usable

`examine(..., findings=[...])` makes a receipt that failed, `ask` only a request, `take` a claim that nobody ends,
`fail_attempt` one that came to nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from makerun import RunMaker

from raykit.ids import sha256
from raykit.qc.suite import REVISION
from raykit.records import (
    Artifact,
    Claim,
    Commit,
    ExperimentEntry,
    Failure,
    FailureKind,
    FieldRule,
    FieldScore,
    FieldSpread,
    QcFinding,
    Receipt,
    Request,
    Reviewed,
    Roster,
    RosterUnit,
    Score,
    Suite,
    Tally,
    Took,
)
from raykit.store import layout
from raykit.store.log import Log, RunLog
from raykit.store.qc import Examinations

STRATA = ("0", "1", "2")
UNITS = 2
FACTS = {"torch": "2.13", "cpu": "avx2", "threads": "1"}


class QcMaker(RunMaker):
    """Writes a run whose every checkpoint on the cadence is examined."""

    every = 10
    on_failure: Literal["continue", "pause", "stop"] = "continue"
    fail: Mapping[str, str] = {"ratio": "> 0.35"}
    worthwhile = 0.01
    owner = "ada"
    report_only_supports = False
    keep: Mapping[str, int] | None = None
    """`run.keep_checkpoints`."""

    # --- what is frozen -------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """The plan with every default, as the lock has it."""
        settings = super().settings()
        settings["claim"] = {"metric": "ratio", "worthwhile": self.worthwhile, "compare": ["zero"]}
        if self.keep is not None:
            settings["run"]["keep_checkpoints"] = dict(self.keep)
        if self.report_only_supports:
            settings["claim"]["report_only"] = "supports"
        settings["splits"] = {"group": "content", "train": 0.7, "development": 0.15, "report_only": 0.15}
        settings["qc"] = {
            "owner": self.owner,
            "every": self.every,
            "roster": {"stratum": "label", "units": UNITS, "from": "development"},
            "fail": dict(self.fail),
            "fields": {"latent": {"space": "log", "low": 5, "high": 95, "collapse": 0.2}},
            "on_failure": self.on_failure,
            "tries": 3,
        }
        return settings

    def suite_of(self, *, code: str, data: str) -> str:
        """Freeze the roster and the suite; the suite's digest."""
        units = tuple(
            RosterUnit(id=f"{stratum}-{n}", stratum=stratum, sha256=sha256(f"{stratum} {n}".encode()))
            for stratum in STRATA
            for n in range(UNITS)
        )
        self.roster = Roster(
            role="development",
            data=data,
            stratum="label",
            quotas=dict.fromkeys(STRATA, UNITS),
            units=units,
            shown=tuple(f"{stratum}-0" for stratum in STRATA),
        )
        self.suite = Suite(
            experiment=self.experiment,
            owner=self.owner,
            every=self.every,
            root=layout.qc(self.experiment),
            roster=self.roster.digest,
            code=code,
            config=self.contract,
            revision=REVISION,
            recipe="recipe:Digits",
            params={"width": 8},
            seed=1,
            threads=1,
            deterministic=True,
            dtype="float32",
            autocast="none",
            fail=dict(self.fail),
            fields={"latent": FieldRule(space="log", low=5, high=95, collapse=0.2)},
        )
        self.examinations.freeze(self.suite, self.roster)
        return self.suite.digest

    @property
    def examinations(self) -> Examinations:
        return Examinations(self.store, self.experiment)

    # --- attempts -------------------------------------------------------------------------------------------

    def commit_at(self, update: int) -> Commit:
        """The newest checkpoint of an update that counts."""
        self.log.refresh()
        return next(commit for commit in reversed(self.log.state.commits) if commit.update == update)

    def request(self, update: int) -> Request:
        """The question about the checkpoint of an update, asked or not."""
        return Request(
            experiment=self.experiment,
            run=self.run,
            update=update,
            checkpoint=self.commit_at(update).sha256,
            suite=self.suite.digest,
        )

    def ask(self, update: int) -> Request:
        """Ask it; nobody is at it yet."""
        request = self.request(update)
        self.examinations.ask(request)
        return request

    def take(self, update: int, *, deadline_s: float = 600.0, worker: str = "qc-1") -> Claim:
        """Ask, and claim the next attempt; nothing comes of it yet."""
        request = self.ask(update)
        n = 1 + len(self.examinations.said()[request.id].claims)
        claim = self.examinations.claim(
            request.id, n, worker=worker, place=self.place, at=self._tick(), deadline_s=deadline_s
        )
        assert claim is not None
        return claim

    def fail_attempt(
        self, update: int, *, kind: FailureKind = "recipe", worker: str = "qc-1", message: str = "it raised"
    ) -> Failure:
        """An attempt that came to nothing."""
        claim = self.take(update, worker=worker)
        failure = Failure(
            request=claim.request,
            n=claim.n,
            kind=kind,
            signature=sha256(f"{kind} {message}".encode()),
            message=message,
            worker=worker,
            said_by=worker,
            at=self._tick(),
        )
        assert self.examinations.fail(failure)
        return failure

    # --- receipts -------------------------------------------------------------------------------------------

    def examine(
        self,
        update: int,
        *,
        ratio: float | None = None,
        spread: float = 2.2,
        findings: Sequence[QcFinding] = (),
        pictures: Mapping[str, bytes] | None = None,
        metrics: Mapping[str, Score] | None = None,
    ) -> Receipt:
        """Ask, claim and publish: a receipt that passed, or, with findings, that failed."""
        claim = self.take(update)
        receipt = self.receipt_of(
            update, ratio=ratio, spread=spread, findings=findings, pictures=pictures or {}, metrics=metrics
        )
        took = Took(
            request=claim.request,
            n=claim.n,
            worker=claim.worker,
            receipt=receipt.digest,
            took_ms=1200,
            peak_bytes=300_000_000,
            at=self._tick(),
        )
        assert self.examinations.publish(receipt, pictures or {}, took) == "written"
        return receipt

    def receipt_of(
        self,
        update: int,
        *,
        ratio: float | None = None,
        spread: float = 2.2,
        findings: Sequence[QcFinding] = (),
        pictures: Mapping[str, bytes] | None = None,
        metrics: Mapping[str, Score] | None = None,
    ) -> Receipt:
        """The receipt of a checkpoint, not written."""
        request = self.request(update)
        learned = round(max(0.1, 0.34 - update / 500), 6) if update else 1.0
        value = learned if ratio is None else ratio
        first = self.examinations.receipt(self.request(0).id) if update else None
        field = FieldSpread(median=0.1, low=-1.0, high=-1.0 + spread, spread=spread)
        score = Score(value=value, strata=dict.fromkeys(STRATA, value), no_skill=1.0, better="less")
        return Receipt(
            request=request.id,
            experiment=self.experiment,
            run=self.run,
            update=update,
            checkpoint=request.checkpoint,
            suite=self.suite.digest,
            roster=self.roster.digest,
            code=self.suite.code,
            config=self.suite.config,
            revision=self.suite.revision,
            reference=None if first is None else first.digest,
            facts=FACTS,
            units=_tally(UNITS * len(STRATA)),
            strata={stratum: _tally(UNITS) for stratum in STRATA},
            metrics={"ratio": score, **(metrics or {})},
            fields={
                "latent": FieldScore(
                    space="log",
                    pooled=field,
                    strata=dict.fromkeys(STRATA, field),
                    reference_spread=2.2 if update else None,
                    between=1.0,
                    within=0.5,
                    finite=1.0,
                    dimensions=8,
                )
            },
            artifacts=tuple(
                Artifact(name=name, sha256=sha256(data), size_bytes=len(data))
                for name, data in sorted((pictures or {}).items())
            ),
            unjudged=() if update else ("ratio",),
            findings=tuple(findings),
            verdict="failed" if findings else "passed",
        )

    # --- people ---------------------------------------------------------------------------------------------

    def review(
        self,
        *updates: int,
        verdict: Literal["passed", "failed"] = "passed",
        by: str = "mira",
        note: str = "looked at the contact sheet",
        scripted: bool = False,
    ) -> Reviewed:
        """A person says what the receipts of these updates are worth, in one act."""
        receipts = [self.examinations.receipt(self.request(update).id) for update in updates]
        event = Reviewed(
            receipts=tuple(receipt.digest for receipt in receipts if receipt is not None),
            verdict=verdict,
            note=note,
            person=by,
            scripted=scripted,
        )
        log = Log(self.store, layout.experiment_log(self.experiment), ExperimentEntry, by=by)
        log.append(lambda entries: [event], at=self._tick())
        return event


def failed(what: str = "ratio", *, found: str = "0.41", rule: str = "> 0.35") -> QcFinding:
    """One reason why a checkpoint fails."""
    return QcFinding(kind="threshold", what=what, found=found, rule=rule)


def make_trained(maker: QcMaker) -> QcMaker:
    """Let a run train to its end without an interruption: a checkpoint every 10 updates."""
    maker.freeze()
    maker.launch()
    maker.begin()
    while maker.update < maker.updates:
        maker.rows(10)
        maker.look()
        maker.commit("final" if maker.update == maker.updates else "cadence")
    maker.end("completed")
    maker.release("completed")
    return maker


def make_examined(
    store: Any, *, experiment: str = "digits", scripted: bool = False, **traits: Any
) -> QcMaker:
    """A completed run of 40 updates whose checkpoints at 0, 10, 20, 30 and 40 all passed and are reviewed.

    `traits` are attributes of the maker: `ratios={40: 0.3}`, `worthwhile=0.02`, `report_only_supports=True`.
    """
    maker = QcMaker(store, experiment=experiment)
    for name, value in traits.items():
        assert hasattr(maker, name), name
        setattr(maker, name, value)
    make_trained(maker)
    updates = range(0, maker.updates + 1, maker.every)
    for update in updates:
        maker.examine(update)
    maker.review(*updates, scripted=scripted)
    return maker


def moved(maker: QcMaker, store: Any) -> QcMaker:
    """The maker of a run whose objects were copied to another store."""
    other = copy.copy(maker)
    other.store = store
    other.log = RunLog(store, maker.experiment, maker.run, by="maker")
    return other


def _tally(units: int) -> Tally:
    return Tally(requested=units, scored=units, failed=0, missing=0)
