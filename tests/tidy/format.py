"""tidy/format: every C file is laid out as .clang-format says. --fix lays them out."""

import os
import subprocess
import tree


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    paths = tree.files(options.root, (".c", ".h"))
    problems = []
    for path in paths:
        full = os.path.join(options.root, path)
        if options.fix:
            subprocess.run(["clang-format-14", "-i", full], check=True)
            continue
        with open(full, "rb") as file:
            before = file.read()
        after = subprocess.run(["clang-format-14", full], check=True, capture_output=True).stdout
        if before != after:
            pairs = zip(before.split(b"\n") + [b""], after.split(b"\n") + [b""])
            line = next((n for n, (a, b) in enumerate(pairs, 1) if a != b), 1)
            problems.append(f"{path}:{line}: not laid out as .clang-format says (make format)")
    tree.finish(problems, len(paths))


main()
