/*
 * mpi.c - ranks of MPI that send each other messages of many sizes, all to all and round a ring, and look at every byte.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte_at(int from, int to, size_t i)
{
    return (unsigned char)(from * 31 + to * 17 + i * 7 + (i >> 8));
}

static int wrong;

static void check(const unsigned char *p, size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++)
        wrong += p[i] != byte_at(from, to, i);
}

static void fill(unsigned char *p, size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from, to, i);
}

int main(int argc, char **argv)
{
    int me, all, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    for (int round = 0; round < 300; round++) {
        size_t n = round % 50 == 49 ? 1000000 : 1u + (unsigned)round * 13;
        unsigned char *out = malloc(n * (size_t)all), *in = calloc(n, (size_t)all);
        int next = (me + 1) % all, before = (me + all - 1) % all;

        for (int i = 0; i < all; i++)
            fill(out + (size_t)i * n, n, me, i);
        MPI_Alltoall(out, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, MPI_COMM_WORLD);
        for (int i = 0; i < all; i++)
            check(in + (size_t)i * n, n, i, me);
        fill(out, n, me, next);
        MPI_Sendrecv(out, (int)n, MPI_BYTE, next, 1, in, (int)n, MPI_BYTE, before, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        check(in, n, before, me);
        free(out);
        free(in);
    }
    MPI_Reduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0)
        puts(sum == 0 ? "all equal" : "some bytes differ");
    MPI_Finalize();
    return 0;
}
