/* Checkpoints that go: on request, and those that clients have begun to bring and left. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/checkpoint/table.h"
#include "core/stored/disks.h"

#define SWEEP_NS (3600 * GB_NS_PER_S)
#define ORPHAN_TTL_S (24 * 3600)

struct removal {
    struct gb_task task;
    struct gb_core *core;
    struct gb_checkpoint_view view;
    enum gb_checkpoint_state before;
    struct gb_call *call; /* NULL: its time is over */
    struct gb_error refused;
};

static void take_back(struct gb_checkpoints *table, const struct removal *removal) {
    struct gb_checkpoint *c;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, removal->view.name.s);
    c->state = removal->before;
    pthread_mutex_unlock(&table->lock);
}

static void remove_folder(struct gb_task *task) {
    struct removal *removal = gb_container_of(task, struct removal, task);
    struct gb_core *core = removal->core;
    struct gb_error err = removal->refused;

    if (err.code != GB_OK || gb_disk_checkpoint_remove(core->config.disk, &removal->view.name, &err) < 0) {
        take_back(core->checkpoints, removal);
    } else {
        gb_checkpoints_drop(core, &removal->view.name);
        gb_checkpoints_tell(core, GB_NOTICE_CHECKPOINT_DELETED, &removal->view, NULL);
    }
    gb_core_changed(core);
    if (removal->call)
        gb_call_finish(removal->call, &err);
    free(removal);
    gb_core_leave(core);
}

/* The key is marked, or is not to be. */
static void marked(void *arg, const struct gb_error *error) {
    struct removal *removal = arg;

    if (error)
        removal->refused = *error;
    gb_disks_post(removal->core, &removal->task);
}

/* before_us: only if no file has come since. */
static int begin_removal_locked(struct gb_checkpoints *table, struct removal *removal, int64_t before_us,
                                struct gb_error *err) {
    struct gb_checkpoint *c = gb_checkpoints_find_locked(table, &removal->view.name, err);

    if (!c)
        return -1;
    if (c->puts > 0 || c->changed_us > before_us)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "a client brings a file of the checkpoint just now; try again");
    removal->view = c->view;
    removal->before = c->state;
    c->state = GB_CHECKPOINT_GOING;
    return 0;
}

static int start_removal(struct gb_core *core, const struct gb_name *name, int64_t before_us, struct gb_call *call,
                         struct gb_error *err) {
    struct removal *removal = calloc(1, sizeof(*removal));
    int r;

    if (!removal)
        return gb_no_memory(err);
    removal->core = core;
    removal->call = call;
    removal->view.name = *name;
    removal->task.run = remove_folder;
    r = gb_disks_start(core, err);
    pthread_mutex_lock(&core->checkpoints->lock);
    if (r == 0)
        r = begin_removal_locked(core->checkpoints, removal, before_us, err);
    pthread_mutex_unlock(&core->checkpoints->lock);
    if (r < 0) {
        free(removal);
        return -1;
    }
    gb_core_enter(core);
    if (!gb_checkpoints_intend(core, gb_call_mark(call), false, &removal->view.name, removal->view.as_of_us, marked,
                               removal))
        gb_disks_post(core, &removal->task);
    return 0;
}

void gb_checkpoint_delete(struct gb_core *core, const struct gb_name *name, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    if (start_removal(core, name, INT64_MAX, call, &err) < 0)
        gb_call_finish(call, &err);
}

/* Those that clients have begun to bring and left. */
static void sweep(struct gb_core *core) {
    uint64_t ttl_s = core->config.orphan_ttl_s > 0 ? core->config.orphan_ttl_s : ORPHAN_TTL_S;
    int64_t before_us = gb_store_seen_since(core->store, (int64_t)ttl_s * 1000000);
    struct gb_checkpoint_view view;
    int64_t after = 0;

    while (gb_checkpoints_next(core, after, NULL, &view)) {
        after = view.number;
        if (!view.complete && view.damaged_files == 0)
            start_removal(core, &view.name, before_us, NULL, NULL);
    }
}

void gb_checkpoints_tick(struct gb_core *core) {
    struct gb_checkpoints *table = core->checkpoints;
    uint64_t now_ns = gb_clock_ns();
    bool known;

    if (!core->config.disk)
        return;
    pthread_mutex_lock(&table->lock);
    known = table->known;
    pthread_mutex_unlock(&table->lock);
    if (!known)
        gb_checkpoints_start(core, NULL);
    if (table->swept_ns > 0 && now_ns - table->swept_ns < SWEEP_NS)
        return;
    table->swept_ns = now_ns;
    sweep(core);
}
