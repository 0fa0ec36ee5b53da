"""Query strings: the three parsers, integers, durations (section 1.6), receipt handles (3.5)."""

from cases import check, equal, table

# Accepted spellings and what they are.
INTEGERS = [("plain", "1", 1), ("plus", "%2B1", 1), ("zeros", "0001", 1), ("minus-zero", "-0", 0),
            ("plus-zero", "%2B0", 0), ("encoded", "%31", 1)]
# name, as sent, as the text quotes it, what is wrong with it
NO_INTEGERS = [
    ("word", "abc", "abc", "invalid syntax"), ("blank-before", "+1", " 1", "invalid syntax"),
    ("blank-behind", "1%20", "1 ", "invalid syntax"), ("underscore", "1_0", "1_0", "invalid syntax"),
    ("hex", "0x1", "0x1", "invalid syntax"), ("fraction", "1.0", "1.0", "invalid syntax"),
    ("exponent", "1e1", "1e1", "invalid syntax"), ("sign-alone", "-", "-", "invalid syntax"),
    ("two-signs", "%2B-1", "+-1", "invalid syntax"), ("comma", "1,0", "1,0", "invalid syntax"),
    ("wide-digit", "%EF%BC%91", "\uff11", "invalid syntax"),
    ("large", "9223372036854775808", "9223372036854775808", "value out of range"),
    ("larger", "99999999999999999999", "99999999999999999999", "value out of range"),
    ("small", "-9223372036854775809", "-9223372036854775809", "value out of range"),
]


@table("1.6/integer", INTEGERS)
def integers_that_are_some(c, text, value):
    topic = c.topic()
    topic.produce(b"x", f"?partition={text}").expect(202)
    equal(topic.take(f"?wait=5s&partition={text}")["partition"], value, "partition")
    equal(c.api.get(f"{topic.path}?partition={text}").expect(200).json["partition_stats"][0]["index"], value, "index")
    topic.consume(f"?partition=0&offset={text}").expect(200, 204)


@table("1.6/no-integer", NO_INTEGERS)
def integers_that_are_none(c, sent, told, why):
    topic, missing = c.topic(), c.missing()
    text = f'strconv.Atoi: parsing "{told}": {why}'
    topic.produce(b"x", f"?partition={sent}").expect(400, error="invalid partition: " + text)
    topic.consume(f"?partition={sent}").expect(400, error="invalid partition: " + text)
    missing.consume(f"?partition={sent}").expect(400, error="invalid partition: " + text)
    text = f'strconv.ParseInt: parsing "{told}": {why}'
    topic.consume(f"?partition=0&offset={sent}").expect(400, error="invalid offset: " + text)
    c.api.get(f"{topic.path}?partition={sent}").expect(400, error="invalid partition")
    c.api.get(f"/v1/topics?limit={sent}").expect(400, error="limit must be a positive integer")
    topic.consume(f"?max={sent}", headers={"X-Narad-Client": "t"}).expect(400)


DURATIONS = ["0", "%2B0", "-0", "1ms", "1.5s", ".5s", "1.s", "1ns", "1us", "1%C2%B5s", "1%CE%BCs", "1ms500us",
             "1h30m", "-1h", "%2B1ms", "0.000000001h", "2562047h47m16.854775807s", "0h", "00001ms"]
NO_DURATIONS = [
    ("word", "notaduration", 'time: invalid duration "notaduration"'),
    ("number", "10", 'time: missing unit in duration "10"'),
    ("fraction-alone", "1.5", 'time: missing unit in duration "1.5"'),
    ("zeros", "00", 'time: missing unit in duration "00"'),
    ("unit", "10x", 'time: unknown unit "x" in duration "10x"'),
    ("day", "1d", 'time: unknown unit "d" in duration "1d"'),
    ("upper-case", "1S", 'time: unknown unit "S" in duration "1S"'),
    ("no-number", "s", 'time: invalid duration "s"'),
    ("point", ".s", 'time: invalid duration ".s"'),
    ("sign", "-", 'time: invalid duration "-"'),
    ("two-signs", "--1s", 'time: invalid duration "--1s"'),
    ("sign-inside", "1h-1m", 'time: unknown unit "h-" in duration "1h-1m"'),
    ("blank-inside", "1%20s", 'time: unknown unit " s" in duration "1 s"'),
    ("blank-before", "+1s", 'time: invalid duration " 1s"'),
    ("blank-behind", "1s+", 'time: unknown unit "s " in duration "1s "'),
    ("overflow", "2562048h", 'time: invalid duration "2562048h"'),
    ("long", "99999999999999999999s", 'time: invalid duration "99999999999999999999s"'),
    ("exponent", "1e3s", 'time: unknown unit "e" in duration "1e3s"'),
]


