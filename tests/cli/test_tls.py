#!/usr/bin/python3
"""TLS on the gRPC listener, from the command line: who is trusted, what is told, reload on SIGHUP."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest

from command import NARAD, Case, Node, certificate, environment, narad, wait_until

NAME = "broker.test"  # in every server's certificate; the loopback address of the tests is not


class TlsNode(Node):
    def __init__(self, client_ca=False, certificate_name="server", **more):
        self.certificate_name = certificate_name
        self.client_ca = client_ca
        super().__init__(**more)

    def use(self, name):
        for end in (".pem", ".key"):
            shutil.copy(certificate(name + end), self.path("used" + end))

    def start(self, address):
        self.use(self.certificate_name)
        self.env.update(NARAD_GRPC_TLS_CERT_FILE=self.path("used.pem"),
                        NARAD_GRPC_TLS_KEY_FILE=self.path("used.key"))
        if self.client_ca:
            self.env.update(NARAD_GRPC_TLS_CLIENT_CA_FILE=certificate("ca.pem"))
        super().start(address)

    def reload(self, then):
        """SIGHUP, and wait for the log line that tells its end."""
        before = self.log().count(then)
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count(then) > before, then)

    def handshake(self):
        """A new connection: the version of TLS and the subject's common name."""
        context = ssl.create_default_context(cafile=certificate("ca.pem"))
        context.set_alpn_protocols(["h2"])
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as plain:
            with context.wrap_socket(plain, server_hostname=NAME) as secure:
                subject = dict(pair[0] for pair in secure.getpeercert()["subject"])
                return secure.version(), subject["commonName"]


class Tls(Case):
    GOOD = ()

    @classmethod
    def setUpClass(cls):
        cls.node = TlsNode()
        cls.GOOD = ("--ca-file", certificate("ca.pem"), "--tls-server-name", NAME)

    def test_commands_work_with_the_right_authority(self):
        self.run_ok("topics", "create", "secure", *self.GOOD)
        self.run_ok("produce", "secure", *self.GOOD, stdin=b"hello")
        self.assertEqual(self.run_ok("consume", "secure", "--raw", "--ack", *self.GOOD).out, "hello\n")
        self.run_ok("produce", "secure", "--lines", *self.GOOD, stdin=b"a\nb\n")
        self.assertEqual(len(self.run_ok("sub", "secure", "--count", "2", "--raw", *self.GOOD).out.split()), 2)
        self.run_ok("bench", "rpc-unary", "--seconds", "1", *self.GOOD)
        self.assertEqual(self.node.handshake(), ("TLSv1.3", "server"))

    def test_the_environment_says_the_same(self):
        env = {"NARAD_SERVER": self.node.address, "NARAD_CA_FILE": certificate("ca.pem"),
               "NARAD_TLS_SERVER_NAME": NAME}
        self.assertEqual(narad("topics", "list", env=env).status, 0)
        env["NARAD_TLS"] = "1"
        self.assertEqual(narad("topics", "list", env=env).status, 0)
        env["NARAD_TLS"] = "0"
        self.assertIn("it may speak TLS only", narad("topics", "list", env=env).err)
        env["NARAD_TLS"] = "perhaps"
        self.assertIn('NARAD_TLS "perhaps": must be 1 or 0', narad("topics", "list", env=env).err)

    def test_a_plain_client_is_told(self):
        self.fails(1, "topics", "list", text="(it may speak TLS only)")
        self.fails(1, "sub", "any", text="(it may speak TLS only)")

    def test_a_node_that_cannot_be_trusted_is_told(self):
        self.fails(1, "topics", "list", "--tls", text="of no authority that is trusted here")
        self.fails(1, "topics", "list", "--ca-file", certificate("other-ca.pem"), "--tls-server-name", NAME,
                   text="of no authority that is trusted here")
        self.fails(1, "topics", "list", "--ca-file", certificate("ca.pem"), "--tls-server-name", "else.test",
                   text="else.test")
        self.fails(1, "topics", "list", "--ca-file", certificate("ca.pem"), text="UNAVAILABLE")  # 127.x is no name

    def test_files_that_cannot_be_used_are_told(self):
        self.fails(1, "topics", "list", "--ca-file", "/nowhere/ca.pem", text="/nowhere/ca.pem: No such file")
        self.fails(1, "topics", "list", *self.GOOD, "--cert-file", certificate("client.pem"),
                   text="the key file is missing")
        self.fails(1, "topics", "list", *self.GOOD, "--cert-file", certificate("client.pem"), "--key-file",
                   certificate("server.key"), text="not the key of the certificate")

    def test_the_unix_socket_stays_plain(self):
        path = "unix:" + self.node.path("data/narad.sock")
        self.assertEqual(narad("topics", "list", "--server", path).status, 0)
        self.assertEqual(narad("topics", "list", "--server", path, env={"NARAD_TLS": "1"}).status, 0)
        asked = narad("topics", "list", "--server", path, "--tls")
        self.assertEqual(asked.status, 1)
        self.assertIn("a Unix socket is plain", asked.err)

    def test_the_certificate_is_told_in_log_and_metrics(self):
        self.assertRegex(self.node.log(), r'certificate in use listener=grpc .*subject="CN=server,O=Narad test" '
                         r"not_after=20..-..-..T..:..:..Z client_certificates=no")
        self.assertIn("TLS  clients need NARAD_CA_FILE", self.node.log())
        self.assertRegex(self.run_ok("metrics", *self.GOOD).out,
                         r'\nnarad_tls_cert_not_after_seconds\{listener="grpc"\} \d{10}\n')


