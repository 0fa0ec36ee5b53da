"""A node for the cases: on free ports of the loopback interface, with a directory of its own, ended by its pid."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from waiting import PATIENCE, environment, wait_until  # noqa: E402

# The settings that the cases are written for.
COMMON = {"NARAD_TOPIC_DEFAULT_PARTITIONS": "4", "NARAD_TOPIC_MAX_PARTITIONS": "128",
          "NARAD_HTTP_MAX_CONSUME_WAIT": "5s"}
PROFILES = {
    "OPEN": {**COMMON, "NARAD_SECURITY_ENABLED": "false", "NARAD_COMPAT": "1.2"},
    "SEC": {**COMMON, "NARAD_ADMIN_PASSWORD": "admin-secret", "NARAD_COMPAT": "1.2"},
    "V3": {**COMMON, "NARAD_SECURITY_ENABLED": "false", "NARAD_COMPAT": "3",
           "NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY": "8"},
    "SEC3": {**COMMON, "NARAD_ADMIN_PASSWORD": "admin-secret", "NARAD_COMPAT": "3",
             "NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY": "8"},
}


class HttpNode:
    """`narad serve` with its HTTP gateway; `directory` holds data/, log and ready.json."""

    def __init__(self, narad, settings, flags=()):
        self.directory = tempfile.mkdtemp(prefix="narad-http-")
        command = [narad, "serve", "--data-dir", self.path("data"), "--grpc-addr", "127.0.0.1:0",
                   "--addr", "127.0.0.1:0", "--ready-file", self.path("ready.json"), *flags]
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment(**settings))
        try:
            ready = wait_until(self.ready, "the node is ready")
        except BaseException:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.base_url = "http://" + ready["http_addr"]
        self.grpc_addr = ready["grpc_addr"]

    def path(self, name):
        return os.path.join(self.directory, name)

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError("the node ended at its start:\n" + self.log())
        try:
            with open(self.path("ready.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        """True when it ended by itself and cleanly."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=PATIENCE) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        clean = self.stop()
        if not clean or kind is not None:
            sys.stderr.write("--- the node's log, its end ---\n" + self.log()[-12000:])
        shutil.rmtree(self.directory, ignore_errors=True)
        if not clean and kind is None:
            raise AssertionError(f"the node did not stop cleanly: {self.process.returncode}")
