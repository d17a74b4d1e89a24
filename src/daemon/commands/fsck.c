/* `gpubufd fsck`: whether the files of bytes and of checkpoints are what the database and the manifests say. Changes
 * nothing; no daemon runs meanwhile. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json_writer.h"
#include "daemon/commands/bytes.h"
#include "daemon/commands/command.h"
#include "disk/offline.h"

static const struct gb_command_verb verbs[] = {
    {"[--quick] [--json] [OPTION...]",
     "Compares the database with the files of bytes by name, length, header and checksums, and the files of "
     "checkpoints with their manifests, while no daemon runs. It changes nothing. Prints a line for each finding, and "
     "exits with 1 if there is one. Lines `unnamed`, `partial` and `unfinished` are no findings"}};

enum own { QUICK, JSON, OWNS };

static const struct gb_command_option owns[OWNS] = {
    [QUICK] = {"--quick", "", "looks at names, lengths and headers alone, and reads no bytes", 1},
    [JSON] = {"--json", "", "prints one object of JSON", 1},
};

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_state_dir, GB_OPTION_ID_data_dir, GB_OPTION_ID_config};

static const struct gb_command about = {.word = "fsck",
                                        .verbs = verbs,
                                        .verb_count = 1,
                                        .options = owns,
                                        .option_count = OWNS,
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof(of_daemon) / sizeof(of_daemon[0])};

struct fsck {
    bool quick;
    bool json;
    struct gb_bytes bytes;
    struct gb_store *database;
    struct gb_known known;
    struct gb_disk *disk;
    struct gb_json_writer out; /* with json: the findings */
    uint64_t findings;
    uint64_t buffers; /* with stored bytes */
    uint64_t checkpoints;
    uint64_t files; /* of both */
    uint64_t read_bytes;
    uint64_t unnamed; /* files that no row names */
    uint64_t unfinished;
    uint64_t orphans;
    uint64_t damaged; /* in DIR/damaged */
    void *read;       /* inodes of files of several names that were read and are sound: tsearch(3) */
};

/* --- findings ----------------------------------------------------------------------------------------------------- */

/* Prints what was found. b NULL: of no buffer. file "": of no file. */
static void tell(struct fsck *f, const char *kind, const struct gb_known_buffer *b, const char *file,
                 const char *detail) {
    const char *session = b ? gb_known_session_of(&f->known, b->session_id) : "";

    if (!f->json) {
        printf("%-10s ", kind);
        if (b)
            printf("%s/%s generation %lld: ", session, b->name.s, (long long)b->stored.generation);
        printf("%s%s%s\n", file, file[0] != '\0' ? ": " : "", detail);
        return;
    }
    gb_json_open(&f->out, NULL, '{');
    gb_json_put_string(&f->out, "kind", kind);
    if (b) {
        gb_json_put_string(&f->out, "session", session);
        gb_json_put_string(&f->out, "buffer", b->name.s);
        gb_json_put_i64(&f->out, "generation", b->stored.generation);
    }
    if (file[0] != '\0')
        gb_json_put_string(&f->out, "file", file);
    gb_json_put_untrusted(&f->out, "detail", detail, 400);
    gb_json_close(&f->out, '}');
}

/* The word for a file that cannot be read for that reason. */
static const char *kind_of(const struct gb_error *why) {
    if (why->code == GB_ERR_CONTENT_LOST)
        return "missing";
    return why->code == GB_ERR_CONTENT_DAMAGED ? "damaged" : "unreadable";
}

static int by_inode(const void *one, const void *other) {
    uintptr_t a = (uintptr_t)one;
    uintptr_t b = (uintptr_t)other;

    return (a > b) - (a < b);
}

static bool was_read(const struct fsck *f, uint64_t inode) {
    return inode > 0 && tfind((const void *)(uintptr_t)inode, (void *const *)&f->read, by_inode);
}

