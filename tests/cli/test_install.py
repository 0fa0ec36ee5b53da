#!/usr/bin/python3
"""What `cmake --install` puts in place works: a program built from the installed header, library and pkg-config
file alone runs against a node, and so does the installed narad."""

import os
import subprocess
import unittest

from command import PATIENCE, Case, environment

BUILD = os.environ["NARAD_BUILD_DIR"]


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        for line in file:
            if line.startswith(name + ":"):
                return line.rstrip("\n").split("=", 1)[1]
    return ""


class Install(Case):
    def run_tool(self, *command, **env):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env=environment(**env))
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def find(self, root, name):
        for directory, _, files in os.walk(root):
            if name in files:
                return os.path.join(directory, name)
        raise AssertionError(f"{name} is not installed")

    def test_an_installed_library_serves_a_program(self):
        prefix = os.path.join(self.scratch, "prefix")
        self.run_tool("cmake", "--install", BUILD, "--prefix", prefix)
        pc = self.find(prefix, "narad.pc")
        example = self.find(prefix, "example.c")
        library = os.path.dirname(self.find(prefix, "libnarad.so"))
        flags = self.run_tool("pkg-config", "--cflags", "--libs", "narad",
                              PKG_CONFIG_PATH=os.path.dirname(pc)).split()
        included = [os.path.realpath(flag[2:]) for flag in flags if flag.startswith("-I")]
        self.assertIn(os.path.realpath(os.path.join(prefix, "include")), included)
        sanitize = cached("ND_SANITIZE")
        program = os.path.join(self.scratch, "example")
        self.run_tool(cached("CMAKE_C_COMPILER") or "cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall",
                      "-Werror", example, *flags, "-lpthread", "-o", program,
                      *(["-fsanitize=" + sanitize] if sanitize else []))
        out = self.run_tool(program, self.node.address, LD_LIBRARY_PATH=library)
        self.assertIn("10 stored, 10 acked\n", out)
        self.assertEqual(self.count("example"), 10)
        narad = self.find(prefix, "narad")
        self.assertIn('"name": "example"',
                      self.run_tool(narad, "topics", "list", "--json", "--server", self.node.address))

    def test_the_library_shows_nothing_else(self):
        library = os.path.join(self.scratch, "prefix")
        self.run_tool("cmake", "--install", BUILD, "--prefix", library)
        names = self.run_tool("nm", "-D", "--defined-only", self.find(library, "libnarad.so")).split()[2::3]
        strange = [n for n in names if not n.split("@")[0].startswith(("narad_", "narad__v1__", "NARAD"))]
        self.assertIn("narad_client_new", [n.split("@")[0] for n in names])
        self.assertEqual([n for n in strange if not n.startswith(("__asan", "__ubsan", "__odr_asan"))], [])


if __name__ == "__main__":
    unittest.main()
