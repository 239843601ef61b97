"""Ray Train's `fit` in a thread of its own, beside the launch loop: started, watched, and why it came back."""

from __future__ import annotations

import threading
from pathlib import Path

from ray.train import WorkerGroupError

from raykit.errors import RaykitError
from raykit.plan import Plan
from raykit.train.door import Door
from raykit.train.inputs import Task


class Training:
    """The gang of one launch. Starting it again is for when its controller died and attempts are left."""

    def __init__(self, task: Task, plan: Plan, *, gpus: float) -> None:
        """`gpus` is what each rank asks Ray for."""
        self._task = task
        self._plan = plan
        self._gpus = gpus
        self._thread: threading.Thread | None = None
        self.starts = 0
        """How often it was started."""
        self.error: BaseException | None = None
        """What the newest `fit` raised."""

    @property
    def word(self) -> str:
        """`not-started`, `running` or `returned`."""
        if self._thread is None:
            return "not-started"
        return "running" if self._thread.is_alive() else "returned"

    def start(self, *, storage: Path, door: Door, used: int) -> None:
        """Start the gang; Ray Train may restart it as often as attempts are left after the `used` ones."""
        from raykit.train.runner import fit

        self.error = None
        name = f"{self._task.launch}-{self.starts}"
        self.starts += 1

        def work() -> None:
            try:
                fit(
                    self._task,
                    self._plan,
                    storage=storage,
                    name=name,
                    restarts=max(0, self._plan.run.attempts - used - 1),
                    door=door,
                    gpus=self._gpus,
                )
            except BaseException as error:  # noqa: BLE001 - it belongs to the loop, which records it
                self.error = error

        self._thread = threading.Thread(target=work, name="raykit-fit", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Until it returns, or so long."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def failed(self) -> bool:
        """Its recipe failed: the workers themselves raised."""
        return isinstance(self.error, WorkerGroupError)

    @property
    def why(self) -> str | None:
        """Why it came back, as `kind: message`; None if nothing was raised."""
        error = self.error
        if error is None:
            return None
        if isinstance(error, RaykitError):
            return f"{error.kind}: {error}"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        said = lines[0] if len(lines) == 1 or not lines[0].endswith(":") else f"{lines[0]} {lines[-1]}"
        return f"{type(error).__name__}: {said[:400]}"
