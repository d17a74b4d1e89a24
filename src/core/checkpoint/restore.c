/* Restoring a checkpoint: one group of transactions, whose bytes are links. */
#include "core/checkpoint/restore.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "core/durable/durable.h"
#include "core/stored/disks.h"

/* Buffers that are loaded at a time. */
#define AT_ONCE 16

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void finish(struct gb_restore *restore, const struct gb_error *error) {
    struct gb_core *core = restore->core;
    struct gb_restore_call *call = restore->call;
    size_t i;

    for (i = 0; i < restore->count; i++)
        gb_transaction_done(&restore->items[i].transaction);
    gb_manifest_done(&restore->manifest);
    gb_session_touch(restore->session);
    atomic_fetch_sub(&restore->session->transfers, 1);
    gb_session_unref(restore->session);
    free(restore->group.transactions);
    free(restore->group.edits);
    free(restore->items);
    free(restore->names);
    free(restore);
    gb_core_changed(core);
    gb_call_finish(&call->base, error);
    gb_core_leave(core);
}

/* --- into memory -------------------------------------------------------------------------------------------------- */

static void run_loads(struct gb_task *task);

static void wake(void *arg) {
    struct gb_restore *restore = arg;

    restore->task.run = run_loads;
    gb_lane_post(gb_core_compute_lane(restore->core), &restore->task);
}

static void skip(struct gb_restore *restore, const struct gb_restore_item *item, enum gb_code code) {
    gb_checkpoint_skip(restore->call->tell, &restore->call->told, &restore->call->skipped, &item->transaction.name,
                       code);
}

/* None of the buffers takes the place of another one in memory. */
static void cover(struct gb_restore *restore) {
    size_t i;

    restore->sweep = gb_sweep_number(restore->core);
    pthread_mutex_lock(&restore->session->lock);
    for (i = 0; i < restore->count; i++) {
        struct gb_buffer *b = gb_buffer_find_locked(restore->session, &restore->items[i].transaction.name, NULL);

        if (b)
            b->sweep = restore->sweep;
    }
    pthread_mutex_unlock(&restore->session->lock);
}

/* Returns false if the bytes have left memory again. */
static bool uncover(struct gb_restore *restore, const struct gb_restore_item *item) {
    struct gb_buffer *b;
    bool left;

    pthread_mutex_lock(&restore->session->lock);
    b = gb_buffer_find_locked(restore->session, &item->transaction.name, NULL);
    left = b && b->rec.state == GB_BUFFER_STORED;
    if (b && b->sweep == restore->sweep)
        gb_sweep_leave_locked(b);
    pthread_mutex_unlock(&restore->session->lock);
    return !left;
}

/* What is in memory now counts. */
static void end_loads(struct gb_restore *restore) {
    size_t i;

    for (i = 0; i < restore->count; i++) {
        const struct gb_restore_item *item = &restore->items[i];
        bool in_memory = uncover(restore, item);

        if (item->loaded && in_memory)
            restore->call->loaded++;
        else if (item->loaded)
            skip(restore, item, GB_ERR_NOT_LOADED);
    }
    finish(restore, NULL);
}

static void load_one(struct gb_restore *restore, struct gb_restore_item *item) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    if (gb_buffer_load_in(restore->session, &item->transaction.name, &rec, &err) == 0) {
        gb_buffer_rec_done(&rec);
        item->loaded = true;
    } else if (err.code == GB_ERR_NOT_LOADED) {
        return;
    } else {
        skip(restore, item, err.code);
    }
    item->over = true;
}

/* True: none of the next few is under way. */
static bool load_some(struct gb_restore *restore) {
    size_t end = restore->next + AT_ONCE < restore->count ? restore->next + AT_ONCE : restore->count;
    bool all = true;
    size_t i;

    for (i = restore->next; i < end; i++) {
        if (!restore->items[i].over)
            load_one(restore, &restore->items[i]);
        all = all && restore->items[i].over;
    }
    if (all)
        restore->next = end;
    return all;
}

static void run_loads(struct gb_task *task) {
    struct gb_restore *restore = gb_container_of(task, struct gb_restore, task);

    while (restore->next < restore->count) {
        uint64_t sequence = gb_loads_sequence(restore->core);

        if (!load_some(restore) && gb_loads_wait(restore->core, sequence, &restore->waiter))
            return;
    }
    end_loads(restore);
}

/* --- the commit --------------------------------------------------------------------------------------------------- */

static void count(struct gb_restore *restore) {
    struct gb_restore_call *call = restore->call;
    size_t i;

    for (i = 0; i < restore->count; i++) {
        call->buffers++;
        call->bytes += restore->manifest.entries[restore->items[i].index].bytes;
        call->replaced += restore->items[i].replaced;
    }
    restore->view.buffers = call->buffers;
    restore->view.bytes = call->bytes;
    gb_checkpoints_tell(restore->core, GB_NOTICE_CHECKPOINT_RESTORED, &restore->view,
                        gb_session_told(restore->session));
}

