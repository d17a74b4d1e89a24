/* The conformance suite: the contracts of backend.h, tested on every backend. Each test runs in its own process against
 * the backend that conf.spec names. No test may assume that the CPU can read device memory. */
#ifndef GB_CONF_H
#define GB_CONF_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "gb_test.h"

#define MIB (1ull << 20)

/* The objects that every test starts with: a backend, its first device's default pool, two streams, 8 MiB of pinned
 * memory. */
struct conf {
    const char *spec;
    struct gb_backend *be;
    struct gb_device_rec device;
    struct gb_pool *pool;
    struct gb_stream *s1;
    struct gb_stream *s2;
    unsigned char *pinned;
    struct gb_error err;
    char note[GB_BACKEND_NOTE_SIZE];
};

#define CONF_PINNED_BYTES (8 * MIB)

/* The objects of this process. */
extern struct conf conf;

void conf_setup(void);
void conf_teardown(void);

/* Adds a test case with set-up and tear-down around each of its tests. */
void conf_add(Suite *suite, const char *name, const TTest *test);

/* The same twice, with _i 0 and 1. */
void conf_add_off_and_on(Suite *suite, const char *name, const TTest *test);

/* A gate blocks a stream with a host function until the gate opens. At most one stream at a time: CUDA may run all host
 * functions on one thread. */
struct conf_gate {
    sem_t entered;
    sem_t open;
};
void conf_gate_hold(struct conf_gate *gate, struct gb_stream *stream); /* returns when the stream is blocked */
void conf_gate_let_go(struct conf_gate *gate);

/* Waits for an event by a watch; fails the test if the event ended with an error. */
void conf_wait(struct gb_event *event);

/* Waits for all work that is queued on a stream now, without gb_stream_sync. */
void conf_wait_stream(struct gb_stream *stream);

struct gb_event *conf_event(void);
struct gb_event *conf_event_on(struct gb_stream *stream); /* created and recorded */
bool conf_done(struct gb_event *event);

void *conf_alloc(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes);
void conf_free(void *ptr, struct gb_stream *stream);
void conf_sync(struct gb_stream *stream);
struct gb_pool_stat conf_stat(struct gb_pool *pool);

/* Makes an explicit pool with the given policies that never releases memory by itself. */
struct gb_pool *conf_pool(uint64_t max_bytes, bool follow, bool opportunistic, bool internal);

/* The byte that belongs at offset in a pattern. */
static inline unsigned char conf_byte(unsigned seed, uint64_t offset) {
    return (unsigned char)((offset * 2654435761u + seed * 40503u) >> 13);
}

/* Write a pattern to device memory, and compare device memory with it, through pinned memory; both wait for the
 * stream. */
void conf_write(void *device, unsigned seed, uint64_t bytes, struct gb_stream *stream);
void conf_expect(const void *device, unsigned seed, uint64_t bytes, struct gb_stream *stream);
void conf_expect_byte(const void *device, unsigned char value, uint64_t bytes, struct gb_stream *stream);

/* Allocates memory of a kind on the first device: from the default pool on s1, or by the kind's own allocation. The
 * memory is freed when s1 and s2 are idle. */
struct gb_location conf_place(enum gb_kind kind, uint64_t bytes);
bool conf_offered(int kind); /* whether the device has memory of that kind */
void conf_place_free(const struct gb_location *place, uint64_t bytes);

void conf_move(const struct gb_location *dst, const struct gb_location *src, uint64_t bytes, struct gb_stream *stream);
void conf_place_fill(const struct gb_location *place, uint64_t pattern, unsigned width, uint64_t count,
                     struct gb_stream *stream);

/* Copies up to CONF_PINNED_BYTES into pinned memory and waits. */
void conf_place_fetch(const struct gb_location *place, uint64_t bytes, struct gb_stream *stream);

/* As conf_write and its siblings, for any place. */
void conf_place_write(const struct gb_location *place, unsigned seed, uint64_t bytes, struct gb_stream *stream);
void conf_place_expect(const struct gb_location *place, unsigned seed, uint64_t bytes, struct gb_stream *stream);
void conf_place_expect_byte(const struct gb_location *place, unsigned char value, uint64_t bytes,
                            struct gb_stream *stream);

/* Parts of the suite. */
void conf_add_device(Suite *suite);
void conf_add_order(Suite *suite);
void conf_add_watch(Suite *suite);
void conf_add_memory(Suite *suite);
void conf_add_pool(Suite *suite);
void conf_add_reuse(Suite *suite);
void conf_add_kind(Suite *suite);
void conf_add_export(Suite *suite);
void conf_add_adopt(Suite *suite);
void conf_add_move(Suite *suite);
void conf_add_box(Suite *suite);
void conf_add_peer(Suite *suite);
void conf_add_threads(Suite *suite);

#endif
