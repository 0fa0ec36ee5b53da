#!/usr/bin/python3
"""narad topics: members as rest-api names them, pages, refusals."""

import unittest

from command import Case, Node

TOPIC = {"name": str, "id": str, "partitions": int, "retention_ms": int, "visibility_timeout_ms": int,
         "max_in_flight_per_partition": int, "max_acked_ahead_per_partition": int, "created_at": int,
         "role": str}
STATS = {"index": int, "segments": int, "oldest_offset": int, "next_offset": int, "high_watermark": int,
         "size_bytes": int, "owner_node": str, "frontier": int, "in_flight": int, "acked_ahead": int,
         "status": str}


class Topics(Case):
    def has(self, json, members):
        for name, kind in members.items():
            self.assertIs(type(json.get(name)), kind, (name, json))

    def test_create_prints_the_topic_as_json(self):
        topic = self.run_ok("topics", "create", "made", "--partitions", "4", "--retention-ms", "7200000",
                            "--visibility-timeout-ms", "5000", "--max-in-flight-per-partition", "10",
                            "--max-acked-ahead-per-partition=20", "--json").json()
        self.has(topic, TOPIC)
        self.assertRegex(topic["id"], "^[0-9a-f]{16}$")
        wanted = dict(name="made", partitions=4, retention_ms=7200000, visibility_timeout_ms=5000,
                      max_in_flight_per_partition=10, max_acked_ahead_per_partition=20, role="standalone")
        self.assertEqual({k: topic[k] for k in wanted}, wanted)
        self.assertLess(topic["created_at"], 10_000_000_000)  # seconds, not milliseconds
        self.assertNotIn("owner", topic)

    def test_create_prints_the_defaults_for_people(self):
        result = self.run_ok("topics", "create", "defaults")
        self.assertEqual(result.out, "defaults: 3 partitions, retention 604800000 ms, visibility timeout "
                         "30000 ms, in flight <= 1024, acked ahead <= 1024\n")

    def test_create_refuses_with_the_reason(self):
        self.run_ok("topics", "create", "twice")
        self.fails(1, "topics", "create", "twice", text="ALREADY_EXISTS: topic already exists")
        self.fails(1, "topics", "create", "few", "--partitions", "2", text="partitions must be >= 3")
        self.fails(1, "topics", "create", "many", "--partitions", "109", text="exceeds topic.max_partitions")
        self.fails(1, "topics", "create", "short", "--retention-ms", "1", text="below the minimum of 3600000")
        self.fails(1, "topics", "create", "a/b", text="topic name must match")
        self.fails(1, "topics", "create", "..", text="topic name must not be")
        self.fails(1, "topics", "create", "", text="name required")

    def test_wrong_words_are_usage_errors(self):
        self.fails(1, "topics", "create", text="missing argument: NAME")
        self.fails(1, "topics", "create", "a", "b", text='unexpected argument "b"')
        self.fails(1, "topics", "create", "a", "--partitions", "three", text="must be a whole number")
        self.fails(1, "topics", "create", "a", "--partitions=-1", text="must be a whole number")
        self.fails(1, "topics", "create", "a", "--partitions", "4294967296", text="0 to 4294967295")
        self.fails(1, "topics", "create", "a", "--what", text="unknown option --what")
        self.fails(1, "topics", "list", "a", text='unexpected argument "a"')
        self.fails(1, "topics", "mend", "a", text='unknown command "topics mend"')

    def test_get_shows_each_partition(self):
        topic = self.topic()
        self.run_ok("produce", topic, "--partition", "1", stdin=b"12345")
        details = self.run_ok("topics", "get", topic, "--json").json()
        self.has(details, TOPIC)
        self.assertEqual([stats["index"] for stats in details["partition_stats"]], [0, 1, 2])
        for stats in details["partition_stats"]:
            self.has(stats, STATS)
            self.assertGreaterEqual(stats["segments"], 1)
            self.assertEqual(stats["status"], "ok")
        self.assertEqual([stats["high_watermark"] for stats in details["partition_stats"]], [0, 1, 0])
        one = self.run_ok("topics", "get", topic, "--partition", "1", "--json").json()
        self.assertEqual([stats["index"] for stats in one["partition_stats"]], [1])
        lines = self.run_ok("topics", "get", topic).out.splitlines()
        self.assertTrue(lines[0].startswith(topic + ": 3 partitions"))
        self.assertEqual(lines[1].split()[:4], ["PARTITION", "OLDEST", "FRONTIER", "HIGH_WM"])
        self.assertEqual(lines[3].split()[:5], ["1", "0", "0", "1", "1"])
        self.fails(1, "topics", "get", topic, "--partition", "3", text="partition out of range")
        self.fails(1, "topics", "get", "missing", text='NOT_FOUND: topic not found: "missing"')

    def test_alter_changes_what_is_given(self):
        topic = self.topic()
        changed = self.run_ok("topics", "alter", topic, "--partitions", "5", "--retention-ms", "3600000",
                              "--max-in-flight-per-partition", "7", "--json").json()
        wanted = dict(partitions=5, retention_ms=3600000, max_in_flight_per_partition=7,
                      max_acked_ahead_per_partition=1024)
        self.assertEqual({k: changed[k] for k in wanted}, wanted)
        reset = self.run_ok("topics", "alter", topic, "--max-in-flight-per-partition", "0", "--json").json()
        self.assertEqual(reset["max_in_flight_per_partition"], 1024)
        self.assertIn("5 partitions", self.run_ok("topics", "alter", topic, "--retention-ms", "7200000").out)
        self.fails(1, "topics", "alter", topic, text="at least one of partitions")
        self.fails(1, "topics", "alter", topic, "--partitions", "4", text="must be greater than current (5)")
        self.fails(1, "topics", "alter", "missing", "--retention-ms", "3600000", text="NOT_FOUND")

    def test_delete_takes_the_topic_away(self):
        topic = self.topic()
        result = self.run_ok("topics", "delete", topic)
        self.assertEqual((result.out, result.err), ("", "deleted\n"))
        self.fails(1, "topics", "get", topic, text="NOT_FOUND")
        self.fails(1, "topics", "delete", topic, text="NOT_FOUND: topic not found")
        self.run_ok("topics", "create", topic)
        result = self.run_ok("topics", "delete", topic, "--json")
        self.assertEqual((result.json(), result.err), ({"name": topic, "deleted": True}, ""))