static void end(struct gb_transaction_group *group) {
    struct gb_restore *restore = gb_container_of(group, struct gb_restore, group);
    struct gb_error error = group->error;
    size_t i;

    for (i = 0; i < restore->count; i++)
        gb_content_drop_all(restore->items[i].gone);
    if (error.code == GB_OK)
        count(restore);
    if (error.code != GB_OK || !restore->params.eager) {
        finish(restore, &error);
        return;
    }
    cover(restore);
    wake(restore);
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static int add(struct gb_restore *restore, size_t index, struct gb_error *err) {
    struct gb_restore_item *item = &restore->items[restore->count];
    const char *name = restore->manifest.entries[index].buffer.s;
    char text[2 * GB_NAME_MAX + 1];

    memset(item, 0, sizeof(*item));
    strcpy(text, restore->params.prefix.s);
    strcat(text, name);
    if (gb_name_parse("buffer name", text, strlen(text), &item->transaction.name, err) < 0)
        return -1;
    item->restore = restore;
    item->index = index;
    item->transaction.session = restore->session;
    gb_restore_item_init(item);
    restore->group.transactions[restore->count++] = &item->transaction;
    return 0;
}

/* Entries by their buffers' names: the key's value is the entry itself. */
static int add_names(struct gb_restore *restore, const struct gb_map *entries, struct gb_error *err) {
    size_t i;

    for (i = 0; i < restore->params.names.count; i++) {
        const char *name = restore->params.names.names[i].s;
        const struct gb_manifest_entry *entry = gb_map_get(entries, name);

        if (!entry)
            return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the checkpoint \"%s\" has no buffer named \"%s\"",
                                restore->view.name.s, name);
        if (add(restore, (size_t)(entry - restore->manifest.entries), err) < 0)
            return -1;
    }
    return 0;
}

static int choose_named(struct gb_restore *restore, struct gb_error *err) {
    struct gb_map entries = {.count = 0};
    size_t i;
    int r = 0;

    for (i = 0; i < restore->manifest.count && r == 0; i++) {
        if (gb_map_put(&entries, restore->manifest.entries[i].buffer.s, &restore->manifest.entries[i]) < 0)
            r = gb_no_memory(err);
    }
    if (r == 0)
        r = add_names(restore, &entries, err);
    gb_map_done(&entries);
    return r;
}

static int choose(struct gb_restore *restore, struct gb_error *err) {
    size_t max = restore->params.names.given ? restore->params.names.count : restore->manifest.count;
    size_t i;

    restore->items = malloc((max + 1) * sizeof(*restore->items));
    restore->group.transactions = calloc(max + 1, sizeof(struct gb_transaction *));
    restore->group.edits = calloc(max + 1, sizeof(*restore->group.edits));
    if (!restore->items || !restore->group.transactions || !restore->group.edits)
        return gb_no_memory(err);
    if (restore->params.names.given)
        return choose_named(restore, err);
    for (i = 0; i < max; i++) {
        if (add(restore, i, err) < 0)
            return -1;
    }
    return 0;
}

/* On a thread of the disk. */
static void run(struct gb_task *task) {
    struct gb_restore *restore = gb_container_of(task, struct gb_restore, task);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_checkpoint_manifest(restore->core, &restore->view.name, &restore->manifest, &err) < 0 ||
        choose(restore, &err) < 0 || restore->count == 0) {
        finish(restore, &err);
        return;
    }
    restore->group.session = restore->session;
    restore->group.count = restore->count;
    restore->group.mark = gb_call_mark(&restore->call->base);
    restore->group.end = end;
    gb_transaction_group_start(&restore->group);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static struct gb_restore *restore_new(const struct gb_restore_params *params) {
    struct gb_restore *restore = calloc(1, sizeof(*restore));
    size_t size = params->names.count * sizeof(*restore->names);

    if (!restore)
        return NULL;
    restore->names = malloc(size + 1);
    if (!restore->names) {
        free(restore);
        return NULL;
    }
    if (size > 0)
        memcpy(restore->names, params->names.names, size);
    restore->params = *params;
    restore->params.names.names = restore->names;
    return restore;
}

static int check_device(const struct gb_core *core, const struct gb_restore_params *params, struct gb_error *err) {
    if (!params->has_device || (params->device >= 0 && params->device < core->device_count))
        return 0;
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d", params->device);
}

/* The session may have been deleted since; the checkpoint outlives it. */
static struct gb_session *use_session(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, name, &why);

    if (!s && why.code == GB_ERR_SESSION_NOT_FOUND)
        gb_error_set(err, why.code,
                     "there is no session named \"%s\" to restore into: create it, or name another one with \"into\"",
                     name->s);
    else if (!s)
        gb_error_move(err, &why);
    return s;
}

void gb_checkpoint_restore(struct gb_core *core, const struct gb_restore_params *params, struct gb_restore_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint_view view;
    struct gb_restore *restore = NULL;
    struct gb_session *s = NULL;

    if (gb_core_alive(core, &err) == 0 && gb_checkpoints_look(core, &params->checkpoint, true, &view, &err) == 0 &&
        check_device(core, params, &err) == 0 && gb_disks_start(core, &err) == 0)
        s = use_session(core, params->into.s[0] ? &params->into : &view.session, &err);
    if (s) {
        restore = restore_new(params);
        if (!restore)
            gb_no_memory(&err);
    }
    if (!restore) {
        gb_session_unref(s);
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    atomic_fetch_add(&s->transfers, 1);
    restore->core = core;
    restore->session = s;
    restore->call = call;
    restore->view = view;
    restore->waiter.waker = (struct gb_waker){wake, restore};
    call->session = *gb_session_told(s);
    restore->task.run = run;
    gb_disks_post(core, &restore->task);
}
