"""Payloads come back as they went in, on every way out and in (section 3.4), and so do keys."""

import base64
import json

from cases import case, check, equal, quote, table

# Rule 1: one JSON value. These bytes stand in the answer as they are.
AS_JSON = [
    ("object", b'{"a":1}'), ("point-zero", b'{"a":1.0}'), ("exponent", b'{"a":1E+2,"b":1e-7,"c":0e0}'),
    ("many-digits", b"3." + b"1415926535" * 40), ("large", b"1" * 500), ("large-exponent", b"1e99999"),
    ("minus-zero", b"[-0,-0.0]"), ("int64", b"[9223372036854775807,-9223372036854775808,18446744073709551616]"),
    ("duplicates", b'{"a":1,"a":2,"A":3}'), ("order", b'{"z":1,"a":2,"m":3}'), ("empty-name", b'{"":{}}'),
    ("blanks", b' {\t"a" :\r\n [ 1 , 2 ] }\n'), ("line-ends", b"\n\n[1]\n\n"), ("string", b'"x"'),
    ("empty-string", b'""'), ("escapes", b'"\\u0041\\n\\/\\"\\\\\\ud83d\\ude00"'), ("half-a-pair", b'"\\ud800"'),
    ("escaped-nul", b'{"\\u0000":"\\u0000"}'), ("html", b'{"a":"<b>&amp;</b>"}'),
    ("line-separators", '"\u2028\u2029"'.encode()), ("unicode", '{"\u00fc":"\U0001f41f"}'.encode()),
    ("del", b'"\x7f"'), ("non-character", '"\uffff"'.encode()), ("replacement", '"\ufffd"'.encode()),
    ("null", b"null"), ("true", b"true"), ("false", b" false"), ("zero", b"0"), ("empty", b"[]"), ("nested", b"[[[{}]]]"),
    ("deep-9999", b"[" * 9999 + b"]" * 9999), ("deep-10000", b"[" * 10000 + b"]" * 10000),
    ("deep-objects", b'{"a":' * 5000 + b"1" + b"}" * 5000), ("looks-like-an-answer", b'{"payload_encoding":"base64"}'),
]
# Rule 2: text. The JSON string decodes to these bytes.
AS_TEXT = [
    ("word", b"hello world"), ("blank", b" "), ("line-ends", b'line1\nline2\t"q"'), ("nul", b"a\x00b"),
    ("controls", bytes(range(1, 32))), ("delete", b"\x7f"), ("html", b"<script>&</script>"),
    ("line-separators", "\u2028\u2029".encode()), ("unicode", "\u00fc\U0001f41f\uffff".encode()),
    ("backslash", b"\\u0041\\"), ("half-json", b"{not-json"), ("single-quotes", b"{'a':1}"), ("two-values", b"1 2"),
    ("comma-behind", b"[1,]"), ("zero-in-front", b"01"), ("plus", b"+1"), ("point-behind", b"1."), ("NaN", b"NaN"),
    ("upper-case", b"TRUE"), ("control-in-a-string", b'"\x01"'), ("line-end-in-a-string", b'"\n"'),
    ("bad-escape", b'"\\x"'), ("short-escape", b'"\\u12"'), ("open-string", b'"abc'), ("open-array", b"[1"),
    ("open-object", b'{"a"'), ("nul-behind", b"1\x00"), ("byte-order-mark", b"\xef\xbb\xbf{}"), ("vertical-tab", b"\x0b1"),
    ("no-break-space", "\u00a01".encode()), ("deep-10001", b"[" * 10001 + b"]" * 10001),
    ("deep-objects-10001", b'{"a":' * 10001 + b"1" + b"}" * 10001), ("very-deep", b"[" * 300000), ("comment", b"// x"),
    ("hex", b"0x10"), ("minus", b"-"), ("surrogates-as-text", b"\\ud800"),
]
# Rule 3: what is no UTF-8, inside JSON or not.
AS_BYTES = [
    ("binary", b"\x00\xff\x8a\x01"), ("one", b"\xff"), ("two", b"\xff\xfe"), ("three", b"\xff\xfe\xfd"),
    ("cut", b"caf\xc3"), ("overlong", b"\xc0\xaf"), ("overlong-nul", b"\xc0\x80"), ("surrogate", b"\xed\xa0\x80"),
    ("above-the-last", b"\xf4\x90\x80\x80"), ("five-bytes", b"\xf8\x88\x80\x80\x80"), ("continuation", b"\x80"),
    ("inside-json", b'{"a":"\xff"}'), ("json-name", b'{"\xc3\x28":1}'), ("json-behind", b"{}\xff"),
    ("latin-1", "gr\u00fcn".encode("latin-1")), ("all", bytes(range(256))), ("megabyte", bytes(range(256)) * 4096),
]