class Pages(Case):
    def test_pages_follow_each_other(self):
        self.assertEqual(self.run_ok("topics", "list", "--json").json(),
                         {"next_page_token": "", "topics": []})
        names = ["B", "a", "a-1", "a.2", "b"]
        for name in reversed(names):
            self.run_ok("topics", "create", name)
        seen, token = [], ""
        while True:
            page = self.run_ok("topics", "list", "--limit", "2", "--page-token", token, "--json").json()
            self.assertEqual(list(page), ["next_page_token", "topics"])
            seen += [topic["name"] for topic in page["topics"]]
            token = page["next_page_token"]
            if token == "":
                break
            self.assertEqual(token, seen[-1])
        self.assertEqual(seen, names)
        result = self.run_ok("topics", "list", "--limit", "3")
        self.assertEqual([line.split()[0] for line in result.out.splitlines()], ["NAME", "B", "a", "a-1"])
        self.assertIn("more follow: --page-token a-1", result.err)
        self.assertEqual(self.run_ok("topics", "list").err, "")


class Forever(unittest.TestCase):
    def test_no_retention_is_said_in_words(self):
        node = Node("--log-level", "warn", NARAD_TOPIC_DEFAULT_RETENTION_AGE_MS="0")
        self.addCleanup(node.stop)
        case = Case()
        case.node = node
        self.assertIn("retention forever", case.run_ok("topics", "create", "kept").out)


if __name__ == "__main__":
    unittest.main()
