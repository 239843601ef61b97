"""A realistic run in a store, without training anything: every object of it through the real log and layout.

    maker = RunMaker(store)
    maker.freeze()
    maker.launch(); maker.begin(); maker.rows(10); maker.commit()
    maker.end("completed"); maker.release("completed")

Nothing in it is random: the same calls make the same bytes, but for the nonces of the log's entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from raykit.history import finite, term_row
from raykit.ids import canonical, sha256
from raykit.plan import Lock
from raykit.reconcile import require_attempt, require_launch
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Beat,
    Commit,
    EndReason,
    EvaluationRow,
    ExperimentEntry,
    FieldStats,
    GateResult,
    Launched,
    Locked,
    Manifest,
    MonitorRow,
    Place,
    Record,
    Released,
    ResumeReceipt,
    Row,
    RunRecord,
    Segment,
    Series,
    Setting,
    StopRequested,
    Superseded,
)
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.commit import Slot, gather, write_file, write_manifest, write_note
from raykit.store.log import Log, RunLog

ELSEWHERE = Place(host="n7", boot="boot/1", pid=4711, started=1000)
START_AT = 1_800_000_000.0
BATCH = 64


class RunMaker:
    """Writes one run, step by step, as launches and workers would. `at` is the time of the next entry."""

    contract = sha256(b"contract")
    prefix = ""
    """What the names of its launches begin with."""
    counted: Mapping[str, int] = {"train": 1258, "development": 270}
    """By role: its rows, as the lock has them."""
    accelerator_s: float | None = None
    """What its checkpoints say that they took."""
    data: str = ""
    """What tells its members from those of other runs."""
    setting: Setting | None = None
    """What it has instead of what its plan says, where it is a trial."""
    ratios: Mapping[int, float] = {}
    """By update: what it scores on development, where that is not the usual."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        experiment: str = "digits",
        run: str = "main",
        updates: int = 40,
        place: Place = ELSEWHERE,
        at: float = START_AT,
    ) -> None:
        self.store = store
        self.experiment = experiment
        self.run = run
        self.updates = updates
        self.place = place
        self.at = at
        self.log = RunLog(store, experiment, run, by="maker")
        self.launches = 0
        self.seconds_per_update = 0.5

    # --- what is frozen -------------------------------------------------------------------------------------

    def plan_file(self) -> bytes:
        """The plan; too short to be loaded."""
        return f'schema = 1\nname = "{self.experiment}"\n'.encode()

    def settings(self) -> dict[str, Any]:
        """The plan with every default, as the lock has it."""
        return {
            "decision": f"Is {self.experiment} good?",
            "run": {"updates": self.updates, "select": "min development.ratio"},
        }

    def suite_of(self, *, code: str, data: str) -> str | None:
        """The digest of what every checkpoint is asked; None for a plan without `[qc]`, as here."""
        return None

    def freeze(self) -> Locked:
        """Plan, lock, code, environment, members, the `locked` event and `run.json`."""
        locked = self.lock_plan()
        record = RunRecord(
            experiment=self.experiment,
            run=self.run,
            setting=self.setting,
            **locked.model_dump(exclude={"event"}),
        )
        self.store.put_new(layout.run_record(self.experiment, self.run), record.to_bytes())
        return locked

    def lock_plan(self) -> Locked:
        """What all runs of a plan have in common; to do it again changes nothing."""
        name = self.experiment
        plan = self.plan_file()
        code, environment = b"tar of " + name.encode() * 200, canonical({"schema": 1, "python": "3.11"})
        data = self._members()
        lock = Lock(
            name=name,
            plan_sha256=sha256(plan),
            settings=self.settings(),
            contract=self.contract,
            code=sha256(code),
            data=data,
            rows=self.counted,
            updates=self.updates,
            samples=self.updates * BATCH,
            epochs=2.0,
            micro_batch=BATCH,
            effective_batch=BATCH,
            checkpoints=5,
            evaluations=5,
            curves=1,
            gates=("first", "resume"),
            acts_later=(),
            suite=self.suite_of(code=sha256(code), data=data),
        )
        self.store.put_new(layout.code(name, sha256(code)), code)
        self.store.put_new(layout.environment(name, sha256(environment)), environment)
        self.store.put_new(layout.plan(name, lock.digest, "plan.toml"), plan)
        self.store.put_new(layout.plan(name, lock.digest, "plan.lock"), lock.to_bytes())
        self.locked = Locked(
            plan=lock.digest,
            contract=lock.contract,
            code=sha256(code),
            environment=sha256(environment),
            data=data,
        )
        log = Log(self.store, layout.experiment_log(name), ExperimentEntry, by="maker")
        log.append(lambda entries: [] if entries else [self.locked], at=self._tick())
        return self.locked

    def _members(self) -> str:
        files = {role: f"PAR1 {role} {self.data}".encode() * 50 for role in ("train", "development")}
        roles = {role: {"rows": 7, "sha256": sha256(d), "size_bytes": len(d)} for role, d in files.items()}
        manifest = canonical({"schema": 1, "roles": roles})
        digest = sha256(manifest)
        for role, data in files.items():
            self.store.put_new(layout.membership(self.experiment, digest, f"{role}.parquet"), data)
        self.store.put_new(layout.membership(self.experiment, digest, "manifest.json"), manifest)
        return digest

    # --- launches and attempts ------------------------------------------------------------------------------

    def launch(self) -> str:
        """A launch takes the run; attempts that nobody ended were killed."""
        self.launches += 1
        state = self.log.state
        killed = [
            AttemptEnded(attempt=a.attempt, reason="killed", update=state.recorded())
            for a in state.attempts
            if a.attempt not in state.ends
        ]
        self.name = f"{self.prefix}launch-{self.launches}"
        claim = Launched(launch=self.name, place=self.place, lease_s=60.0, raykit="0.1.0")
        self._append(lambda: [*killed, claim])
        return self.name

    def begin(self, *, lease: str | None = None) -> int:
        """An attempt starts: at update 0, or from the newest commit. `lease` is what it has from a ledger."""
        state = self.log.state
        self.attempt = len(state.attempts) + 1
        self._rows: dict[Series, list[Record]] = {"train": [], "development": [], "monitor": []}
        self._since = 0.0
        base = state.commits[-1] if state.commits else None
        self.update = base.update if base else 0
        events: list[Record] = []
        if state.attempts and state.recorded() > self.update:
            span = {"from": self.update + 1, "to": state.recorded(), "why": f"attempt {self.attempt} resumes"}
            events.append(Superseded.model_validate(span))
        receipt = base and ResumeReceipt(
            update=base.update,
            attempt=base.attempt,
            manifest_sha256=base.sha256,
            needed="exact",
            exactness="exact",
        )
        events.append(
            AttemptStarted(
                attempt=self.attempt,
                launch=self.name,
                place=self.place,
                world_size=1,
                facts={"torch": "2.13"},
                plan=self.locked.plan,
                code=self.locked.code,
                data=self.locked.data,
                lease=lease,
                resume=receipt,
            )
        )
        self._append(lambda: self._owned(events))
        self.store.put_derived(self._worker_log(), f"attempt {self.attempt} starts\n".encode())
        if base is None:
            self.gate("first")
            self.gate("resume")
            self.look()
            self.commit("start")
        return self.attempt

    def gate(self, name: str, *, passed: bool = True) -> None:
        found = GateResult(
            gate=name, key=sha256(name.encode()), passed=passed, scope="1 cpu", found="finite", took_s=0.7
        )
        self._append(lambda: self._fenced([found]))

    def end(self, reason: EndReason, *, detail: str | None = None) -> None:
        self.flush()
        event = AttemptEnded(attempt=self.attempt, reason=reason, update=self.update, detail=detail)
        self._append(lambda: self._fenced([event]))

    def release(self, reason: EndReason) -> None:
        self._append(lambda: self._owned([Released(launch=self.name, reason=reason)]))

    def ask_to_stop(self, why: str) -> None:
        self._append(lambda: self._owned([StopRequested(launch=self.name, why=why)]))

    def beat(self) -> None:
        self._append(lambda: self._owned([Beat(launch=self.name)]))

    # --- rows and checkpoints -------------------------------------------------------------------------------

    def rows(self, count: int, *, every: int = 5, nonfinite: bool = False) -> None:
        """`count` updates, in segments of `every`; the last one not finite if asked."""
        for i in range(count):
            self.update += 1
            self._since += self.seconds_per_update
            self.add(self.row(self.update, nonfinite=nonfinite and i == count - 1))
            if len(self._rows["train"]) >= every:
                self.flush()

    def add(self, row: Row) -> None:
        """One row as it is; durable with the next flush."""
        self._rows["train"].append(row)

    def look(self, *, collapsed: bool = False) -> None:
        """Evaluate and monitor at this update."""
        usual = round(0.2 + 0.8 * math.exp(-self.update / 20), 6)
        ratio = self.ratios.get(self.update, usual)
        self._rows["development"].append(
            EvaluationRow(
                attempt=self.attempt,
                update=self.update,
                rows=270,
                metrics={"ratio": finite(ratio), "recon": finite(ratio / 10)},
                elapsed_s=self._since,
                best=True,
            )
        )
        stats = FieldStats(
            space="log", median=0.1, low=-1.0, high=1.2, spread=2.2, reference_spread=2.2, collapsed=collapsed
        )
        self._rows["monitor"].append(
            MonitorRow(
                attempt=self.attempt, update=self.update, fields={"latent": stats}, elapsed_s=self._since
            )
        )

    def flush(self) -> None:
        """Make the rows so far durable."""
        events: list[Record] = []
        for series, rows in self._rows.items():
            if rows:
                events.append(self.segment(series, rows))
                rows.clear()
        if events:
            self._append(lambda: self._fenced(events))

    def commit(self, reason: Literal["start", "cadence", "stop", "final"] = "cadence") -> Commit:
        """A checkpoint of this update: history first, then files, note, manifest, event."""
        self.flush()
        slot = self.slot()
        files = [
            write_file(
                self.store, slot, "model.safetensors", self._bytes("model", 3000), holds="model", rank=0
            ),
            write_file(
                self.store,
                slot,
                "optimizer.safetensors",
                self._bytes("adam", 6000),
                holds="optimizer",
                rank=0,
            ),
            write_file(
                self.store, slot, "state.json", canonical({"update": self.update}), holds="state", rank=0
            ),
        ]
        write_note(self.store, slot, 0, files)
        manifest = Manifest(
            update=self.update,
            samples=self.update * BATCH,
            world_size=1,
            files=gather(self.store, slot, 1, wait=lambda: False),
            history_update=self.update,
            contract=self.locked.contract,
            data=self.locked.data,
            code=self.locked.code,
        )
        key, digest = write_manifest(self.store, slot, manifest)
        event = Commit(
            update=self.update,
            attempt=self.attempt,
            key=key,
            sha256=digest,
            size_bytes=sum(file.size_bytes for file in manifest.files),
            exactness="exact",
            reason=reason,
            save_s=0.2,
            blocked_s=0.01,
            accelerator_s=self.accelerator_s,
        )
        self._append(lambda: self._fenced([event]))
        return event

    def row(self, update: int, *, nonfinite: bool = False, skipped: bool | None = None) -> Row:
        """The training row of an update, as this attempt makes it."""
        first = (update - 1) * BATCH
        value = math.nan if nonfinite else round(0.1 * (0.2 + 0.8 * math.exp(-update / 20)), 6)
        term = term_row(value=value, weight=1.0, elements=4096, target_ms=0.1)
        return Row(
            attempt=self.attempt,
            update=update,
            epoch=first // 1258,
            samples=(first, first + BATCH),
            sources={"0": 40, "1": 24},
            loss=term.contribution,
            ratio=term.ratio,
            terms={"recon": term},
            lr=(0.001,),
            grad_norm=None if nonfinite else 1.5,
            clipped=False,
            elapsed_s=round(self._since, 3),
            skipped=skipped,
            nonfinite=("loss", "recon", "grad_norm") if nonfinite else None,
        )

    def segment(self, series: Series, rows: Sequence[Record]) -> Segment:
        """Write a segment; the event that would name it."""
        data = b"".join(row.to_bytes() + b"\n" for row in rows)
        first, last = (row.update for row in (rows[0], rows[-1]))  # type: ignore[attr-defined]
        key = layout.segment(self.experiment, self.run, self.attempt, series, first, last)
        stored = self.store.put_new(key, data)
        return Segment(
            series=series,
            attempt=self.attempt,
            first=first,
            last=last,
            key=key,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )

    def slot(self) -> Slot:
        return Slot(experiment=self.experiment, run=self.run, update=self.update, attempt=self.attempt)

    def curves(self) -> None:
        self.store.put_derived(layout.curve(self.experiment, self.run, "ratio.png"), b"PNG")

    def say(self, events: Sequence[Record]) -> None:
        """Append events without any check, as a faulty writer would."""
        self._append(lambda: events)

    # --- inside ---------------------------------------------------------------------------------------------

    def _bytes(self, what: str, size: int) -> bytes:
        return (f"{what} {self.experiment} {self.run} {self.update} ".encode() * size)[:size]

    def _worker_log(self) -> str:
        return layout.worker_log(self.experiment, self.run, self.attempt, 0)

    def _owned(self, events: Sequence[Record]) -> Sequence[Record]:
        require_launch(self.log.state, self.name)
        return events

    def _fenced(self, events: Sequence[Record]) -> Sequence[Record]:
        require_attempt(self.log.state, self.name, self.attempt)
        return events

    def _append(self, decide: Callable[[], Sequence[Record]]) -> None:
        self.log.append(lambda _: decide(), at=self._tick())

    def _tick(self) -> float:
        self.at += 1.0
        return self.at


def make_run(store: ObjectStore, *, experiment: str = "digits", run: str = "main") -> RunMaker:
    """A completed run of 40 updates that was killed once, at update 27, and resumed from its commit at 20."""
    maker = RunMaker(store, experiment=experiment, run=run)
    maker.freeze()
    maker.launch()
    maker.begin()
    for _ in range(2):
        maker.rows(10)
        maker.look()
        maker.commit()
    maker.rows(7, every=1)
    maker.launch()
    maker.begin()
    for _ in range(2):
        maker.rows(10)
        maker.look()
        maker.commit("final" if maker.update == 40 else "cadence")
    maker.curves()
    maker.end("completed")
    maker.release("completed")
    return maker
