/* One buffer of a checkpoint that is restored: its record, and its bytes, which come by a link. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/buffer/guard.h"
#include "core/checkpoint/restore.h"
#include "core/stored/disks.h"

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
    if (rec->kind != GB_KIND_DEVICE)
        rec->pool = (struct gb_name){""};
    else if (!stays || rec->pool.s[0] == '\0')
        rec->pool = gb_session_pool_locked(restore->session, &core->devices[rec->device])->rec.name;
}

static void describe_locked(const struct gb_restore_item *item, const struct gb_buffer *b, struct gb_buffer_rec *rec) {
    const struct gb_manifest_entry *entry = entry_of(item);

    rec->kind = entry->kind;
    place_locked(item->restore, b, rec);
    rec->durability = choose_durability(b, entry);
    rec->bytes = entry->bytes;
    rec->dtype = entry->dtype;
    rec->shape = entry->shape;
    rec->mirrored = entry->mirrored;
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
                            gb_session_told(restore->session)->s, b->name);
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
static void run(struct gb_task *task) {
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

    item->task.run = run;
    gb_disks_post(core, &item->task);
}

void gb_restore_item_init(struct gb_restore_item *item) {
    item->transaction.validate_locked = validate_locked;
    item->transaction.publish_locked = publish_locked;
    item->transaction.rollback_locked = rollback_locked;
    item->transaction.brings = start;
    item->transaction.whole = true;
}
