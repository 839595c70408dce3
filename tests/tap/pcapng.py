"""Reads what `railsock tap` writes, as the drafts and RFCs have it, and knows nothing of its code."""
import collections
import socket
import struct

Packet = collections.namedtuple("Packet", "time path out src dst seq ack flags data cut comment drops")


def fold(data):
    if len(data) & 1:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def options(data):
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        code, n = struct.unpack_from("<HH", data, at)
        if code == 0:
            assert n == 0 and at + 4 == len(data)
            return found
        found[code].append(data[at + 4:at + 4 + n])
        at += 4 + (n + 3) // 4 * 4
    assert not data, "options without an end"
    return found


def ip(data, cut):
    """(source, destination, sequence, acknowledgment, flags, payload)"""
    if data[0] >> 4 == 4:
        assert data[0] == 0x45 and fold(data[:20]) == 0xffff and data[9] == 6
        total, tcp, ends = struct.unpack_from(">H", data, 2)[0], data[20:], data[12:20]
        family, size = socket.AF_INET, 4
    else:
        assert data[0] >> 4 == 6 and data[6] == 6
        total, tcp, ends = 40 + struct.unpack_from(">H", data, 4)[0], data[40:], data[8:40]
        family, size = socket.AF_INET6, 16
    assert total == len(data) + cut <= 65535 + 40, (total, len(data), cut)
    if not cut:
        assert fold(ends + struct.pack(">II", len(tcp), 6) + tcp) == 0xffff, "TCP checksum"
    sport, dport, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", tcp)
    assert offset == 5 << 4
    return ((socket.inet_ntop(family, ends[:size]), sport), (socket.inet_ntop(family, ends[size:]), dport),
            seq, ack, flags, tcp[20:])


class File:
    """comment, packets, and by interface: received and dropped."""

    def __init__(self, path):
        data, at = open(path, "rb").read(), 0
        self.packets, self.statistics, interfaces = [], {}, []
        while at < len(data):
            kind, size = struct.unpack_from("<II", data, at)
            assert size % 4 == 0 and size >= 12 and data[at + size - 4:at + size] == data[at + 4:at + 8], (at, size)
            body = data[at + 8:at + size - 4]
            at += size
            if kind == 0x0A0D0D0A:
                assert struct.unpack_from("<IHHq", body) == (0x1A2B3C4D, 1, 0, -1)
                self.comment = options(body[16:])[1][0].decode()
            elif kind == 1:
                assert struct.unpack_from("<H", body)[0] in (228, 229)
                found = options(body[8:])
                assert found[9] == [b"\x09"]
                interfaces.append(found[2][0].decode())
            elif kind == 6:
                number, high, low, kept, length = struct.unpack_from("<IIIII", body)
                found = options(body[20 + (kept + 3) // 4 * 4:])
                src, dst, seq, ack, flags, payload = ip(body[20:20 + kept], length - kept)
                self.packets.append(Packet(
                    high << 32 | low, interfaces[number], struct.unpack("<I", found[2][0])[0] == 2, src, dst, seq, ack,
                    flags, payload, length - kept, " ".join(c.decode() for c in found[1]),
                    struct.unpack("<Q", found[4][0])[0] if found[4] else 0))
            else:
                assert kind == 5, kind
                found = options(body[12:])
                self.statistics[interfaces[struct.unpack_from("<I", body)[0]]] = (
                    struct.unpack("<Q", found[4][0])[0], struct.unpack("<Q", found[5][0])[0])
