#include "core/stored/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/stored/disks.h"

struct gb_stored *gb_stored_new(struct gb_core *core, const struct gb_stored_rec *rec) {
    size_t bytes = gb_stored_block_count(rec->bytes) * sizeof(rec->blocks[0]);
    struct gb_stored *stored = malloc(sizeof(*stored) + bytes);

    if (!stored)
        return NULL;
    *stored = (struct gb_stored){.core = core, .rec = *rec};
    atomic_init(&stored->refs, 1);
    if (bytes > 0)
        memcpy(stored->blocks, rec->blocks, bytes);
    stored->rec.blocks = stored->blocks;
    stored->name = (struct gb_disk_name){rec->buffer_id, rec->file_generation, rec->file_tag};
    return stored;
}

struct gb_stored *gb_stored_new_in_host(struct gb_core *core, const struct gb_stored_rec *rec,
                                        struct gb_host_block *block) {
    struct gb_stored *stored = malloc(sizeof(*stored));

    if (!stored)
        return NULL;
    *stored = (struct gb_stored){.core = core, .rec = *rec, .spilled = true, .in_host = true, .block = block};
    atomic_init(&stored->refs, 1);
    return stored;
}

struct gb_stored *gb_stored_ref(struct gb_stored *stored) {
    atomic_fetch_add(&stored->refs, 1);
    return stored;
}

void gb_stored_note_damage(struct gb_stored *stored) {
    if (atomic_exchange(&stored->damaged, true))
        return;
    atomic_fetch_add(&stored->core->damaged_buffers, 1);
    if (stored->core->config.disk)
        gb_disk_note_damage(stored->core->config.disk);
}

void gb_stored_note_whole(struct gb_stored *stored) {
    if (atomic_load(&stored->damaged) && atomic_exchange(&stored->damaged, false))
        atomic_fetch_sub(&stored->core->damaged_buffers, 1);
}

/* On a thread of the disk. */
static void remove_file(struct gb_task *task) {
    struct gb_stored *stored = gb_container_of(task, struct gb_stored, task);
    struct gb_core *core = stored->core;

    if (atomic_load(&stored->set_aside))
        gb_disk_set_aside(core->config.disk, &stored->name, true);
    else
        gb_disk_remove(core->config.disk, &stored->name);
    free(stored);
    gb_core_leave(core);
}

void gb_stored_unref(struct gb_stored *stored) {
    if (!stored || atomic_fetch_sub(&stored->refs, 1) != 1)
        return;
    gb_stored_note_whole(stored); /* no buffer has it any more */
    gb_host_block_unref(stored->block);
    if (!atomic_load(&stored->condemned) || !gb_stored_has_file(stored)) {
        free(stored);
        return;
    }
    gb_core_enter(stored->core);
    stored->task.run = remove_file;
    gb_disks_post(stored->core, &stored->task);
}

void gb_stored_condemn(struct gb_stored *stored) {
    if (stored)
        atomic_store(&stored->condemned, true);
}

int gb_stored_check_block(struct gb_stored *stored, size_t index, uint32_t crc32c, struct gb_error *err) {
    if (crc32c == stored->blocks[index])
        return 0;
    gb_stored_note_damage(stored);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                        "the stored bytes from offset %llu have the checksum %08x and should have %08x: upload the "
                        "buffer again",
                        (unsigned long long)index * GB_STORED_BLOCK_BYTES, crc32c, stored->blocks[index]);
}
