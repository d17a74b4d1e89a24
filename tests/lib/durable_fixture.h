/* Blocking helpers for durable buffers of the session "default" in the core's tests. */
#ifndef DURABLE_FIXTURE_H
#define DURABLE_FIXTURE_H

#include "core_fixture.h"

#define DURABLE_LARGE (3u * 1024u * 1024u + 5u) /* has a file of its own, of several blocks */

/* What was uploaded and downloaded last. */
extern char durable_sent[DURABLE_LARGE];
extern char durable_back[DURABLE_LARGE];

/* A core whose buffers are stored on request alone. */
void durable_open(struct core_fixture *f, const char *spec);

/* Uploads n bytes that depend on seed. ret may be NULL. */
int durable_put(struct core_fixture *f, const char *name, unsigned seed, size_t n, enum gb_durability durability,
                struct gb_buffer_rec *ret, struct gb_error *err);
void durable_put_ok(struct core_fixture *f, const char *name, unsigned seed, size_t n, enum gb_durability durability);

/* The record, without its labels. */
struct gb_buffer_rec durable_get(struct core_fixture *f, const char *name);

/* Downloads the buffer and compares it with what durable_put uploads. */
void durable_assert_bytes(struct core_fixture *f, const char *name, unsigned seed, size_t n);

/* Waits for gb_buffer_store or gb_buffer_evict. *ret_moved: bytes were written, or left memory. It may be NULL. */
typedef void durable_fn(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                        struct gb_buffer_call *call);
int durable_do(struct core_fixture *f, durable_fn *fn, const char *name, bool *ret_moved, struct gb_error *err);

/* Gives the buffer that durability, and waits. */
int durable_patch(struct core_fixture *f, const char *name, enum gb_durability durability, struct gb_error *err);

/* The path of the one file that the disk has. */
void durable_find_file(struct core_fixture *f, char *ret, size_t size);

#endif
