#!/usr/bin/python3
"""TLS on the gRPC port with a stock client: credentials in it, certificates of clients, bytes that are no
handshake, reloads while it is used."""

import base64
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from nodes import CODE, HERE, OPTIONS, PATIENCE, Node, admin_pb2, broker_pb2, grpc, types_pb2, wait_until

ROOT = "root's own"
CERTIFICATES = None


def setUpModule():
    global CERTIFICATES
    CERTIFICATES = tempfile.mkdtemp(prefix="narad-test-certificates-")
    subprocess.run(["sh", os.path.join(HERE, "..", "support", "certificates.sh"), CERTIFICATES], check=True,
                   timeout=PATIENCE)


def tearDownModule():
    shutil.rmtree(CERTIFICATES)


def certificate(name):
    return os.path.join(CERTIFICATES, name)


def content(name):
    with open(certificate(name), "rb") as file:
        return file.read()


def basic(user, password):
    return (("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()),)


class TlsNode(Node):
    def __init__(self, client=None, **env):
        self.client = client
        self.used = tempfile.mkdtemp(prefix="narad-test-")
        self.use("server")
        super().__init__(NARAD_GRPC_TLS_CERT_FILE=os.path.join(self.used, "pem"),
                         NARAD_GRPC_TLS_KEY_FILE=os.path.join(self.used, "key"), **env)

    def use(self, name):
        for end in ("pem", "key"):
            shutil.copy(certificate(f"{name}.{end}"), os.path.join(self.used, end))

    def credentials(self, client=None):
        key, chain = (content(client + ".key"), content(client + ".pem")) if client else (None, None)
        return grpc.ssl_channel_credentials(content("ca.pem"), key, chain)

    def new_channel(self):
        return grpc.secure_channel(self.address, self.credentials(self.client), options=OPTIONS)

    def reload(self, name):
        """New files, and wait until a handshake shows them: the log leaves out lines that come too fast."""
        self.use(name)
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.subject() == name, "the reload")

    def subject(self):
        context = ssl.create_default_context(cafile=certificate("ca.pem"))
        context.set_alpn_protocols(["h2"])
        with self.connect_raw() as plain, context.wrap_socket(plain, server_hostname="broker.test") as secure:
            return dict(pair[0] for pair in secure.getpeercert()["subject"])["commonName"]

    def connect_raw(self):
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=PATIENCE)

    def close(self):
        super().close()
        shutil.rmtree(self.used, ignore_errors=True)


class Credentials(unittest.TestCase):
    def test_a_stock_client_sends_name_and_password_in_it(self):
        class Plugin(grpc.AuthMetadataPlugin):
            def __call__(self, context, callback):
                callback(basic("admin", ROOT), None)

        with TlsNode(dev=False, NARAD_ADMIN_PASSWORD=ROOT) as node:
            asking = admin_pb2.ListTopicsRequest()

            def root_is_there():
                try:
                    return node.admin.ListTopics(asking, timeout=PATIENCE, metadata=basic("admin", ROOT))
                except grpc.RpcError:
                    return None

            wait_until(root_is_there, "the first account is there")
            for metadata in (None, basic("admin", "wrong"), basic("nobody", ROOT)):
                with self.assertRaises(grpc.RpcError) as failed:
                    node.admin.ListTopics(asking, timeout=PATIENCE, metadata=metadata)
                self.assertEqual(failed.exception.code(), CODE.UNAUTHENTICATED)
            both = grpc.composite_channel_credentials(node.credentials(), grpc.metadata_call_credentials(Plugin()))
            with grpc.secure_channel(node.address, both, options=OPTIONS) as channel:
                admin = type(node.admin)(channel)
                broker = type(node.broker)(channel)
                admin.CreateTopic(admin_pb2.CreateTopicRequest(name="t"), timeout=PATIENCE)
                broker.Produce(broker_pb2.ProduceRequest(topic="t", records=[types_pb2.Record(payload=b"x")]),
                               timeout=PATIENCE)
                taken = broker.Consume(broker_pb2.ConsumeRequest(topic="t", wait_ms=5000), timeout=PATIENCE)
                self.assertEqual([message.payload for message in taken.messages], [b"x"])


