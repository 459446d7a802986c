"""`tessera serve` of a document's examples: it runs in the background until the next one, and `curl` asks its port."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

PORT = "8080"  # the one that documents name
BEGIN_S = 60


def is_one(text):
    return bool(re.match(r"tessera serve (?!keys\b|backup\b|--help)", text))


class Service:
    """The service that the examples of one document run at a time."""

    def __init__(self):
        self.process, self.port = None, None

    def begin(self, text, folder, tessera):
        """Starts it on a free port; (exit status, what it said)."""
        if problem := self.end():
            return 1, problem
        environment = dict(os.environ, PATH=f"{pathlib.Path(tessera).parent}:{os.environ['PATH']}", TESSERA_PROFILE="none")
        if not shutil.which("tessera-serve", path=environment["PATH"]):
            return 1, "tessera-serve is neither next to the command nor in PATH: tests/service/check.sh builds it"
        words = text.replace(" --log-text", "") + " --port 0 --devices cpu:1 --threads 1"
        if "--context" in words:  # whose cache would take gigabytes
            words = re.sub(r"--context \d+", "--context 512", words)
        self.process = subprocess.Popen(["bash", "-c", "exec " + words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        watch = threading.Timer(BEGIN_S, self.process.kill)
        watch.start()
        said = []
        for line in self.process.stderr:
            said.append(line)
            if '"message":"serving"' in line:
                watch.cancel()
                self.port = json.loads(line)["url"].rsplit(":", 1)[1]
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return 0, ""
        watch.cancel()
        self.process.wait()
        self.process = None
        return 1, "".join(said)

    def asked(self, text):
        """The command with the service's port; curl fails on refusals."""
        if not text.startswith("curl "):
            return text
        return text.replace(f":{PORT}", f":{self.port}").replace("curl ", "curl -sS --fail-with-body ", 1)

    def end(self):
        """Ends it; what was wrong with that, or ""."""
        if self.process is None:
            return ""
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            return "it did not end within 60 s of SIGTERM"
        return "" if status == 0 else f"it ended with status {status}"
