"""Nodes with security on, and people who call them."""

import base64
import json

from nodes import PATIENCE, Node, admin_pb2, admin_pb2_grpc, broker_pb2_grpc, grpc, wait_until

ROOT_PASSWORD = "root-secret"


def basic(username, password):
    """Metadata with these credentials."""
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    return [("authorization", "Basic " + token)]


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor,
              grpc.StreamUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds metadata to every call."""

    def __init__(self, metadata):
        self.metadata = metadata

    def add(self, go_on, details, request):
        details = details._replace(metadata=list(details.metadata or []) + self.metadata)
        return go_on(details, request)

    intercept_unary_unary = intercept_unary_stream = add
    intercept_stream_unary = intercept_stream_stream = add


class Person:
    """Both services, called with one's credentials (or none)."""

    def __init__(self, node, username=None, password=None):
        metadata = [] if username is None else basic(username, password)
        self.username, self.password = username, password
        self.channel = node.new_channel()
        channel = grpc.intercept_channel(self.channel, _Bearer(metadata))
        self.broker = broker_pb2_grpc.BrokerStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)

    def access(self, action=0, name=""):
        return self.admin.CheckAccess(admin_pb2.CheckAccessRequest(action=action, name=name),
                                      timeout=PATIENCE)


def grant(action, *patterns):
    return admin_pb2.Grant(action=action, patterns=patterns)


class SecureNode(Node):
    """A node whose root is there; its own stubs are root's."""

    def __init__(self, **env):
        super().__init__(dev=False, NARAD_ADMIN_PASSWORD=ROOT_PASSWORD, **env)
        wait_until(self.root_is_there, "root is there")

    def root_is_there(self):
        try:
            self.root.access()
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
            return False
        return True

    def connect(self):
        super().connect()
        self.root = Person(self, "admin", ROOT_PASSWORD)
        self.broker, self.admin = self.root.broker, self.root.admin

    def add(self, username, *grants, password="pw"):
        self.admin.CreateUser(admin_pb2.CreateUserRequest(
            username=username, password=password, grants=grants), timeout=PATIENCE)
        return Person(self, username, password)

    def set_grants(self, username, *grants):
        self.admin.SetGrants(admin_pb2.SetGrantsRequest(username=username, grants=grants), timeout=PATIENCE)

    def set_password(self, username, password):
        self.admin.SetPassword(admin_pb2.SetPasswordRequest(username=username, new_password=password),
                               timeout=PATIENCE)

    def delete(self, username):
        self.admin.DeleteUser(admin_pb2.DeleteUserRequest(username=username), timeout=PATIENCE)

    def audit(self):
        """The lines of the audit log."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("component") == "audit"]


def refusal(error):
    """(code, text, reason) of a call that failed."""
    return error.code(), error.details(), dict(error.trailing_metadata() or ()).get("narad-reason")
