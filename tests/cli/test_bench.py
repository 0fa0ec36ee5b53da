#!/usr/bin/python3
"""narad bench: every mode runs, and reports what it should. How fast is not asked here."""

import json
import signal
import subprocess
import unittest

from command import PATIENCE, Case, wait_until

MEMBERS = {"mode": str, "in_flight": int, "batch": int, "payload": int, "count": int, "per_s": float,
           "mb_s": float, "p50_us": float, "p99_us": float, "errors": int}


class Bench(Case):
    def bench(self, mode, *options):
        report = self.run_ok("bench", mode, "--seconds", "1", "--json", *options).json()
        self.assertEqual(list(report), list(MEMBERS))
        for name, kind in MEMBERS.items():
            self.assertIs(type(report[name]), kind, name)
        self.assertEqual((report["mode"], report["errors"]), (mode, 0))
        self.assertGreater(report["count"], 0)
        self.assertGreater(report["per_s"], 0)
        self.assertAlmostEqual(report["mb_s"], report["per_s"] * report["payload"] / 1e6, delta=0.01)
        self.assertGreater(report["p50_us"], 0)
        self.assertGreaterEqual(report["p99_us"], report["p50_us"])
        return report

    def test_produce_stores_what_it_counts(self):
        total = 0
        for mode, options in (("produce-unary", ()), ("produce-unary", ("--in-flight", "1")),
                              ("produce-stream", ()), ("produce-stream", ("--in-flight", "64")),
                              ("produce-batch", ())):
            report = self.bench(mode, *options)
            total += report["count"]
        stats = self.run_ok("topics", "get", "bench", "--json").json()["partition_stats"]
        # What was under way at the end of a run is stored and not counted.
        self.assertGreaterEqual(sum(partition["high_watermark"] for partition in stats), total)

    def test_baselines_store_nothing(self):
        for mode in ("rpc-unary", "rpc-stream", "rpc-batch"):
            self.bench(mode, "--topic", "nothing")
        self.fails(1, "topics", "get", "nothing", text="NOT_FOUND")

    def test_consumes_and_latency(self):
        self.bench("latency", "--topic", "lone")
        report = self.bench("consume-unary", "--topic", "unary", "--payload", "100")
        self.assertEqual(report["payload"], 100)
        self.bench("consume-stream", "--topic", "stream")

    def test_an_end_with_a_message_under_way_is_no_error(self):
        process = self.open("bench", "latency", "--seconds", "3", "--topic", "cut", "--json",
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: self.command("topics", "get", "cut").status == 0 and self.count("cut") > 0,
                   "the bench is at work")
        self.node.process.send_signal(signal.SIGSTOP)  # what is under way stays so
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            self.node.process.send_signal(signal.SIGCONT)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertEqual(json.loads(out)["errors"], 0)

    def test_disk_asks_no_node(self):
        report = self.bench("disk", "--dir", self.scratch, "--server", "unix:/nowhere")
        self.assertEqual(report["payload"], 4096)
        self.assertEqual(self.bench("disk", "--dir", self.scratch, "--payload", "1048576")["payload"], 1 << 20)
        self.fails(1, "bench", "disk", text="disk needs --dir")
        self.fails(1, "bench", "disk", "--dir", "/nowhere", text="No such file or directory")

    def test_people_get_a_line(self):
        result = self.run_ok("bench", "rpc-unary", "--seconds", "1", "--in-flight", "2")
        self.assertRegex(result.out, r"^rpc-unary +in flight 2 +batch 1 .* messages +\d+/s .* p99 .* errors 0\n$")

    def test_what_cannot_be_is_refused(self):
        for options in (("--batch", "1001"), ("--in-flight", "65537"), ("--seconds", "0"), ("--payload", "0"),
                        ("--payload", "1048577")):
            self.fails(1, "bench", "produce-unary", *options, text="must be 1 to")
        self.fails(1, "bench", "produce-unary", "--topic", "a/b", text="topic name must match")


if __name__ == "__main__":
    unittest.main()
