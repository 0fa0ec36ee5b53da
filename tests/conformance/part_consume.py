"""Consume, long polls, replay, batch consume: section 5 M2, C01 to C26, Z05."""

import re
import time

from cases import case, check, equal, in_parallel, table, wait_until

CLIENT = {"X-Narad-Client": "t"}


@case("C01")
def nothing_there(c):
    c.topic().consume().expect(204)


@case("C02")
def a_message(c):
    topic = c.topic(3)
    raw = b'{"event":"checkout","user":42,"amount":19.99}'
    asked = time.time()
    topic.put(raw, key="k")
    answer = topic.consume().expect(200)
    got = answer.json
    equal([got[k] for k in ("topic", "partition", "offset", "key")], [topic.name, 0, 0, "k"], "where it is")
    check(b'"payload":' + raw + b"," in answer.body, "payload as it was")
    check(asked - 5 <= got["timestamp"] <= time.time() + 5, f"timestamp is {got['timestamp']}")
    check(re.fullmatch(r"0:0:[0-9]+", got["receipt_handle"]), f"handle {got['receipt_handle']}")


@case("C03")
def text(c):
    topic = c.topic()
    topic.put(b"hello world")
    got = topic.take()
    equal((got["payload"], "payload_encoding" in got), ("hello world", False), "payload")


@case("C04")
def bytes_that_are_no_text(c):
    topic = c.topic()
    topic.put(bytes([0x00, 0xff, 0x8a, 0x01]))
    got = topic.take()
    equal((got["payload"], got["payload_encoding"]), ("AP+KAQ==", "base64"), "payload")


@case("C05")
def control_bytes(c):
    topic = c.topic()
    topic.put(b'line1\nline2\t"q"')
    equal(topic.take()["payload"], 'line1\nline2\t"q"', "payload")


@case("C09")
def pinned_to_a_partition(c):
    topic = c.topic(4)
    topic.put(key="stable")
    place = topic.take("?partition=0&offset=0")["partition"] if topic.stats()[0]["high_watermark"] else None
    place = next(p["index"] for p in topic.stats() if p["high_watermark"]) if place is None else place
    equal(place, 2, "partition of stable")
    topic.consume("?partition=2").expect(200)
    topic.consume("?partition=3").expect(204)


@case("C10")
def partitions_that_are_none(c):
    topic = c.topic()
    topic.consume("?partition=abc").expect(400)
    topic.consume("?partition=99").expect(400, has="out of range")
    topic.consume("?partition=-1").expect(400, has="out of range")


@case("C11")
def an_offset_wants_a_partition(c):
    c.topic().consume("?offset=0").expect(400, error="partition required for replay-mode consume")


@case("C12")
def offsets_that_are_none(c):
    topic = c.topic()
    topic.consume("?partition=0&offset=xyz").expect(400)
    topic.consume("?partition=0&offset=-1").expect(400, error="invalid offset: must be >= 0")


@case("C15")
def a_missing_topic(c):
    c.missing().consume().expect(404, error="topic not found")


@case("C16")
def a_poll_waits(c):
    topic = c.topic()
    asked = time.monotonic()
    topic.consume("?wait=200ms").expect(204)
    check(time.monotonic() - asked >= 0.15, "answered early")


def woken(topic, event):
    """The answer of a poll that waits while `event` happens."""
    def poll():
        return topic.consume("?wait=5s").expect(200, 204), time.monotonic()

    def later():
        topic.stats()  # a moment later than the poll, most times; either order is right
        event()
        return time.monotonic()

    (answer, ended), happened = in_parallel(poll, later)
    # A machine that was so slow that the poll was over before says nothing.
    check(answer.status == 200 or happened > ended - 1, "it slept through what it waited for")
    return answer if answer.status == 200 else topic.arrives()


@case("C17")
def a_poll_wakes_for_a_produce(c):
    topic = c.topic()
    woken(topic, lambda: topic.produce(query="?key=k").expect(202))


@case("C19")
def replay_changes_nothing(c):
    topic = c.topic()
    topic.put(partition=0)
    for _ in range(2):
        check("receipt_handle" not in topic.take("?partition=0&offset=0"), "a handle of a replay")
    got = topic.take()
    check(got["offset"] == 0 and got["receipt_handle"], "then the queue")


@case("C22")
def in_flight_has_its_cap(c):
    topic = c.topic(max_in_flight_per_partition=2)
    for _ in range(5):
        topic.put(key="k")
    first, second = topic.take(), topic.take()
    topic.consume().expect(204)
    topic.settle(first).expect(204)
    check(topic.take()["offset"] not in (first["offset"], second["offset"]), "a third offset")


@case("C24")
def polls_share(c):
    topic = c.topic()
    for _ in range(5):
        topic.put(partition=0)
    got = in_parallel(*[lambda: topic.take("?partition=0&wait=5s")] * 3)
    equal(len({m["offset"] for m in got}), 3, "different offsets")
    check(all(m["receipt_handle"] for m in got), "handles")


