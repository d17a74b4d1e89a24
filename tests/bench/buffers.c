/* What a buffer costs: resident memory of a core over the host backend and a database, before and after N buffers
 * were made. */
#include <malloc.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"
#include "util.h"

#define IN_FLIGHT 64
/* Rings and caches of fixed size have their full size after that many. */
#define WARM 2000

struct bench {
    struct gb_core *core;
    sem_t ended;
    atomic_long failed;
};

struct making {
    struct bench *bench;
    struct gb_buffer_call *call;
};

static void ended(void *arg) {
    struct making *m = arg;

    if (m->call->base.error.code != GB_OK) {
        atomic_fetch_add(&m->bench->failed, 1);
        fprintf(stderr, "%s\n", m->call->base.error.detail);
    }
    sem_post(&m->bench->ended);
}

static void wait_for(sem_t *sem) {
    while (sem_wait(sem) != 0)
        continue;
}

static void make(struct making *m, long number, uint64_t bytes) {
    struct gb_buffer_params p = {.bytes = bytes, .dtype = GB_DTYPE_UINT8, .shape = {.dims = 1, .dim = {bytes}}};

    strcpy(p.session.s, "default");
    snprintf(p.name.s, sizeof p.name.s, "buffer-%06ld", number);
    m->call = gb_call_new(sizeof(*m->call), ended, m);
    if (!m->call)
        bench_die("out of memory");
    gb_buffer_create(m->bench->core, &p, 0, m->call);
}

/* Makes those from..to, some at a time. */
static void make_all(struct bench *bench, long from, long to, uint64_t bytes) {
    struct making making[IN_FLIGHT];
    long n;
    long i;

    for (; from < to; from += n) {
        n = to - from < IN_FLIGHT ? to - from : IN_FLIGHT;
        for (i = 0; i < n; i++) {
            making[i].bench = bench;
            make(&making[i], from + i, bytes);
        }
        for (i = 0; i < n; i++)
            wait_for(&bench->ended);
        for (i = 0; i < n; i++)
            gb_call_unref(&making[i].call->base);
    }
    if (atomic_load(&bench->failed) > 0)
        bench_die("%ld calls failed", atomic_load(&bench->failed));
}

/* What the process has now; what malloc could give back does not count. */
static long resident(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    long pages = 0;

    malloc_trim(0);
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        bench_die("/proc/self/statm cannot be read");
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void run(struct bench *bench, const char *folder, long count, uint64_t bytes) {
    char path[256];
    char note[GB_BACKEND_NOTE_SIZE];
    struct gb_store_config store_config = {.path = path, .queue_max = 10000};
    struct gb_core_config config = {.slots_bytes = 1 << 20,
                                    .slot_bytes = 1 << 18,
                                    .sessions_max = 10,
                                    .buffers_max = (uint64_t)count + WARM,
                                    .allocation_log = 10000,
                                    .default_quota = {GB_UNLIMITED, GB_UNLIMITED, GB_UNLIMITED}};
    struct gb_error err = GB_ERROR_INIT;
    long empty;
    long warm;
    long full;

    snprintf(path, sizeof path, "%s/gpubufd.db", folder);
    if (gb_backend_open("host", &config.backend, note, &err) < 0 ||
        gb_store_open(&store_config, &config.store, &err) < 0 || gb_core_open(&config, &bench->core, &err) < 0)
        bench_die("%s", err.detail);
    empty = resident();
    make_all(bench, 0, WARM, bytes);
    warm = resident();
    make_all(bench, WARM, WARM + count, bytes);
    full = resident();
    printf("{\"buffers\": %ld, \"bytes\": %llu, \"kib_empty\": %ld, \"kib_warm\": %ld, \"kib\": %ld, "
           "\"bytes_per_buffer\": %ld}\n",
           count, (unsigned long long)bytes, empty / 1024, warm / 1024, full / 1024, (full - warm) / count);
    fflush(stdout);
    gb_core_close(bench->core);
    gb_store_close(config.store);
    gb_backend_close(config.backend);
}

int main(int argc, char **argv) {
    struct bench bench = {.core = NULL};

    if (argc != 4)
        bench_die("usage: gb-bench-buffers FOLDER COUNT BYTES: an empty folder, and what is made there");
    sem_init(&bench.ended, 0, 0);
    run(&bench, argv[1], atol(argv[2]), bench_parse_size(argv[3], "BYTES"));
    return 0;
}
