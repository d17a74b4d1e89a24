/* What the parts of gb-bench-share have in common. */
#ifndef GB_BENCH_SHARE_H
#define GB_BENCH_SHARE_H

#include <gpubuf/gpubuf.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARE_CLIENTS_MAX 64
#define SHARE_NAME 32

struct share {
    const char *socket; /* of the daemon */
    const char *kind;   /* of the buffer that is mapped, or that slabs are copied into */
    const char *pool;   /* exportable, made for it; NULL: none */
    const char *way;    /* the only way of mapping; NULL: any */
    const char *device; /* of ceilings: host or cuda */
    uint64_t bytes;
    uint64_t count; /* of maps, or of copies of each client */
    unsigned clients;
    double seconds; /* of maps and unmaps */
    bool down;      /* from buffers into slabs */
    bool atomic;    /* into fresh memory, swapped in when it is there */
};

/* One client's connection, its memory and its share of the work. */
struct share_hand {
    const struct share *share;
    unsigned number;
    void *own; /* the part's */
};

/* Each in a thread of its own: first prepare, then, when all are ready, work, then finish. Seconds that the work of all
 * took together. */
double share_run(const struct share *share, void (*prepare)(struct share_hand *), void (*work)(struct share_hand *),
                 void (*finish)(struct share_hand *));

gpubuf_client *share_open(const struct share *share);
void share_must(int rc, const struct gpubuf_error *err, const char *what);

/* Prints the result of so many copies of share->bytes. */
void share_print_bytes(const struct share *share, double seconds);

void share_slab(const struct share *share);
/* What a copy can cost at best: memcpy, or cudaMemcpyAsync between registered memory and the device. */
void share_ceiling(const struct share *share);

#endif
