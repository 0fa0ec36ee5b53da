#!/usr/bin/python3
"""Tables in the documents are those of the sources: error names, methods, settings."""

import os
import re
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


class Documents(unittest.TestCase):
    def test_the_reasons_of_grpc_are_the_errors(self):
        listed = re.findall(r"^    X\((\w+), *(\d+), *(\d+),", read("storage/base/err.h"), re.MULTILINE)
        numbers = {"CANCELLED": 1, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "ALREADY_EXISTS": 6,
                   "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "OUT_OF_RANGE": 11,
                   "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16}
        rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+)(?:;[^|]*)? \| .* \| (\d+)(?:;[^|]*)? \|$",
                          read("docs/GRPC_API.md"), re.MULTILINE)
        self.assertGreater(len(listed), 20)
        self.assertEqual([(name, str(numbers[status]), http) for name, status, http in rows], listed)

    def test_every_method_is_in_the_text(self):
        text = read("docs/GRPC_API.md")
        for file in ("broker", "admin"):
            methods = re.findall(r"^  rpc (\w+)\(", read(f"proto/narad/v1/{file}.proto"), re.MULTILINE)
            self.assertGreater(len(methods), 5)
            for method in methods:
                self.assertIn(f"`{method}`", text)

    def test_settings_that_are_named_exist(self):
        keys = set(re.findall(r'^    \{"([a-z0-9_.]+)"', read("server/config_table.c"), re.MULTILINE))
        self.assertGreater(len(keys), 50)
        for path in ("docs/HTTP_API.md", "docs/SECURITY.md", "docs/GRPC_API.md"):
            for key in set(re.findall(r"`((?:http|grpc|security|gateway|limits)\.(?!health|reflection)[a-z_0-9]+)", read(path))):
                # A beginning of several, as in `http.max_*`, stands for them.
                self.assertTrue(any(known.startswith(key) for known in keys), f"{path} names {key}")

    def test_links_lead_to_files(self):
        for path in ("docs/HTTP_API.md", "docs/SECURITY.md", "docs/GRPC_API.md", "README.md", "tests/conformance/README.md"):
            for target in re.findall(r"\]\(([^)#:]+)\)", read(path)):
                where = os.path.normpath(os.path.join(ROOT, os.path.dirname(path), target))
                self.assertTrue(os.path.exists(where), f"{path}: {target}")


if __name__ == "__main__":
    unittest.main()