def pieces(answer):
    """The bytes of the answer behind `"payload":`."""
    return answer.body.split(b'"payload":', 1)[1]


def check_json(answer, raw):
    got = pieces(answer)
    check(got.startswith(raw) and got[len(raw):len(raw) + 1] in b",}", f"{answer.body[:300]!r} lacks the bytes {raw[:80]!r}")
    check(b'"payload_encoding"' not in got[len(raw):], "an encoding of JSON")


def check_text(answer, raw):
    message = only(answer)
    check("payload_encoding" not in message, "an encoding of text")
    equal(message["payload"].encode("utf-8", "surrogatepass"), raw, "the text")


def check_bytes(answer, raw):
    message = only(answer)
    equal(message.get("payload_encoding"), "base64", "payload_encoding")
    equal(message["payload"], base64.b64encode(raw).decode(), "the base64")


def only(answer):
    value = answer.json
    return value["messages"][0] if "messages" in value else value


def every_way_out(c, topic, judge, raw):
    """Consume, batch consume and replay of partition 0, whose one record is `raw`."""
    judge(topic.consume("?partition=0&offset=0").expect(200), raw)
    answer = topic.arrives("?partition=0&wait=5s")
    judge(answer, raw)
    handle = answer.body.rsplit(b'"receipt_handle":"', 1)[1].split(b'"')[0].decode()
    topic.settle(handle, "&extend=0").expect(204)
    judge(topic.arrives("?partition=0&wait=5s&max=2", headers={"X-Narad-Client": "t"}), raw)


def produced_singly(c, raw):
    topic = c.topic()
    topic.produce(raw, "?partition=0").expect(202)
    return topic


def produced_in_a_batch(c, member):
    topic = c.topic()
    body = b'{"messages":[{"partition":0,' + member + b"}]}"
    c.api.post(f"{topic.path}/produce/batch", body).expect(202)
    return topic


@table("3.4/json", AS_JSON)
def json_is_verbatim(c, raw):
    every_way_out(c, produced_singly(c, raw), check_json, raw)


@table("3.4/text", AS_TEXT)
def text_is_a_string(c, raw):
    every_way_out(c, produced_singly(c, raw), check_text, raw)


@table("3.4/bytes", AS_BYTES)
def bytes_are_base64(c, raw):
    every_way_out(c, produced_singly(c, raw), check_bytes, raw)


@table("3.4/batch-json", [row for row in AS_JSON if not row[0].startswith("deep-")])
def a_batch_keeps_json_as_it_is_written(c, raw):
    # Blanks around a value belong to the list, not to the value.
    every_way_out(c, produced_in_a_batch(c, b'"payload":' + raw), check_json, raw.strip())


@table("3.4/batch-base64", [(f"{kind}-{name}", raw, judge) for kind, rows, judge in
                            [("json", AS_JSON, check_json), ("text", AS_TEXT, check_text), ("bytes", AS_BYTES, check_bytes)]
                            for name, raw in rows if len(raw) < 60000])
def a_batch_takes_any_bytes_as_base64(c, raw, judge):
    member = b'"payload":"' + base64.b64encode(raw) + b'","payload_encoding":"base64"'
    every_way_out(c, produced_in_a_batch(c, member), judge, raw)


@case("3.4/many-in-one-answer")
def messages_of_a_batch_are_each_as_they_are(c):
    topic = c.topic()
    raws = [b'{"a":1.0}', b"text", b"\xff", b"[ 1 ]", b'"x"']
    for raw in raws:
        topic.produce(raw, "?partition=0").expect(202)
    seen = []
    while len(seen) < len(raws):
        answer = topic.arrives("?max=100&wait=5s&partition=0", headers={"X-Narad-Client": "t"})
        seen += [(m["payload"], m.get("payload_encoding")) for m in answer.json["messages"]]
    equal(seen, [({"a": 1.0}, None), ("text", None), ("/w==", "base64"), ([1], None), ("x", None)], "payloads")


