#!/usr/bin/python3
"""AckStream: many topics, neighbours that are refused, answers while it is open, ends, and the names that
errors carry beside their texts."""

import unittest

import grpc

from nodes import CODE, PATIENCE, Node, Outgoing, broker_pb2, status_of

ACK = broker_pb2.SETTLE_ACTION_ACK
EXTEND = broker_pb2.SETTLE_ACTION_EXTEND
NACK = broker_pb2.SETTLE_ACTION_NACK


def item(number, *handles, topic="", action=ACK):
    return broker_pb2.AckItem(id=number, topic=topic, settles=[
        broker_pb2.Settle(receipt_handle=h, action=action) for h in handles])


def request(*items):
    return broker_pb2.AckStreamRequest(items=items)


class AckStream(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node()

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def leased(self, topic, count):
        """Handles of `count` new messages of a new topic."""
        self.node.create(topic)
        self.node.produce(topic, *[b"m%d" % i for i in range(count)])
        handles = []
        while len(handles) < count:
            handles += [m.receipt_handle for m in self.node.consume(topic, most=1000, wait_ms=5000)]
        return handles

    def answers(self, *requests):
        """Results by id of a stream that sends all of `requests` and half-closes."""
        call = self.node.broker.AckStream(iter(requests), timeout=PATIENCE)
        results = [r for response in call for r in response.results]
        self.assertEqual(len({r.id for r in results}), len(results))
        return {r.id: r for r in results}

    def test_each_item_of_each_topic_is_answered_once(self):
        first, second = self.leased("one", 300), self.leased("two", 300)
        results = self.answers(
            request(*[item(i, h, topic="one" if i == 0 else "") for i, h in enumerate(first)]),
            *[request(item(1000 + i, second[i], topic="two"), item(2000 + i, second[i + 1], second[i + 2]))
              for i in range(0, 300, 3)])

        self.assertEqual(sorted(results), sorted([*range(300), *range(1000, 1300, 3), *range(2000, 2300, 3)]))
        self.assertEqual({(r.code, r.reason) for r in results.values()}, {(0, "")})
        self.assertEqual({len(results[i].results) for i in range(2000, 2300, 3)}, {2})
        self.assertEqual({s.code for r in results.values() for s in r.results}, {0})
        for topic in ("one", "two"):
            self.assertEqual(self.node.in_flight(topic), 0)
            self.assertEqual(sum(p.frontier for p in self.node.stats(topic)), 300)

    def test_a_refused_item_takes_no_neighbour_with_it(self):
        handles = self.leased("mixed", 4)
        stale = handles[0].rsplit(":", 1)[0] + ":12345"
        results = self.answers(request(
            item(1, topic=""), item(2, handles[0], topic="mixed"), item(3), item(4, handles[1]),
            item(5, *["0:0:1"] * 1001), item(6, "nonsense", handles[2]), item(7, handles[3], topic="missing"),
            item(8, stale, topic="mixed"), item(9, handles[3], action=7), item(10, handles[3])))

        self.assertEqual({i: (r.code, r.reason) for i, r in results.items()}, {
            1: (3, "INVALID_ARGUMENT"), 2: (0, ""), 3: (3, "INVALID_ARGUMENT"), 4: (0, ""),
            5: (3, "INVALID_ARGUMENT"), 6: (0, ""), 7: (5, "TOPIC_NOT_FOUND"), 8: (0, ""), 9: (0, ""),
            10: (0, "")})
        self.assertIn("settles: 0 given, 1 to 1000 are allowed", results[3].error)
        self.assertIn("settles: 1001 given", results[5].error)
        self.assertIn('topic not found: "missing"', results[7].error)
        self.assertEqual([(s.code, s.reason) for s in results[6].results], [(3, "INVALID_ARGUMENT"), (0, "")])
        self.assertEqual([(s.code, s.reason) for s in results[8].results], [(9, "STALE")])
        self.assertEqual([(s.code, s.reason) for s in results[9].results], [(3, "INVALID_ARGUMENT")])
        self.assertEqual(self.node.in_flight("mixed"), 0)

    def test_answers_come_while_the_stream_stays_open(self):
        handles = self.leased("open", 20)
        out = Outgoing()
        call = self.node.broker.AckStream(iter(out), timeout=PATIENCE)
        for i, handle in enumerate(handles):
            out.send(request(item(i, handle, topic="open", action=EXTEND)))
            self.assertEqual(next(call).results[0].id, i)
        out.send(request(item(99, handles[0], action=NACK)))
        self.assertEqual(next(call).results[0].results[0].code, 0)
        self.assertEqual(len(self.node.consume("open", most=1000)), 1)
        out.close()
        self.assertEqual(list(call), [])
        self.assertEqual(call.code(), CODE.OK)

    def test_a_cancelled_stream_leaves_nothing_behind(self):
        for _ in range(20):
            call = self.node.broker.AckStream(iter(Outgoing(*[
                request(item(i, "0:0:1", topic="one")) for i in range(50)])), timeout=PATIENCE)
            next(call)
            call.cancel()
        self.assertEqual(self.answers(request(item(1, "0:0:1", topic="never")))[1].reason, "TOPIC_NOT_FOUND")

    def test_bytes_that_are_no_message_end_it(self):
        raw = self.node.channel.stream_stream("/narad.v1.Broker/AckStream")
        code, text = status_of(lambda: raw(iter([b"\xff\xff"]), timeout=PATIENCE))
        self.assertEqual(code, CODE.INVALID_ARGUMENT)
        self.assertIn("AckStreamRequest", text)

    def test_errors_carry_their_name(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.node.produce("nowhere", b"x")
        self.assertEqual(dict(caught.exception.trailing_metadata())["narad-reason"], "TOPIC_NOT_FOUND")
        call = self.node.broker.Subscribe(iter([broker_pb2.SubscribeRequest()]), timeout=PATIENCE)
        self.assertEqual(status_of(lambda: call)[0], CODE.INVALID_ARGUMENT)
        self.assertEqual(dict(call.trailing_metadata())["narad-reason"], "INVALID_ARGUMENT")


if __name__ == "__main__":
    unittest.main()
