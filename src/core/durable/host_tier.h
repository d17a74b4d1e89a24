/* Host memory for bytes that have left a device: page-locked blocks, so that a copy from or to the device goes at the
 * speed of the bus. All together take --spill-host-bytes at most. A block that is given back is kept for a next one of
 * its size, because page-locking is slower than the copy; it ends when others need its room. */
#ifndef GB_CORE_DURABLE_HOST_TIER_H
#define GB_CORE_DURABLE_HOST_TIER_H

#include "core/runtime/runtime.h"

struct gb_host_tier;

/* A block, counted by references: the stored bytes' and each reader's. */
struct gb_host_block {
    atomic_uint refs;
    struct gb_core *core;
    struct gb_task task;        /* gives it back */
    struct gb_host_block *next; /* kept */
    int device;                 /* index, of the device that it was page-locked by way of */
    void *ptr;
    uint64_t bytes;
    uint64_t size; /* of the memory: whole pages */
};

/* NULL when memory is exhausted. limit_bytes 0: no block is given. */
struct gb_host_tier *gb_host_tier_new(uint64_t limit_bytes);
/* Frees what is kept. No block is in use; NULL is accepted. */
void gb_host_tier_free(struct gb_core *core);

/* There is room for so many bytes, if nothing else takes it. [any thread, never blocks] */
bool gb_host_tier_has_room(const struct gb_core *core, uint64_t bytes);

/* Page-locks memory, unless a block of that size is kept. [blocks] Returns 0 with one reference, or -1 with
 * INVALID_ARGUMENT (there is no such memory), STORAGE_FULL (with numbers), PINNED_LIMIT or the device's refusal. */
int gb_host_block_new(struct gb_core *core, int device, uint64_t bytes, struct gb_host_block **ret,
                      struct gb_error *err);
struct gb_host_block *gb_host_block_ref(struct gb_host_block *block); /* NULL is accepted */
/* NULL is accepted. A thread of the disk gives the memory back. [any thread, never blocks] */
void gb_host_block_unref(struct gb_host_block *block);

struct gb_host_tier_stat {
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t kept_bytes; /* of blocks that hold nothing now */
    uint64_t blocks;     /* in use */
};
void gb_host_tier_stat(struct gb_core *core, struct gb_host_tier_stat *ret);

#endif
