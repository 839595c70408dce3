"""mpi_all.py - ranks of MPI that send each other messages of many sizes, all to all and round a ring, and look at every
byte."""
from mpi4py import MPI

world = MPI.COMM_WORLD
me, ranks = world.Get_rank(), world.Get_size()


def message(sender, receiver, n):
    words = b"from %d to %d, %d bytes; " % (sender, receiver, n)
    return (words * (n // len(words) + 1))[:n]


wrong = 0
for turn in range(300):
    n = 1000000 if turn % 50 == 49 else 1 + turn * 13
    out = bytearray(b"".join(message(me, i, n) for i in range(ranks)))
    got = bytearray(n * ranks)
    world.Alltoall([out, MPI.BYTE], [got, MPI.BYTE])
    wrong += got != b"".join(message(i, me, n) for i in range(ranks))
    after, before = (me + 1) % ranks, (me - 1) % ranks
    got = bytearray(n)
    world.Sendrecv([bytearray(message(me, after, n)), MPI.BYTE], after, 1, [got, MPI.BYTE], before, 1)
    wrong += got != message(before, me, n)
wrong = world.reduce(wrong)
if me == 0:
    print("all equal" if wrong == 0 else f"{wrong} messages differ")
