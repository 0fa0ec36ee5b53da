"""Nodes for the cases: on free ports of the loopback interface, with a directory of their own, ended by their pid."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)

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


class Process:
    """A program that says in a file when it is ready, and where; its log beside that."""

    def __init__(self, command, settings, directory, name):
        self.name, self.log_path = name, os.path.join(directory, name + ".log")
        self.ready_path = os.path.join(directory, name + ".json")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*command, "--ready-file", self.ready_path], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=environment(**settings))
        try:
            self.addresses = wait_until(self.ready, f"the {name} is ready")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the {self.name} ended at its start:\n" + self.log())
        try:
            with open(self.ready_path, encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
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


class HttpNode:
    """`narad serve` with its gateway; `alone`: with a gateway in a process of its own before it; `tls`: with a
    certificate made for it."""

    def __init__(self, narad, settings, alone=False, tls=False):
        self.directory = tempfile.mkdtemp(prefix="narad-http-")
        self.processes = []
        here = ["--addr", "127.0.0.1:0"]
        try:
            if tls:
                subprocess.run(["sh", os.path.join(SUPPORT, "certificates.sh"), self.directory], check=True)
                settings = {**settings, "NARAD_HTTP_TLS_CERT_FILE": os.path.join(self.directory, "server.pem"),
                            "NARAD_HTTP_TLS_KEY_FILE": os.path.join(self.directory, "server.key")}
            node = self.start([narad, "serve", "--data-dir", os.path.join(self.directory, "data"),
                               "--grpc-addr", "127.0.0.1:0", *here], settings, "node")
            if alone:
                broker = node.addresses["grpc_addr"]
                node = self.start([narad, "gateway", "--broker", broker, *here], settings, "gateway")
        except BaseException:
            self.end()
            raise
        self.base_url = ("https://" if tls else "http://") + node.addresses["http_addr"]

    def start(self, command, settings, name):
        self.processes.append(Process(command, settings, self.directory, name))
        return self.processes[-1]

    def log(self):
        return "".join(process.log() for process in self.processes)

    def end(self):
        """The names of those that did not stop cleanly."""
        unclean = [p.name for p in reversed(self.processes) if not p.stop()]
        self.processes_log = self.log()
        shutil.rmtree(self.directory, ignore_errors=True)
        return unclean

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        unclean = self.end()
        if unclean or kind is not None:
            sys.stderr.write("--- the log, its end ---\n" + self.processes_log[-12000:])
        if unclean and kind is None:
            raise AssertionError(f"not stopped cleanly: {unclean}")
