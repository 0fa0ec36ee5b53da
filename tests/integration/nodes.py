"""Nodes for tests: started on a free port in a directory of their own, stopped by pid, their log shown when
they misbehave."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop", "python"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import grpc  # noqa: E402
import stubs  # noqa: E402
from waiting import PATIENCE, environment, wait_until  # noqa: E402

stubs.generate()

from health.v1 import health_pb2, health_pb2_grpc  # noqa: E402,F401
from narad.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc  # noqa: E402
from narad.v1 import bench_pb2_grpc, types_pb2  # noqa: E402,F401

NARAD = os.environ["NARAD_BIN"]
CODE = grpc.StatusCode
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1)]


class Node:
    """A running node. `directory` (made when None, and then removed) holds data/, log and ready.json."""

    program = [NARAD]

    def __init__(self, directory=None, flags=(), dev=True, **env):
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp(prefix="narad-test-")
        self.flags = list(flags)
        self.dev = dev
        self.env = env
        self.process = None
        self.channel = None
        self.start()

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self):
        if os.path.exists(self.path("ready.json")):
            os.unlink(self.path("ready.json"))
        command = self.program + ["serve", "--data-dir", self.path("data"), "--grpc-addr", "127.0.0.1:0",
                   "--ready-file", self.path("ready.json")] + (["--dev"] if self.dev else [])
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen(command + self.flags, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment(**self.env))
        try:
            self.address = self.wait_ready()
        except BaseException:
            self.kill()
            raise
        self.connect()
        return self

    def wait_ready(self):
        def look():
            if self.process.poll() is not None:
                raise AssertionError("the node ended at its start:\n" + self.log())
            try:
                with open(self.path("ready.json"), encoding="utf-8") as file:
                    return json.load(file)["grpc_addr"]
            except FileNotFoundError:
                return None
        return wait_until(look, "the node is ready")

    def connect(self):
        if self.channel is not None:
            self.channel.close()
        self.channel = self.new_channel()
        self.broker = broker_pb2_grpc.BrokerStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)

    def new_channel(self):
        return grpc.insecure_channel(self.address, options=OPTIONS)

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        """The exit status of a node that was told to stop."""
        try:
            return self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the node does not stop:\n" + self.log())

    def stop(self):
        self.channel.close()
        self.channel = None
        if self.process.poll() is None:
            self.terminate()
        status = self.wait()
        if status != 0:
            raise AssertionError(f"exit status {status}:\n" + self.log()[-20000:])

    def close(self):
        """Stop if it runs, and remove what is ours."""
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            if self.process.poll() is None:
                self.kill()
            if self.own:
                shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            sys.stderr.write(self.log()[-8000:])
        self.close()

    # --- short forms ---

    def create(self, topic, **members):
        return self.admin.CreateTopic(admin_pb2.CreateTopicRequest(name=topic, **members),
                                      timeout=PATIENCE)

    def stats(self, topic):
        return self.admin.GetTopic(admin_pb2.GetTopicRequest(name=topic),
                                   timeout=PATIENCE).partition_stats

    def in_flight(self, topic):
        return sum(p.in_flight for p in self.stats(topic))

    def produce(self, topic, *payloads, **record):
        records = [types_pb2.Record(payload=p, **record) for p in payloads]
        return self.broker.Produce(broker_pb2.ProduceRequest(topic=topic, records=records),
                                   timeout=PATIENCE).placements

    def consume(self, topic, most=1, wait_ms=0, **members):
        return self.broker.Consume(broker_pb2.ConsumeRequest(topic=topic, max_messages=most,
                                                             wait_ms=wait_ms, **members),
                                   timeout=PATIENCE + wait_ms / 1000).messages

    def settle(self, topic, action, *handles):
        settles = [broker_pb2.Settle(receipt_handle=h, action=action) for h in handles]
        return self.broker.Ack(broker_pb2.AckRequest(topic=topic, settles=settles),
                               timeout=PATIENCE).results

    def ack(self, topic, *handles):
        return self.settle(topic, broker_pb2.SETTLE_ACTION_ACK, *handles)

    def nack(self, topic, *handles):
        return self.settle(topic, broker_pb2.SETTLE_ACTION_NACK, *handles)

    def extend(self, topic, *handles):
        return self.settle(topic, broker_pb2.SETTLE_ACTION_EXTEND, *handles)

    def take_all(self, topic, acked=True):
        """Consume until nothing comes; returns the messages."""
        taken = []
        while True:
            messages = self.consume(topic, most=1000)
            if not messages:
                return taken
            taken += messages
            if acked:
                for result in self.ack(topic, *[m.receipt_handle for m in messages]):
                    assert result.code == 0, result


class Outgoing:
    """The sending side of a stream."""

    def __init__(self, *messages):
        self.queue = queue.Queue()
        for message in messages:
            self.send(message)

    def send(self, message):
        self.queue.put(message)

    def close(self):
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


def status_of(call):
    """(code, text) of a call that fails, (OK, "") of one that does not."""
    try:
        result = call()
        if hasattr(result, "__next__"):
            for _ in result:
                pass
    except grpc.RpcError as error:
        return error.code(), error.details()
    return CODE.OK, ""
