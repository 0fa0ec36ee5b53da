"""Ack, extend, nack, batch ack: section 5 M3, K01 to K19, Z06."""

import time

from cases import case, check, equal, in_parallel, quote, table, wait_until

STALE = "receipt handle no longer matches an active reservation"


def one(c, **members):
    """A topic with one message in partition 0, taken."""
    topic = c.topic(**members)
    topic.put(partition=0)
    return topic, topic.take()


def after(start, seconds):
    """Wait until that long after `start`, on the clock of whoever measures leases."""
    wait_until(lambda: time.monotonic() >= start + seconds, "time passes")


@case("K01")
def an_ack(c):
    topic, message = one(c)
    sent = f"POST {topic.path}/ack?receipt_handle={quote(message['receipt_handle'])} HTTP/1.1\r\nHost: x\r\n\r\n"
    c.api.raw(sent.encode())[0].expect(204)
    topic.consume().expect(204)


@case("K02")
def an_ack_counts_once(c):
    topic, message = one(c)
    topic.settle(message).expect(204)
    topic.settle(message).expect(410, has="no longer matches")


@case("K03")
def no_handle(c):
    topic = c.topic()
    for query in ("", "?receipt_handle="):
        c.api.post(f"{topic.path}/ack{query}").expect(400, error="receipt_handle required")


@case("K04")
def no_such_form(c):
    c.topic().settle("not-a-handle").expect(400, error="receipt handle is malformed")


@case("K07")
def a_handle_belongs_to_its_topic(c):
    _, message = one(c)
    other, _ = one(c)
    other.settle(message).expect(410)


@case("K09")
def a_topic_that_is_gone(c):
    topic, message = one(c)
    c.api.delete(topic.path).expect(204)
    topic.settle(message).expect(404)


@case("K10")
def an_unknown_name_is_ignored(c):
    topic, message = one(c)
    c.api.post(f"{topic.path}/ack?ignored=true&receipt_handle={quote(message['receipt_handle'])}").expect(204)


@case("K12")
def extend_restarts_the_lease(c):
    # A lease is never over early, so what is late here makes the case say nothing, not something wrong.
    topic, message = one(c, visibility_timeout_ms=3000)
    taken = time.monotonic()
    after(taken, 1.5)
    answer = topic.settle(message, "&extend=true")
    extended = time.monotonic()
    if answer.status == 410 and extended - taken >= 3:
        return  # the machine was too slow to be in time
    answer.expect(204)
    after(taken, 3.6)
    answer = topic.consume()
    if time.monotonic() - extended < 2.9:
        answer.expect(204)
        topic.settle(message).expect(204) if time.monotonic() - extended < 2.5 else None


@case("K13")
def extend_never_revives(c):
    topic, message = one(c, visibility_timeout_ms=1000)
    taken = time.monotonic()
    after(taken, 1.2)
    topic.settle(message, "&extend=true").expect(410)


@case("K14")
def nack_gives_it_back(c):
    topic, message = one(c)
    topic.settle(message, "&extend=0").expect(204)
    again = topic.take("?wait=2s")
    equal((again["partition"], again["offset"]), (message["partition"], message["offset"]), "the same message")
    check(again["receipt_handle"] != message["receipt_handle"], "another handle")
    topic.settle(message).expect(410)
    topic.settle(again).expect(204)


@case("K15")
def values_of_extend_that_are_none(c):
    topic, message = one(c)
    for value in ("later", "TRUE", "2"):
        topic.settle(message, "&extend=" + value).expect(400, has="invalid extend")
    topic.settle(message).expect(204)


@case("K18")
def acks_in_any_order(c):
    topic = c.topic()
    for _ in range(3):
        topic.put(partition=0)
    taken = [topic.take() for _ in range(3)]
    for n in (1, 2, 0):
        topic.settle(taken[n]).expect(204)
    topic.consume().expect(204)
    equal(topic.stats()[0]["next_offset"], 3, "next_offset")


@case("K19")
def a_hole_holds_deliveries_back_and_no_ack(c):  # D28
    topic = c.topic(max_acked_ahead_per_partition=2)
    for _ in range(5):
        topic.put(partition=0)
    taken = [topic.take() for _ in range(4)]
    for n in (1, 2, 3):
        topic.settle(taken[n]).expect(204)
    topic.consume().expect(204)
    topic.settle(taken[0]).expect(204)
    equal(topic.take("?wait=5s")["offset"], 4, "the next")


# --- every row of the table ---

@table("M3/204", [("ack", ""), ("false", "&extend=false"), ("empty", "&extend="), ("extend", "&extend=true"),
                  ("extend-1", "&extend=1"), ("nack", "&extend=0")])
def what_may_be_asked(c, more):
    topic, message = one(c)
    topic.settle(message, more).expect(204)
    settled = more in ("", "&extend=false", "&extend=")
    topic.settle(message).expect(410 if settled or more == "&extend=0" else 204)
    topic.consume().expect(200 if more == "&extend=0" else 204)


@table("M3/410", [("settled", ""), ("nacked", "&extend=0")])
def a_lease_that_is_over(c, more):
    for again in ("", "&extend=true", "&extend=0"):
        topic, message = one(c)
        topic.settle(message, more).expect(204)
        topic.settle(message, again).expect(410, error=STALE)


