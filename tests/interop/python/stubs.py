"""Python stubs, made from the project's .proto files when the test starts."""

import atexit
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


def generate():
    """Generate into a temporary directory and put it on the path."""
    directory = tempfile.TemporaryDirectory(prefix="narad-stubs-")
    atexit.register(directory.cleanup)
    protos = os.path.join(ROOT, "proto")
    # The standard services are generated without their leading "grpc/", which is grpcio's own package.
    for root, names in (
        (protos, ["narad/v1/types.proto", "narad/v1/broker.proto", "narad/v1/admin.proto",
                  "narad/v1/bench.proto"]),
        (os.path.join(protos, "grpc"),
         ["health/v1/health.proto", "reflection/v1alpha/reflection.proto"]),
    ):
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", "-I", root,
             f"--python_out={directory.name}", f"--grpc_python_out={directory.name}", *names],
            check=True)
    sys.path.insert(0, directory.name)
