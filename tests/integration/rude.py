"""A gRPC client without manners: it asks, takes the first 64 KiB of the answer and opens no window for more."""

import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
CANCEL = 8
WINDOW = 65535  # what HTTP/2 lets the other side send unasked


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    """HPACK: a literal that is not indexed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def request(path, message, end=True):
    """All that a client sends for one unary call."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"narad"),
              (b"content-type", b"application/grpc"), (b"te", b"trailers"))
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) +
            frame(HEADERS, END_HEADERS, 1, b"".join(header(*field) for field in fields)) +
            frame(DATA, END_STREAM if end else 0, 1, b"\0" + struct.pack(">I", len(message)) + message))


def cancel():
    return frame(RST_STREAM, 0, 1, struct.pack(">I", CANCEL))


def reset(connection):
    """Close it as a process that dies with unread bytes does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()


class RudeCall:
    """One unary call, stuck in the middle of its answer when __init__ returns."""

    def __init__(self, address, path, message):
        self.socket = connect(address)
        self.socket.sendall(request(path, message))
        taken = 0
        while taken < WINDOW:
            size, kind = self.read_frame()
            taken += size if kind == DATA else 0

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise AssertionError("the node closed the connection")
            data += more
        return data

    def read_frame(self):
        head = self.read(9)
        size = int.from_bytes(head[:3], "big")
        self.read(size)
        return size, head[3]

    def cancel(self):
        self.socket.sendall(cancel())

    def close(self):
        self.socket.close()