@case("M3/410/expired")
def a_lease_that_ran_out(c):
    topic, message = one(c, visibility_timeout_ms=1)
    again = topic.take("?wait=5s")
    check(again["receipt_handle"] != message["receipt_handle"], "delivered again")
    topic.settle(message).expect(410, error=STALE)


@case("M3/410/other-nonce")
def a_nonce_that_was_never_given(c):
    topic, message = one(c)
    partition, offset, nonce = message["receipt_handle"].split(":")
    topic.settle(f"{partition}:{offset}:{int(nonce) ^ 1 or 2}").expect(410, error=STALE)
    topic.settle(message).expect(204)


@case("M3/zeros")
def zeros_in_front_do_not_matter(c):
    topic, message = one(c)
    topic.settle("0" + ":00".join(message["receipt_handle"].split(":"))).expect(204)


@table("M3/body", [("text", b"hello"), ("json", b'{"receipt_handles":["bad"]}'), ("large", b"x" * 300000),
                   ("not-json", b"{")])
def a_body_beside_a_handle_does_not_matter(c, body):
    topic, message = one(c)
    c.api.post(f"{topic.path}/ack?receipt_handle={quote(message['receipt_handle'])}", body).expect(204)


@table("M3/order", [("handle-first", "", 400), ("extend", "?receipt_handle=0:0:1&extend=x", 400),
                    ("decode", "?receipt_handle=x", 400), ("topic", "?receipt_handle=0:0:1", 404),
                    ("partition", "?receipt_handle=99:0:1", 404), ("escape", "?receipt_handle=%ZZ", 400)])
def syntax_before_the_topic_before_the_lease(c, query, status):
    c.api.post(f"{c.missing().path}/ack{query}").expect(status, has="topic not found" if status == 404 else "")


@case("M3/race")
def acks_of_one_handle_at_the_same_time(c):
    topic, message = one(c)
    # Those that are on their way together share the outcome of the first; what comes later is late.
    answers = in_parallel(*[lambda: topic.settle(message).expect(204, 410)] * 4)
    check(any(a.status == 204 for a in answers), "none counted")
    topic.settle(message).expect(410)


# --- batch ack ---

@case("Z06")
def a_batch(c):
    topic, message = one(c)
    got = c.api.post(f"{topic.path}/ack", {"receipt_handles": [message["receipt_handle"], "bad", "0:0:1"]}).expect(200).json
    equal([r["status"] for r in got["results"]], [204, 400, 410], "statuses")
    equal(got["results"][0], {"status": 204}, "no error of what succeeded")
    equal([r["error"] for r in got["results"][1:]], ["receipt handle is malformed", STALE], "errors")


@table("M3/batch", [("extend", "?extend=true", 204), ("nack", "?extend=0", 410), ("ack", "?extend=false", 410),
                    ("plain", "", 410)])
def extend_holds_for_all(c, query, then):
    topic = c.topic()
    for _ in range(3):
        topic.put(partition=0)
    handles = [topic.take()["receipt_handle"] for _ in range(3)]
    got = c.api.post(f"{topic.path}/ack{query}", {"receipt_handles": handles}).expect(200).json
    equal(got, {"results": [{"status": 204}] * 3}, "results")
    topic.settle(handles[0]).expect(then)


@case("M3/batch/100")
def a_hundred_at_a_time(c):
    topic = c.topic()
    for _ in range(100):
        topic.produce(query="?partition=0").expect(202)
    handles = [topic.take()["receipt_handle"] for _ in range(100)]
    got = c.api.post(f"{topic.path}/ack", {"receipt_handles": handles}).expect(200).json
    equal(got, {"results": [{"status": 204}] * 100}, "results")
    topic.consume().expect(204)


@case("M3/batch/twice-in-one")
def the_same_handle_twice(c):
    topic, message = one(c)
    got = c.api.post(f"{topic.path}/ack", {"receipt_handles": [message["receipt_handle"]] * 2}).expect(200).json
    check([r["status"] for r in got["results"]] in ([204, 410], [204, 204]), f"{got}")
    topic.settle(message).expect(410)


@table("M3/batch-400", [
    ("empty", {"receipt_handles": []}, "receipt_handles required"), ("nothing", {}, "receipt_handles required"),
    ("null", {"receipt_handles": None}, "receipt_handles required"),
    ("101", {"receipt_handles": ["0:0:1"] * 101}, "too many receipt_handles: more than 100 (max 100)"),
])
def lists_that_are_refused(c, body, text):
    c.api.post(f"{c.topic().path}/ack", body).expect(400, error=text)


@case("M3/batch/bad-extend")
def extend_is_judged_of_a_batch_too(c):
    c.api.post(f"{c.topic().path}/ack?extend=later", {"receipt_handles": ["0:0:1"]}).expect(400, has="invalid extend")


@case("M3/batch/missing")
def a_batch_of_a_missing_topic(c):
    c.api.post(f"{c.missing().path}/ack", {"receipt_handles": ["0:0:1"]}).expect(404, error="topic not found")


@case("M3/batch/bad-json")
def a_batch_that_is_no_json(c):
    c.api.post(f"{c.topic().path}/ack", b"{not json}").expect(400, has="invalid json")
