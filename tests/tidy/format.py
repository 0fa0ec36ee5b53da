"""tidy/format: every C file is laid out as .clang-format says. --fix lays them out."""

import re
import subprocess
import tree


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    paths = tree.files(options.root, (".c", ".h"))
    action = ["-i"] if options.fix else ["--dry-run", "-Werror"]
    problems = {}
    if paths:
        command = ["clang-format-14", *action, *paths]
        result = subprocess.run(command, cwd=options.root, capture_output=True, text=True, check=False)
        for path, line in re.findall(r"^(\S+?):(\d+):\d+: error: ", result.stderr, re.MULTILINE):
            problems.setdefault(path, f"{path}:{line}: not laid out as .clang-format says (make format)")
        if result.returncode != 0 and not problems:
            problems["clang-format-14"] = f"clang-format-14: {result.stderr}"
    problems = list(problems.values())
    tree.finish(problems, len(paths))


main()
