#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""hostile.py PORT TARGET SECONDS: initiators that nobody wants, from addresses of their own, for so
long. Ends with a line of what they did.

  127.0.0.2  connections that say nothing, more than may be
  127.0.0.3  logins that come byte by byte
  127.0.0.4  rubbish
  127.0.0.5  sessions that read and take no answers
  127.0.0.6  sessions that announce writes and send no data
  127.0.0.7  connections that come and go, some with a login for a target that does not exist
  127.0.0.8  sessions of ever new names, more than may be"""

import os
import socket
import struct
import sys
import time

port, target, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
end = time.monotonic() + seconds
did = {}


def count(what, n=1):
    did[what] = did.get(what, 0) + n


def connect(host):
    s = socket.socket()
    s.bind((host, 0))
    s.settimeout(2)
    try:
        s.connect(("127.0.0.1", port))
    except OSError:
        s.close()
        return None
    return s


def pdu(opcode, flags, itt, data=b"", cmd_sn=1, at20=0, cdb=b""):
    bhs = bytearray(48)
    bhs[0], bhs[1] = opcode, flags
    bhs[5:8] = len(data).to_bytes(3, "big")
    struct.pack_into(">II", bhs, 16, itt, at20)
    struct.pack_into(">I", bhs, 24, cmd_sn)
    bhs[32:32 + len(cdb)] = cdb
    return bytes(bhs) + data + bytes(-len(data) % 4)


def login_text(name, to):
    keys = f"InitiatorName={name}\0TargetName={to}\0SessionType=Normal\0InitialR2T=Yes\0"
    return pdu(0x43, 0x87, 1, (keys + "MaxRecvDataSegmentLength=262144\0").encode())


def login(host, name, to=target):
    s = connect(host)
    if s is None:
        return None
    try:
        s.sendall(login_text(name, to))
        answer = s.recv(48, socket.MSG_WAITALL)
        if len(answer) == 48 and answer[36:38] == b"\0\0":
            s.recv(int.from_bytes(answer[5:8], "big") + 3 & ~3, socket.MSG_WAITALL)
            return s
    except OSError:
        pass
    s.close()
    return None


def stuck(host, kind):
    """A session with a window full of commands that it will not go on with."""
    s = login(host, f"iqn.2026-01.org.holdfast.test:{kind}")
    if s is None:
        return None
    cdb = bytes([0x28 if kind == "deaf" else 0x2a, 0, 0, 0, 0, 0, 0, 8, 0, 0])  # 1 MiB
    flags = 0xc0 if kind == "deaf" else 0xa0
    s.setblocking(False)
    try:
        for i in range(100):
            s.send(pdu(0x01, flags, 10 + i, cmd_sn=1 + i, at20=1 << 20, cdb=cdb))
            count(f"commands of the {kind}")
    except OSError:
        pass
    return s


silent = [connect("127.0.0.2") for _ in range(100)]
slow = [connect("127.0.0.3") for _ in range(20)]
rubbish = [connect("127.0.0.4") for _ in range(20)]
held = [stuck("127.0.0.5", "deaf") for _ in range(10)]
held += [stuck("127.0.0.6", "mute") for _ in range(10)]
count("sessions that are stuck", sum(s is not None for s in held))
many = []
text, at = login_text("iqn.2026-01.org.holdfast.test:slow", target), 0
while time.monotonic() < end:
    s = connect("127.0.0.7")
    if s is not None:
        if at % 2:
            s.sendall(login_text("iqn.2026-01.org.holdfast.test:x", "iqn.2026-01.org.holdfast:none"))
        s.close()
        count("connections that come and go")
    for i, s in enumerate(rubbish):
        try:
            if s is None:
                raise OSError
            s.sendall(os.urandom(512))
            count("kilobytes of rubbish", 0.5)
        except OSError:
            rubbish[i] = connect("127.0.0.4")
    for i, s in enumerate(slow):
        try:
            if s is None:
                raise OSError
            s.sendall(text[at % len(text):at % len(text) + 1])
        except OSError:
            slow[i] = connect("127.0.0.3")
    if len(many) < 200:
        many.append(login("127.0.0.8", f"iqn.2026-01.org.holdfast.test:n{len(many)}"))
        count("sessions of new names", many[-1] is not None)
    silent[at % len(silent)] = connect("127.0.0.2")
    at += 1
print(", ".join(f"{int(n)} {what}" for what, n in did.items()))