KEYS = [
    ("plain", b"k"), ("long", b"k" * 8192), ("blank", b" "), ("quote", b'"\\'), ("controls", bytes(range(1, 32))),
    ("nul", b"\x00"), ("unicode", "\u00fc\u2028\U0001f41f".encode()), ("html", b"<&>"), ("not-utf8", b"\xff"),
    ("cut", b"a\xc3"), ("surrogate", b"\xed\xa0\x80"), ("all", bytes(range(256))), ("json", b'{"a":1}'),
]


@table("3.3/key", KEYS)
def keys_come_back(c, key):  # D10
    topic = c.topic()
    sent = "".join(f"%{b:02X}" for b in key) if len(key) < 1000 else key.decode()
    topic.produce(b'{"v":1}', f"?partition=0&key={sent}").expect(202)
    for query in ("?partition=0&offset=0", "?wait=5s"):
        message = topic.take(query)
        try:
            equal(message["key"], key.decode("utf-8"), "key")
            check("key_encoding" not in message, "an encoding of text")
        except UnicodeDecodeError:
            equal((message["key"], message.get("key_encoding")), (base64.b64encode(key).decode(), "base64"), "key")


@table("3.3/key-in-a-batch", KEYS)
def keys_of_a_batch_come_back(c, key):
    member = b'"payload":1,"key":"%b","key_encoding":"base64"' % base64.b64encode(key)
    topic = produced_in_a_batch(c, member)
    message = topic.take("?wait=5s")
    got = message["key"]
    got = base64.b64decode(got) if message.get("key_encoding") else got.encode()
    equal(got, key, "key")


@case("3.3/order")
def members_stand_in_their_order(c):
    topic = c.topic()
    topic.produce(b"\xff", "?key=k&partition=0").expect(202)
    names = list(json.loads(topic.arrives("?wait=5s").body))
    equal(names, ["topic", "partition", "offset", "key", "payload", "payload_encoding", "timestamp", "receipt_handle"],
          "members")


@case("3.3/without-a-key")
def no_key_is_no_member(c):
    topic = c.topic()
    topic.produce(b"1").expect(202)
    equal(sorted(topic.take()), ["offset", "partition", "payload", "receipt_handle", "timestamp", "topic"], "members")


@case("3.3/largest")
def the_largest_message_comes_back(c):
    for raw, judge in [(b"x" * (1 << 20), check_text), (b'"' + b"y" * ((1 << 20) - 2) + b'"', check_json),
                       (b"\x01" * (1 << 20), check_text)]:
        topic = produced_singly(c, raw)
        judge(topic.arrives("?partition=0&wait=5s"), raw)
        topic.produce(raw + b"x", "?key=" + quote("k")).expect(413, error="request body too large")


# --- headers of a message ---

@case("headers/round-trip")
def headers_travel_with_a_message(c):
    topic = c.topic()
    sent = {"X-Narad-Header-Trace": "abc", "X-Narad-Header-a-1": 'x "y"; z=\u00fc'.encode().decode("latin-1"), "X-Other": "no"}
    topic.produce(b"1", "?partition=0", headers=sent).expect(202)
    for query in ("?partition=0&offset=0", "?wait=5s"):
        answer = topic.arrives(query)
        equal((answer.header("X-Narad-Header-Trace"), answer.header("X-Narad-Header-A-1"), answer.header("X-Other")),
              ("abc", sent["X-Narad-Header-a-1"], None), "headers")


@table("headers/bad", [("sign", {"X-Narad-Header-a_b": "1"}), ("long", {"X-Narad-Header-" + "n" * 65: "1"}),
                       ("no-name", {"X-Narad-Header-": "1"}), ("large", {"X-Narad-Header-a": "v" * (16 * 1024 + 1)}),
                       ("many", {f"X-Narad-Header-n{i}": "1" for i in range(65)})])
def headers_that_are_refused(c, headers):
    topic = c.topic()
    topic.produce(b"1", headers=headers).expect(400, has="header")
    equal(topic.visible(), 0, "records")
