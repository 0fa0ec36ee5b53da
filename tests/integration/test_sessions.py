#!/usr/bin/python3
"""What is open when a user changes: it ends when the password is another or the user is gone, and loses what
was taken; and how much one caller may do at a time and a second."""

import threading
import time
import unittest

import grpc

from nodes import CODE, PATIENCE, Node, Outgoing, admin_pb2, broker_pb2, broker_pb2_grpc, types_pb2, wait_until
from people import Person, SecureNode, grant, refusal

GONE = "the user is gone, or its password was changed"
NO_CONSUME = "consume not allowed on this topic"
BOTH = ("produce", "consume")


def rights(*patterns):
    return [grant(action, *patterns) for action in BOTH]


def produce_item(number, topic, count=1, size=1):
    return broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
        id=number, topic=topic, records=[types_pb2.Record(payload=b"x" * size)] * count)])


class Background:
    """A call on a thread of its own, and how it ended."""

    def __init__(self, call):
        self.outcome = None
        self.thread = threading.Thread(target=self.run, args=(call,))
        self.thread.start()

    def run(self, call):
        try:
            self.outcome = (CODE.OK, call())
        except grpc.RpcError as error:
            self.outcome = refusal(error)

    def wait(self):
        self.thread.join()
        return self.outcome


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = SecureNode()
        cls.number = 0

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def setUp(self):
        """A user and a topic of its own, empty, and everything open that can be."""
        type(self).number += 1
        self.name = f"user-{self.number}"
        self.topic = f"topic-{self.number}"
        self.node.create(self.topic)
        self.me = self.node.add(self.name, *rights(self.topic))
        self.outs = []

    def tearDown(self):
        for out in self.outs:
            out.close()

    def open(self, method, *messages):
        """A stream that stays open: the call, and where more is sent."""
        out = Outgoing(*messages)
        self.outs.append(out)
        return getattr(self.me.broker, method)(iter(out), timeout=PATIENCE), out

    def park(self, poll_id=1):
        """A poll of a ConsumeStream that waits."""
        call, out = self.open("ConsumeStream", broker_pb2.ConsumeStreamRequest(polls=[
            broker_pb2.Poll(id=poll_id, topic=self.topic, wait_ms=30000),
            broker_pb2.Poll(id=99, topic="no-such-topic-of-mine")]))
        self.assertEqual(next(call).results[0].id, 99)  # so the first one is parked
        return call, out

    def open_all(self):
        calls = {}
        calls["ProduceStream"], _ = self.open("ProduceStream", produce_item(1, self.topic))
        self.assertEqual(next(calls["ProduceStream"]).results[0].code, 0)
        calls["Subscribe"], _ = self.open("Subscribe", broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=self.topic)))
        self.assertEqual(len(next(calls["Subscribe"]).messages), 1)  # it holds a lease
        calls["AckStream"], _ = self.open("AckStream", broker_pb2.AckStreamRequest(items=[broker_pb2.AckItem(
            id=1, topic=self.topic, settles=[broker_pb2.Settle(receipt_handle="0:0:1")])]))
        self.assertEqual(next(calls["AckStream"]).results[0].code, 0)
        calls["ConsumeStream"], _ = self.park()
        calls["Consume"] = self.wait_in_consume()
        return calls

    def parked(self):
        """Polls that wait in the topic, by the node's own count."""
        text = self.node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("narad_grpc_requests_in_flight"))

    def wait_in_consume(self):
        before = self.parked()
        call = Background(lambda: self.me.broker.Consume(broker_pb2.ConsumeRequest(
            topic=self.topic, wait_ms=30000), timeout=PATIENCE))
        wait_until(lambda: self.parked() > before, "the poll waits")
        return call

    def end_of(self, call):
        if isinstance(call, Background):
            return call.wait()
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            return refusal(error)
        return CODE.OK, "", None

    def expect_all_gone(self, calls):
        for name, call in calls.items():
            with self.subTest(call=name):
                self.assertEqual(self.end_of(call), (CODE.UNAUTHENTICATED, GONE, "UNAUTHENTICATED"))
        wait_until(lambda: self.node.in_flight(self.topic) == 0, "the leases are given back")

    def test_another_password_ends_what_is_open(self):
        calls = self.open_all()
        self.node.set_password(self.name, "another")
        self.expect_all_gone(calls)

    def test_ones_own_change_of_the_password_ends_what_is_open(self):
        calls = self.open_all()
        self.me.admin.SetPassword(admin_pb2.SetPasswordRequest(
            username=self.name, new_password="another", current_password="pw"), timeout=PATIENCE)
        self.expect_all_gone(calls)

    def test_a_deleted_user_is_out(self):
        calls = self.open_all()
        self.node.delete(self.name)
        self.expect_all_gone(calls)

    def test_a_waiting_poll_of_who_is_gone_is_told_so(self):
        """An empty answer would be one to a user who may ask again: 204 over HTTP, where it is 401."""
        changes = (lambda: self.node.set_password(self.name, "another"), lambda: self.node.delete(self.name))
        for change in changes:
            call, _ = self.park()
            change()
            results = []
            with self.assertRaises(grpc.RpcError):
                for answer in call:
                    results += answer.results
            self.assertEqual([(r.id, r.code, r.error, r.reason) for r in results],
                             [(1, 16, GONE, "UNAUTHENTICATED")])
            self.me = Person(self.node, self.name, "another")

    def test_a_user_of_the_same_name_is_another_one(self):
        calls = self.open_all()
        self.node.delete(self.name)
        self.node.add(self.name, *rights(self.topic), password="other")
        self.expect_all_gone(calls)

    def test_a_right_that_is_taken_ends_what_used_it(self):
        calls = self.open_all()
        self.node.set_grants(self.name, grant("produce", self.topic))
        lost = (CODE.PERMISSION_DENIED, NO_CONSUME, "PERMISSION_DENIED")
        self.assertEqual(self.end_of(calls["Subscribe"]), lost)
        self.assertEqual(self.end_of(calls["Consume"]), lost)
        poll = next(calls["ConsumeStream"]).results[0]
        self.assertEqual((poll.id, poll.code, poll.error, poll.reason), (1, 7, NO_CONSUME, "PERMISSION_DENIED"))
        wait_until(lambda: self.node.in_flight(self.topic) == 0, "the leases are given back")

    def test_streams_of_many_topics_stay_and_their_items_are_asked_about(self):
        produce, more = self.open("ProduceStream")
        acks, settles = self.open("AckStream")
        polls, ask = self.park()
        self.node.set_grants(self.name)
        self.assertEqual(next(polls).results[0].code, 7)

        more.send(produce_item(2, self.topic))
        settles.send(broker_pb2.AckStreamRequest(items=[broker_pb2.AckItem(
            id=2, topic=self.topic, settles=[broker_pb2.Settle(receipt_handle="0:0:1")])]))
        ask.send(broker_pb2.ConsumeStreamRequest(polls=[broker_pb2.Poll(id=2, topic=self.topic)]))
        self.assertEqual(next(produce).results[0].error, "produce not allowed on this topic")
        self.assertEqual(next(acks).results[0].error, NO_CONSUME)
        self.assertEqual(next(polls).results[0].error, NO_CONSUME)

        self.node.set_grants(self.name, *rights(self.topic))  # and given back
        more.send(produce_item(3, self.topic))
        self.assertEqual(next(produce).results[0].code, 0)
        ask.send(broker_pb2.ConsumeStreamRequest(polls=[broker_pb2.Poll(id=3, topic=self.topic, wait_ms=5000)]))
        self.assertEqual(len(next(polls).results[0].messages), 1)

    def test_other_users_and_other_grants_end_nothing(self):
        calls = self.open_all()
        self.node.add(self.name + "-b", grant("admin"))
        self.node.set_grants(self.name, *rights(self.topic, "more-*"))
        self.node.set_password(self.name + "-b", "another")
        self.node.delete(self.name + "-b")
        self.node.produce(self.topic, b"still there")  # to one of those who wait
        self.node.produce(self.topic, b"still there")
        self.node.produce(self.topic, b"still there")
        taken = len(next(calls["Subscribe"]).messages) + len(next(calls["ConsumeStream"]).results[0].messages)
        code, answer = calls["Consume"].wait()
        self.assertEqual((code, taken + len(answer.messages)), (CODE.OK, 3))

    def test_a_replay_that_waits_for_its_reader_ends(self):
        self.node.produce(self.topic, *[b"x" * 16000] * 900)
        code = []
        for change in (lambda: self.node.set_grants(self.name), lambda: self.node.delete(self.name)):
            self.node.set_grants(self.name, *rights(self.topic))
            for partition in self.node.stats(self.topic):
                if partition.next_offset < 900:
                    continue
                call = self.me.broker.Replay(broker_pb2.ReplayRequest(
                    topic=self.topic, partition=partition.index), timeout=PATIENCE)
                next(call)  # the rest is more than the windows between us hold
                change()
                code.append(self.end_of(call)[:2])
        self.assertEqual(code, [(CODE.PERMISSION_DENIED, NO_CONSUME), (CODE.UNAUTHENTICATED, GONE)])


