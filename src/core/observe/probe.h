/* Probes: how fast each kind of memory is copied on this machine, and whether the bytes arrive. They need a backend and
 * no core. */
#ifndef GB_CORE_OBSERVE_PROBE_H
#define GB_CORE_OBSERVE_PROBE_H

#include "backend/backend.h"
#include "core/util/pinned.h"

/* One device under test. Zero-initialised is accepted by gb_probe_done. */
struct gb_probe {
    struct gb_backend *be;
    struct gb_device_rec rec;
    struct gb_pool *pool; /* its own; NULL: the device has none */
    struct gb_stream *stream;
    struct gb_event *asked; /* the moment when a copy was asked for */
    struct gb_event *start;
    struct gb_event *end;
    struct gb_pinned *pinned; /* borrowed: page-locked memory counts there; NULL: nowhere. Set after gb_probe_init */
    uint64_t pattern;         /* other bytes for each measurement */
};

/* Memory of one kind, and how much of it. */
struct gb_probe_memory {
    struct gb_location place; /* ptr NULL: none */
    uint64_t bytes;
};

int gb_probe_init(struct gb_probe *probe, struct gb_backend *be, int device, struct gb_error *err);
void gb_probe_done(struct gb_probe *probe);

/* The kind of the device's memory that others are copied to and from: cudaMalloc's where there are no pools. */
enum gb_kind gb_probe_device_kind(const struct gb_probe *probe);

/* Blocks. memory is written on success only. */
int gb_probe_alloc(struct gb_probe *probe, enum gb_kind kind, uint64_t bytes, struct gb_probe_memory *memory,
                   struct gb_error *err);
void gb_probe_free(struct gb_probe *probe, struct gb_probe_memory *memory); /* one that is empty is accepted */

/* Copies several times and looks at the bytes afterwards. bytes: a multiple of 8. *ret_ns: the median by the device's
 * clock. INTERNAL when bytes arrive wrong. check: pinned memory, through which they are looked at piece by piece. */
int gb_probe_copy(struct gb_probe *probe, const struct gb_probe_memory *dst, const struct gb_probe_memory *src,
                  const struct gb_probe_memory *check, uint64_t bytes, uint64_t *ret_ns, struct gb_error *err);

/* One copy behind work that was queued before it, on one stream, in nanoseconds. */
struct gb_probe_wait {
    uint64_t earlier_bytes;
    uint64_t bytes;
    uint64_t seen_ns;   /* a clock of the CPU around the copy */
    uint64_t queued_ns; /* it waited behind the earlier work */
    uint64_t copied_ns; /* it took */
};

/* A copy of `bytes` from device memory into host behind `copies` copies of host to device. */
int gb_probe_queue(struct gb_probe *probe, const struct gb_probe_memory *device, const struct gb_probe_memory *host,
                   uint64_t bytes, unsigned copies, struct gb_probe_wait *ret, struct gb_error *err);

/* The middle one of n times, which are sorted. */
uint64_t gb_probe_median(uint64_t *ns, size_t n);

#endif
