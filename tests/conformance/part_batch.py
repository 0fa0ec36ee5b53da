"""Batch produce: section 5 M4, Z02."""

import json

from cases import case, check, equal, table, wait_until

MIB = 1 << 20


def batch(topic, *messages, query=""):
    return topic.api.post(f"{topic.path}/produce/batch{query}", {"messages": list(messages)})


@case("Z02")
def json_and_base64(c):
    topic = c.topic()
    answer = batch(topic, {"payload": {"a": 1}, "key": "k"}, {"payload": "aGVsbG8=", "payload_encoding": "base64"})
    equal(answer.expect(202).json, {"accepted": 2}, "answer")
    got = sorted((m["payload"] if m.get("key") != "k" else json.dumps(m["payload"]), m.get("key")) for m in
                 [topic.take(), topic.take()])
    equal(got, sorted([('{"a": 1}', "k"), ("hello", None)], key=str), "messages")


@case("M4/order")
def a_batch_keeps_its_order(c):
    topic = c.topic()
    batch(topic, *[{"payload": n, "partition": 0} for n in range(50)]).expect(202)
    equal([topic.take("?wait=5s")["payload"] for _ in range(50)], list(range(50)), "payloads")


@case("M4/1000")
def a_thousand_at_a_time(c):
    topic = c.topic()
    equal(batch(topic, *[{"payload": n} for n in range(1000)]).expect(202).json, {"accepted": 1000}, "answer")
    wait_until(lambda: topic.visible() == 1000, "all are visible")


@case("M4/keys-and-partitions")
def each_message_has_its_own(c):
    topic = c.topic(3)
    batch(topic, {"payload": 1, "key": "customer-42"}, {"payload": 2, "key": "customer-42", "partition": 2},
          {"payload": 3, "key": "/w==", "key_encoding": "base64", "partition": 0}).expect(202)
    got = {m["payload"]: (m["partition"], m.get("key"), m.get("key_encoding")) for m in
           [topic.take("?wait=5s") for _ in range(3)]}
    equal(got, {1: (1, "customer-42", None), 2: (2, "customer-42", None), 3: (0, "/w==", "base64")}, "messages")


GOOD = {"payload": 1}
WANT = 'want "base64" or none'

REFUSED = [
    ("nothing", b"{}", 400, "messages required"), ("null", b'{"messages":null}', 400, "messages required"),
    ("empty", b'{"messages":[]}', 400, "messages required"),
    ("1001", json.dumps({"messages": [GOOD] * 1001}).encode(), 400, "too many messages"),
    ("no-payload", b'{"messages":[{"payload":1},{}]}', 400, "message 1: "),
    ("no-payload-but-a-key", b'{"messages":[{"key":"k"}]}', 400, "message 0: "),
    ("empty-payload", b'{"messages":[{"payload":"","payload_encoding":"base64"}]}', 400, "message 0: message required"),
    ("payload-encoding", b'{"messages":[{"payload":"x","payload_encoding":"hex"}]}', 400, "invalid payload_encoding: " + WANT),
    ("key-encoding", b'{"messages":[{"payload":1,"key":"x","key_encoding":"utf8"}]}', 400, "invalid key_encoding: " + WANT),
    ("no-base64", b'{"messages":[{"payload":1},{"payload":"*","payload_encoding":"base64"}]}', 400, "message 1: "),
    ("no-padding", b'{"messages":[{"payload":"aGVsbG8","payload_encoding":"base64"}]}', 400, "message 0: "),
    ("url-alphabet", b'{"messages":[{"payload":"_-==","payload_encoding":"base64"}]}', 400, "message 0: "),
    ("base64-of-a-number", b'{"messages":[{"payload":5,"payload_encoding":"base64"}]}', 400, ""),
    ("key-no-base64", b'{"messages":[{"payload":1,"key":"*","key_encoding":"base64"}]}', 400, "message 0: "),
    ("range", b'{"messages":[{"payload":1},{"payload":1},{"payload":1,"partition":3}]}', 400,
     "message 2: invalid argument: partition out of range"),
    ("negative", b'{"messages":[{"payload":1,"partition":-1}]}', 400, "message 0: "),
    ("unknown", b'{"messages":[{"payload":1,"x":1}]}', 400, 'unknown field "x"'),
    ("unknown-beside", b'{"messages":[{"payload":1}],"x":1}', 400, 'unknown field "x"'),
    ("partition-type", b'{"messages":[{"payload":1,"partition":"0"}]}', 400, "cannot unmarshal"),
    ("key-type", b'{"messages":[{"payload":1,"key":5}]}', 400, "cannot unmarshal"),
    ("element-type", b'{"messages":[5]}', 400, "cannot unmarshal"),
    ("too-large-payload", json.dumps({"messages": [GOOD, {"payload": "x" * MIB}]}).encode(), 413, "message 1: "),
]


@table("M4/refused", REFUSED)
def all_or_nothing(c, body, status, text):
    topic = c.topic(3)
    c.api.post(f"{topic.path}/produce/batch", body).expect(status, has=text)
    equal(topic.visible(), 0, "records")


@table("M4/query", [("key", "?key=k", "key is set per message in a batch produce, not as a query parameter"),
                    ("partition", "?partition=0",
                     "partition is set per message in a batch produce, not as a query parameter")])
def keys_are_no_parameters(c, query, text):
    batch(c.topic(), GOOD, query=query).expect(400, error=text)


@case("M4/404")
def a_batch_for_a_missing_topic(c):
    batch(c.missing(), GOOD).expect(404, has="topic not found")


@table("M4/members", [
    ("encoding-null", b'{"payload":1,"payload_encoding":null,"key":null,"key_encoding":null,"partition":null}', 1, None),
    ("empty-encodings", b'{"payload":1,"payload_encoding":"","key_encoding":""}', 1, None),
    ("empty-key", b'{"payload":1,"key":""}', 1, None), ("null-payload", b'{"payload":null}', None, None),
    ("upper-case", b'{"PAYLOAD":1,"Key":"k"}', 1, "k"), ("string", b'{"payload":"text"}', "text", None),
    ("escaped-key", b'{"payload":1,"key":"\\u00fc\\n"}', 1, "\u00fc\n"), ("last-wins", b'{"payload":1,"payload":2}', 2, None),
])
def members_of_a_message(c, member, payload, key):
    topic = c.topic()
    c.api.post(f"{topic.path}/produce/batch", b'{"messages":[' + member + b"]}").expect(202)
    got = topic.take()
    equal((got["payload"], got.get("key")), (payload, key), "message")


@case("M4/16-mib")
def sixteen_mebibytes_are_the_most(c):
    topic = c.topic()
    message = b'{"payload":"%b"}' % (b"x" * (MIB - 100))
    body = b'{"messages":[' + b",".join([message] * 15) + b"]}"
    c.api.post(f"{topic.path}/produce/batch", body).expect(202)
    wait_until(lambda: topic.visible() == 15, "all are visible")
    c.api.post(f"{topic.path}/produce/batch", body + b" " * (16 * MIB + 1 - len(body))).expect(
        413, error="request body too large")
    check(topic.visible() == 15, "nothing more")
