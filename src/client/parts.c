#include "client/parts.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 100000000l

uint64_t gbc_part_bytes(uint64_t asked) {
    return asked > 0 ? asked : GBC_PART_BYTES;
}

int gbc_parts_init(struct gbc_parts *parts, uint64_t bytes, uint64_t part_bytes) {
    uint64_t size = gbc_part_bytes(part_bytes);
    uint64_t at = 0;
    size_t i;

    memset(parts, 0, sizeof(*parts));
    if (bytes / size >= GBC_PARTS_MAX)
        size = bytes / GBC_PARTS_MAX + 1;
    parts->bytes = bytes;
    parts->count = (size_t)(bytes / size + (bytes % size != 0));
    parts->part = calloc(parts->count + 1, sizeof(*parts->part));
    if (!parts->part)
        return -1;
    for (i = 0; i < parts->count; i++) {
        parts->part[i].offset = at;
        parts->part[i].bytes = bytes - at < size ? bytes - at : size;
        at += parts->part[i].bytes;
    }
    return 0;
}

void gbc_parts_done(struct gbc_parts *parts) {
    free(parts->part);
    parts->part = NULL;
}

int gbc_parts_tick(void *arg) {
    struct gbc_parts *parts = arg;

    return atomic_load(&parts->stop);
}

uint32_t gbc_parts_crc(const struct gbc_parts *parts) {
    uint32_t crc = 0;
    size_t i;

    for (i = 0; i < parts->count; i++)
        crc = gbc_crc32c_join(crc, parts->part[i].crc, parts->part[i].bytes);
    return crc;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

struct crew {
    struct gbc_parts *parts;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned working;
    struct gpubuf_error first; /* of the parts' errors */
};

static void fail(struct crew *crew, const struct gpubuf_error *why) {
    pthread_mutex_lock(&crew->lock);
    if (crew->first.code == GPUBUF_OK)
        crew->first = *why;
    pthread_mutex_unlock(&crew->lock);
    atomic_store(&crew->parts->stop, 1);
}

static void work(struct crew *crew) {
    struct gbc_parts *parts = crew->parts;
    struct gpubuf_error why;
    struct gbc_conn *conn;

    gbc_error_init(&why);
    conn = gbc_conn_new(parts->set, &why);
    while (conn && atomic_load(&parts->stop) == 0) {
        size_t i = atomic_fetch_add(&parts->next, 1);

        if (i >= parts->count || parts->fn(parts->arg, conn, &parts->part[i], &why) < 0)
            break;
    }
    if (why.code != GPUBUF_OK)
        fail(crew, &why);
    gbc_conn_free(conn);
}

static void *hand_main(void *arg) {
    struct crew *crew = arg;

    work(crew);
    pthread_mutex_lock(&crew->lock);
    crew->working--;
    pthread_cond_signal(&crew->moved);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void look(struct crew *crew) {
    struct gbc_parts *parts = crew->parts;
    struct gpubuf_error why;

    gbc_error_init(&why);
    if (atomic_load(&parts->stop) != 0)
        return;
    if (gbc_progress_tick(parts->progress) != 0)
        gbc_error_set(&why, GPUBUF_INTERRUPTED, "the progress callback asked for it");
    else if (atomic_load(&parts->set->interrupted))
        gbc_error_set(&why, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (why.code != GPUBUF_OK)
        fail(crew, &why);
}

/* Until all have ended. */
static void watch(struct crew *crew) {
    pthread_mutex_lock(&crew->lock);
    while (crew->working > 0) {
        struct timespec end;

        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_nsec += LOOK_NS;
        if (end.tv_nsec >= 1000000000l) {
            end.tv_sec++;
            end.tv_nsec -= 1000000000l;
        }
        pthread_cond_timedwait(&crew->moved, &crew->lock, &end);
        pthread_mutex_unlock(&crew->lock);
        look(crew);
        pthread_mutex_lock(&crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
}

static void crew_init(struct crew *crew, struct gbc_parts *parts) {
    pthread_condattr_t clock;

    crew->parts = parts;
    crew->working = 0;
    gbc_error_init(&crew->first);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->moved, &clock);
    pthread_condattr_destroy(&clock);
}

static unsigned start(struct crew *crew, pthread_t *threads, unsigned wanted) {
    sigset_t all;
    sigset_t before;
    unsigned n;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (n = 0; n < wanted; n++) {
        pthread_mutex_lock(&crew->lock);
        crew->working++;
        pthread_mutex_unlock(&crew->lock);
        if (pthread_create(&threads[n], NULL, hand_main, crew) != 0) {
            pthread_mutex_lock(&crew->lock);
            crew->working--;
            pthread_mutex_unlock(&crew->lock);
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

int gbc_parts_run(struct gbc_parts *parts, unsigned connections, struct gpubuf_error *err) {
    pthread_t threads[GBC_CONNECTIONS_MAX];
    struct crew crew;
    unsigned started;
    unsigned i;

    if (connections > GBC_CONNECTIONS_MAX)
        connections = GBC_CONNECTIONS_MAX;
    if (connections > parts->count)
        connections = (unsigned)parts->count;
    crew_init(&crew, parts);
    look(&crew);
    started = start(&crew, threads, connections);
    if (started == 0 && connections > 0)
        work(&crew); /* a machine without a thread to spare */
    watch(&crew);
    for (i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (crew.first.code == GPUBUF_OK)
        gbc_progress_tick(parts->progress);
    pthread_cond_destroy(&crew.moved);
    pthread_mutex_destroy(&crew.lock);
    if (crew.first.code == GPUBUF_OK)
        return 0;
    if (err && err->code == GPUBUF_OK)
        *err = crew.first;
    return -1;
}
