/* The folders of checkpoints. */
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "daemon/fsck.h"

#define FILE_SIZE (GB_NAME_MAX + 64)

static int check_sum(struct gb_fsck *f, struct gb_disk_reader *file, const struct gb_manifest_entry *entry,
                     struct gb_error *err) {
    unsigned char *room = aligned_alloc(GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES);
    uint32_t crc = 0;
    uint64_t at;
    int r = room != NULL ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");

    for (at = 0; at < entry->size && r == 0; at += GB_STORED_BLOCK_BYTES) {
        uint64_t left = entry->size - at;
        size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

        r = gb_disk_read(file, room, n, at, err);
        if (r == 0)
            crc = gb_crc32c(crc, room, n);
    }
    free(room);
    if (r < 0)
        return -1;
    f->read_bytes += entry->bytes;
    return crc == entry->file_crc32c
               ? 0
               : gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file has the checksum %08x and should have %08x", crc,
                              entry->file_crc32c);
}

static int check_file(struct gb_fsck *f, const struct gb_name *name, const struct gb_manifest *manifest, size_t index,
                      struct gb_error *err) {
    const struct gb_manifest_entry *entry = &manifest->entries[index];
    uint64_t inode = gb_disk_checkpoint_shared(f->disk, name, index);
    struct gb_disk_reader *file = NULL;
    int r = gb_disk_checkpoint_examine(f->disk, name, index, entry, &file, err);

    f->files++;
    if (r == 0 && !f->quick && !gb_fsck_was_read(f, inode)) {
        r = check_sum(f, file, entry, err);
        if (r == 0)
            gb_fsck_note_read(f, inode);
    }
    gb_disk_read_close(file);
    return r;
}

static void found(struct gb_fsck *f, const char *folder, const char *file, const struct gb_error *why) {
    char path[FILE_SIZE];

    f->findings++;
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    gb_fsck_tell(f, gb_fsck_kind(why), NULL, path, why->detail);
}

static void check_files(struct gb_fsck *f, const struct gb_name *name, const char *folder,
                        const struct gb_manifest *manifest) {
    size_t i;

    for (i = 0; i < manifest->count; i++) {
        struct gb_error why = GB_ERROR_INIT;
        char file[GB_MANIFEST_FILE_SIZE];

        if (check_file(f, name, manifest, i, &why) == 0)
            continue;
        gb_manifest_file(i, file);
        found(f, folder, file, &why);
    }
}

/* What a daemon that died has left, or clients have, is no finding. */
static int visit(void *arg, const struct gb_name *name, enum gb_disk_checkpoint_kind kind, const char *folder,
                 struct gb_error *err) {
    struct gb_fsck *f = arg;
    struct gb_manifest manifest = {.count = 0};
    struct gb_error why = GB_ERROR_INIT;

    (void)err;
    if (kind == GB_DISK_CHECKPOINT_PARTIAL)
        gb_fsck_tell(f, "partial", NULL, folder, "it has no manifest: clients may bring the rest, or delete it");
    if (kind == GB_DISK_CHECKPOINT_UNFINISHED)
        gb_fsck_tell(f, "unfinished", NULL, folder, "it was being made or deleted: the next start removes it");
    if (kind != GB_DISK_CHECKPOINT_WHOLE)
        return 0;
    f->checkpoints++;
    if (gb_disk_checkpoint_manifest(f->disk, name, &manifest, &why) < 0) {
        found(f, folder, GB_CHECKPOINT_MANIFEST, &why);
        return 0;
    }
    check_files(f, name, folder, &manifest);
    gb_manifest_done(&manifest);
    return 0;
}

int gb_fsck_checkpoints(struct gb_fsck *f, struct gb_error *err) {
    return gb_disk_visit_checkpoints(f->disk, visit, f, err);
}
