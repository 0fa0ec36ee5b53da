#!/usr/bin/python3
"""The curl session of the README, run as it is printed, against a node started with the password that it names.

usage: test_readme.py NARAD
"""

import os
import re
import subprocess
import sys
import unittest

from api import Api
from cases import wait_until
from node import HttpNode
from waiting import environment

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MARK = "<!-- tests/conformance/test_readme.py runs the next block as it stands -->\n```sh\n"


def readme():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


class Readme(unittest.TestCase):
    narad = None

    def test_the_curl_session_does_what_it_says(self):
        text = readme()
        self.assertEqual(text.count(MARK), 1)
        session = text.split(MARK)[1].split("```")[0]
        password = re.search(r"NARAD_ADMIN_PASSWORD=(\S+) build/release/bin/narad serve", text)[1]
        with HttpNode(self.narad, {"NARAD_ADMIN_PASSWORD": password}) as node:
            root = Api(node.base_url, ("admin", password))
            wait_until(lambda: root.get("/v1/users").status == 200, "the root account is there")
            run = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", session], capture_output=True, text=True,
                                 check=False, env=environment(NARAD=node.base_url), cwd=node.directory)
            self.assertEqual(run.returncode, 0, run.stderr)
            topic, shop, till, message, refused = run.stdout.splitlines()
            self.assertIn('"name":"orders"', topic)
            self.assertIn('"owner":"admin"', topic)
            self.assertIn('"username":"shop"', shop)
            self.assertIn('"username":"till"', till)
            self.assertIn('"payload":{"id": 1, "total": 12.50}', message)
            self.assertIn('"key":"customer-7"', message)
            self.assertIn(f"# {refused}\n", session)
            # The ack counted: a second one says that the lease is over.
            handle = re.search(r'"receipt_handle":"([0-9:]+)"', message)[1]
            answer = root.post(f"/v1/topics/orders/ack?receipt_handle={handle}")
            self.assertEqual(answer.status, 410)


if __name__ == "__main__":
    Readme.narad = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ["NARAD_BIN"]
    unittest.main()
