/* Buffers restored from a checkpoint: their files are linked, and their records committed together, all or none. Loads
 * may follow. Handlers of checkpoints call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/map.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/load.h"
#include "core/durable/stored.h"
#include "core/session/quota.h"

/* A restore under way. */

struct gb_restore;

struct gb_restore_item {
    struct gb_transaction transaction;
    struct gb_restore *restore;
    struct gb_task task;
    size_t index; /* of the entry */
    bool counted; /* in the session's quota of buffers */
    bool replaced;
    bool over; /* its load, or it was skipped */
    bool loaded;
    struct gb_content *gone;
};

struct gb_restore {
    struct gb_task task;
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    struct gb_restore_params params;
    struct gb_name *names; /* its own */
    struct gb_restore_call *call;
    struct gb_checkpoint_view view;
    struct gb_manifest manifest;
    struct gb_restore_item *items;
    size_t count;
    size_t next;    /* to be loaded */
    uint64_t sweep; /* the loads' number */
    struct gb_load_waiter waiter;
    struct gb_transaction_group group;
};

/* --- bring -------------------------------------------------------------------------------------------------------- */

/* One buffer of a checkpoint that is restored: its record, and its bytes, which come by a link. */

static struct gb_restore_item *item_of(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_restore_item, transaction);
}

static const struct gb_manifest_entry *entry_of(const struct gb_restore_item *item) {
    return &item->restore->manifest.entries[item->index];
}

/* --- the record --------------------------------------------------------------------------------------------------- */

/* Bytes that were never on disk are now, and stay so: what is written later may be a little late. */
static enum gb_durability choose_durability(const struct gb_buffer *b, const struct gb_manifest_entry *entry) {
    if (b && b->rec.durability != GB_DURABILITY_NONE)
        return b->rec.durability;
    return entry->durability != GB_DURABILITY_NONE ? entry->durability : GB_DURABILITY_BEHIND;
}

/* A buffer that is replaced stays where it was, unless the caller names a device. */
static void place_locked(const struct gb_restore *restore, const struct gb_buffer *b, struct gb_buffer_rec *rec) {
    struct gb_core *core = restore->core;
    bool stays = b && !restore->params.has_device && b->rec.device >= 0 && b->rec.device < core->device_count;

    if (!stays)
        rec->device = restore->params.has_device ? restore->params.device : 0;
    if (rec->mirrored)
        rec->kind = gb_core_usual_kind(&core->devices[rec->device]);
    if (rec->kind != GB_KIND_DEVICE)
        rec->pool = (struct gb_name){""};
    else if (!stays || rec->pool.s[0] == '\0')
        rec->pool = gb_session_pool_locked(restore->session, &core->devices[rec->device])->rec.name;
}

static void describe_locked(const struct gb_restore_item *item, const struct gb_buffer *b, struct gb_buffer_rec *rec) {
    const struct gb_manifest_entry *entry = entry_of(item);

    rec->kind = entry->kind;
    rec->mirrored = entry->mirrored;
    place_locked(item->restore, b, rec);
    rec->durability = choose_durability(b, entry);
    rec->bytes = entry->bytes;
    rec->dtype = entry->dtype;
    rec->shape = entry->shape;
    rec->sealed = entry->sealed;
    rec->adopted = false;
    rec->has_crc32c = true;
    rec->crc32c = entry->crc32c;
    rec->head = GB_HEAD_UNINITIALIZED;
    rec->state = GB_BUFFER_STORED;
    rec->stream = item->restore->session->standard->name;
    gb_text_set(&rec->labels, entry->labels);
    rec->generation++;
    rec->version++;
    rec->updated_at_us = gb_wall_us();
}

static int check_locked(const struct gb_restore_item *item, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_restore *restore = item->restore;

    if (!restore->params.replace)
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS,
                            "session \"%s\" has a buffer named \"%s\": nothing was restored. Give a prefix, or replace",
                            gb_session_client_name(restore->session)->s, b->name);
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "\"%s\" is being overwritten in place; try again", b->name);
    return gb_guard_check_unsealed_locked(b, err);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_restore_item *item = item_of(transaction);

    if (b && check_locked(item, b, err) < 0)
        return -1;
    if (!b && !item->counted) {
        if (gb_quota_take_locked(transaction->session, 0, 1, err) < 0)
            return -1;
        item->counted = true;
    }
    if (b) {
        gb_buffer_copy_locked(b, &transaction->rec);
    } else {
        gb_buffer_rec_done(&transaction->rec);
        transaction->rec = (struct gb_buffer_rec){.name = transaction->name, .created_at_us = gb_wall_us()};
    }
    describe_locked(item, b, &transaction->rec);
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_restore_item *item = item_of(transaction);

    item->replaced = b->live;
    if (b->live)
        item->gone = gb_buffer_lose_locked(transaction->session, b);
    if (b->live && item->counted)
        gb_quota_give_locked(transaction->session, 0, 1);
    item->counted = false;
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, NULL);
}

