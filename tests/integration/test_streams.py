#!/usr/bin/python3
"""ProduceStream, ConsumeStream, Subscribe, Replay: order, back pressure, ends."""

import threading
import unittest

from nodes import (CODE, PATIENCE, Node, Outgoing, admin_pb2, broker_pb2, status_of, types_pb2, wait_until)

ACK = broker_pb2.SETTLE_ACTION_ACK


def item(number, *payloads, topic="", **record):
    return broker_pb2.ProduceItem(
        id=number, topic=topic, records=[types_pb2.Record(payload=p, **record) for p in payloads])


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node()

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def produce_stream(self, *requests):
        """Results of a stream that sends all of `requests` and half-closes."""
        call = self.node.broker.ProduceStream(iter(requests), timeout=PATIENCE)
        return [result for response in call for result in response.results]

    def test_items_are_confirmed_in_order_and_stored_in_order(self):
        self.node.create("ps")
        requests = [broker_pb2.ProduceStreamRequest(items=[
            item(i * 10 + j, b"%d" % (i * 10 + j), topic="ps" if i == j == 0 else "", partition=1)
            for j in range(10)]) for i in range(200)]

        results = self.produce_stream(*requests)

        self.assertEqual([r.id for r in results], list(range(2000)))
        self.assertEqual({r.code for r in results}, {0})
        self.assertEqual([r.placements[0].offset for r in results], list(range(2000)))
        self.assertEqual([m.payload for m in self.node.take_all("ps")],
                         [b"%d" % i for i in range(2000)])

    def test_a_refused_item_takes_no_neighbour_with_it(self):
        self.node.create("refused")
        self.node.create("refused2")
        results = self.produce_stream(broker_pb2.ProduceStreamRequest(items=[
            item(0, b"a", topic="refused"), item(1, b""), item(2, b"b"),
            item(3, b"c", topic="missing"), item(4, b"d"), item(5, b"e", topic="refused2"),
            item(6, b"f", partition=9), item(7, b"g"), item(8), item(9, *[b"h"] * 1001),
            item(10, b"i", b"j")]))

        self.assertEqual([r.id for r in results], list(range(11)))
        self.assertEqual([r.code for r in results], [0, 3, 0, 5, 5, 0, 3, 0, 3, 3, 0])
        self.assertIn("message required", results[1].error)
        self.assertIn('topic not found: "missing"', results[3].error)
        self.assertIn("partition out of range", results[6].error)
        self.assertIn("records: 1001 given, at most 1000", results[9].error)
        self.assertEqual(len(results[10].placements), 2)
        self.assertEqual({m.payload for m in self.node.take_all("refused")}, {b"a", b"b"})
        self.assertEqual({m.payload for m in self.node.take_all("refused2")}, {b"e", b"g", b"i", b"j"})

    def test_confirmations_come_while_the_stream_stays_open(self):
        self.node.create("open")
        out = Outgoing()
        call = self.node.broker.ProduceStream(iter(out), timeout=PATIENCE)
        for i in range(20):
            out.send(broker_pb2.ProduceStreamRequest(items=[item(i, b"x", topic="open")]))
            self.assertEqual(next(call).results[0].id, i)
        out.close()
        self.assertEqual(list(call), [])
        self.assertEqual(call.code(), CODE.OK)

    def test_more_bytes_than_the_budget_pass_by_back_pressure(self):
        self.node.create("large")
        requests = [broker_pb2.ProduceStreamRequest(items=[
            item(i * 8 + j, bytes([i]) * (1 << 20), topic="large") for j in range(8)])
            for i in range(6)]
        results = []

        def send():
            results.append(self.produce_stream(*requests))

        threads = [threading.Thread(target=send) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        outcomes = [(r.code, r.error) for rs in results for r in rs]
        self.assertEqual(len(outcomes), 96)
        self.assertEqual(set(outcomes), {(0, "")})

    def test_polls_of_one_stream_answer_by_id(self):
        self.node.create("cs")
        self.node.produce("cs", b"one")
        out = Outgoing()
        call = self.node.broker.ConsumeStream(iter(out), timeout=PATIENCE)
        out.send(broker_pb2.ConsumeStreamRequest(polls=[
            broker_pb2.Poll(id=1, topic="cs"), broker_pb2.Poll(id=2, topic="missing"),
            broker_pb2.Poll(id=3, topic="cs", max_messages=1001),
            broker_pb2.Poll(id=4, topic="cs", wait_ms=30000),
            broker_pb2.Poll(id=5, topic="cs", wait_ms=30000, partition=7)]))
        results = {}
        while len(results) < 4:
            for r in next(call).results:
                results[r.id] = r
        self.assertEqual([m.payload for m in results[1].messages], [b"one"])
        self.assertEqual([results[i].code for i in (1, 2, 3, 5)], [0, 5, 3, 3])
        self.assertNotIn(4, results)

        out.send(broker_pb2.ConsumeStreamRequest(cancel_ids=[4, 99]))
        cancelled = next(call).results[0]

        self.assertEqual((cancelled.id, cancelled.code, len(cancelled.messages)), (4, 0, 0))
        out.close()
        self.assertEqual(list(call), [])

    def test_a_cancelled_poll_takes_nothing(self):
        self.node.create("cancel")
        out = Outgoing(broker_pb2.ConsumeStreamRequest(
            polls=[broker_pb2.Poll(id=1, topic="cancel", wait_ms=30000)]))
        call = self.node.broker.ConsumeStream(iter(out), timeout=PATIENCE)
        out.send(broker_pb2.ConsumeStreamRequest(cancel_ids=[1]))
        self.assertEqual(next(call).results[0].id, 1)
        self.node.produce("cancel", b"one")
        self.assertEqual(len(self.node.consume("cancel", wait_ms=30000)), 1)
        out.close()
        self.assertEqual(list(call), [])

    def test_an_id_that_is_open_already_ends_the_stream(self):
        self.node.create("twice")
        polls = [broker_pb2.Poll(id=1, topic="twice", wait_ms=30000)] * 2
        call = self.node.broker.ConsumeStream(iter(Outgoing(
            broker_pb2.ConsumeStreamRequest(polls=polls))), timeout=PATIENCE)
        code, text = status_of(lambda: call)
        self.assertEqual(code, CODE.INVALID_ARGUMENT)
        self.assertIn("poll id 1 is already open", text)

    def subscribe(self, topic, **start):
        out = Outgoing(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=topic, **start)))
        return out, self.node.broker.Subscribe(iter(out), timeout=PATIENCE)

    def test_a_subscriber_gets_all_and_its_acks_are_confirmed_in_order(self):
        self.node.create("sub")
        for at in range(0, 2000, 500):
            self.node.produce("sub", *[b"%d" % i for i in range(at, at + 500)])
        out, call = self.subscribe("sub", max_outstanding=64)
        seen, results, outstanding = [], [], 0
        for response in call:
            results += response.results
            outstanding += len(response.messages) - len(response.results)
            self.assertLessEqual(outstanding, 64)
            seen += [m.payload for m in response.messages]
            if response.messages:
                out.send(broker_pb2.SubscribeRequest(settles=[
                    broker_pb2.Settle(receipt_handle=m.receipt_handle, action=ACK)
                    for m in response.messages]))
            if len(results) == 2000:
                break
        out.close()
        self.assertEqual([r for r in call], [])
        self.assertEqual({r.code for r in results}, {0})
        self.assertEqual(sorted(seen), sorted(b"%d" % i for i in range(2000)))
        self.assertEqual(self.node.consume("sub"), self.node.consume("sub"))
        self.assertEqual(self.node.in_flight("sub"), 0)

    def test_outstanding_stops_deliveries_until_settles_come(self):
        self.node.create("outstanding")
        self.node.produce("outstanding", *[b"x"] * 10, partition=0)
        out, call = self.subscribe("outstanding", max_outstanding=3)
        held = []
        while len(held) < 3:
            held += next(call).messages
        self.assertEqual(len(held), 3)
        bad = broker_pb2.Settle(receipt_handle="nonsense")
        stale = broker_pb2.Settle(receipt_handle="0:0:1")
        good = broker_pb2.Settle(receipt_handle=held[0].receipt_handle)
        out.send(broker_pb2.SubscribeRequest(settles=[bad, stale, good]))
        codes, more = [], []
        while len(codes) < 3 or not more:
            response = next(call)
            codes += [r.code for r in response.results]
            more += response.messages
        self.assertEqual(codes, [CODE.INVALID_ARGUMENT.value[0],
                                 CODE.FAILED_PRECONDITION.value[0], 0])
        self.assertEqual(len(more), 1)
        call.cancel()

    def test_a_closed_stream_releases_its_leases_at_once(self):
        self.node.create("release")
        self.node.produce("release", *[b"x"] * 5, partition=0)
        out, call = self.subscribe("release")
        held = []
        while len(held) < 5:
            held += next(call).messages
        call.cancel()
        wait_until(lambda: self.node.in_flight("release") == 0, "leases are released")
        again = self.node.consume("release", most=10)
        self.assertEqual([m.delivery_attempt for m in again], [2] * 5)

    def test_a_subscriber_whose_topic_goes_is_told(self):
        self.node.create("vanish")
        out, call = self.subscribe("vanish")
        self.node.produce("vanish", b"x")
        self.assertEqual(len(next(call).messages), 1)
        self.node.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="vanish"), timeout=PATIENCE)
        self.assertEqual(status_of(lambda: call)[0], CODE.NOT_FOUND)

    def test_a_slow_subscriber_is_fed_at_its_pace(self):
        self.node.create("slow")
        for _ in range(8):
            self.node.produce("slow", *[b"y" * 1000000] * 8, partition=0)
        out, call = self.subscribe("slow", max_outstanding=64)
        first = next(call)
        # The client does not read on; the node must not lease all 64 MiB into its send queue.
        held = self.node.in_flight("slow")
        seen = len(first.messages)
        for response in call:
            seen += len(response.messages)
            if seen == 64:
                break
        self.assertLess(held, 64)
        self.assertEqual(seen, 64)
        call.cancel()

    def test_starts_are_checked(self):
        for start, code, part in (
                (None, CODE.INVALID_ARGUMENT, "start: required"),
                (broker_pb2.SubscribeStart(topic="nowhere"), CODE.NOT_FOUND, "nowhere"),
                (broker_pb2.SubscribeStart(topic=""), CODE.INVALID_ARGUMENT, "topic"),
                (broker_pb2.SubscribeStart(topic="nowhere", max_outstanding=65537),
                 CODE.INVALID_ARGUMENT, "max_outstanding is 65537: at most 65536")):
            call = self.node.broker.Subscribe(iter(Outgoing(
                broker_pb2.SubscribeRequest(start=start))), timeout=PATIENCE)
            got, text = status_of(lambda: call)
            self.assertEqual(got, code)
            self.assertIn(part, text)
        self.node.create("starts")
        out, call = self.subscribe("starts")
        out.send(broker_pb2.SubscribeRequest(start=broker_pb2.SubscribeStart(topic="starts")))
        self.assertIn("first message only", status_of(lambda: call)[1])

    def test_a_long_replay_to_a_slow_reader_is_whole(self):
        self.node.create("long")
        for i in range(30):
            self.node.produce("long", *[b"%d " % i + b"z" * 200000] * 5, partition=2)
        call = self.node.broker.Replay(broker_pb2.ReplayRequest(topic="long", partition=2), timeout=PATIENCE)
        offsets = [m.offset for r in call for m in r.messages]
        self.assertEqual(offsets, list(range(150)))


if __name__ == "__main__":
    unittest.main()
