"""Produce: section 5 M1, P01 to P18."""

from cases import case, check, equal, in_parallel, table, wait_until

MIB = 1 << 20


def fnv(key, partitions):
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 & 0xffffffff
    return value % partitions


@case("P01")
def a_message_is_taken_and_seen(c):
    topic = c.topic()
    answer = topic.produce(b'{"v":1}', "?key=k").expect(202)
    equal((answer.body, answer.header("Content-Type")), (b"", None), "the answer")
    wait_until(lambda: topic.visible() == 1, "the record is visible")


@case("P02")
def nothing_is_no_message(c):
    c.topic().produce(b"", "?key=k").expect(400, error="message required")


@case("P03")
def anything_is_a_message(c):
    topic = c.topic()
    for body in (b"[1,2,3]", b"hello", b'""', b"{not-json"):
        topic.produce(body).expect(202)


@case("P04")
def too_much_is_refused(c):
    c.topic().produce(b"x" * (MIB + 1024)).expect(413, error="request body too large")


@case("P06")
def a_topic_that_never_was(c):
    c.missing().produce().expect(404, error="topic not found")


@case("P08")
def an_unknown_name_is_ignored(c):
    c.topic().produce(query="?garbage=true").expect(202)


@case("P09")
def twice_is_once_too_often(c):
    topic = c.topic()
    topic.produce(query="?key=a&key=b").expect(400, error="duplicate key query parameter")
    topic.produce(query="?partition=1&partition=2").expect(400, error="duplicate partition query parameter")


@case("P10")
def partitions_that_are_none(c):
    topic = c.topic()
    for query in ("partition=", "partition", "partition=-1", "partition=bad", "partition=99999999999999999999"):
        topic.produce(query="?" + query).expect(400)


@case("P13")
def a_partition_behind_the_last(c):
    c.topic(3).produce(query="?partition=3").expect(400, has="partition out of range")


@case("P14")
def a_key_finds_its_partition(c):
    topic = c.topic(3)
    for key, partition in (("k", 0), ("customer-42", 1)):
        topic.put(key=key)
        equal(topic.take()["partition"], partition, f"partition of {key}")


@case("P16")
def a_key_keeps_its_partition(c):
    topic = c.topic(8)
    for _ in range(5):
        topic.put(key="stable-key")
    equal([(m["partition"], m["offset"]) for m in topic.take_all()], [(0, n) for n in range(5)], "places")


@case("P17")
def a_key_keeps_its_order(c):
    topic = c.topic(3)
    for n in range(100):
        topic.produce(b'{"n":%d}' % n, "?key=fixed-key").expect(202)
    wait_until(lambda: topic.visible() == 100, "all are visible")
    partition = fnv(b"fixed-key", 3)
    seen = []
    for _ in range(100):
        message = topic.take(f"?partition={partition}")
        seen.append(message["payload"]["n"])
        topic.settle(message).expect(204)
    equal(seen, list(range(100)), "the order")


@case("P18")
def many_writers(c):
    topic = c.topic(4)

    def writer():
        for _ in range(50):
            topic.produce().expect(202)

    in_parallel(*[writer] * 10)
    wait_until(lambda: topic.visible() == 500, "all are visible")


# --- every row of the table ---

@table("M1/order", [
    ("query-before-size", "?partition=x", b"x" * (MIB + 1), 400), ("size-before-topic", "", b"x" * (MIB + 1), 413),
    ("empty-before-topic", "", b"", 400), ("query-before-empty", "?key=%ZZ", b"", 400), ("topic", "?partition=999", b"x", 404),
])
def what_is_judged_first(c, query, body, status):
    c.missing().produce(body, query).expect(status, has="topic not found" if status == 404 else "")


@table("M1/range", [("three", "3"), ("large", "4294967296"), ("largest", "9223372036854775807")])
def partitions_out_of_range(c, partition):
    c.topic(3).produce(query="?partition=" + partition).expect(400, error="invalid argument: partition out of range")


@table("M1/fnv", [("k-3", "k", 3, 0), ("k1-3", "k1", 3, 0), ("k1-4", "k1", 4, 1), ("k2-3", "k2", 3, 0), ("k2-4", "k2", 4, 0),
                  ("customer-3", "customer-42", 3, 1), ("umlaut-7", "\u00fc", 7, fnv("\u00fc".encode(), 7)),
                  ("long-11", "x" * 300, 11, fnv(b"x" * 300, 11)), ("blank-5", " ", 5, fnv(b" ", 5))])
def the_hash_of_a_key_is_known(c, key, partitions, partition):
    topic = c.topic(partitions)
    topic.put(key=key)
    equal(topic.take()["partition"], partition, "partition")


@case("M1/partition-wins")
def a_pinned_message_keeps_its_key(c):
    topic = c.topic(3)
    topic.put(key="k", partition=2)
    message = topic.take()
    equal((message["partition"], message["key"]), (2, "k"), "where it went")


@case("M1/no-key")
def messages_without_a_key_spread(c):  # D9
    topic = c.topic(3)
    for _ in range(30):
        topic.produce(b"1", "?key=").expect(202)
    wait_until(lambda: topic.visible() == 30, "all are visible")
    check(all(p["high_watermark"] > 0 for p in topic.stats()), "every partition got some")
    check(all("key" not in m for m in topic.take_all()), "no key is invented")


@case("M1/exactly-the-cap")
def a_message_of_exactly_a_mebibyte(c):
    topic = c.topic()
    topic.produce(b"x" * MIB).expect(202)
    topic.produce([b"x" * 65536] * 16, chunked=True).expect(202)
    equal([len(topic.take()["payload"]) for _ in range(2)], [MIB, MIB], "sizes")


@case("M1/old-envelope")
def an_old_envelope_is_stored_whole(c):
    topic = c.topic()
    topic.produce(b'{"key":"k","message":"m"}').expect(202)
    message = topic.take()
    equal((message["payload"], message.get("key")), ({"key": "k", "message": "m"}, None), "message")


@case("M1/empty-chunked")
def a_chunked_body_of_nothing_is_no_message(c):
    c.topic().produce([], chunked=True).expect(400, error="message required")


@case("M1/key-too-long")
def a_key_above_8_kib_is_refused(c):
    topic = c.topic()
    topic.produce(query="?key=" + "k" * 8192).expect(202)
    topic.produce(query="?key=" + "k" * 8193).expect(400, has="key")