/* Where memory is exhausted the file is read once more. */
static void note_read(struct fsck *f, uint64_t inode) {
    if (inode > 0)
        (void)tsearch((const void *)(uintptr_t)inode, &f->read, by_inode);
}

static void nothing(void *inode) {
    (void)inode;
}

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static int damaged(size_t index, uint32_t has, uint32_t wants, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                        "the bytes from offset %llu have the checksum %08x and should have %08x",
                        (unsigned long long)index * GB_STORED_BLOCK_BYTES, has, wants);
}

static int check_sums(struct fsck *f, const struct gb_stored_rec *rec, struct gb_disk_reader *file,
                      struct gb_error *err) {
    size_t count = gb_stored_block_count(rec->bytes);
    uint32_t *blocks = calloc(count + 1, sizeof(*blocks));
    uint32_t crc;
    size_t i;
    int r = -1;

    if (!blocks)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (gb_bytes_sum(file, rec->bytes, blocks, &crc, err) == 0) {
        r = 0;
        f->read_bytes += rec->bytes;
    }
    for (i = 0; i < count && r == 0; i++) {
        if (blocks[i] != rec->blocks[i])
            r = damaged(i, blocks[i], rec->blocks[i], err);
    }
    free(blocks);
    return r;
}

static int check_file(struct fsck *f, const struct gb_stored_rec *rec, const struct gb_disk_name *name,
                      struct gb_error *err) {
    struct gb_disk_reader *file = NULL;
    struct gb_disk_header header;
    int r = gb_disk_examine(f->disk, GB_DISK_IN_DATA, name, rec->bytes, &header, &file, err);

    f->files++;
    if (r == 0 && header.crc32c != rec->crc32c)
        r = gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "its header says the checksum %08x and the record %08x",
                         header.crc32c, rec->crc32c);
    if (r == 0 && !f->quick)
        r = check_sums(f, rec, file, err);
    gb_disk_read_close(file);
    if (r == 0 && !f->quick)
        note_read(f, gb_disk_shared(f->disk, name));
    return r;
}

static int check_inline(struct fsck *f, const struct gb_stored_rec *rec, struct gb_error *err) {
    unsigned char data[GB_STORED_INLINE_BYTES];
    uint32_t crc;

    if (f->quick)
        return 0;
    if (gb_store_read_stored(f->database, rec, data, err) < 0)
        return -1;
    f->read_bytes += rec->bytes;
    crc = gb_crc32c(0, data, (size_t)rec->bytes);
    return crc == rec->crc32c ? 0 : damaged(0, crc, rec->crc32c, err);
}