class Limits(unittest.TestCase):
    def limited(self, call, text):
        """The call is refused for its caller's limits; when it may come again, in milliseconds."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        code, said, reason = refusal(caught.exception)
        self.assertEqual((code, said, reason), (CODE.RESOURCE_EXHAUSTED, text, "LIMITED"))
        return int(dict(caught.exception.trailing_metadata())["narad-retry-after-ms"])

    def consume(self, who, topic="t", wait_ms=0, most=1):
        return who.broker.Consume(broker_pb2.ConsumeRequest(
            topic=topic, wait_ms=wait_ms, max_messages=most), timeout=PATIENCE)

    def produce(self, who, count=1, size=1):
        return who.broker.Produce(broker_pb2.ProduceRequest(
            topic="t", records=[types_pb2.Record(payload=b"x" * size)] * count), timeout=PATIENCE)

    def park(self, who, count, topic="t", first=0):
        """A stream with `count` polls that wait; it is told which they are."""
        out = Outgoing(broker_pb2.ConsumeStreamRequest(polls=[
            *[broker_pb2.Poll(id=first + i, topic=topic, wait_ms=30000) for i in range(count)],
            broker_pb2.Poll(id=9999, topic="none")]))
        call = who.broker.ConsumeStream(iter(out), timeout=PATIENCE)
        self.assertEqual(next(call).results[0].id, 9999)
        self.addCleanup(out.close)
        return call, out

    def test_polls_at_a_time_are_counted_by_user(self):
        text = "too many in-flight consume requests for this identity (limit 3 per node)"
        with SecureNode(NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY="3") as node:
            node.create("t")
            ann, ben = node.add("ann", *rights("*")), node.add("ben", *rights("*"))
            call, out = self.park(ann, 3)
            self.assertGreaterEqual(self.limited(lambda: self.consume(ann), text), 1)
            self.limited(lambda: self.consume(Person(node, "ann", "pw")), text)  # however many connections
            self.limited(lambda: list(ann.broker.Replay(broker_pb2.ReplayRequest(topic="t"), timeout=PATIENCE)),
                         text)
            self.limited(lambda: list(ann.broker.Subscribe(iter([broker_pb2.SubscribeRequest(
                start=broker_pb2.SubscribeStart(topic="t"))]), timeout=PATIENCE)), text)
            out.send(broker_pb2.ConsumeStreamRequest(polls=[broker_pb2.Poll(id=50, topic="t")]))
            refused = next(call).results[0]
            self.assertEqual((refused.id, refused.code, refused.error, refused.reason), (50, 8, text, "LIMITED"))
            self.consume(ben)
            self.consume(node.root)
            out.send(broker_pb2.ConsumeStreamRequest(cancel_ids=[0]))
            self.assertEqual(next(call).results[0].id, 0)
            self.consume(ann)
            self.limited(lambda: self.consume(ann, most=2), text)  # a batch counts as its size
            call.cancel()

            def free():
                try:
                    self.consume(ann, most=1000)  # which is as much as all of it
                    return True
                except grpc.RpcError:
                    return False
            wait_until(free, "a stream that went is not counted any more")

    def test_without_security_hosts_are_counted_and_unix_sockets_are_not(self):
        text = "too many in-flight consume requests for this identity (limit 2 per node)"
        with Node(NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY="2") as node:
            node.create("t")
            call, _ = self.park(node, 2)
            self.addCleanup(call.cancel)
            self.limited(lambda: self.consume(node), text)
            other = node.new_channel()
            self.addCleanup(other.close)
            self.limited(lambda: broker_pb2_grpc.BrokerStub(other).Consume(
                broker_pb2.ConsumeRequest(topic="t"), timeout=PATIENCE), text)
            local = grpc.insecure_channel("unix:" + node.path("data/narad.sock"))
            self.addCleanup(local.close)
            for _ in range(3):
                broker_pb2_grpc.BrokerStub(local).Consume(broker_pb2.ConsumeRequest(topic="t"), timeout=PATIENCE)

    def test_messages_a_second_are_counted_and_come_back(self):
        text = "produce rate limit of this identity exceeded (limit 10 messages per second per node)"
        with SecureNode(NARAD_LIMITS_PRODUCE_MESSAGES_PER_SECOND="10") as node:
            node.create("t")
            ann, ben = node.add("ann", *rights("*")), node.add("ben", *rights("*"))
            self.produce(ann, 10)
            retry_ms = self.limited(lambda: self.produce(ann, 10), text)
            self.assertTrue(1 <= retry_ms <= 1000, retry_ms)
            self.produce(ben, 10)

            def again():
                try:
                    self.produce(ann)
                    return True
                except grpc.RpcError:
                    return False
            wait_until(again, "a token comes back")
            call = ben.broker.ProduceStream(iter([broker_pb2.ProduceStreamRequest(items=[
                broker_pb2.ProduceItem(id=1, topic="t", records=[types_pb2.Record(payload=b"x")] * 100),
                broker_pb2.ProduceItem(id=2, topic="t", records=[types_pb2.Record(payload=b"x")] * 100)])]),
                timeout=PATIENCE)
            results = [r for response in call for r in response.results]
            self.assertEqual([r.id for r in results], [1, 2])  # each has its answer
            self.assertEqual((results[1].code, results[1].reason), (8, "LIMITED"))

    def test_bytes_a_second_and_messages_in_flight(self):
        with SecureNode(NARAD_LIMITS_PRODUCE_BYTES_PER_SECOND="1000",
                        NARAD_HTTP_MAX_PRODUCE_IN_FLIGHT_PER_IDENTITY="5") as node:
            node.create("t")
            ann = node.add("ann", *rights("*"))
            self.produce(ann, 5, 200)
            self.limited(lambda: self.produce(ann, 5, 200), "produce rate limit of this identity exceeded "
                         "(limit 1000 bytes per second per node)")

    def test_messages_consumed_are_paid_afterwards(self):
        text = "consume rate limit of this identity exceeded (limit 5 messages per second per node)"
        with SecureNode(NARAD_LIMITS_CONSUME_MESSAGES_PER_SECOND="5") as node:
            node.create("t")
            ann = node.add("ann", *rights("*"))
            self.produce(node.root, 200)
            self.assertGreater(len(self.consume(ann, most=100).messages), 5)
            self.limited(lambda: self.consume(ann), text)

    def test_a_subscription_and_a_replay_pause_and_lose_nothing(self):
        """Time is a lower bound here: a slow machine only takes longer."""
        rate, count = 500, 2500
        with SecureNode(NARAD_LIMITS_CONSUME_MESSAGES_PER_SECOND=str(rate)) as node:
            node.create("t", max_in_flight_per_partition=count)
            for _ in range(count // 500):
                node.broker.Produce(broker_pb2.ProduceRequest(topic="t", records=[
                    types_pb2.Record(payload=b"x", partition=1)] * 500), timeout=PATIENCE)
            ann, ben = node.add("ann", *rights("*")), node.add("ben", *rights("*"))
            started = time.monotonic()
            out = Outgoing(broker_pb2.SubscribeRequest(
                start=broker_pb2.SubscribeStart(topic="t", max_outstanding=count)))
            call, taken = ann.broker.Subscribe(iter(out), timeout=PATIENCE), 0
            while taken < count:
                taken += len(next(call).messages)
            self.assertEqual(taken, count)
            self.assertGreater(time.monotonic() - started, (count - rate) / rate / 2)
            call.cancel()
            out.close()

            started = time.monotonic()
            replay = ben.broker.Replay(broker_pb2.ReplayRequest(topic="t", partition=1), timeout=PATIENCE)
            self.assertEqual(sum(len(response.messages) for response in replay), count)
            self.assertGreater(time.monotonic() - started, (count - 1000 - rate) / rate / 2)
            replay = ben.broker.Replay(broker_pb2.ReplayRequest(topic="none"), timeout=PATIENCE)
            self.assertEqual(refusal_of(replay), CODE.NOT_FOUND)


def refusal_of(call):
    try:
        list(call)
    except grpc.RpcError as error:
        return error.code()
    return CODE.OK


if __name__ == "__main__":
    unittest.main()
