"""Calibration: measures devices, so that plans are priced by what they really do."""
from __future__ import annotations

from typing import Any

from . import arguments, raw
from .arguments import Options
from .errors import check, text
from .handle import Handle
from .runtime import Runtime, chosen_runtime
from .work import Progress, run_work


class Calibration(Handle):
    """`Calibration(devices="cpu", seconds=60).save()`: measures, while nothing else should run, and writes the profile. `progress`
    receives the completed fraction; an exception from it ends the measurement. Immutable; any thread."""

    _free = raw.tsr_calibration_free

    def __init__(self, *, progress: Progress | None = None, runtime: Runtime | None = None, **options: Any):
        runtime = chosen_runtime(runtime)
        with runtime._pointer as r, Options(options) as o:
            self._pointer = run_work(lambda: raw.tsr_calibration_begin(r, o),
                                     lambda c: self._made(raw.tsr_calibration_finish(c)), progress, runtime.cancel)

    def text(self) -> str:
        """The profile's text."""
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
