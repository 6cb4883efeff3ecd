#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""garbage.py KIND : listens on a free port of 127.0.0.1, prints it, and answers whoever comes with
what is no protocol: `noise` (random bytes, from a fixed seed), `text` (what a web server says),
`zeroes`, or `silence` (nothing at all)."""

import random
import socket
import sys
import threading

KINDS = {"noise": random.Random(7).randbytes(65536), "zeroes": bytes(65536), "silence": b"",
         "text": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}


def answer(connection, what):
    try:
        while True:
            connection.sendall(what)
            if not connection.recv(65536):
                return
    except OSError:
        pass
    finally:
        connection.close()


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0], KINDS[sys.argv[1]]),
                     daemon=True).start()
