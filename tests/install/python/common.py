"""What the checks share: the files that python.sh names, and interrupts."""
import contextlib
import os
import signal
import tempfile
import threading
import time

import tessera

MODEL = os.environ["TESSERA_CHECK_MODEL"]  # its tokens are bytes
TEXT = os.environ["TESSERA_CHECK_TEXT"]
OPTIONS = {"devices": "cpu:2", "batch": 4}


def dataset(model, **options):
    return tessera.Dataset(TEXT, model.tokenizer, **{"seq": 32, **options})


def folder():
    return tempfile.TemporaryDirectory()


def wait_for(holds, what):
    """Waits until something holds that other threads bring about."""
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within 30 seconds")
        time.sleep(0.001)


@contextlib.contextmanager
def interrupted(after_s):
    """Ctrl-C after some seconds, and KeyboardInterrupt as usual."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, handler)
