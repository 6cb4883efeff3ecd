#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Finds structures in the files of a stopped pool, knowing no more of the format than that each begins
with a header (type, version, length, checksum; docs/FORMAT.md) on a block boundary.

poolscan.py KIND SEED CONTENT FILE...   prints `FILE OFFSET` for every place of that kind, in random
                                        order: a byte in the middle of it
poolscan.py flip FILE OFFSET            changes that byte

KIND: label super log-row row node table-page directory catalog, or data (a block of the file CONTENT),
or parity (in a segment, neither empty, nor a structure, nor a block of CONTENT)."""

import os
import random
import sys

BLOCK = 4096
KINDS = {"label": "L", "super": "S", "log-row": "R", "row": "D", "node": "N", "table-page": "T",
         "directory": "Y", "catalog": "C"}
TYPES = {0x48460000 + ord(letter): kind for kind, letter in KINDS.items()}
HEADER_BYTES = 16


def extents(fd):
    """(offset, end) of what is not a hole."""
    at, size = 0, os.fstat(fd).st_size
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(fd, at, os.SEEK_HOLE)
        yield at // BLOCK * BLOCK, (end + BLOCK - 1) // BLOCK * BLOCK
        at = end


def scan(path, content):
    """(kind, offset of a byte in the middle) for everything found; kind None: something else."""
    fd = os.open(path, os.O_RDONLY)
    try:
        skip_until = 0
        for start, end in extents(fd):
            for offset in range(max(start, skip_until), end, BLOCK):
                block = os.pread(fd, BLOCK, offset)
                if offset < skip_until or not any(block):
                    continue
                kind = TYPES.get(int.from_bytes(block[:4], "little"))
                length = int.from_bytes(block[8:12], "little")
                if kind and HEADER_BYTES < length <= 1 << 20:
                    yield kind, offset + HEADER_BYTES + (length - HEADER_BYTES) // 2
                    skip_until = offset + (length + BLOCK - 1) // BLOCK * BLOCK
                elif block in content:
                    yield "data", offset + BLOCK // 2
                else:
                    yield "parity", offset + BLOCK // 2
    finally:
        os.close(fd)


def main():
    if sys.argv[1] == "flip":
        fd = os.open(sys.argv[2], os.O_RDWR)
        byte = os.pread(fd, 1, int(sys.argv[3]))
        os.pwrite(fd, bytes([byte[0] ^ 0x10]), int(sys.argv[3]))
        os.close(fd)
        return
    kind, seed, content_path, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with open(content_path, "rb") as f:
        content = set(iter(lambda: f.read(BLOCK), b""))
    found = [(path, at) for path in files for k, at in scan(path, content) if k == kind]
    random.Random(seed).shuffle(found)
    for path, at in found:
        print(path, at)


main()
