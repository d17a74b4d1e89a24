/* restore: a backup into a checkpoint of the daemon, and from there into a session. */
#include <stdlib.h>
#include <string.h>

#include "cli/backup/crew.h"
#include "cli/backup/fetch.h"
#include "cli/backup/store.h"
#include "cli/settings.h"

#define BUSY_TRIES 20

/* One run. */
struct restore {
    struct gb_crew crew;
    struct gb_cli *cli;
    struct gb_place place;
    struct gb_web web;
    struct gb_backup_manifest manifest;
    const char *name; /* of the checkpoint in the daemon; the manifest's */
    size_t next;      /* file */
    json_t *restored; /* the daemon's answer; NULL with --files-only */
};

/* --- files -------------------------------------------------------------------------------------------------------- */

static int file_target(const char *checkpoint, const char *file, char *ret, struct gpubuf_error *err) {
    char name[GB_CLI_PATH / 4];

    if (gpubuf_escape(checkpoint, name, sizeof name) < 0)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "the checkpoint's name is too long");
    snprintf(ret, GB_CLI_PATH, "/v1/checkpoints/%s/files/%s", name, file);
    return 0;
}

static int put_once(struct gb_worker *worker, const struct gb_backup_file *file, const char *target,
                    struct gpubuf_error *err) {
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    struct gb_fetch fetch;
    int rc = gb_fetch_init(&fetch, &worker->web, file, &worker->crew->done, err);

    if (rc == 0)
        rc = gpubuf_request_from(worker->clients[0], "PUT", target, headers,
                                 gpubuf_from_call(gb_fetch_read, &fetch, file->bytes), err);
    if (rc < 0 && fetch.error.code != GPUBUF_OK)
        *err = fetch.error;
    if (rc < 0)
        atomic_fetch_sub(&worker->crew->done, fetch.given);
    gb_fetch_done(&fetch);
    return rc;
}

/* The daemon drops a file whose upload broke; it is sent anew. */
static int put_file(struct gb_worker *worker, const struct restore *restore, const struct gb_backup_file *file,
                    struct gpubuf_error *err) {
    char target[GB_CLI_PATH];
    unsigned tried;

    if (file_target(restore->name, file->file, target, err) < 0)
        return -1;
    for (tried = 1;; tried++) {
        if (put_once(worker, file, target, err) == 0)
            return 0;
        if ((err->code != GPUBUF_CONNECTION_LOST && (err->status != 503 || !err->retryable)) || tried == GB_WEB_TRIES ||
            gb_web_pause(&worker->web, tried, err->retry_after_s, err) < 0)
            return -1;
    }
}

static int work(struct gb_worker *worker, void *arg, struct gpubuf_error *err) {
    struct restore *restore = arg;

    for (;;) {
        size_t i;

        pthread_mutex_lock(&restore->crew.lock);
        i = restore->next++;
        pthread_mutex_unlock(&restore->crew.lock);
        if (i >= restore->manifest.count)
            return 0;
        if (gb_web_stopped(&worker->web))
            return gb_backup_fail(err, GPUBUF_INTERRUPTED, "interrupted");
        if (put_file(worker, restore, &restore->manifest.files[i], err) < 0)
            return -1;
    }
}

static int put_files(struct restore *restore) {
    unsigned threads;

    if (gb_crew_size(restore->cli, &threads, &restore->cli->error) < 0)
        return -1;
    restore->crew.cli = restore->cli;
    restore->crew.place = &restore->place;
    restore->crew.work = work;
    restore->crew.arg = restore;
    restore->crew.label = restore->name;
    restore->crew.total = restore->manifest.bytes;
    return gb_crew_run(&restore->crew, threads, &restore->cli->error);
}

/* --- the checkpoint ----------------------------------------------------------------------------------------------- */

static int read_manifest(struct restore *restore) {
    struct gpubuf_error *err = &restore->cli->error;
    char *text = NULL;
    size_t bytes = 0;
    int rc = gb_store_get(&restore->web, GB_BACKUP_MANIFEST, &text, &bytes, err);

    if (rc < 0)
        return -1;
    if (text == NULL) {
        gb_backup_fail(err, GPUBUF_INPUT_FAILED, "%s holds no backup: it has no %s", restore->place.name,
                       GB_BACKUP_MANIFEST);
        err->status = 404;
        return -1;
    }
    rc = gb_backup_manifest_read(text, bytes, restore->place.name, &restore->manifest, err);
    free(text);
    if (rc < 0)
        return -1;
    if (restore->cli->options.name != NULL) {
        json_object_set_new(restore->manifest.checkpoint, "name", json_string(restore->cli->options.name));
        json_object_del(restore->manifest.checkpoint, "crc32c"); /* it was of the text with the other name */
    }
    restore->name = gb_cli_text(restore->manifest.checkpoint, "name");
    return restore->name[0] != '\0' ? 0 : gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "give the checkpoint a --name");
}

