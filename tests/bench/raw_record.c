/* The raw server with the daemon's guarantees: a CRC32C of every upload, the earlier bytes kept until the new ones are
 * there, and a record that is committed before the answer. The remaining difference to the daemon is HTTP and
 * bookkeeping. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"
#include "store/store.h"
#include "util.h"

static struct gb_store *store;
static atomic_long last_id;

static void done(void *arg, const struct gb_error *error) {
    if (error)
        bench_die("the database: %s", error->detail);
    sem_post(arg);
}

static void wait_for(sem_t *sem) {
    while (sem_wait(sem) != 0)
        continue;
}

void raw_record_open(const char *path) {
    struct gb_store_config config = {.path = path, .queue_max = 1000};
    struct gb_session_rec session = {.id = 1, .version = 1};
    struct gb_error err = GB_ERROR_INIT;
    sem_t sem;

    if (gb_store_open(&config, &store, &err) < 0)
        bench_die("%s", err.detail);
    strcpy(session.name.s, "bench");
    sem_init(&sem, 0, 0);
    gb_store_put_session(store, &session, NULL, done, &sem);
    wait_for(&sem);
}

bool raw_record_wanted(void) {
    return store != NULL;
}

long raw_record_id(void) {
    return atomic_fetch_add(&last_id, 1) + 1;
}

static void fill(struct gb_buffer_rec *rec, long id, uint64_t bytes, uint32_t crc32c) {
    *rec = (struct gb_buffer_rec){.id = id,
                                  .session_id = 1,
                                  .bytes = bytes,
                                  .dtype = GB_DTYPE_UINT8,
                                  .shape = {.dims = 1, .dim = {bytes}},
                                  .generation = 1,
                                  .version = 1,
                                  .has_crc32c = true,
                                  .crc32c = crc32c};
    snprintf(rec->name.s, sizeof rec->name.s, "place-%ld", id);
    strcpy(rec->pool.s, "default");
    strcpy(rec->stream.s, "default");
}

void raw_record(long id, uint64_t bytes, uint32_t crc32c) {
    struct gb_buffer_rec rec;
    sem_t sem;

    fill(&rec, id, bytes, crc32c);
    sem_init(&sem, 0, 0);
    gb_store_put_buffer(store, &rec, NULL, done, &sem);
    wait_for(&sem);
}

void raw_record_stored(const struct raw_body *body, uint32_t crc32c) {
    struct gb_stored_rec stored = {.buffer_id = body->id,
                                   .generation = body->generation,
                                   .bytes = body->bytes,
                                   .crc32c = crc32c,
                                   .blocks = body->blocks};
    struct gb_buffer_rec rec;
    struct gb_store_edit edit = {.rec = &rec, .durable = true, .stored = &stored};
    sem_t sem;

    fill(&rec, body->id, body->bytes, crc32c);
    rec.generation = rec.version = body->generation;
    rec.durability = GB_DURABILITY_SYNC;
    if (gb_stored_inline(&stored))
        edit.data = body->memory;
    sem_init(&sem, 0, 0);
    gb_store_edit_buffers(store, &edit, 1, NULL, done, &sem);
    wait_for(&sem);
}
