#!/usr/bin/python3
"""Cancels, many parked polls, the drain at a stop, restarts."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

import grpc

from nodes import (CODE, NARAD, PATIENCE, Node, Outgoing, admin_pb2, broker_pb2, environment, health_pb2,
                   health_pb2_grpc, status_of, types_pb2, wait_until)
from rude import RudeCall


def poll(topic, wait_ms=25000, **members):
    return broker_pb2.ConsumeRequest(topic=topic, wait_ms=wait_ms, **members)


def threads_of(pid):
    """The names of a process's threads."""
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="ascii") as file:
            names.append(file.read().strip())
    return names


class Life(unittest.TestCase):
    def waiting(self, node):
        """Consume calls that the node has open."""
        text = node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        for line in text.splitlines():
            if line.startswith("narad_grpc_requests_in_flight"):
                return int(float(line.split()[-1])) - 1
        raise AssertionError("no gauge of open calls")

    def park(self, node, count, topic, others=0):
        """`others`: calls that are open beside them."""
        calls = [node.broker.Consume.future(poll(topic), timeout=PATIENCE) for _ in range(count)]
        wait_until(lambda: self.waiting(node) >= count + others, f"{count} polls are parked")
        return calls

    def test_a_cancelled_poll_leases_nothing(self):  # I-66
        with Node() as node:
            node.create("c")
            for _ in range(20):
                calls = self.park(node, 5, "c")
                for call in calls:
                    call.cancel()
                node.produce("c", b"x")
                taken = node.consume("c", wait_ms=30000)
                self.assertEqual(len(taken), 1)
                node.ack("c", taken[0].receipt_handle)
            wait_until(lambda: self.waiting(node) == 0, "cancelled calls are over")
            self.assertEqual(node.in_flight("c"), 0)

    def test_cancels_that_cross_a_delivery_lose_nothing(self):
        with Node() as node:
            # An answer that the transport had sent whole before the cancel came is lost without anybody's
            # knowing: its lease ends with its time.
            node.create("x", visibility_timeout_ms=500)
            for round_number in range(100):
                call = node.broker.Consume.future(poll("x"), timeout=PATIENCE)
                thread = threading.Thread(target=node.produce, args=("x", b"%d" % round_number))
                thread.start()
                call.cancel()
                thread.join()
                got = []
                if not call.cancelled():
                    got = list(call.result().messages)
                while not got:
                    got = list(node.consume("x", wait_ms=30000))
                self.assertEqual(got[0].payload, b"%d" % round_number)
                node.ack("x", got[0].receipt_handle)
            self.assertEqual(node.in_flight("x"), 0)

    def test_an_answer_that_is_cut_off_gives_its_leases_back(self):  # I-66
        with Node() as node:
            node.create("cut", visibility_timeout_ms=12 * 3600 * 1000)
            node.produce("cut", *[b"x" * 200000] * 3, partition=0)
            request = broker_pb2.ConsumeRequest(topic="cut", max_messages=3).SerializeToString()
            for attempt, leave in enumerate((RudeCall.cancel, RudeCall.close), 2):
                call = RudeCall(node.address, b"/narad.v1.Broker/Consume", request)
                self.addCleanup(call.close)
                self.assertEqual(node.in_flight("cut"), 3)
                leave(call)
                wait_until(lambda: node.in_flight("cut") == 0, "the leases are back")
                taken = node.consume("cut", most=3)
                self.assertEqual([m.delivery_attempt for m in taken], [2 * attempt - 2] * 3)
                node.nack("cut", *[m.receipt_handle for m in taken])

    def test_a_deadline_ends_a_wait(self):
        with Node() as node:
            node.create("d")
            code, _ = status_of(lambda: node.broker.Consume(poll("d"), timeout=0.3))
            self.assertEqual(code, CODE.DEADLINE_EXCEEDED)
            wait_until(lambda: self.waiting(node) == 0, "the call is over")
            node.produce("d", b"x")
            self.assertEqual(len(node.consume("d", wait_ms=30000)), 1)

    def test_200_parked_polls_wake_one_by_one(self):
        with Node() as node:
            node.create("many")
            calls = self.park(node, 200, "many")
            node.produce("many", *[b"%d" % i for i in range(200)])
            seen = [m.payload for call in calls for m in call.result().messages]
            self.assertEqual(sorted(seen), sorted(b"%d" % i for i in range(200)))
            self.assertTrue(all(len(call.result().messages) == 1 for call in calls))

    def test_a_stop_answers_what_is_parked_and_exits_0(self):
        node = Node()
        with node:
            node.create("s")
            health = health_pb2_grpc.HealthStub(node.channel).Watch(health_pb2.HealthCheckRequest())
            self.assertEqual(next(health).status, health_pb2.HealthCheckResponse.SERVING)
            polls = self.park(node, 100, "s", others=1)
            out = Outgoing(broker_pb2.SubscribeRequest(start=broker_pb2.SubscribeStart(topic="s")))
            subscriber = node.broker.Subscribe(iter(out))
            item = broker_pb2.ProduceItem(id=1, topic="s", records=[types_pb2.Record(
                payload=b"x", partition=0)])
            stream_out = Outgoing(broker_pb2.ProduceStreamRequest(items=[item]))
            producer = node.broker.ProduceStream(iter(stream_out))
            self.assertEqual(next(producer).results[0].code, 0)
            poll_out = Outgoing(broker_pb2.ConsumeStreamRequest(
                polls=[broker_pb2.Poll(id=9, topic="s", wait_ms=30000, partition=2),
                       broker_pb2.Poll(id=1, topic="s", partition=2)]))
            poller = node.broker.ConsumeStream(iter(poll_out))
            self.assertEqual(next(poller).results[0].id, 1)  # so 9 is parked

            node.terminate()

            self.assertEqual(next(health).status, health_pb2.HealthCheckResponse.NOT_SERVING)
            answers = {status_of(call.result) for call in polls}
            self.assertEqual(answers, {(CODE.OK, "")})
            self.assertEqual(status_of(lambda: subscriber)[0], CODE.UNAVAILABLE)
            self.assertEqual(status_of(lambda: producer)[0], CODE.UNAVAILABLE)
            results = []
            try:
                for response in poller:
                    results += response.results
            except grpc.RpcError as error:
                self.assertEqual(error.code(), CODE.UNAVAILABLE)
            self.assertEqual([(r.id, r.code) for r in results], [(9, 0)])
            self.assertEqual(node.wait(), 0)
            self.assertIn("stopped", node.log())

    def test_a_second_signal_ends_it_at_once(self):
        node = Node()
        with node:
            node.create("s")
            # A client that never reads holds the drain up: the grace is 10 s.
            node.produce("s", *[b"y" * 1000000] * 8, partition=0)
            call = node.broker.Replay(broker_pb2.ReplayRequest(topic="s", partition=0))
            node.terminate()
            wait_until(lambda: "stopping" in node.log(), "the stop begins")
            node.process.send_signal(signal.SIGINT)
            self.assertIn(node.process.wait(timeout=PATIENCE), (0, 130))
            call.cancel()

    def test_a_signal_ends_a_start_that_hangs(self):
        with Node() as node:
            node.create("kept")
            node.produce("kept", b"x")
            node.stop()
            identity = node.path("data/metastore/identity")
            os.rename(identity, identity + ".away")
            os.mkfifo(identity)  # whoever opens it waits
            process = subprocess.Popen([NARAD, "serve", "--dev", "--data-dir", node.path("data"),
                                        "--grpc-addr", "127.0.0.1:0"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment())
            try:
                wait_until(lambda: "signals" in threads_of(process.pid), "signals are taken")
                process.send_signal(signal.SIGTERM)
                said = process.communicate(timeout=PATIENCE)[0]
            finally:
                process.kill()
                process.wait()
            self.assertEqual(process.returncode, 0, said)
            self.assertIn(b"while=starting", said)
            os.unlink(identity)
            os.rename(identity + ".away", identity)
            node.start()
            self.assertEqual([m.payload for m in node.take_all("kept")], [b"x"])

    def test_a_store_whose_metadata_is_lost_is_refused_and_kept(self):  # P5
        with Node() as node:
            node.create("kept")
            node.produce("kept", b"x")
            node.stop()
            metastore = node.path("data/metastore")
            os.rename(metastore, metastore + ".away")
            with self.assertRaisesRegex(AssertionError, "metastore/identity is missing"):
                node.start()
            os.rmdir(metastore + "/raft")
            os.rmdir(metastore)
            os.rename(metastore + ".away", metastore)
            node.start()
            self.assertEqual([m.payload for m in node.take_all("kept")], [b"x"])

    def test_a_restart_keeps_topics_messages_and_acks(self):
        for stop in ("terminate", "kill"):
            with Node() as node:
                topic = node.create("r", partitions=5, retention_ms=7200000).topic
                node.produce("r", *[b"%d" % i for i in range(300)])
                taken = node.consume("r", most=1000)
                acked = taken[::3]
                for result in node.ack("r", *[m.receipt_handle for m in acked]):
                    self.assertEqual(result.code, 0)
                node.channel.close()
                node.channel = None
                if stop == "kill":
                    node.kill()
                else:
                    node.terminate()
                    self.assertEqual(node.wait(), 0)

                node.start()

                after = node.admin.GetTopic(admin_pb2.GetTopicRequest(name="r"), timeout=PATIENCE).topic
                self.assertEqual(after, topic)
                left = node.take_all("r")
                gone = {(m.partition, m.offset) for m in acked}
                self.assertEqual({(m.partition, m.offset) for m in left} & gone, set())
                self.assertEqual(len(left) + len(gone), 300)
                self.assertEqual({m.payload for m in left} | {m.payload for m in acked},
                                 {b"%d" % i for i in range(300)})
                placement = node.produce("r", b"next", partition=0)[0]
                self.assertEqual(placement.offset, node.stats("r")[0].next_offset - 1)

    def test_a_restart_after_flushing_keeps_all(self):
        with Node() as node:
            node.create("f")
            for i in range(24):
                node.produce("f", *[bytes([i]) + b"z" * 99999] * 10, partition=i % 3)
            held = []
            while len(held) < 7:  # what is on disk already comes frame by frame
                held += node.consume("f", most=7 - len(held))
            for _ in range(3):
                node.stop()
                node.start()
            taken = node.take_all("f")
            self.assertEqual(len(taken), 240)
            self.assertEqual(len({(m.partition, m.offset) for m in taken}), 240)
            node.stop()
            node.start()
            self.assertEqual(node.take_all("f"), [])

    def test_a_start_with_little_memory_flushes_while_it_replays(self):  # W8
        with Node() as node:
            began = time.monotonic()
            node.create("m", partitions=80)
            for partition in range(80):  # none has the 1 MiB that would be flushed
                node.produce("m", *[bytes([partition]) * 100000] * 7, partition=partition)
            node.kill()
            flushed_by_age = time.monotonic() - began > 50
            with open(node.path("narad.json"), "w", encoding="utf-8") as file:
                json.dump({"storage": {"tail_memory_bytes": 32 << 20}}, file)
            node.flags = ["--config", node.path("narad.json")]
            node.start()
            self.assertTrue(flushed_by_age or "tails flushed while replaying" in node.log())
            node.kill()
            node.start()  # the log still has all of it: it is stored once
            for partition in range(80):
                replayed = [m for reply in node.broker.Replay(
                    broker_pb2.ReplayRequest(topic="m", partition=partition), timeout=PATIENCE)
                    for m in reply.messages]
                self.assertEqual([m.offset for m in replayed], list(range(7)))
                self.assertEqual({m.payload for m in replayed}, {bytes([partition]) * 100000})
            self.assertEqual(len(node.take_all("m")), 80 * 7)

    def test_the_unix_socket_is_of_its_owner_alone(self):
        """Whatever the umask and the directory: who connects there may speak for others."""
        before = os.umask(0)
        try:
            with Node() as node:
                self.assertEqual(os.stat(node.path("data") + "/narad.sock").st_mode & 0o077, 0)
        finally:
            os.umask(before)

    def test_the_unix_socket_serves(self):
        with Node() as node:
            path = node.path("data") + "/narad.sock"
            with grpc.insecure_channel("unix:" + path) as channel:
                stub = broker_pb2  # the messages
                node.create("u")
                call = channel.unary_unary(
                    "/narad.v1.Broker/Produce",
                    request_serializer=stub.ProduceRequest.SerializeToString,
                    response_deserializer=stub.ProduceResponse.FromString)
                reply = call(stub.ProduceRequest(topic="u", records=[types_pb2.Record(payload=b"x")]),
                             timeout=PATIENCE)
                self.assertEqual(len(reply.placements), 1)
            node.stop()
            with socket.socket(socket.AF_UNIX) as probe:
                self.assertNotEqual(probe.connect_ex(path), 0)


if __name__ == "__main__":
    unittest.main()
