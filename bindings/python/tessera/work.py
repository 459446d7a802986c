"""Long calls: Ctrl-C ends them, and they report progress."""
from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, TypeVar

from . import raw
from .errors import result
from .handle import Handle

Result = TypeVar("Result")
Progress = Callable[[float], Any]


class _Job:
    def __init__(self, call: Callable[[], Any]):
        self._call = call
        self._claimed = threading.Lock()
        self.ended = threading.Lock()
        self.ended.acquire()
        self.finished = False
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        if not self._claimed.acquire(blocking=False):
            return  # given twice
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self.finished = True
        self.ended.release()


_idle: list[queue.SimpleQueue[_Job]] = []  # of threads without a job
os.register_at_fork(after_in_child=_idle.clear)


def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        job = jobs.get()
        job.run()
        del job


def _worker() -> queue.SimpleQueue[_Job]:
    try:
        return _idle.pop()
    except IndexError:
        jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="tessera", daemon=True).start()
        return jobs


def signals_arrive() -> bool:
    """Whether this is the thread where Ctrl-C is an exception."""
    return threading.current_thread() is threading.main_thread()


def interruptible(call: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """call(). In the main thread, where signals arrive, it runs on another thread meanwhile: an exception of a signal
    handler, such as KeyboardInterrupt, calls `cancel` and comes out once the call has ended."""
    if not signals_arrive():
        return call()
    job, jobs, given, interrupt = _Job(call), _worker(), False, None
    while not job.finished:
        try:
            if not given:
                jobs.put(job)
                given = True
            # Again and again after an interrupt: a cancel before the call has begun does nothing.
            job.ended.acquire(timeout=-1 if interrupt is None else 0.05)
        except BaseException as error:
            interrupt = error
        if interrupt is not None and not job.finished:
            cancel()
    _idle.append(jobs)
    if interrupt is not None:
        job.value = None  # else its handle would live as long as the traceback
        raise interrupt
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # else a cycle with its traceback
    return job.value


class Work(Handle):
    """Long work of C: `run` steps it to its end, and `finish` takes the result. Closed before that, it is cancelled."""

    _free = raw.tsr_work_free
    _exclusive = True

    def run(self, progress: Progress | None = None, cancel: Callable[[], None] = lambda: None) -> None:
        """`progress` receives the completed fraction after every step; an exception from it ends the work and propagates. Without a
        `cancel` an interrupt waits for the end of a step."""
        done = 0
        with self._pointer as c:
            while not done:
                done = interruptible(lambda: result(raw.tsr_work_step(c)), cancel)
                if progress is not None:
                    progress(result(raw.tsr_work_progress(c))[0])

    def take(self, finish: Callable[[int], Result], cancel: Callable[[], None] = lambda: None) -> Result:
        """What finish(work) gives."""
        with self._pointer as c:
            return interruptible(lambda: finish(c), cancel)


def run_work(begin: Callable[[], tuple[Any, ...]], finish: Callable[[int], Result], progress: Progress | None,
             cancel: Callable[[], None] = lambda: None) -> Result:
    """Begins long work, steps it to its end, and finishes it: its handle is freed in any case."""
    with interruptible(lambda: Work._own(begin()), cancel) as work:
        work.run(progress, cancel)
        return work.take(finish, cancel)
