#include "core/checkpoint/check.h"

#include <stdlib.h>

#include "base/hash.h"
#include "core/runtime/call.h"

#define STEPS 64

static int begin(struct gb_checkpoint_check *c, struct gb_error *err) {
    const struct gb_manifest_entry *entry = &c->manifest->entries[c->index];
    struct gb_checkpoint_sum came;
    char file[GB_MANIFEST_FILE_SIZE];
    uint64_t size;

    gb_manifest_file(c->index, file);
    if (!c->block && posix_memalign((void **)&c->block, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0) {
        c->block = NULL;
        return gb_no_memory(err);
    }
    if (gb_disk_checkpoint_open(c->disk, &c->name, file, &c->reader, &size, err) < 0)
        return -1;
    c->at = 0;
    c->crc = 0;
    if (size == entry->size && c->core && gb_checkpoints_came(c->core, &c->name, c->index, &came) &&
        came.size == size) {
        c->at = size;
        c->crc = came.crc32c;
    }
    if (size == entry->size)
        return 0;
    gb_disk_note_damage(c->disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file %s has %llu bytes and should have %llu", file,
                        (unsigned long long)size, (unsigned long long)entry->size);
}

static int read_some(struct gb_checkpoint_check *c, struct gb_error *err) {
    const struct gb_manifest_entry *entry = &c->manifest->entries[c->index];
    unsigned steps = c->steps > 0 ? c->steps : STEPS;
    unsigned i;

    for (i = 0; i < steps && c->at < entry->size; i++) {
        uint64_t left = entry->size - c->at;
        size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

        if (gb_disk_read(c->reader, c->block, n, c->at, err) < 0)
            return -1;
        c->crc = gb_crc32c(c->crc, c->block, n);
        c->at += n;
    }
    if (c->at < entry->size)
        return 2;
    if (c->crc == entry->file_crc32c)
        return 1;
    gb_disk_note_damage(c->disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file of \"%s\" has the checksum %08x and should have %08x",
                        entry->buffer.s, c->crc, entry->file_crc32c);
}

int gb_checkpoint_check_step(struct gb_checkpoint_check *c, struct gb_error *err) {
    int r;

    if (c->index == c->manifest->count)
        return 0;
    r = !c->reader && begin(c, err) < 0 ? -1 : read_some(c, err);
    if (r == 2)
        return r;
    gb_disk_read_close(c->reader);
    c->reader = NULL;
    c->index++;
    return r;
}

void gb_checkpoint_check_done(struct gb_checkpoint_check *c) {
    gb_disk_read_close(c->reader);
    free(c->block);
    *c = (struct gb_checkpoint_check){.disk = NULL};
}