class Clients(unittest.TestCase):
    def test_must_show_a_certificate_when_an_authority_is_set(self):
        with TlsNode(client="client", NARAD_GRPC_TLS_CLIENT_CA_FILE=certificate("ca.pem")) as node:
            node.create("t")
            for client in (None, "stranger"):
                with grpc.secure_channel(node.address, node.credentials(client), options=OPTIONS) as channel:
                    with self.assertRaises(grpc.RpcError) as failed:
                        type(node.admin)(channel).Version(admin_pb2.VersionRequest(), timeout=PATIENCE)
                    self.assertEqual(failed.exception.code(), CODE.UNAVAILABLE)


class Handshakes(unittest.TestCase):
    def agreed(self, node, low, high):
        context = ssl.create_default_context(cafile=certificate("ca.pem"))
        context.minimum_version, context.maximum_version = low, high
        context.set_alpn_protocols(["h2"])
        with node.connect_raw() as plain, context.wrap_socket(plain, server_hostname="broker.test") as secure:
            return secure.version(), secure.selected_alpn_protocol()

    def test_are_of_1_2_or_1_3_and_nothing_older(self):
        versions = ssl.TLSVersion
        with TlsNode() as node:
            self.assertEqual(self.agreed(node, versions.TLSv1_2, versions.TLSv1_3), ("TLSv1.3", "h2"))
            self.assertEqual(self.agreed(node, versions.TLSv1_2, versions.TLSv1_2), ("TLSv1.2", "h2"))
            with self.assertRaises((ssl.SSLError, OSError)):
                self.agreed(node, versions.TLSv1, versions.TLSv1_1)

    def test_that_are_none_disturb_nobody_and_do_not_fill_the_log(self):
        with TlsNode() as node:
            node.create("t")
            files = len(os.listdir(f"/proc/{node.process.pid}/fd"))
            silent = [node.connect_raw() for _ in range(50)]
            for i in range(300):
                with node.connect_raw() as raw:
                    try:
                        raw.sendall((b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", os.urandom(200),
                                     b"\x16\x03\x01\xff\xff" + bytes(100))[i % 4])
                    except OSError:
                        pass  # it has closed already
            node.broker.Produce(broker_pb2.ProduceRequest(topic="t", records=[types_pb2.Record(payload=b"x")]),
                                timeout=PATIENCE)
            with node.new_channel() as channel:
                type(node.admin)(channel).Version(admin_pb2.VersionRequest(), timeout=PATIENCE)
            for raw in silent:
                raw.settimeout(90)  # the node gives up on it after 10 s
                while True:
                    try:
                        if not raw.recv(4096):
                            break
                    except ConnectionError:
                        break
                raw.close()
            wait_until(lambda: len(os.listdir(f"/proc/{node.process.pid}/fd")) <= files + 2, "they are closed")
            self.assertLess(node.log().count("core message"), 100)


class Reloads(unittest.TestCase):
    def test_while_it_is_used_fail_nothing(self):
        with TlsNode() as node:
            node.create("t")
            over = threading.Event()
            failures, calls = [], [0, 0]

            def produce(slot, channel_of):
                record = types_pb2.Record(payload=b"x")
                while not over.is_set():
                    channel = channel_of()
                    try:
                        type(node.broker)(channel).Produce(
                            broker_pb2.ProduceRequest(topic="t", records=[record]), timeout=PATIENCE)
                        calls[slot] += 1
                    except grpc.RpcError as error:
                        failures.append(error)
                        return
                    if channel is not node.channel:
                        channel.close()

            threads = [threading.Thread(target=produce, args=(0, lambda: node.channel)),
                       threading.Thread(target=produce, args=(1, node.new_channel))]
            for thread in threads:
                thread.start()
            try:
                for name in ("server2", "server") * 10:
                    node.reload(name)
                reached = list(calls)
                wait_until(lambda: failures or all(now > then for now, then in zip(calls, reached)),
                           "calls over old and new connections")
            finally:
                over.set()
                for thread in threads:
                    thread.join()
            self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
