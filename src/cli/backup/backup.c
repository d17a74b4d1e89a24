/* backup: a checkpoint from the daemon to a folder, a server or a bucket. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/backup/send.h"
#include "cli/backup/store.h"

#define PART_BYTES ((uint64_t)64 << 20) /* usual and largest: what the library keeps of an answer */
#define PART_LEAST ((uint64_t)5 << 20)  /* S3 takes no smaller ones */

/* One run. */
struct backup {
    struct gb_cli *cli;
    const char *checkpoint;
    struct gb_place place;
    struct gb_web web;
    struct gb_origin origin;
    struct gb_backup_manifest manifest;
    struct gb_backup_manifest before; /* what the place held; count 0: nothing */
    struct gb_send_result result;
    size_t removed;
};

static int part_bytes(const struct gb_cli *cli, uint64_t *ret, struct gpubuf_error *err) {
    uint64_t given = cli->options.part_bytes;

    *ret = cli->options.given[GB_CLI_ID_part_bytes] ? given : PART_BYTES;
    return *ret >= PART_LEAST && *ret <= PART_BYTES
               ? 0
               : gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "--part-bytes is between 5M and 64M");
}

/* --- the checkpoint ----------------------------------------------------------------------------------------------- */

static json_t *get_json(struct backup *backup, const char *format, const char *file) {
    char target[GB_CLI_PATH];

    if (gb_cli_target(backup->cli, target, format, backup->checkpoint, file) < 0)
        return NULL;
    return gb_cli_request(backup->cli, "GET", target, NULL);
}

static int read_checkpoint(struct backup *backup) {
    struct gb_cli *cli = backup->cli;
    json_t *checkpoint = get_json(backup, "/v1/checkpoints/{}", NULL);
    bool complete = strcmp(gb_cli_text(checkpoint, "state"), "complete") == 0;
    json_t *manifest;
    json_t *index;

    if (checkpoint == NULL)
        return -1;
    json_decref(checkpoint);
    if (!complete)
        return gb_cli_error(cli, GPUBUF_INPUT_FAILED,
                            "the checkpoint \"%s\" is not complete: it is still being "
                            "made, or an upload of it was broken off",
                            backup->checkpoint);
    manifest = get_json(backup, "/v1/checkpoints/{}/files/{}", GB_BACKUP_MANIFEST);
    index = manifest != NULL ? get_json(backup, "/v1/checkpoints/{}/files/{}", GB_BACKUP_INDEX) : NULL;
    if (manifest == NULL || index == NULL) {
        json_decref(manifest);
        return -1;
    }
    return gb_backup_manifest_take(manifest, index, &backup->manifest, &cli->error);
}

/* --- the place ---------------------------------------------------------------------------------------------------- */

/* What the place holds already. The backup of another session is no earlier one of this: it stays. */
static int read_before(struct backup *backup) {
    struct gpubuf_error *err = &backup->cli->error;
    const char *now = gb_cli_text(backup->manifest.checkpoint, "session");
    char *text;
    size_t bytes = 0;
    int rc = gb_store_get(&backup->web, GB_BACKUP_MANIFEST, &text, &bytes, err);

    if (rc < 0 || text == NULL)
        return rc;
    rc = gb_backup_manifest_read(text, bytes, backup->place.name, &backup->before, err);
    free(text);
    if (rc == 0 && strcmp(gb_cli_text(backup->before.checkpoint, "session"), now) != 0)
        rc =
            gb_backup_fail(err, GPUBUF_OUTPUT_FAILED,
                           "%s holds the backup of session \"%s\", and the checkpoint is of \"%s\"; name another place",
                           backup->place.name, gb_cli_text(backup->before.checkpoint, "session"), now);
    return rc;
}

static int put_text(struct backup *backup, const char *object, char *text) {
    int rc = text != NULL ? gb_store_put(&backup->web, object, text, &backup->cli->error)
                          : gb_cli_error(backup->cli, GPUBUF_NO_MEMORY, "out of memory");

    free(text);
    return rc;
}

/* Index and manifest, which come last: until the manifest is there, the place holds what it held before. */
static int commit(struct backup *backup) {
    struct gpubuf_error *err = &backup->cli->error;

    if (atomic_load(&backup->cli->interrupted) != 0)
        return gb_backup_fail(err, GPUBUF_INTERRUPTED, "interrupted");
    if (backup->place.kind == GB_PLACE_FOLDER && gb_store_sync_folder(&backup->place, GB_BACKUP_OBJECTS "x", err) < 0)
        return -1;
    if (put_text(backup, GB_BACKUP_INDEX, gb_backup_index_text(&backup->manifest)) < 0)
        return -1;
    return put_text(backup, GB_BACKUP_MANIFEST, gb_backup_manifest_text(&backup->manifest));
}

