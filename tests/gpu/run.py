"""Commands with a time limit, and what the device's memory is used by."""
import json
import os
import shutil
import signal
import subprocess
import threading
import time


class Failed(Exception):
    """A command that gave no result; the text says why."""


class Commands:
    """Runs commands in one environment; keeps what they print in `log_folder`."""

    def __init__(self, log_folder, environment):
        self.log_folder, self.environment = log_folder, environment
        os.makedirs(log_folder, exist_ok=True)

    def start(self, command, name, extra=None, pipes=False):
        log = open(os.path.join(self.log_folder, name + ".txt"), "w")
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                                stdout=subprocess.PIPE if pipes else log, stderr=log if pipes else subprocess.STDOUT,
                                text=True, env={**self.environment, **(extra or {})}, start_new_session=True)

    def run(self, command, name, limit, extra=None):
        """(exit status, output). Raises Failed when the limit passes; the process and its children are then gone."""
        process = self.start(command, name, extra)
        try:
            status = process.wait(timeout=max(1, limit))
        except subprocess.TimeoutExpired:
            end(process)
            raise Failed(f"{name}: stopped after {limit:.0f} s: {self.tail(name)}") from None
        return status, self.output(name)

    def json(self, command, name, limit, extra=None):
        """The JSON object on the last line of what the command prints."""
        status, output = self.run(command, name, limit, extra)
        if status != 0:
            raise Failed(f"{name}: exit status {status}: {self.tail(name)}")
        for line in reversed(output.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"{name}: printed no result")

    def output(self, name):
        with open(os.path.join(self.log_folder, name + ".txt"), errors="replace") as log:
            return log.read()

    def tail(self, name):
        return " | ".join(self.output(name).strip().splitlines()[-2:])


def end(process):
    """Ends a process that `start` made, with its children."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def device_bytes():
    """What the first GPU's memory is used for, by everybody; None without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None
    try:
        answer = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"],
                                capture_output=True, text=True, timeout=20, check=False)
        return int(answer.stdout.split()[0]) << 20
    except (IndexError, ValueError, subprocess.TimeoutExpired):
        return None


class PeakMemory:
    """Twice a second, so as not to disturb: the most of the GPU's memory in use within a `with`, over what was in use before. `bytes`: None without nvidia-smi."""

    def __enter__(self):
        self.before, self.bytes, self.done = device_bytes(), None, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while self.before is not None and not self.done.wait(0.5):
            now = device_bytes()
            if now is not None:
                self.bytes = max(self.bytes or 0, now - self.before)

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


class Clock:
    """Seconds since it was made, and what is left of a total."""

    def __init__(self, total):
        self.begin, self.total = time.monotonic(), total

    def spent(self):
        return time.monotonic() - self.begin

    def left(self):
        return self.total - self.spent()