static void rollback_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_restore_item *item = item_of(transaction);

    (void)b;
    if (item->counted)
        gb_quota_give_locked(transaction->session, 0, 1);
    item->counted = false;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* Small ones go into the database, as all of that size. */
static int read_small(struct gb_restore_item *item, struct gb_persist *p, struct gb_error *err) {
    const struct gb_manifest_entry *entry = entry_of(item);
    struct gb_disk *disk = item->restore->core->config.disk;
    char file[GB_MANIFEST_FILE_SIZE];
    struct gb_disk_reader *reader;
    uint64_t size;
    int r;

    gb_manifest_file(item->index, file);
    if (gb_disk_checkpoint_open(disk, &item->restore->view.name, file, &reader, &size, err) < 0)
        return -1;
    p->data = malloc((size_t)entry->bytes + 1);
    if (!p->data)
        r = gb_no_memory(err);
    else if (size != entry->size)
        r = gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file %s of the checkpoint has another size", file);
    else
        r = gb_disk_read(reader, p->data, (size_t)entry->bytes, size - entry->bytes, err);
    gb_disk_read_close(reader);
    if (r < 0 || gb_crc32c(0, p->data, (size_t)entry->bytes) == entry->crc32c)
        return r;
    gb_disk_note_damage(disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the bytes of the file %s of the checkpoint are damaged", file);
}

static int bring(struct gb_restore_item *item, struct gb_persist *p, struct gb_error *err) {
    const struct gb_manifest_entry *entry = entry_of(item);
    struct gb_core *core = item->restore->core;
    const struct gb_disk_name name = {p->rec->id, p->rec->generation | GB_DISK_LINKED,
                                      atomic_fetch_add(&core->file_tags, 1)};
    const struct gb_stored_rec rec = {.buffer_id = p->rec->id,
                                      .generation = p->rec->generation,
                                      .run = p->rec->run,
                                      .file_generation = name.generation,
                                      .file_tag = name.run,
                                      .bytes = entry->bytes,
                                      .dtype = entry->dtype,
                                      .shape = entry->shape,
                                      .crc32c = entry->crc32c,
                                      .blocks = entry->blocks};

    if (gb_stored_inline(&rec))
        return read_small(item, p, err) == 0 && (p->stored = gb_stored_new(core, &rec)) ? 0 : gb_no_memory(err);
    if (gb_disk_checkpoint_link_out(core->config.disk, &item->restore->view.name, item->index, entry->bytes, &name,
                                    err) < 0)
        return -1;
    p->stored = gb_stored_new(core, &rec);
    if (p->stored)
        return 0;
    gb_disk_remove(core->config.disk, &name);
    return gb_no_memory(err);
}

static void give_up(struct gb_persist *p) {
    gb_stored_condemn(p->stored);
    gb_stored_unref(p->stored);
    p->stored = NULL;
}

/* On a thread of the disk. A checkpoint that was deleted meanwhile may have another one in its place, whose files are
 * others. */
static void bring_run(struct gb_task *task) {
    struct gb_restore_item *item = gb_container_of(task, struct gb_restore_item, task);
    struct gb_persist *p = &item->transaction.persist;
    struct gb_error err = GB_ERROR_INIT;
    int r = bring(item, p, &err);

    if (gb_checkpoints_still(item->restore->core, &item->restore->view, &p->error) < 0)
        give_up(p);
    else if (r < 0)
        gb_error_set(&p->error, err.code, "\"%s\": %.250s", item->transaction.name.s, err.detail);
    p->done(p);
}

/* As core->persist. */
static void start(struct gb_core *core, struct gb_persist *p) {
    struct gb_restore_item *item = item_of(gb_container_of(p, struct gb_transaction, persist));

    item->task.run = bring_run;
    gb_disks_post(core, &item->task);
}

/* Sets the functions of the item's transaction. */
static void restore_item_init(struct gb_restore_item *item) {
    item->transaction.validate_locked = validate_locked;
    item->transaction.publish_locked = publish_locked;
    item->transaction.rollback_locked = rollback_locked;
    item->transaction.brings = start;
    item->transaction.whole = true;
}

/* --- restore ------------------------------------------------------------------------------------------------------ */

/* One group of transactions, whose bytes are links. */

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
    gb_checkpoint_skip(restore->call->listed, &restore->call->listed_count, &restore->call->skipped,
                       &item->transaction.name, code);
}

/* The buffers do not displace each other in memory. */
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

/* Returns true if none of the next few loads is under way. */
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
                        gb_session_client_name(restore->session));
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
    restore_item_init(item);
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
    call->session = *gb_session_client_name(s);
    restore->task.run = run;
    gb_disks_post(core, &restore->task);
}