/* A complete checkpoint of that name would refuse the first file; this says so before any byte is moved. */
static int check_free(struct restore *restore) {
    struct gb_cli *cli = restore->cli;
    char target[GB_CLI_PATH];
    json_t *there;
    bool complete;

    if (gb_cli_target(cli, target, "/v1/checkpoints/{}", restore->name) < 0)
        return -1;
    there = gb_cli_request(cli, "GET", target, NULL);
    if (there == NULL)
        return strcmp(cli->error.slug, "checkpoint_not_found") == 0 ? 0 : -1;
    complete = strcmp(gb_cli_text(there, "state"), "complete") == 0;
    json_decref(there);
    return complete ? gb_cli_error(cli, GPUBUF_OUTPUT_FAILED,
                                   "the daemon has a checkpoint \"%s\" already: \"gpubuf checkpoints restore %s\" "
                                   "restores its buffers, and --name gives this one another name",
                                   restore->name, restore->name)
                    : 0;
}

/* A session that is not there would refuse the last step; this says so before any byte is moved. Whatever else may be
 * wrong with it is said there. */
static int check_session(struct restore *restore) {
    struct gb_cli *cli = restore->cli;
    const char *into = cli->options.into;
    char target[GB_CLI_PATH];
    json_t *there;

    if (cli->options.files_only)
        return 0;
    if (into == NULL)
        into = gb_cli_text(restore->manifest.checkpoint, "session");
    if (gb_cli_target(cli, target, "/v1/sessions/{}", into) < 0)
        return -1;
    there = gb_cli_request(cli, "GET", target, NULL);
    json_decref(there);
    return there == NULL && strcmp(cli->error.slug, "session_not_found") == 0 ? -1 : 0;
}

static int put_json(struct restore *restore, const char *file, json_t *value) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (file_target(restore->name, file, target, &restore->cli->error) < 0)
        return -1;
    answer = gb_cli_request(restore->cli, "PUT", target, json_incref(value));
    json_decref(answer);
    return answer != NULL ? 0 : -1;
}

/* The manifest comes last: the daemon checks all files against it, and then has the checkpoint. It refuses the manifest
 * as long as it has not put away an upload that it has answered already. */
static int commit(struct restore *restore) {
    struct gpubuf_error *err = &restore->cli->error;
    int tries = BUSY_TRIES;

    if (put_json(restore, GB_BACKUP_INDEX, restore->manifest.index) < 0)
        return -1;
    while (put_json(restore, GB_BACKUP_MANIFEST, restore->manifest.checkpoint) < 0) {
        if (err->code != GPUBUF_BUFFER_BUSY || --tries == 0 || gb_web_pause(&restore->web, 1, 0, err) < 0)
            return -1;
    }
    return 0;
}

static int take_back(struct restore *restore) {
    char target[GB_CLI_PATH];
    json_t *body = json_object();

    if (gb_cli_restore_settings(restore->cli, body) < 0 ||
        gb_cli_target(restore->cli, target, "/v1/checkpoints/{}/restore", restore->name) < 0) {
        json_decref(body);
        return -1;
    }
    restore->restored = gb_cli_request_long(restore->cli, target, body);
    return restore->restored != NULL ? 0 : -1;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int show(struct restore *restore) {
    const struct gb_cli_options *o = &restore->cli->options;
    const char *into = o->into != NULL ? o->into : gb_cli_text(restore->manifest.checkpoint, "session");
    char size[24];

    if (o->json)
        return gb_cli_show(restore->cli,
                           json_pack("{s:s, s:s, s:I, s:I, s:O?}", "source", restore->place.name, "checkpoint",
                                     restore->name, "files", (json_int_t)restore->manifest.count, "bytes",
                                     (json_int_t)restore->manifest.bytes, "restored", restore->restored),
                           NULL, 0);
    if (o->quiet)
        return GB_CLI_DONE;
    gb_cli_put(stdout, restore->name);
    printf("  %s in %zu files from ", gb_cli_bytes_text(restore->manifest.bytes, size), restore->manifest.count);
    gb_cli_put(stdout, restore->place.name);
    if (restore->restored != NULL) {
        fputs("  restored into ", stdout);
        gb_cli_put(stdout, into);
    }
    putchar('\n');
    return GB_CLI_DONE;
}

static int check_options(struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;

    json_t *checked;
    int rc;

    if (o->files_only && (o->into != NULL || o->prefix != NULL || o->only != NULL || o->replace || o->load != NULL))
        return gb_cli_error(
            cli, GPUBUF_BAD_ARGUMENT,
            "--files-only restores no buffers, so that --into, --prefix, --only, --replace and --load mean nothing");
    checked = json_object();
    rc = gb_cli_restore_settings(cli, checked); /* before any byte is moved */
    json_decref(checked);
    return rc;
}

static int run(struct restore *restore, const char *source) {
    struct gb_cli *cli = restore->cli;

    if (check_options(cli) < 0 || gb_place_read(cli, source, &restore->place, &cli->error) < 0 ||
        gb_web_init(&restore->web, cli, &restore->place, NULL, &cli->error) < 0 || read_manifest(restore) < 0 ||
        check_free(restore) < 0 || check_session(restore) < 0 || put_files(restore) < 0 || commit(restore) < 0)
        return -1;
    return cli->options.files_only ? 0 : take_back(restore);
}

int gb_cli_run_restore(struct gb_cli *cli, int argc, char **argv) {
    struct restore restore = {.cli = cli};
    int rc = run(&restore, argv[argc - 1]);

    rc = rc < 0 ? gb_cli_failed(cli) : show(&restore);
    json_decref(restore.restored);
    gb_backup_manifest_done(&restore.manifest);
    gb_web_done(&restore.web);
    gb_place_done(&restore.place);
    return rc;
}