class ClientCertificates(Case):
    @classmethod
    def setUpClass(cls):
        cls.node = TlsNode(client_ca=True)

    def test_only_a_client_with_a_certificate_of_the_authority_gets_in(self):
        good = ("--ca-file", certificate("ca.pem"), "--tls-server-name", NAME)
        self.run_ok("topics", "list", *good, "--cert-file", certificate("client.pem"), "--key-file",
                    certificate("client.key"))
        env = {"NARAD_SERVER": self.node.address, "NARAD_CA_FILE": certificate("ca.pem"),
               "NARAD_TLS_SERVER_NAME": NAME, "NARAD_CERT_FILE": certificate("client.pem"),
               "NARAD_KEY_FILE": certificate("client.key")}
        self.assertEqual(narad("topics", "list", env=env).status, 0)
        self.fails(1, "topics", "list", *good, text="it may want another client certificate")
        self.fails(1, "topics", "list", *good, "--cert-file", certificate("stranger.pem"), "--key-file",
                   certificate("stranger.key"), text="it may want another client certificate")


class Reload(unittest.TestCase):
    def test_new_connections_see_the_new_certificate_and_streams_go_on(self):
        node = TlsNode()
        self.addCleanup(node.stop)
        reach = ("--server", node.address, "--ca-file", certificate("ca.pem"), "--tls-server-name", NAME)
        self.assertEqual(narad("topics", "create", "flow", *reach).status, 0)
        sub = subprocess.Popen([NARAD, "sub", "flow", "--raw", "--count", "3", *reach], env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(Case.end, sub)
        self.assertEqual(narad("produce", "flow", *reach, stdin=b"one").status, 0)
        self.assertEqual(sub.stdout.readline(), b"one\n")
        # A reload reads anything into place only when all of it fits together.
        shutil.copyfile(certificate("server2.pem"), node.path("used.pem"))
        node.reload("reload failed, the old certificate stays")
        self.assertIn("not the key of the certificate in " + node.path("used.pem"), node.log())
        self.assertEqual(node.handshake(), ("TLSv1.3", "server"))
        node.use("server2")
        node.reload("certificate in use")
        self.assertEqual(node.handshake(), ("TLSv1.3", "server2"))
        self.assertEqual(narad("produce", "flow", *reach, stdin=b"two").status, 0)
        self.assertEqual(sub.stdout.readline(), b"two\n")  # over the connection of before
        self.assertEqual(narad("produce", "flow", *reach, stdin=b"three").status, 0)
        self.assertEqual(sub.stdout.readline(), b"three\n")
        self.assertEqual(sub.wait(), 0)

    def test_reads_the_certificate_of_http_as_well(self):
        directory = tempfile.mkdtemp(prefix="narad-cli-")
        self.addCleanup(shutil.rmtree, directory)
        pem, key = os.path.join(directory, "pem"), os.path.join(directory, "key")

        def use(name):
            shutil.copy(certificate(name + ".pem"), pem)
            shutil.copy(certificate(name + ".key"), key)

        use("server")
        node = Node(NARAD_HTTP_TLS_CERT_FILE=pem, NARAD_HTTP_TLS_KEY_FILE=key)
        self.addCleanup(node.stop)
        self.assertRegex(node.log(), r'certificate in use listener=http .*subject="CN=server,O=Narad test"')
        self.assertRegex(narad("metrics", "--server", node.address).out,
                         r'\nnarad_tls_cert_not_after_seconds\{listener="http"\} \d{10}\n')
        use("server2")
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: 'listener=http file=' + pem + ' subject="CN=server2' in node.log(), "a reload of http")
        shutil.copy(certificate("server.key"), key)
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload failed, the old certificate stays listener=http" in node.log(), "its failure")

    def test_without_a_certificate_sighup_changes_nothing(self):
        node = Node(dev=False, NARAD_SECURITY_ENABLED="false")
        self.addCleanup(node.stop)
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload" in node.log(), "a reload in the log")
        self.assertEqual(narad("topics", "list", "--server", node.address).status, 0)

    def test_a_node_for_trying_things_ends_with_its_terminal(self):
        node = Node()
        self.addCleanup(node.stop)
        node.process.send_signal(signal.SIGHUP)
        self.assertEqual(node.process.wait(timeout=180), 0)
        self.assertIn("signal=SIGHUP", node.log())


class Banner(unittest.TestCase):
    def test_names_the_address_that_it_has(self):
        node = Node()
        self.addCleanup(node.stop)
        self.assertIn("export NARAD_SERVER=" + node.address, node.log())


class ExpiredCertificate(unittest.TestCase):
    def test_is_warned_about_and_refused_by_clients(self):
        node = TlsNode(certificate_name="expired")
        self.addCleanup(node.stop)
        self.assertIn("certificate has expired", node.log())
        asked = narad("topics", "list", "--server", node.address, "--ca-file", certificate("ca.pem"),
                      "--tls-server-name", NAME)
        self.assertEqual(asked.status, 1)
        self.assertIn("or out of date", asked.err)


if __name__ == "__main__":
    unittest.main()