@table("1.6/duration", [(text, text) for text in DURATIONS])
def durations_that_are_some(c, text):
    # The syntax is judged before the topic is looked for.
    c.missing().consume(f"?wait={text}").expect(404, error="topic not found")


@table("1.6/no-duration", NO_DURATIONS)
def durations_that_are_none(c, text, why):
    c.missing().consume(f"?wait={text}").expect(400, error="invalid wait: " + why)


# --- lenient: consume, list, get ---

# Of a topic with partitions 0..2 and one record in partition 1.
LENIENT = [
    ("bad-escape-in-a-value", "partition=%ZZ", 200), ("bad-escape-in-a-name", "%ZZ=1&partition=0", 204),
    ("half-an-escape", "partition=0%", 200), ("short-escape", "partition=%1", 200),
    ("semicolon", "partition=0;x", 200), ("semicolon-in-a-name", "a;partition=0", 200),
    ("bad-one-then-good", "partition=%ZZ&partition=0", 204),
    ("first-wins", "partition=0&partition=1", 204), ("first-wins-even-if-bad", "partition=99&partition=1", 400),
    ("empty", "partition=", 200), ("empty-then-value", "partition=&partition=0", 200),
    ("no-equals", "partition", 200), ("unknown", "garbage=1&partition=0", 204), ("only-unknown", "garbage", 200),
    ("encoded-name", "p%61rtition=0", 204), ("other-case", "Partition=0", 200),
    ("empty-pairs", "&&partition=0&&", 204), ("only-pairs", "&&&", 200), ("nothing", "", 200),
    ("no-value-for-no-name", "=0", 200), ("equals-in-a-value", "partition=0=0", 400),
    ("plus-is-a-blank", "partition=+0", 400), ("plus-in-a-name", "part+ition=0", 200),
    ("question-mark", "?partition=0", 200), ("empty-offset", "partition=0&offset=", 204),
    ("empty-wait", "partition=0&wait=", 204), ("local-only", "local_only=1", 200),
]


@table("1.6/lenient/consume", LENIENT)
def consume_forgives(c, query, status):
    topic = c.topic()
    topic.put(partition=1)
    topic.consume("?" + query).expect(status)


@table("1.6/lenient/get", [
    ("bad-escape", "partition=%ZZ", 3), ("semicolon", "partition=1;", 3), ("first-wins", "partition=1&partition=x", 1),
    ("empty", "partition=", 3), ("unknown", "x=y", 3), ("encoded-name", "%70artition=2", 1),
    ("other-case", "PARTITION=1", 3), ("empty-pairs", "&&partition=2", 1),
])
def get_forgives(c, query, count):
    topic = c.topic()
    equal(len(c.api.get(f"{topic.path}?{query}").expect(200).json["partition_stats"]), count, "partitions shown")


@table("1.6/lenient/list", [
    ("bad-escape", "limit=%ZZ", 200), ("semicolon", "limit=0;", 200), ("first-wins", "limit=1&limit=0", 200),
    ("first-is-bad", "limit=0&limit=1", 400), ("empty", "limit=", 200), ("unknown", "x", 200),
    ("encoded-name", "l%69mit=0", 400), ("other-case", "Limit=0", 200), ("empty-pairs", "&&limit=0", 400),
    ("plus", "limit=+5", 400), ("encoded-plus", "limit=%2B5", 200),
])
def list_forgives(c, query, status):
    c.api.get(f"/v1/topics?{query}").expect(status)