/* What broken runs left in a folder. */
static void remove_parts(const struct gb_place *place) {
    char *path = gb_place_at(place, "objects");
    DIR *folder = path != NULL ? opendir(path) : NULL;
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        size_t n = strlen(entry->d_name);

        if (n > 5 && strcmp(entry->d_name + n - 5, ".part") == 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        closedir(folder);
    free(path);
}

/* Objects of the backup before that this one does not name. One that cannot be removed harms nothing. */
static void remove_old(struct backup *backup) {
    struct gpubuf_error why;
    size_t failed = 0;
    size_t i;

    for (i = 0; i < backup->before.count && atomic_load(&backup->cli->interrupted) == 0; i++) {
        const char *object = backup->before.files[i].object;

        if (gb_backup_manifest_has(&backup->manifest, object))
            continue;
        if (gb_store_remove(&backup->web, object, &why) < 0)
            failed++;
        else
            backup->removed++;
    }
    if (failed > 0) {
        fprintf(stderr, "gpubuf: %zu objects of the backup before could not be removed, and stay: ", failed);
        gb_cli_put(stderr, why.detail);
        fputs("\n", stderr);
    }
    if (backup->place.kind == GB_PLACE_FOLDER)
        remove_parts(&backup->place);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int show(const struct backup *backup) {
    const struct gb_send_result *result = &backup->result;
    char all[24];
    char sent[24];

    if (backup->cli->options.json)
        return gb_cli_show(backup->cli,
                           json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "checkpoint", backup->checkpoint,
                                     "destination", backup->place.name, "files", (json_int_t)backup->manifest.count,
                                     "bytes", (json_int_t)backup->manifest.bytes, "sent_files",
                                     (json_int_t)result->sent_files, "sent_bytes", (json_int_t)result->sent_bytes,
                                     "kept_files", (json_int_t)result->kept_files, "kept_bytes",
                                     (json_int_t)result->kept_bytes, "removed_files", (json_int_t)backup->removed),
                           NULL, 0);
    if (backup->cli->options.quiet)
        return GB_CLI_DONE;
    gb_cli_put(stdout, backup->checkpoint);
    printf("  %s in %zu files at ", gb_cli_bytes_text(backup->manifest.bytes, all), backup->manifest.count);
    gb_cli_put(stdout, backup->place.name);
    printf("  sent %zu, %s  kept %zu  removed %zu\n", result->sent_files, gb_cli_bytes_text(result->sent_bytes, sent),
           result->kept_files, backup->removed);
    return GB_CLI_DONE;
}

static int send_files(struct backup *backup, uint64_t part_bytes) {
    gb_origin_open(backup->cli, backup->checkpoint, backup->manifest.checkpoint, &backup->origin);
    return gb_send(backup->cli, &backup->origin, &backup->place, &backup->manifest, part_bytes, &backup->result,
                   &backup->cli->error);
}

static int run(struct backup *backup, const char *destination) {
    struct gb_cli *cli = backup->cli;
    uint64_t bytes;

    if (cli->host != NULL && strstr(destination, "%h") == NULL)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "with --hosts each host needs a place of its own: put %%h into DEST");
    if (part_bytes(cli, &bytes, &cli->error) < 0 || gb_place_read(cli, destination, &backup->place, &cli->error) < 0 ||
        gb_web_init(&backup->web, cli, &backup->place, NULL, &cli->error) < 0 || read_checkpoint(backup) < 0 ||
        read_before(backup) < 0 || gb_store_prepare(&backup->place, &cli->error) < 0 || send_files(backup, bytes) < 0 ||
        commit(backup) < 0)
        return -1;
    remove_old(backup);
    return 0;
}

int gb_cli_run_backup(struct gb_cli *cli, int argc, char **argv) {
    struct backup backup = {.cli = cli, .checkpoint = argv[0], .origin.folder = -1};
    int rc = run(&backup, argv[argc - 1]);

    rc = rc < 0 ? gb_cli_failed(cli) : show(&backup);
    gb_origin_close(&backup.origin);
    gb_backup_manifest_done(&backup.manifest);
    gb_backup_manifest_done(&backup.before);
    gb_web_done(&backup.web);
    gb_place_done(&backup.place);
    return rc;
}
