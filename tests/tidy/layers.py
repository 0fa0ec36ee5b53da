"""tidy/layers: who may include whom (docs/ARCHITECTURE.md, "Source tree").

Every file belongs to the layer with the longest matching path. A quoted include must name, from the root
of the tree, a file of a layer that the file's own layer may see. A third-party header may appear only in
its home. To allow something new, change the tables below and say why in the commit.
"""

import fnmatch
import os
import re
import tree

# layer: the layers that it may include, itself always among them.
MAY_INCLUDE = {
    "storage/base": [],
    "storage": ["storage/base"],
    "proto": ["storage/base"],
    "proto/plugin": [],
    "cluster": ["storage/base", "proto messages"],
    "server/broker": ["storage", "storage/base", "cluster"],
    "server/security": ["storage/base", "cluster"],
    "server/rpc": ["server/broker", "server/security", "storage", "storage/base", "cluster", "proto", "proto messages"],
    # Wires everything; the command line is part of the same program.
    "server": ["server/broker", "server/rpc", "server/security", "storage", "storage/base", "cluster", "proto",
               "proto messages", "clients/c", "clients/cli", "gateway"],
    "clients/c": ["proto", "proto messages", "storage/base"],
    "clients/cli": ["clients/c", "proto", "proto messages", "storage/base"],
    "gateway": ["clients/c", "proto", "proto messages", "storage/base"],
    "tests": ["storage", "storage/base", "proto", "proto messages", "cluster", "server",
              "server/broker", "server/rpc", "server/security", "clients/c", "clients/cli", "gateway"],
}

# third-party header pattern: the paths where it may be included.
HOMES = {
    "grpc/*": ["proto/rpc/*", "tests/unit/proto/*"],
    "protobuf-c/*": ["proto/*", "tests/unit/proto/*"],
    "google/protobuf/*": ["proto/*"],
    "raft.h": ["cluster/raft_*"],
    "raft/*": ["cluster/raft_*"],
    "uv.h": ["cluster/raft_*"],
    "zstd*.h": ["storage/compress.c"],
    "jansson.h": ["server/config*", "server/node.c", "clients/cli/*", "gateway/*", "tests/*"],
    "microhttpd.h": ["gateway/*", "tests/unit/gateway/*"],
    "gnutls/*": ["gateway/*"],
    "crypt.h": ["server/security/*"],
    "openssl/*": ["server/security/*", "proto/rpc/tls*", "tests/*"],
    "cmocka.h": ["tests/*"],
}

# Header patterns that a layer must not include: the seams that let it run whole inside one test process.
SOCKETS = ["sys/socket.h", "sys/un.h", "netinet/*", "arpa/*", "netdb.h", "sys/epoll.h"]
DISK_AND_CLOCK = ["fcntl.h", "unistd.h", "dirent.h", "sys/stat.h", "sys/statvfs.h", "sys/uio.h",
                  "time.h", "sys/time.h", "sys/random.h"]
FORBIDDEN = {
    "storage/base": SOCKETS,
    "storage": SOCKETS + DISK_AND_CLOCK,
    "server/broker": SOCKETS + DISK_AND_CLOCK,
    "cluster": SOCKETS,
}
# The C library and the kernel's interfaces; anything else in <> needs a home above.
SYSTEM = re.compile(
    r"(assert|complex|ctype|dirent|dlfcn|errno|fcntl|fenv|float|fnmatch|ftw|getopt|glob|inttypes|limits"
    r"|locale|malloc|math|netdb|poll|pthread|pwd|regex|sched|semaphore|setjmp|signal|spawn|stdalign"
    r"|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syslog|termios"
    r"|threads|time|uchar|unistd|wchar|wctype|endian|byteswap|execinfo|cpuid|immintrin|nmmintrin"
    r"|arm_acle|getopt|(sys|linux|netinet|arpa|net|asm|sanitizer)/[a-z0-9_./-]+)\.h$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    fitting = [layer for layer in MAY_INCLUDE if path.startswith(layer + "/")]
    return max(fitting, key=len, default=None)


def in_any(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def third_party_problem(path, name):
    for pattern, homes in HOMES.items():
        if fnmatch.fnmatchcase(name, pattern):
            if in_any(path, homes):
                return None
            return f"<{name}> has its home in {', '.join(homes)}"
    return None if SYSTEM.match(name) else f"<{name}> has no home in tests/tidy/layers.py"


def quoted_problem(root, path, layer, name):
    if re.search(r"\.(pb-c|nd)\.h$", name):
        target = "proto messages"
        own = layer in ("proto", "proto/plugin")
    else:
        if layer == "clients/c" and name.startswith("narad/"):
            name = "clients/c/include/" + name # the public header is written as its users write it
        if name.startswith("narad/") and layer in ("clients/cli", "gateway", "tests"):
            name = "clients/c/include/" + name
        if layer == "tests" and os.path.exists(os.path.join(root, os.path.dirname(path), name)):
            return None # a test's own fixture, beside it
        if not os.path.exists(os.path.join(root, name)):
            return f'"{name}" is no file of the tree (includes are written from its root)'
        target = layer_of(name)
        own = target == layer
    if own or target in MAY_INCLUDE[layer]:
        return None
    return f'{layer} may not include {target}: "{name}"'


def problem_of(root, path, layer, kind, name):
    if in_any(name, FORBIDDEN.get(layer, [])):
        return f"<{name}>: {layer} reaches sockets, disk and clock through its seams only"
    # The installed client header may be named in <> by an example, as users name it.
    if kind == "<" and not name.startswith("narad/"):
        return third_party_problem(path, name)
    return quoted_problem(root, path, layer, name)


def main():
    options = tree.arguments(__doc__).parse_args()
    paths = tree.files(options.root, (".c", ".h"))
    problems = []
    for path in paths:
        layer = layer_of(path)
        if layer is None:
            problems.append(f"{path}:1: belongs to no layer")
            continue
        for number, line in enumerate(tree.read(options.root, path).splitlines(), 1):
            found = INCLUDE.match(line)
            if found:
                problem = problem_of(options.root, path, layer, found[1], found[2])
                if problem:
                    problems.append(f"{path}:{number}: {problem}")
    tree.finish(problems, len(paths))


main()