static void check_buffer(struct fsck *f, const struct gb_known_buffer *b) {
    const struct gb_disk_name name = {b->id, b->stored.file_generation, b->stored.file_tag};
    struct gb_error why = GB_ERROR_INIT;
    char file[GB_DISK_FILE_SIZE] = "";
    int r;

    if (!b->has_stored)
        return;
    f->buffers++;
    if (gb_stored_inline(&b->stored)) {
        r = check_inline(f, &b->stored, &why);
    } else {
        gb_disk_file_text(GB_DISK_IN_DATA, &name, file);
        r = check_file(f, &b->stored, &name, &why);
    }
    if (r == 0)
        return;
    f->findings++;
    tell(f, kind_of(&why), b, file, why.detail);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* A file that no row names is normal after a crash, so that it is printed and is no finding. */
static int see_file(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    struct fsck *f = arg;
    char file[GB_DISK_FILE_SIZE];

    (void)bytes;
    (void)err;
    if (gb_known_names(&f->known, name))
        return 0;
    f->unfinished += name->generation == 0;
    if (name->generation == 0)
        return 0;
    f->unnamed++;
    gb_disk_file_text(GB_DISK_IN_DATA, name, file);
    tell(f, "unnamed", NULL, file, "no record names it: the next start moves it to orphans/");
    return 0;
}

static int count(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    uint64_t *number = arg;

    (void)name;
    (void)bytes;
    (void)err;
    ++*number;
    return 0;
}

static int check_files(struct fsck *f, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_disk_check_owner(f->disk, &why) < 0) {
        f->findings++;
        tell(f, "marker", NULL, "GPUBUFD-DATA", why.detail);
    }
    if (gb_disk_visit(f->disk, GB_DISK_IN_DATA, see_file, f, err) < 0 ||
        gb_disk_visit(f->disk, GB_DISK_IN_ORPHANS, count, &f->orphans, err) < 0)
        return -1;
    return gb_disk_visit(f->disk, GB_DISK_IN_DAMAGED, count, &f->damaged, err);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

#define FILE_SIZE (GB_NAME_MAX + 64)

static int check_sum(struct fsck *f, struct gb_disk_reader *file, const struct gb_manifest_entry *entry,
                     struct gb_error *err) {
    unsigned char *room = aligned_alloc(GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES);
    uint32_t crc = 0;
    uint64_t at;
    int r = room ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");

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

static int check_checkpoint_file(struct fsck *f, const struct gb_name *name, const struct gb_manifest *manifest,
                                 size_t index, struct gb_error *err) {
    const struct gb_manifest_entry *entry = &manifest->entries[index];
    uint64_t inode = gb_disk_checkpoint_shared(f->disk, name, index);
    struct gb_disk_reader *file = NULL;
    int r = gb_disk_checkpoint_examine(f->disk, name, index, entry, &file, err);

    f->files++;
    if (r == 0 && !f->quick && !was_read(f, inode)) {
        r = check_sum(f, file, entry, err);
        if (r == 0)
            note_read(f, inode);
    }
    gb_disk_read_close(file);
    return r;
}

static void found(struct fsck *f, const char *folder, const char *file, const struct gb_error *why) {
    char path[FILE_SIZE];

    f->findings++;
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    tell(f, kind_of(why), NULL, path, why->detail);
}

static void check_checkpoint_files(struct fsck *f, const struct gb_name *name, const char *folder,
                                   const struct gb_manifest *manifest) {
    size_t i;

    for (i = 0; i < manifest->count; i++) {
        struct gb_error why = GB_ERROR_INIT;
        char file[GB_MANIFEST_FILE_SIZE];

        if (check_checkpoint_file(f, name, manifest, i, &why) == 0)
            continue;
        gb_manifest_file(i, file);
        found(f, folder, file, &why);
    }
}

/* What a daemon that died has left, or clients have, is no finding. */
static int visit(void *arg, const struct gb_name *name, enum gb_disk_checkpoint_kind kind, const char *folder,
                 struct gb_error *err) {
    struct fsck *f = arg;
    struct gb_manifest manifest = {.count = 0};
    struct gb_error why = GB_ERROR_INIT;

    (void)err;
    if (kind == GB_DISK_CHECKPOINT_PARTIAL)
        tell(f, "partial", NULL, folder, "it has no manifest: clients may bring the rest, or delete it");
    if (kind == GB_DISK_CHECKPOINT_UNFINISHED)
        tell(f, "unfinished", NULL, folder, "it was being made or deleted: the next start removes it");
    if (kind != GB_DISK_CHECKPOINT_WHOLE)
        return 0;
    f->checkpoints++;
    if (gb_disk_checkpoint_manifest(f->disk, name, &manifest, &why) < 0) {
        found(f, folder, GB_CHECKPOINT_MANIFEST, &why);
        return 0;
    }
    check_checkpoint_files(f, name, folder, &manifest);
    gb_manifest_done(&manifest);
    return 0;
}

static int check_checkpoints(struct fsck *f, struct gb_error *err) {
    return gb_disk_visit_checkpoints(f->disk, visit, f, err);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static void report(struct fsck *f) {
    struct gb_json_writer all = {0};

    if (!f->json) {
        printf("%llu finding%s: %llu buffers with stored bytes, %llu checkpoints, %llu files, %llu bytes read; %llu "
               "files without a record, %llu unfinished, %llu in orphans/, %llu in damaged/\n",
               (unsigned long long)f->findings, f->findings == 1 ? "" : "s", (unsigned long long)f->buffers,
               (unsigned long long)f->checkpoints, (unsigned long long)f->files, (unsigned long long)f->read_bytes,
               (unsigned long long)f->unnamed, (unsigned long long)f->unfinished, (unsigned long long)f->orphans,
               (unsigned long long)f->damaged);
        return;
    }
    gb_json_open(&all, NULL, '{');
    gb_json_put_bool(&all, "quick", f->quick);
    gb_json_put_u64(&all, "findings", f->findings);
    gb_json_put_u64(&all, "buffers", f->buffers);
    gb_json_put_u64(&all, "checkpoints", f->checkpoints);
    gb_json_put_u64(&all, "files", f->files);
    gb_json_put_u64(&all, "read_bytes", f->read_bytes);
    gb_json_put_u64(&all, "unnamed", f->unnamed);
    gb_json_put_u64(&all, "unfinished", f->unfinished);
    gb_json_put_u64(&all, "orphans", f->orphans);
    gb_json_put_u64(&all, "damaged", f->damaged);
    gb_json_open(&all, "items", '[');
    if (f->out.used > 0)
        gb_json_put_members(&all, f->out.s, f->out.used);
    gb_json_close(&all, ']');
    gb_json_close(&all, '}');
    gb_json_end(&all);
    fwrite(all.s, 1, all.used, stdout);
    gb_json_done(&all);
}

static int read_database(struct fsck *f, char uuid[GB_STORE_UUID_SIZE], struct gb_error *err) {
    if (access(f->bytes.database, F_OK) != 0)
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "there is no database %.200s: \"gpubufd recover\" makes its records again from the files",
                            f->bytes.database);
    if (gb_store_inspect(f->bytes.database, &f->database, err) < 0 || gb_store_uuid(f->database, uuid, err) < 0)
        return -1;
    return gb_known_load(&f->known, f->database, err);
}

static int run(struct fsck *f, const struct gb_options *options, struct gb_error *err) {
    char uuid[GB_STORE_UUID_SIZE];
    size_t i;

    f->out.comma = false;
    if (gb_bytes_open(options, false, &f->bytes, err) < 0 || read_database(f, uuid, err) < 0 ||
        gb_disk_open_offline(f->bytes.data_dir, uuid, &f->disk, err) < 0 || check_files(f, err) < 0)
        return -1;
    for (i = 0; i < f->known.buffer_count; i++)
        check_buffer(f, &f->known.buffers[i]);
    if (check_checkpoints(f, err) < 0)
        return -1;
    report(f);
    return 0;
}

enum gb_exit gb_fsck_command(struct gb_options *options, int argc, char **argv) {
    struct fsck f = {.bytes = {.lock_fd = -1}};
    struct gb_command_line line = {.most = 0};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status = GB_EXIT_OK;
    int r = gb_command_read(&about, options, argc, argv, &line, &err);

    if (r == 0 && options->help) {
        gb_command_help(stdout, &about, GB_COMMAND_ALL);
        goto out;
    }
    if (r != 0 || gb_options_finish(options, &err) != 0) {
        status = gb_command_usage_error(&about, &err);
        goto out;
    }
    f.quick = line.own[QUICK];
    f.json = line.own[JSON];
    if (run(&f, options, &err) == 0) {
        status = f.findings > 0 ? GB_EXIT_FINDINGS : GB_EXIT_OK;
    } else {
        fprintf(stderr, "gpubufd: %s\n", err.detail);
        status = err.code == GB_ERR_INVALID_ARGUMENT ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
    }

out:
    gb_json_done(&f.out);
    tdestroy(f.read, nothing);
    gb_known_done(&f.known);
    gb_disk_close(f.disk);
    gb_store_close(f.database);
    gb_bytes_done(&f.bytes);
    return status;
}