@case("C25")
def workers_take_each_message_once(c):
    topic = c.topic(4)
    for n in range(50):
        topic.produce(b"%d" % n).expect(202)
    wait_until(lambda: topic.visible() == 50, "all are visible")
    done = []

    def worker():
        while len(done) < 50:
            answer = topic.consume("?wait=200ms").expect(200, 204)
            if answer.status == 200:
                topic.settle(answer.json).expect(204)
                done.append((answer.json["partition"], answer.json["offset"]))

    in_parallel(*[worker] * 8)
    equal((len(done), len(set(done))), (50, 50), "each once")


@case("C26")
def a_lease_ends(c):
    topic = c.topic(visibility_timeout_ms=1000)
    topic.put(partition=0)
    first = topic.take()
    second = topic.take("?wait=5s")
    equal((first["partition"], first["offset"]), (second["partition"], second["offset"]), "the same message")
    check(first["receipt_handle"] != second["receipt_handle"], "another handle")


# --- every row of the table ---

@table("M2/400", [
    ("partition", "partition=abc", 'invalid partition: strconv.Atoi: parsing "abc": invalid syntax'),
    ("offset", "partition=0&offset=xyz", 'invalid offset: strconv.ParseInt: parsing "xyz": invalid syntax'),
    ("offset-negative", "partition=0&offset=-1", "invalid offset: must be >= 0"),
    ("wait", "wait=notaduration", 'invalid wait: time: invalid duration "notaduration"'),
    ("no-partition", "offset=0", "partition required for replay-mode consume"),
    ("range", "partition=3", "invalid argument: partition out of range"),
    ("range-negative", "partition=-1", "invalid argument: partition out of range"),
    ("range-huge", "partition=4294967296", "invalid argument: partition out of range"),
    ("range-replay", "partition=3&offset=0", "invalid argument: partition out of range"),
    ("partition-first", "partition=x&offset=y&wait=z", 'invalid partition: strconv.Atoi: parsing "x": invalid syntax'),
    ("offset-second", "partition=0&offset=y&wait=z", 'invalid offset: strconv.ParseInt: parsing "y": invalid syntax'),
])
def what_consume_refuses(c, query, text):
    c.topic(3).consume("?" + query).expect(400, error=text)


@table("M2/order", [("syntax", "partition=x", 400), ("offset", "offset=-1&partition=0", 400), ("wait", "wait=x", 400),
                    ("lonely-offset", "offset=0", 404), ("range", "partition=999", 404), ("negative", "partition=-1", 404)])
def syntax_before_the_topic_before_ranges(c, query, status):
    c.missing().consume("?" + query).expect(status, has="topic not found" if status == 404 else "")


@table("M2/no-wait", [("absent", ""), ("empty", "wait="), ("zero", "wait=0"), ("zero-s", "wait=0s"), ("negative", "wait=-5s"),
                      ("bad-escape", "wait=%ZZ")])
def an_answer_at_once(c, query):
    topic = c.topic()
    answer = topic.consume("?" + query).expect(204)
    equal(answer.header("X-Narad-Wait-Clamped"), None, "nothing was cut")


@table("M2/clamped", [("200", True), ("204", False)])
def a_wait_above_the_cap_is_cut_and_said(c, with_message):  # D14
    topic = c.topic()
    if with_message:
        topic.put()
    answer = topic.consume("?wait=1h").expect(200 if with_message else 204)
    equal(answer.header("X-Narad-Wait-Clamped"), "5s", "X-Narad-Wait-Clamped")
    equal(topic.consume("?wait=1ms").header("X-Narad-Wait-Clamped"), None, "not cut")


@case("M2/at-the-cap")
def a_wait_of_the_cap_is_not_cut(c):
    topic = c.topic()
    topic.put()
    equal(topic.arrives("?wait=5s").header("X-Narad-Wait-Clamped"), None, "not cut")


@case("M2/wakes-for-a-nack")
def a_poll_wakes_for_a_nack(c):
    topic = c.topic()
    topic.put()
    held = topic.take()
    woken(topic, lambda: topic.settle(held, "&extend=0").expect(204))


@case("M2/wakes-for-a-slot")
def a_poll_wakes_for_an_ack_that_frees_a_slot(c):
    topic = c.topic(max_in_flight_per_partition=1)
    topic.put(partition=0)
    topic.put(partition=0)
    held = topic.take()
    answer = woken(topic, lambda: topic.settle(held).expect(204))
    equal(answer.json["offset"], 1, "offset")


@case("M2/one-record-one-poll")
def a_record_wakes_one(c):
    topic = c.topic()

    def produce():
        topic.stats()
        topic.produce().expect(202)

    *polls, _ = in_parallel(*[lambda: topic.consume("?wait=1s").expect(200, 204)] * 3, produce)
    taken = sum(a.status == 200 for a in polls)
    check(taken <= 1, "one record was given out more than once")
    if taken == 0:  # they were over before
        topic.arrives()
    topic.consume().expect(204)


