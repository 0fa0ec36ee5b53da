"""tidy/selftest: each check finds the violation planted for it, and passes a clean tree.

A check that cannot fail proves nothing. Each case below is a small tree: the clean file, and one planted
file with the text that the check must name. To add a rule to a check, add its case here.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CLEAN = {
    "storage/base/err.h": "/* Errors. */\nenum nd_err { ND_OK };\n",
    "storage/wal.h": '#include "storage/base/err.h"\n',
    "server/broker/lease.h": '#include "storage/wal.h"\n',
    "clients/c/include/narad/client.h": "struct narad_client;\n",
    "clients/cli/cli.c": '#include "narad/client.h"\n#include "proto/narad/v1/broker.pb-c.h"\n',
    "cluster/raft_node.c": "#include <raft.h>\n#include <uv.h>\n",
    "tests/README.md": "| P1 | kept | `a_case__is_there`, `unit/wal` |\n| P2 | open | none yet |\n",
    "tests/unit/test_wal.c": "void a_case__is_there(void);\n",
    "docs/NOTES.md": "Runs in /var/lib/narad, sleeps never.\n",
}
LONG_BODY = "    f();\n" * 71

# (check, planted path, its text, what the report must say)
CASES = [
    ("format", "storage/a.c", "int  f(void)\n{\n  return 0;\n}\n", "storage/a.c:1:"),
    ("layers", "storage/a.c", '#include "server/broker/lease.h"\n', "storage may not include server/broker"),
    ("layers", "storage/base/a.c", '#include "storage/wal.h"\n', "storage/base may not include storage"),
    ("layers", "cluster/a.h", '#include "storage/wal.h"\n', "cluster may not include storage"),
    ("layers", "server/broker/a.c", '#include "proto/narad/v1/broker.pb-c.h"\n', "may not include proto messages"),
    ("layers", "server/broker/a.c", "#include <sys/socket.h>\n", "through its seams only"),
    ("layers", "storage/a.c", "#include <time.h>\n", "through its seams only"),
    ("layers", "server/rpc/a.c", "#include <grpc/grpc.h>\n", "<grpc/grpc.h> has its home in proto/rpc"),
    ("layers", "server/a.c", "#include <raft.h>\n", "<raft.h> has its home in cluster/raft_*"),
    ("layers", "cluster/a.c", "#include <uv.h>\n", "<uv.h> has its home"),
    ("layers", "storage/a.c", "#include <zstd.h>\n", "<zstd.h> has its home in storage/compress.c"),
    ("layers", "server/rpc/a.c", "#include <jansson.h>\n", "<jansson.h> has its home"),
    ("layers", "clients/cli/a.c", "#include <microhttpd.h>\n", "<microhttpd.h> has its home in gateway"),
    ("layers", "server/a.c", "#include <curl/curl.h>\n", "<curl/curl.h> has no home"),
    ("layers", "gateway/a.c", '#include "storage/wal.h"\n', "gateway may not include storage"),
    ("layers", "clients/c/a.c", '#include "clients/cli/cli.c"\n', "clients/c may not include clients/cli"),
    ("layers", "storage/a.c", '#include "wal.h"\n', "no file of the tree"),
    ("layers", "stray/a.c", "int x;\n", "belongs to no layer"),
    ("size", "storage/a.c", "int x;\n" * 801, "801 lines, at most 800"),
    ("size", "storage/a.h", "int x;\n" * 251, "251 lines, at most 250"),
    ("size", "storage/a.c", "/* " + "x" * 98 + " */\n", "104 columns"),
    ("size", "storage/a.c", "void g(void)\n{\n" + LONG_BODY + "}\n", "function of 71 lines"),
    ("size", "storage/a.c", "void g(int a, int b, int c, int d, int e,\n       int f, int h)\n{\n}\n", "7 parameters"),
    ("proofs", "tests/README.md", "| P1 | kept | `a_case__is_gone` |\n", "no test `a_case__is_gone`"),
    ("proofs", "tests/README.md", "| P1 | kept | `unit/gone` |\n", "no test `unit/gone`"),
    ("proofs", "tests/README.md", "| P1 | kept | |\n", "neither a proof nor"),
    ("proofs", "storage/a.c", "/* I-" + "999 */\n", "I-999 has no row"),
    ("words", "storage/a.c", "int f(char *a) { return strcpy(a, a) != 0; }\n", "strcpy() is banned"),
    ("words", "storage/a.c", "int f(char *a) { return strcat (a, a) != 0; }\n", "strcat() is banned"),
    ("words", "storage/a.c", "int f(char *a) { return sprintf(a, a); }\n", "sprintf() is banned"),
    ("words", "storage/a.c", "char *f(char *a) { return gets(a); }\n", "gets() is banned"),
    ("words", "storage/a.c", "int f(char *a) { return atoi(a); }\n", "atoi() is banned"),
    ("words", "storage/a.c", "int f(void) { return rand(); }\n", "rand() is banned"),
    ("words", "tests/unit/a.c", "void f(void) { usleep(5); }\n", "usleep() is banned"),
    ("words", "tests/unit/a.c", "void f(void) { nanosleep(0, 0); }\n", "nanosleep() is banned"),
    ("words", "tests/crash/a.sh", "while true; do sle" + "ep 1; done\n", "a test sleeps"),
    ("words", "tests/interop/a.py", "time.sle" + "ep(1)\n", "a test sleeps"),
    ("words", "docs/a.md", "see /wo" + "rk/notes\n", "an absolute path of one machine"),
    ("words", "docs/a.md", "see /ho" + "me/ann/notes\n", "an absolute path of one machine"),
    ("words", "docs/a.md", "from pyp" + "i.org\n", "a registry's host"),
    ("words", "storage/a.c", "/* TO" + "DO: later */\n", "unfinished work"),
]


def plant(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


def run(check, files):
    with tempfile.TemporaryDirectory() as root:
        plant(root, files)
        with open(os.path.join(HERE, "..", "..", ".clang-format"), encoding="utf-8") as style:
            plant(root, {".clang-format": style.read()})
        command = [sys.executable, os.path.join(HERE, check + ".py"), "--root", root]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def main():
    wrong = []
    for check in ("format", "layers", "size", "words", "proofs"):
        result = run(check, CLEAN)
        if result.returncode != 0:
            wrong.append(f"{check} refuses the clean tree:\n{result.stdout}{result.stderr}")
        if run(check, {}).returncode == 0:
            wrong.append(f"{check} passes although it looked at nothing")
    for check, path, text, expected in CASES:
        result = run(check, {**CLEAN, path: text})
        if result.returncode != 1 or expected not in result.stdout or path not in result.stdout:
            wrong.append(f"{check} missed '{expected}' in {path}:\n{result.stdout}{result.stderr}")
    print("\n".join(wrong))
    print(f"{len(CASES)} planted violations, {len(wrong)} missed")
    sys.exit(1 if wrong else 0)


main()
