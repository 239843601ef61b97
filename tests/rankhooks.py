"""What a rank of the nursery can be told to do to itself before it trains: other facts, and watched parsers."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import signal
import sys
import tarfile
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from typing import Any


def facts(other: Mapping[str, str]) -> None:
    """This rank takes itself to run on something else: `{"torch": "9.9.9"}`."""
    from raykit.train import facts as module

    true = module.here
    module.here = lambda gang, threads: {**true(gang, threads), **other}


def look_in(folder: str) -> None:
    """This rank was told to look for modules in a folder, too."""
    sys.path.insert(0, folder)


def patch(values: Mapping[str, Any]) -> None:
    """Set names of modules: `{"raykit.train.worker.LEADER_ENDS_S": 0.2}`."""
    for path, value in values.items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)


def damage_after_verifying(path: str) -> None:
    """Flip a bit of a file as soon as a checkpoint has been verified, before anything is read to be loaded."""
    from raykit.train import resume

    verify = resume.newest_good

    def newest_good(*arguments: Any) -> Any:
        good = verify(*arguments)
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read()[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        return good

    resume.newest_good = newest_good


def kill(at: Mapping[str, float]) -> None:
    """SIGKILL this rank `after_s` seconds after it has begun its update number `update`, whatever it does then."""
    from raykit.train.directive import Directive

    true, left = Directive.ask, int(at["update"])

    def ask(directive: Directive) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            threading.Timer(at["after_s"], os.kill, (os.getpid(), signal.SIGKILL)).start()
        return true(directive)

    Directive.ask = ask


def put(what: Mapping[str, Any]) -> None:
    """At every write whose key holds the text `key`: wait `seconds`, then raise a RuntimeError that says `error`."""
    from raykit.store.local import LocalStore

    true = LocalStore.put_new

    def put_new(self: Any, key: str, data: Any) -> Any:
        if what["key"] in key:
            time.sleep(what.get("seconds", 0.0))
            if "error" in what:
                raise RuntimeError(what["error"])
        return true(self, key, data)

    LocalStore.put_new = put_new


def parsers(watch: Mapping[str, str]) -> None:
    """Note every call of a parser in the file `notes`: its name, and whether it is given the text `canary`."""
    import pyarrow.parquet
    import safetensors.torch

    from raykit.records import Record

    notes = os.open(watch["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    canary = watch["canary"].encode()

    def watched(name: str, parser: Callable[..., Any], at: int | str = 0) -> Callable[..., Any]:
        @functools.wraps(parser)
        def note(*arguments: Any, **named: Any) -> Any:
            data = _bytes(named.get(at, b"") if isinstance(at, str) else arguments[at])
            os.write(notes, f"{name} {'canary' if canary in data else 'clean'}\n".encode())
            return parser(*arguments, **named)

        return note

    safetensors.torch.load = watched("safetensors", safetensors.torch.load)
    json.loads = watched("json", json.loads)
    tomllib.loads = watched("toml", tomllib.loads)
    tarfile.open = watched("tar", tarfile.open, "fileobj")
    pyarrow.parquet.ParquetFile = watched("parquet", pyarrow.parquet.ParquetFile)
    validate = Record.model_validate_json.__func__
    Record.model_validate_json = classmethod(watched("record", validate, 1))


def threads(count: int) -> None:
    """Something in this rank's process sets another number of threads, after raykit has."""
    from raykit.train import worker

    true = worker.set_up_process

    def set_up_process(*arguments: Any) -> None:
        import torch

        true(*arguments)
        torch.set_num_threads(count)

    worker.set_up_process = set_up_process


def _bytes(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, io.BytesIO):
        return data.getvalue()
    if callable(getattr(data, "read_at", None)):  # a file of Arrow's
        return bytes(data.read_at(data.size(), 0))
    return bytes(data)


def older_version(argument: Any) -> None:
    """This rank saves checkpoints as the first format had them, and does not know the newest fact."""
    from raykit.train import facts
    from raykit.train.state import FIRST, Capture

    take, here = Capture.take, facts.here
    Capture.take = lambda self, live, *, format=FIRST: take(self, live, format=FIRST)
    facts.here = lambda gang, threads: {
        name: fact for name, fact in here(gang, threads).items() if name != "hash_seed"
    }
