#!/usr/bin/python3
"""What a node must not start with: exit 1, a sentence, and the data not touched."""

import json
import os
import socket
import subprocess
import tempfile
import unittest

from nodes import NARAD, PATIENCE, Node, admin_pb2, environment


def run(*arguments, **env):
    return subprocess.run([NARAD, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, env=environment(**env), check=False)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="narad-test-")
        self.addCleanup(self.directory.cleanup)
        self.data = os.path.join(self.directory.name, "data")

    def serve(self, *flags, **env):
        return run("serve", "--data-dir", self.data, *flags, **env)

    def expect(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_bad_settings_exit_1_before_data_is_touched(self):
        config = os.path.join(self.directory.name, "c.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"http": {"addr": "", "nonsense": 1}, "storage": {"segment_bytes": 5}}, file)
        result = self.serve("--config", config, "--log-level", "loud", "--what",
                            NARAD_TOPIC_MAX_PARTITIONS="x", NARAD_HTTP_ADDR="")
        self.expect(result, "narad: config: ", "http.nonsense", "storage.segment_bytes is an internal",
                    "log.level (--log-level)", "unknown flag --what (--help lists them)", "NARAD_TOPIC_MAX_PARTITIONS",
                    "http.addr must not be empty")
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertFalse(os.path.exists(self.data))

    def files(self):
        """Each file and directory of the data, and what is in it."""
        found = {}
        for directory, names, files in os.walk(self.data):
            for name in names + files:
                path = os.path.join(directory, name)
                content = b""
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        content = file.read()
                found[path] = (os.lstat(path).st_mtime_ns, content)
        return found

    def test_a_taken_port_is_told_before_data_is_touched(self):
        node = Node(self.directory.name)
        node.stop()
        before = self.files()
        with socket.socket() as taken, socket.socket(socket.AF_INET6) as both:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            both.bind(("::", 0))
            both.listen()
            port, any_port = taken.getsockname()[1], both.getsockname()[1]
            for key, variable, address in (
                    ("grpc.addr", "NARAD_GRPC_ADDR", f"127.0.0.1:{port}"),
                    ("grpc.addr", "NARAD_GRPC_ADDR", f"127.0.0.1:{any_port}"),
                    ("grpc.addr", "NARAD_GRPC_ADDR", f":{any_port}"),
                    ("http.addr", "NARAD_HTTP_ADDR", f"localhost:{any_port}"),
                    ("http.addr", "NARAD_HTTP_ADDR", f"0.0.0.0:{port}"),
                    ("http.metrics_addr", "NARAD_HTTP_METRICS_ADDR", f"[::1]:{any_port}")):
                with self.subTest(key, address=address):
                    free = {"NARAD_GRPC_ADDR": "127.0.0.1:0", "NARAD_SECURITY_ENABLED": "false"}
                    self.expect(self.serve(**{**free, variable: address}),
                                f"narad: {key}: cannot listen on {address}: Address already in use")
                    self.assertEqual(self.files(), before)

    def test_an_address_of_nobody_is_told_before_data_is_touched(self):
        self.expect(self.serve(NARAD_GRPC_ADDR="127.0.0.1:0", NARAD_HTTP_ADDR="192.0.2.1:0"),
                    "narad: http.addr: cannot listen on 192.0.2.1:0: Cannot assign requested address")
        self.expect(self.serve(NARAD_GRPC_ADDR="no-such-host.invalid:0"),
                    "narad: grpc.addr: cannot listen on no-such-host.invalid:0: ")
        self.expect(self.serve(NARAD_HTTP_METRICS_ADDR="9100"),
                    'http.metrics_addr must be host:port or :port (got "9100")')
        self.expect(self.serve("--dev", NARAD_HTTP_METRICS_ADDR="0.0.0.0:0"), "loopback only")
        self.assertFalse(os.path.exists(self.data))

    def test_dev_is_for_this_machine_and_without_passwords(self):
        self.expect(self.serve("--dev", NARAD_SECURITY_ENABLED="true"), "--dev turns it off")
        self.expect(self.serve("--dev", "--grpc-addr", "0.0.0.0:0"), "loopback only")
        self.assertFalse(os.path.exists(self.data))

    def test_a_first_password_that_can_be_nobodys_is_refused(self):
        self.expect(self.serve(NARAD_ADMIN_PASSWORD="x" * 73),
                    "NARAD_ADMIN_PASSWORD: password must be at most 72 bytes")
        self.assertFalse(os.path.exists(self.data))

    def test_what_the_build_cannot_do_is_refused(self):
        off = {"NARAD_SECURITY_ENABLED": "false"}
        self.expect(self.serve(NARAD_CLUSTER_PEERS="a@h:1,b@i:1,c@j:1", **off),
                    "cluster.peers (NARAD_CLUSTER_PEERS) is set, and this build cannot act on it")
        self.expect(self.serve(NARAD_REMOTES_ALLOWED_HOSTS="h", **off), "remotes.allowed_hosts")
        self.assertFalse(os.path.exists(self.data))

    def test_a_certificate_that_cannot_be_used_is_told_before_data_is_touched(self):
        self.expect(self.serve(NARAD_GRPC_TLS_CERT_FILE="/nowhere/c", NARAD_GRPC_TLS_KEY_FILE="/nowhere/k",
                               NARAD_SECURITY_ENABLED="false"),
                    "grpc.addr: TLS certificate file /nowhere/c: No such file or directory")
        self.expect(self.serve(NARAD_HTTP_TLS_CERT_FILE="/nowhere/c", NARAD_HTTP_TLS_KEY_FILE="/nowhere/k",
                               NARAD_SECURITY_ENABLED="false"),
                    "http.addr: TLS certificate file /nowhere/c: No such file or directory")
        self.expect(self.serve("--dev", NARAD_GRPC_TLS_CLIENT_CA_FILE="/nowhere/ca"),
                    "grpc.tls_client_ca_file needs grpc.tls_cert_file")
        self.assertFalse(os.path.exists(self.data))

    def test_without_dev_and_security_it_runs(self):
        with Node(dev=False, NARAD_SECURITY_ENABLED="false", NARAD_LOG_LEVEL="info") as node:
            node.create("plain")
            self.assertFalse(node.admin.Version(
                admin_pb2.VersionRequest(), timeout=PATIENCE).dev)
            first = json.loads(node.log().splitlines()[0])
            self.assertIn("time", first)
            self.assertIn("msg", first)

    def test_one_data_directory_serves_one_node(self):
        with Node() as node:
            result = run("serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--data-dir", node.path("data"))
            self.expect(result, node.path("data"))
            node.create("alive")

    def test_a_taken_port_is_refused_and_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            result = self.serve("--dev", "--grpc-addr", address)
            self.expect(result, "grpc.addr", address)
        with Node() as node:
            result = self.serve("--dev", "--grpc-addr", node.address)
            self.expect(result, "grpc.addr", node.address)

    def test_a_socket_path_that_is_taken_is_refused_and_left_alone(self):
        path = os.path.join(self.directory.name, "s")
        flags = ("--dev", "--grpc-addr", "127.0.0.1:0")
        with open(path, "w", encoding="utf-8") as file:
            file.write("somebody's")
        self.expect(self.serve(*flags, NARAD_GRPC_SOCKET=path), "grpc.socket", path, "is no socket")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "somebody's")
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen()
            self.expect(self.serve(*flags, NARAD_GRPC_SOCKET=path), "grpc.socket", path, "another process")
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
        os.unlink(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:  # as a log daemon has it
            other.bind(path)
            self.expect(self.serve(*flags, NARAD_GRPC_SOCKET=path), "grpc.socket", path, "in use")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                client.connect(path)
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        with Node(NARAD_GRPC_SOCKET=path) as node:  # what a dead process left is taken
            node.create("alive")

    def test_a_newer_format_is_refused(self):
        with Node() as node:
            node.stop()
            path = node.path("data") + "/FORMAT"
            with open(path, "rb") as file:
                good = file.read()
            for bad in (b"", b"nonsense", good[:-1], good[::-1]):
                with open(path, "wb") as file:
                    file.write(bad)
                self.expect(run("serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--data-dir",
                                node.path("data")), "FORMAT")
            with open(path, "wb") as file:
                file.write(good)
            node.start()

    def test_a_damaged_log_is_refused_by_name_until_it_is_repaired(self):  # W4
        with Node() as node:
            node.create("w")
            for i in range(50):
                node.produce("w", b"%d" % i, partition=0)
            node.channel.close()
            node.channel = None
            node.kill()
            folder = node.path("data") + "/wal"
            newest = max((n for n in os.listdir(folder) if n.endswith(".wal")),
                         key=lambda n: os.stat(os.path.join(folder, n)).st_mtime_ns)
            with open(os.path.join(folder, newest), "r+b") as file:
                file.seek(8 * 4096 + 60)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
            again = ("serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--data-dir", node.path("data"))

            self.expect(run(*again), newest, "offset")
            self.expect(run(*again), newest, "offset")  # nothing was changed by the refusal
            repaired = run("wal-repair", node.path("data"))

            self.assertEqual(repaired.returncode, 0, repaired.stdout + repaired.stderr)
            self.assertIn(newest, repaired.stdout)
            node.start()
            left = {m.payload for m in node.take_all("w")}
            self.assertGreaterEqual(len(left), 5)
            self.assertLessEqual(left, {b"%d" % i for i in range(50)})
            node.produce("w", b"after", partition=0)
            self.assertEqual([m.payload for m in node.take_all("w")], [b"after"])
            self.expect_busy(run("wal-repair", node.path("data")))

    def expect_busy(self, result):
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("narad wal-repair: ", result.stderr)

    def test_a_temporary_directory_is_removed_at_a_clean_stop(self):
        scratch = self.directory.name
        ready = os.path.join(scratch, "ready.json")
        process = subprocess.Popen([NARAD, "serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--ready-file",
                                    ready], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True,
                                   env=environment(TMPDIR=scratch))
        try:
            for line in process.stdout:
                if " ready" in line:
                    break
            made = [name for name in os.listdir(scratch) if name.startswith("narad-dev-")]
            self.assertEqual(len(made), 1)
            process.terminate()
            output = process.stdout.read()
            self.assertEqual(process.wait(timeout=PATIENCE), 0, output)
            self.assertEqual([n for n in os.listdir(scratch) if n.startswith("narad-dev-")], [])
            self.assertFalse(os.path.exists(ready))
        finally:
            process.kill()
            process.stdout.close()
            process.wait()

    def test_the_command_line_explains_itself(self):
        for arguments in ((), ("help",), ("--help",), ("serve", "--help"), ("version",)):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0, arguments)
            self.assertIn("narad", result.stdout)
        self.assertIn("NARAD_GRPC_ADDR", run("serve", "--help").stdout)
        self.expect(run("nonsense"), 'unknown command "nonsense"')


if __name__ == "__main__":
    unittest.main()
