#include "core/durable/host_tier.h"

#include <stdlib.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/durable/disks.h"
#include "core/util/staging.h"

#define PAGE_BYTES 4096u

struct gb_host_tier {
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes; /* of blocks in use; changed under the lock, read without it */
    pthread_mutex_t lock;        /* a leaf; for all below */
    uint64_t kept_bytes;
    uint64_t blocks;
    struct gb_host_block *kept; /* the one given back last is first */
};

struct gb_host_tier *gb_host_tier_new(uint64_t limit_bytes) {
    struct gb_host_tier *tier = calloc(1, sizeof(*tier));

    if (!tier)
        return NULL;
    tier->limit_bytes = limit_bytes;
    gb_mutex_init(&tier->lock);
    return tier;
}

/* A failure of a device that died leaves the memory to the end of the process. */
static void free_block(struct gb_core *core, struct gb_host_block *block) {
    const struct gb_location place = {GB_KIND_PINNED, block->device, block->ptr};
    struct gb_error err = GB_ERROR_INIT;

    if (block->ptr && gb_mem_kind_free(core->backend, &place, block->size, &err) < 0)
        gb_core_report_error(core, &err);
    gb_pinned_give(&core->pinned, block->size);
    free(block);
}

static void free_list(struct gb_core *core, struct gb_host_block *list) {
    while (list) {
        struct gb_host_block *next = list->next;

        free_block(core, list);
        list = next;
    }
}

void gb_host_tier_free(struct gb_core *core) {
    struct gb_host_tier *tier = core->host_tier;

    if (!tier)
        return;
    free_list(core, tier->kept);
    pthread_mutex_destroy(&tier->lock);
    free(tier);
}

bool gb_host_tier_has_room(const struct gb_core *core, uint64_t bytes) {
    uint64_t used = atomic_load(&core->host_tier->used_bytes);

    return used <= core->host_tier->limit_bytes && bytes <= core->host_tier->limit_bytes - used;
}

void gb_host_tier_stat(struct gb_core *core, struct gb_host_tier_stat *ret) {
    struct gb_host_tier *tier = core->host_tier;

    pthread_mutex_lock(&tier->lock);
    *ret = (struct gb_host_tier_stat){.limit_bytes = tier->limit_bytes,
                                      .used_bytes = atomic_load(&tier->used_bytes),
                                      .kept_bytes = tier->kept_bytes,
                                      .blocks = tier->blocks};
    pthread_mutex_unlock(&tier->lock);
}

/* --- getting ------------------------------------------------------------------------------------------------------ */

static struct gb_host_block *take_kept_locked(struct gb_host_tier *tier, int device, uint64_t size) {
    struct gb_host_block **at = &tier->kept;
    struct gb_host_block *block;

    while (*at && ((*at)->size != size || (*at)->device != device))
        at = &(*at)->next;
    block = *at;
    if (block) {
        *at = block->next;
        tier->kept_bytes -= size;
    }
    return block;
}

/* Takes out the blocks that have been kept for longest, until the rest leaves room. */
static struct gb_host_block *cut_kept_locked(struct gb_host_tier *tier) {
    struct gb_host_block **at = &tier->kept;
    uint64_t room = tier->limit_bytes - atomic_load(&tier->used_bytes);
    struct gb_host_block *list;

    while (*at && (*at)->size <= room) {
        room -= (*at)->size;
        at = &(*at)->next;
    }
    list = *at;
    *at = NULL;
    for (at = &list; *at; at = &(*at)->next)
        tier->kept_bytes -= (*at)->size;
    return list;
}

static int refuse(const struct gb_host_tier *tier, uint64_t bytes, struct gb_error *err) {
    uint64_t used = atomic_load(&tier->used_bytes);

    if (tier->limit_bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the daemon takes no bytes into host memory: start it with --spill-host-bytes, or evict to "
                            "\"disk\"");
    gb_error_numbers(err, tier->limit_bytes, used, bytes);
    return gb_error_set(err, GB_ERR_STORAGE_FULL,
                        "the host memory for bytes that have left a device holds %llu of %llu bytes "
                        "(--spill-host-bytes), and %llu more are asked for: load or delete buffers that are there, or "
                        "evict to \"disk\"",
                        (unsigned long long)used, (unsigned long long)tier->limit_bytes, (unsigned long long)bytes);
}

/* Counts the block as used. *ret NULL: none of its size was kept. */
static int reserve(struct gb_core *core, int device, uint64_t size, struct gb_host_block **ret, struct gb_error *err) {
    struct gb_host_tier *tier = core->host_tier;
    struct gb_host_block *useless = NULL;
    bool room;

    pthread_mutex_lock(&tier->lock);
    room = gb_host_tier_has_room(core, size);
    if (room) {
        *ret = take_kept_locked(tier, device, size);
        atomic_fetch_add(&tier->used_bytes, size);
        tier->blocks++;
        useless = cut_kept_locked(tier);
    }
    pthread_mutex_unlock(&tier->lock);
    free_list(core, useless);
    return room ? 0 : refuse(tier, size, err);
}

static void give_back_locked(struct gb_host_tier *tier, uint64_t size) {
    atomic_fetch_sub(&tier->used_bytes, size);
    tier->blocks--;
}

static struct gb_host_block *make(struct gb_core *core, int device, uint64_t size, struct gb_error *err) {
    struct gb_host_block *block = calloc(1, sizeof(*block));

    if (!block) {
        gb_no_memory(err);
        return NULL;
    }
    block->core = core;
    block->device = device;
    block->size = size;
    if (gb_pinned_take(&core->pinned, size, err) < 0) {
        free(block);
        return NULL;
    }
    if (gb_mem_kind_alloc(core->backend, device, GB_KIND_PINNED, size, &block->ptr, err) == 0)
        return block;
    gb_pinned_give(&core->pinned, size);
    free(block);
    return NULL;
}

int gb_host_block_new(struct gb_core *core, int device, uint64_t bytes, struct gb_host_block **ret,
                      struct gb_error *err) {
    uint64_t size = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct gb_host_block *block = NULL;

    if (reserve(core, device, size, &block, err) < 0)
        return -1;
    if (!block)
        block = make(core, device, size, err);
    if (!block) {
        pthread_mutex_lock(&core->host_tier->lock);
        give_back_locked(core->host_tier, size);
        pthread_mutex_unlock(&core->host_tier->lock);
        return -1;
    }
    atomic_init(&block->refs, 1);
    block->bytes = bytes;
    block->next = NULL;
    *ret = block;
    return 0;
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

struct gb_host_block *gb_host_block_ref(struct gb_host_block *block) {
    if (block)
        atomic_fetch_add(&block->refs, 1);
    return block;
}

/* In one step: room that is given back before the block is counted as kept would let the two exceed the limit. */
static void keep(struct gb_task *task) {
    struct gb_host_block *block = gb_container_of(task, struct gb_host_block, task);
    struct gb_core *core = block->core;
    struct gb_host_tier *tier = core->host_tier;

    pthread_mutex_lock(&tier->lock);
    give_back_locked(tier, block->size);
    block->next = tier->kept;
    tier->kept = block;
    tier->kept_bytes += block->size;
    pthread_mutex_unlock(&tier->lock);
    gb_core_changed(core);
    gb_core_leave(core);
}

void gb_host_block_unref(struct gb_host_block *block) {
    if (!block || atomic_fetch_sub(&block->refs, 1) != 1)
        return;
    gb_core_enter(block->core);
    block->task.run = keep;
    gb_disks_post(block->core, &block->task);
}