@table("1.6/lenient/page-token", [("plus", "~+b"), ("percent", "~%20b")])
def a_page_token_is_decoded(c, token):
    equal(c.api.get(f"/v1/topics?page_token={token}").expect(200).json["topics"], [], "topics behind ~")


# --- produce ---

PRODUCE_BAD = [
    ("escape-in-a-name", "%ZZ=1", 'invalid query parameter: invalid URL escape "%ZZ"'),
    ("escape-in-a-name-alone", "a%2", 'invalid query parameter: invalid URL escape "%2"'),
    ("escape-in-a-key", "key=%ZZ", 'invalid key: invalid URL escape "%ZZ"'),
    ("half-an-escape", "key=a%", 'invalid key: invalid URL escape "%"'),
    ("escape-in-a-partition", "partition=%ZZ", 'invalid partition: invalid URL escape "%ZZ"'),
    ("key-twice", "key=a&key=b", "duplicate key query parameter"),
    ("key-twice-the-same", "key=a&key=a", "duplicate key query parameter"),
    ("key-twice-empty", "key=&key=", "duplicate key query parameter"),
    ("key-twice-encoded", "key=a&k%65y=b", "duplicate key query parameter"),
    ("partition-twice", "partition=1&partition=2", "duplicate partition query parameter"),
    ("partition-empty", "partition=", "invalid partition: empty"),
    ("partition-alone", "partition", "invalid partition: empty"),
    ("partition-negative", "partition=-1", "invalid partition: must be >= 0"),
    ("partition-word", "partition=bad", 'invalid partition: strconv.Atoi: parsing "bad": invalid syntax'),
    ("partition-plus", "partition=+1", 'invalid partition: strconv.Atoi: parsing " 1": invalid syntax'),
]


@table("1.6/produce/bad", PRODUCE_BAD)
def produce_forgives_little(c, query, text):
    topic, missing = c.topic(), c.missing()
    topic.produce(b"x", "?" + query).expect(400, error=text)
    missing.produce(b"x", "?" + query).expect(400, error=text)  # before the topic is looked for
    missing.produce(b"", "?" + query).expect(400, error=text)  # and before the body
    equal(topic.visible(), 0, "records")


# query, the key that consumers see (None: none), the partition if it is certain
PRODUCE_GOOD = [
    ("plain", "key=k", "k", 0), ("plus", "key=a+b", "a b", None), ("encoded-plus", "key=a%2Bb", "a+b", None),
    ("encoded-name", "k%65y=k", "k", 0), ("empty-key", "key=", None, None), ("key-alone", "key", None, None),
    ("empty-pairs", "&&key=k&&", "k", 0), ("unknown", "garbage=true&key=k", "k", 0),
    ("bad-value-of-unknown", "garbage=1&key=k", "k", 0), ("other-case", "KEY=x", None, None),
    ("equals", "key=a=b", "a=b", None), ("ampersand", "key=a%26b", "a&b", None),
    ("partition-wins", "key=k&partition=2", "k", 2), ("encoded-partition", "partition=%31", None, 1),
    ("unicode", "key=%C3%BC%F0%9F%90%9F", "\u00fc\U0001f41f", None), ("slash", "key=a/b?c", "a/b?c", None),
]


@table("1.6/produce/good", PRODUCE_GOOD)
def produce_takes_keys(c, query, key, partition):
    topic = c.topic()
    topic.produce(b"x", "?" + query).expect(202)
    message = topic.take()
    equal(message.get("key"), key, "key")
    check(partition is None or message["partition"] == partition, f"partition {message['partition']}")


# --- ack ---

REQUIRED, MALFORMED = "receipt_handle required", "receipt handle is malformed"
EXTEND = 'invalid extend: want "true" (renew lease) or "0" (release for redelivery)'
ESCAPE = 'invalid receipt_handle: invalid URL escape "%ZZ"'
STALE = "receipt handle no longer matches an active reservation"
GOOD = "receipt_handle=0:0:1"

