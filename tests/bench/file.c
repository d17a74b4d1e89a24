/* The ceiling of a copy from a file of the machine: as many threads, each of which reads pieces of its part by pread,
 * straight into resident memory; with --cuda into one of two pinned pieces, while the other one is copied to the
 * device. All memory is made before, and used once before the clock starts. */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#define THREADS_MAX 64
#define PIECE ((size_t)4 << 20)
#define SLOTS 2

struct part {
    int fd;
    char *to; /* in host or device memory */
    size_t at;
    size_t bytes;
    bool cuda;
    pthread_t thread;
#ifdef HAVE_CUDA
    char *slots[SLOTS];
    cudaStream_t stream;
    cudaEvent_t copied[SLOTS];
#endif
};

static void read_piece(const struct part *part, char *to, size_t at, size_t n) {
    size_t have = 0;

    while (have < n) {
        ssize_t got = pread(part->fd, to + have, n - have, (off_t)(part->at + at + have));

        if (got <= 0)
            bench_die("the file cannot be read, or has become shorter");
        have += (size_t)got;
    }
}

#ifdef HAVE_CUDA

static void must(cudaError_t status, const char *call) {
    if (status != cudaSuccess)
        bench_die("%s: %s", call, cudaGetErrorName(status));
}

static char *make_target(size_t bytes) {
    void *memory;

    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static void make_slots(struct part *part) {
    void *memory;
    int i;

    must(cudaStreamCreateWithFlags(&part->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (i = 0; i < SLOTS; i++) {
        must(cudaHostAlloc(&memory, PIECE, cudaHostAllocPortable), "cudaHostAlloc");
        part->slots[i] = memory;
        must(cudaEventCreateWithFlags(&part->copied[i], cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
}

static void to_device(const struct part *part, size_t at, size_t n, int slot) {
    must(cudaEventSynchronize(part->copied[slot]), "cudaEventSynchronize");
    read_piece(part, part->slots[slot], at, n);
    must(cudaMemcpyAsync(part->to + at, part->slots[slot], n, cudaMemcpyHostToDevice, part->stream), "cudaMemcpyAsync");
    must(cudaEventRecord(part->copied[slot], part->stream), "cudaEventRecord");
}

static void finish(const struct part *part) {
    must(cudaStreamSynchronize(part->stream), "cudaStreamSynchronize");
}

#else

static char *make_target(size_t bytes) {
    (void)bytes;
    bench_die("built without CUDA");
}

static void make_slots(struct part *part) {
    (void)part;
}

static void to_device(const struct part *part, size_t at, size_t n, int slot) {
    (void)part;
    (void)at;
    (void)n;
    (void)slot;
}

static void finish(const struct part *part) {
    (void)part;
}

#endif

static void *read_part(void *arg) {
    const struct part *part = arg;
    int slot = 0;
    size_t at;

    for (at = 0; at < part->bytes; at += PIECE) {
        size_t n = part->bytes - at < PIECE ? part->bytes - at : PIECE;

        if (part->cuda)
            to_device(part, at, n, slot);
        else
            read_piece(part, part->to + at, at, n);
        slot = (slot + 1) % SLOTS;
    }
    if (part->cuda)
        finish(part);
    return NULL;
}

/* The nanoseconds of reading all parts. */
static uint64_t read_all(struct part *parts, unsigned count) {
    uint64_t began = bench_now_ns();
    unsigned i;

    for (i = 0; i < count; i++)
        if (pthread_create(&parts[i].thread, NULL, read_part, &parts[i]) != 0)
            bench_die("no thread");
    for (i = 0; i < count; i++)
        pthread_join(parts[i].thread, NULL);
    return bench_now_ns() - began;
}

int main(int argc, char **argv) {
    static const struct option table[] = {
        {"path", 1, NULL, 'p'}, {"threads", 1, NULL, 't'}, {"cuda", 0, NULL, 'c'}, {NULL, 0, NULL, 0}};
    static struct part parts[THREADS_MAX];
    const char *path = NULL;
    unsigned count = 1;
    bool cuda = false;
    struct stat st;
    char *memory;
    uint64_t ns;
    unsigned i;
    size_t n;
    int fd;
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'p')
            path = optarg;
        else if (c == 't')
            count = (unsigned)bench_parse_size(optarg, "threads");
        else if (c == 'c')
            cuda = true;
        else
            bench_die("usage: gb-bench-file --path FILE [--threads N] [--cuda]");
    }
    fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) < 0)
        bench_die("--path names no file that can be read");
    if (count == 0 || count > THREADS_MAX)
        bench_die("--threads must be 1 to %d", THREADS_MAX);
    n = (size_t)st.st_size / count;
    memory = cuda ? make_target(n * count) : bench_resident(n * count);
    for (i = 0; i < count; i++) {
        parts[i] = (struct part){.fd = fd, .to = memory + i * n, .at = i * n, .bytes = n, .cuda = cuda};
        if (cuda)
            make_slots(&parts[i]);
    }
    read_all(parts, count);
    ns = read_all(parts, count);
    close(fd);
    printf("{\"bytes\": %zu, \"seconds\": %.6f, \"bytes_per_s\": %.0f, \"errors\": 0}\n", n * count, (double)ns / 1e9,
           (double)(n * count) * 1e9 / (double)ns);
    return 0;
}
