/* Shared declarations of gb-bench-share. */
#ifndef GB_BENCH_SHARE_H
#define GB_BENCH_SHARE_H

#include <gpubuf/gpubuf.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARE_CLIENTS_MAX 64
#define SHARE_NAME 32

struct share {
    const char *socket; /* of the daemon */
    const char *kind;   /* the buffer to map, or to copy slabs into */
    const char *pool;   /* an exportable pool, made for the run; NULL: none */
    const char *way;    /* the only way of mapping; NULL: any */
    const char *device; /* for ceilings: host or cuda */
    uint64_t bytes;
    uint64_t count; /* of maps, or of copies of each client */
    unsigned clients;
    double seconds; /* of maps and unmaps */
    bool down;      /* from buffers into slabs */
    bool atomic;    /* into fresh memory, swapped in at the end */
};

/* One client's connection, its memory and its share of the work. */
struct share_hand {
    const struct share *share;
    unsigned number;
    void *own; /* for the part's use */
};

/* Runs each client in its own thread: prepare, then, when all are ready, work, then finish. Returns the seconds from
 * the start to the end of all work. */
double share_run(const struct share *share, void (*prepare)(struct share_hand *), void (*work)(struct share_hand *),
                 void (*finish)(struct share_hand *));

gpubuf_client *share_open(const struct share *share);
void share_must(int rc, const struct gpubuf_error *err, const char *what);
/* Makes a request of the session "default", whose path follows, with JSON or without (NULL). A failure ends the run. */
void share_ask(gpubuf_client *client, const char *method, const char *path, const char *json);
/* Makes a buffer; pool NULL: none is named. */
void share_make_buffer(gpubuf_client *client, const char *name, uint64_t bytes, const char *kind, const char *pool);

/* Prints the result of that many copies of share->bytes. */
void share_print_bytes(const struct share *share, double seconds);

void share_slab(const struct share *share);
/* The ceiling of copies: memcpy, or cudaMemcpyAsync between registered memory and the device. */
void share_ceiling(const struct share *share);

#endif
