/* Work in parts, over several connections at a time. */
#ifndef GBC_PARTS_H
#define GBC_PARTS_H

#include "client/io.h"

#define GBC_PART_BYTES ((uint64_t)32 << 20)
#define GBC_CONNECTIONS_MAX 64
#define GBC_PARTS_MAX 10000 /* of an upload, as the daemon permits */

uint64_t gbc_part_bytes(uint64_t asked); /* 0: the default */

struct gbc_part {
    uint64_t offset;
    uint64_t bytes;
    uint32_t crc; /* of what passed, when it was asked for */
};

/* Does one: 0, or -1 with err. On any thread; request tells of an interruption through gbc_parts_tick. */
typedef int gbc_part_fn(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err);

struct gbc_parts {
    struct gbc_part *part;
    size_t count;
    uint64_t bytes; /* of all */
    gbc_part_fn *fn;
    void *arg;
    struct gbc_settings *set;
    struct gbc_progress *progress;
    atomic_size_t next;
    atomic_int stop;
};

/* Cuts bytes into parts of part_bytes, larger ones where there would be too many. -1: no memory. */
int gbc_parts_init(struct gbc_parts *parts, uint64_t bytes, uint64_t part_bytes);
void gbc_parts_done(struct gbc_parts *parts);

/* Does them all on up to `connections` threads, while the calling one tells progress. 0, or -1 with the first error. */
int gbc_parts_run(struct gbc_parts *parts, unsigned connections, struct gpubuf_error *err);

/* A tick of the requests that fn makes; arg: the parts. */
int gbc_parts_tick(void *parts);

/* The CRC32C of all, from those of the parts. */
uint32_t gbc_parts_crc(const struct gbc_parts *parts);

#endif
