#!/usr/bin/python3
"""The documented HTTP API against a server, case by case.

    run.py --narad build/dev/bin/narad                      its own nodes, all profiles
    run.py --narad build/dev/bin/narad --alone              the same through `narad gateway`
    run.py --base-url http://127.0.0.1:7942 --profile OPEN  a server that is there

Of a server that is there the cases expect the settings in node.py and that it may be written to; SEC wants the
root account's name and password, admin and admin-secret unless --root says otherwise. Prints a line for each case
and at last a count; the exit status is 0 when none failed. -k picks cases by a part of their name.
"""

import argparse
import os
import sys

import cases
from api import Api
from node import PROFILES, HttpNode

import part_ack  # noqa: F401
import part_batch  # noqa: F401
import part_consume  # noqa: F401
import part_json  # noqa: F401
import part_later  # noqa: F401
import part_payload  # noqa: F401
import part_produce  # noqa: F401
import part_query  # noqa: F401
import part_rights  # noqa: F401
import part_secrets  # noqa: F401
import part_topics  # noqa: F401
import part_transport  # noqa: F401
import part_users  # noqa: F401

# Every case that the contract lists by its name.
CONTRACT = """A01 A02 A03 A04 A07 A08 A11 A13 A16
T01 T02 T03 T04 T05 T06 T07 T08 T12 T13 T14 T15 T17 T18 T19 T21 T22 T23
T30 T31 T32 T33 T34 T35 T36 T37 T41 T42 T43 T44 T46
P01 P02 P03 P04 P06 P08 P09 P10 P13 P14 P16 P17 P18
C01 C02 C03 C04 C05 C09 C10 C11 C12 C15 C16 C17 C19 C22 C24 C25 C26
K01 K02 K03 K04 K07 K09 K10 K12 K13 K14 K15 K18 K19
U01 U02 U04 U05 U06 U08 U10 U11 U12 U13 U14 U15 U17 U18 U20
Z01 Z02 Z05 Z06 F S X""".split()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--narad", default=os.environ.get("NARAD_BIN"), help="start nodes from this program")
    parser.add_argument("--base-url", help="a server that runs already")
    parser.add_argument("--profile", choices=[*PROFILES, "all"], default="all")
    parser.add_argument("--root", default=":".join(cases.ADMIN), help="NAME:PASSWORD of the root account")
    parser.add_argument("--alone", action="store_true", help="the gateway in a process of its own")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("-k", default="", help="only cases whose name holds this")
    parser.add_argument("-j", "--jobs", type=int, default=12, help="cases at a time")
    options = parser.parse_args()
    if (options.narad is None) == (options.base_url is None) and not options.base_url:
        parser.error("--narad or --base-url")
    if options.base_url and options.profile == "all":
        parser.error("--base-url wants a --profile")
    return options


def run(base_url, node, profile, options):
    secured = profile in (cases.SEC, cases.SEC3)
    headers = {"X-Narad-Client": "conformance"} if profile == cases.SEC3 else {}
    api = Api(base_url, tuple(options.root.split(":", 1)) if secured else None, headers, [] if secured else None)
    chosen = [e for e in cases.REGISTER if e.profile == profile and options.k in e.name]
    if secured and chosen:
        cases.wait_until(lambda: api.get("/v1/users").status == 200, "the root account is there")
    return cases.Run(api, node, options.jobs).all(chosen)


def main():
    options = arguments()
    lacking = [name for name in CONTRACT if all(e.name != name for e in cases.REGISTER)]
    total = {"ok": 0, "FAILED": len(lacking), "skipped": 0}
    for name in lacking:
        print("FAILED", name, "the runner lacks it")
    for profile in [options.profile] if options.profile != "all" else PROFILES:
        if options.base_url:
            counts = run(options.base_url, None, profile, options)
        else:
            with HttpNode(options.narad, PROFILES[profile], options.alone, options.tls) as node:
                counts = run(node.base_url, node, profile, options)
        total = {verdict: total[verdict] + counts[verdict] for verdict in total}
    print(f"{total['ok']} ok, {total['FAILED']} failed, {total['skipped']} skipped")
    return 0 if total["FAILED"] == 0 and total["ok"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
