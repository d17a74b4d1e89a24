#include "core/stored/disks.h"

#include <stdlib.h>

struct gb_disks {
    pthread_mutex_t lock; /* while the threads are made */
    atomic_bool started;
    atomic_uint number;
    unsigned count;
    struct gb_lane lanes[];
};

struct gb_disks *gb_disks_new(unsigned threads) {
    unsigned count = threads > 0 ? threads : GB_DISK_THREADS;
    struct gb_disks *disks = calloc(1, sizeof(*disks) + count * sizeof(disks->lanes[0]));

    if (!disks)
        return NULL;
    gb_mutex_init(&disks->lock);
    disks->count = count;
    return disks;
}

void gb_disks_free(struct gb_disks *disks) {
    unsigned i;

    if (!disks)
        return;
    for (i = 0; i < disks->count; i++)
        gb_lane_done(&disks->lanes[i]);
    pthread_mutex_destroy(&disks->lock);
    free(disks);
}

static int start_locked(struct gb_disks *disks, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < disks->count; i++) {
        if (!disks->lanes[i].started && gb_lane_init(&disks->lanes[i], "gb-disk", gb_lane_no_more, NULL, err) < 0)
            return -1;
    }
    atomic_store(&disks->started, true);
    return 0;
}

int gb_disks_start(struct gb_core *core, struct gb_error *err) {
    struct gb_disks *disks = core->disks;
    int r = 0;

    if (!core->config.disk)
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                            "the bytes are in a folder, and the daemon was started without one: start it with "
                            "--data-dir");
    if (atomic_load(&disks->started))
        return 0;
    pthread_mutex_lock(&disks->lock);
    if (!atomic_load(&disks->started))
        r = start_locked(disks, err);
    pthread_mutex_unlock(&disks->lock);
    return r;
}

struct gb_lane *gb_disks_lane(struct gb_core *core) {
    return &core->disks->lanes[atomic_fetch_add(&core->disks->number, 1) % core->disks->count];
}

unsigned gb_disks_count(const struct gb_core *core) {
    return core->disks->count;
}

void gb_disks_post(struct gb_core *core, struct gb_task *task) {
    gb_lane_post(gb_disks_lane(core), task);
}

void gb_disks_post_beside(struct gb_core *core, const struct gb_lane *lane, struct gb_task *task) {
    struct gb_lane *other = gb_disks_lane(core);

    gb_lane_post(other == lane ? gb_disks_lane(core) : other, task);
}

int gb_disks_check_durability(const struct gb_core *core, enum gb_durability durability, struct gb_error *err) {
    if (durability == GB_DURABILITY_NONE || core->config.disk)
        return 0;
    return gb_error_set(
        err, GB_ERR_UNSUPPORTED,
        "the daemon has no folder for bytes, and no buffer can be durable or leave memory: start it with "
        "--data-dir");
}

int gb_disks_check_room(struct gb_core *core, enum gb_durability durability, uint64_t bytes, struct gb_error *err) {
    if (durability == GB_DURABILITY_NONE)
        return 0;
    if (gb_disks_check_durability(core, durability, err) < 0 || gb_store_durable_health(core->store, err) < 0)
        return -1;
    return bytes > GB_STORED_INLINE_BYTES ? gb_disk_check_room(core->config.disk, bytes, err) : 0;
}

void gb_disks_point(const struct gb_core *core, enum gb_disk_op op) {
    if (core->config.disk)
        gb_disk_point(core->config.disk, op);
}