ACK = [
    ("nothing", "", 400, REQUIRED), ("empty", "receipt_handle=", 400, REQUIRED),
    ("alone", "receipt_handle", 400, REQUIRED), ("other-case", "Receipt_Handle=0:0:1", 400, REQUIRED),
    ("escape-in-a-name", f"%ZZ=1&{GOOD}", 400, ESCAPE), ("escape-in-the-handle", "receipt_handle=%ZZ", 400, ESCAPE),
    ("escape-in-extend", f"{GOOD}&extend=%ZZ", 400, EXTEND),
    ("first-handle-wins", f"{GOOD}&receipt_handle=bad", 410, STALE),
    ("first-handle-wins-even-if-bad", f"receipt_handle=bad&{GOOD}", 400, MALFORMED),
    ("first-extend-wins", f"{GOOD}&extend=true&extend=bad", 410, STALE),
    ("first-extend-wins-even-if-bad", f"{GOOD}&extend=bad&extend=true", 400, EXTEND),
    ("empty-extend", f"{GOOD}&extend=", 410, STALE), ("extend-alone", f"{GOOD}&extend", 410, STALE),
    ("false", f"{GOOD}&extend=false", 410, STALE), ("true", f"{GOOD}&extend=true", 410, STALE),
    ("one", f"{GOOD}&extend=1", 410, STALE), ("zero", f"{GOOD}&extend=0", 410, STALE),
    ("upper-case", f"{GOOD}&extend=TRUE", 400, EXTEND), ("two", f"{GOOD}&extend=2", 400, EXTEND),
    ("later", f"{GOOD}&extend=later", 400, EXTEND), ("False", f"{GOOD}&extend=False", 400, EXTEND),
    ("zeros", f"{GOOD}&extend=00", 400, EXTEND), ("other-case-extend", f"{GOOD}&Extend=bad", 410, STALE),
    ("unknown", f"ignored=true&{GOOD}", 410, STALE), ("empty-pairs", f"&&{GOOD}&&", 410, STALE),
    ("encoded-name", "receipt%5Fhandle=0%3A0%3A1", 410, STALE), ("encoded", "receipt_handle=0%3a0%3a1", 410, STALE),
    ("handle-before-extend", "receipt_handle=&extend=bad", 400, REQUIRED),
    ("extend-before-decoding", "receipt_handle=bad&extend=bad", 400, EXTEND),
]


@table("1.6/ack", ACK)
def ack_has_its_own_parser(c, query, status, text):
    topic = c.topic()
    topic.api.post(f"{topic.path}/ack?{query}").expect(status, has=text)


# --- 3.5: handles ---

HANDLES = [
    ("word", "not-a-handle", 400), ("two-parts", "0:0", 400), ("four-parts", "0:0:1:1", 400), ("colons", "::", 400),
    ("no-nonce", "0:0:", 400), ("nonce-0", "0:0:0", 400), ("minus", "-1:0:1", 400), ("plus", "%2B0:0:1", 400),
    ("blank", "0:0:+1", 400), ("blank-behind", "0:0:1%20", 400), ("line-end", "0:0:1%0A", 400), ("nul", "0:0:1%00", 400),
    ("hex", "0x0:0:1", 400), ("huge-partition", "99999999999999999999:0:1", 400),
    ("offset-too-large", "0:9223372036854775808:1", 400), ("nonce-too-large", "0:0:9223372036854775808", 400),
    ("wide-digits", "%EF%BC%90:0:1", 400), ("long", "0" * 5000 + "x:0:1", 400),
    ("zeros-in-front", "000:0000:00001", 410), ("largest-offset", "0:9223372036854775807:1", 410),
    ("largest-nonce", "0:0:9223372036854775807", 410), ("no-such-partition", "99:0:1", 410),
]


@table("3.5", HANDLES)
def handles_are_judged_before_they_are_looked_up(c, handle, status):
    topic, missing = c.topic(), c.missing()
    for more in ("", "&extend=true", "&extend=0"):
        topic.api.post(f"{topic.path}/ack?receipt_handle={handle}{more}").expect(
            status, has=MALFORMED if status == 400 else STALE)
    missing.api.post(f"{missing.path}/ack?receipt_handle={handle}").expect(400 if status == 400 else 404)
