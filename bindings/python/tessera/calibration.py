"""Calibration: measures devices, so that plans are priced by what they really do."""
from __future__ import annotations

from typing import Any

from . import arguments, raw
from .arguments import Options
from .errors import check, result, text
from .handle import Handle
from .runtime import Runtime, chosen_runtime
from .work import Progress, interruptible


class Calibration(Handle):
    """`Calibration(devices="cpu", seconds=60).run(progress)`, then `save()`. One thread at a time."""

    _free = raw.tsr_calibration_free
    _exclusive = True

    def __init__(self, *, runtime: Runtime | None = None, **options: Any):
        self._runtime = chosen_runtime(runtime)
        with self._runtime._pointer as r, Options(options) as o:
            self._pointer = interruptible(lambda: self._made(raw.tsr_calibration_new(r, o)), self._runtime.cancel)

    def step(self) -> float:
        """Measures the next piece, some seconds; the share that is done."""
        with self._pointer as c:
            return result(interruptible(lambda: raw.tsr_calibration_step(c), self._runtime.cancel))

    def run(self, progress: Progress | None = None) -> None:
        """All steps. `progress` is told the share that is done; what it raises ends the work, which can go on."""
        done = 0.0
        while done < 1:
            done = self.step()
            if progress is not None:
                progress(done)

    @property
    def next(self) -> str:
        """What is measured next, for people; empty when all is done."""
        with self._pointer as c:
            return arguments.short_text(lambda found: raw.tsr_calibration_next(c, found))

    def text(self) -> str:
        """The profile's text, once all is done."""
        with self._pointer as c:
            return text(raw.tsr_calibration_text(c))

    @property
    def default_path(self) -> str:
        """Where save without a path writes, and profile="auto" looks."""
        with self._pointer as c:
            return arguments.short_text(lambda found: raw.tsr_calibration_default_path(c, found))

    def save(self, path: Any = None) -> None:
        """Writes the profile; without a path to default_path."""
        with self._pointer as c:
            check(raw.tsr_calibration_save(c, None if path is None else arguments.path("path", path)))