@case("M2/gone")
def a_client_that_leaves_takes_nothing_along(c):
    topic = c.topic()
    with c.api.open() as wire:
        wire.sendall(f"GET {topic.path}/consume?wait=5s HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        topic.stats()
    topic.put()
    topic.arrives("?wait=5s")


@case("M2/lowest-first")
def a_partition_gives_the_lowest_offset(c):
    topic = c.topic()
    for _ in range(3):
        topic.put(partition=1)
    first = topic.take("?partition=1")
    topic.settle(first, "&extend=0").expect(204)
    equal([topic.take("?partition=1&wait=5s")["offset"] for _ in range(3)], [0, 1, 2], "offsets")


@case("M2/all-partitions")
def every_partition_is_served(c):
    topic = c.topic(4)
    for partition in range(4):
        topic.put(partition=partition)
    equal(sorted(m["partition"] for m in topic.take_all()), [0, 1, 2, 3], "partitions")


@case("M2/nonce")
def handles_are_not_guessed(c):  # D26
    topic = c.topic()
    topic.put()
    nonces = []
    for _ in range(8):
        message = topic.take()
        nonces.append(int(message["receipt_handle"].split(":")[2]))
        topic.settle(message, "&extend=0").expect(204)
    check(len(set(nonces)) == 8 and all(0 < n < 1 << 63 for n in nonces), f"nonces {nonces}")
    check(max(nonces) - min(nonces) > 1 << 32, "they are no counter")


# --- replay ---

@table("M2/replay", [("behind-the-end", 1, 204), ("far-behind", 1 << 40, 204), ("largest", (1 << 63) - 1, 204)])
def replay_of_what_is_not_there(c, offset, status):
    topic = c.topic()
    topic.put(partition=0)
    topic.consume(f"?partition=0&offset={offset}&wait=5s").expect(status)


@case("M2/replay-settled")
def replay_reads_what_is_settled(c):
    topic = c.topic()
    topic.put(b"kept", partition=0)
    topic.settle(topic.take()).expect(204)
    got = topic.take("?partition=0&offset=0")
    equal((got["payload"], "receipt_handle" in got), ("kept", False), "the record")


@case("M2/replay-wait")
def replay_does_not_wait(c):
    c.topic().consume("?partition=0&offset=0&wait=1h").expect(204)


# --- batch consume ---

@case("Z05")
def a_batch(c):
    topic = c.topic()
    for _ in range(5):
        topic.put(partition=0)
    got = topic.consume("?max=3", headers=CLIENT).expect(200).json["messages"]
    check(1 <= len(got) <= 3 and all(m["receipt_handle"] for m in got), f"{got}")
    topic.consume("?max=3").expect(400, error="batch consume requires an X-Narad-Client header")
    topic.consume("?max=3&partition=0&offset=0", headers=CLIENT).expect(400)


@table("M2/batch-400", [("zero", "0"), ("negative", "-1"), ("101", "101"), ("word", "abc"), ("huge", "9" * 30)])
def sizes_that_are_none(c, value):
    c.topic().consume("?max=" + value, headers=CLIENT).expect(400, has="max")


@case("M2/batch-empty")
def a_batch_of_nothing(c):
    topic = c.topic()
    topic.consume("?max=10", headers=CLIENT).expect(204)
    topic.consume("?max=10&wait=20ms", headers=CLIENT).expect(204)
    topic.consume("?max=", headers=CLIENT).expect(204)


@case("M2/batch-of-one")
def one_is_a_batch_too(c):
    topic = c.topic()
    topic.put()
    equal(len(topic.consume("?max=1", headers=CLIENT).expect(200).json["messages"]), 1, "messages")


@case("M2/batch-missing")
def a_batch_of_a_missing_topic(c):
    c.missing().consume("?max=3", headers=CLIENT).expect(404, error="topic not found")


@case("M2/batch-whole")
def a_batch_takes_what_is_there(c):
    topic = c.topic()
    for n in range(100):
        topic.produce(b"%d" % n, "?partition=0").expect(202)
    wait_until(lambda: topic.visible() == 100, "all are visible")
    seen = []
    while len(seen) < 100:
        got = topic.arrives("?max=100&wait=5s", headers=CLIENT).json["messages"]
        check(1 <= len(got) <= 100, f"{len(got)} messages")
        seen += got
    equal([m["payload"] for m in seen], list(range(100)), "payloads")
    equal(len({m["receipt_handle"] for m in seen}), 100, "handles")
    for message in seen[:3]:
        topic.settle(message).expect(204)


@case("M2/batch-bytes")
def a_batch_stays_below_its_bytes(c):
    topic = c.topic()
    for _ in range(10):
        topic.produce(b"\x01" * (1 << 20), "?partition=0").expect(202)  # six bytes each when escaped
    wait_until(lambda: topic.visible() == 10, "all are visible")
    taken = 0
    while taken < 10:
        answer = topic.arrives("?max=100&wait=5s", headers=CLIENT)
        check(len(answer.body) <= 8 << 20, f"a body of {len(answer.body)} bytes")
        for message in answer.json["messages"]:
            topic.settle(message).expect(204)
            taken += 1


@case("M2/max-without-batch")
def max_is_read_as_leniently(c):
    topic = c.topic()
    topic.put()
    check("messages" not in topic.consume("?max=%ZZ").expect(200).json, "one message in the single form")
