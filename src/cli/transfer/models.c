/* Models in several files, in the daemon: the document that names their shards, get NAME DIR, and the tensors
 * for ls. The shards of a new version have names of their own, which never come back: what an old document names is
 * there or is not found, and is never another version's, so that readers have a whole model, the old or the new.
 * doc/models.md describes the document. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"
#include "cli/transfer/models.h"

#define BUFFER "/v1/sessions/{}/buffers/{}"
#define TIMES 4 /* that a model is read, which is replaced meanwhile */

/* --- names -------------------------------------------------------------------------------------------------------- */

bool gb_cli_model_holds(const char *path) {
    const char *at = path;

    while (*at != '\0') {
        size_t n = strcspn(at, "/");

        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += n;
        if (*at == '/' && *++at == '\0')
            return false;
    }
    return path[0] != '\0';
}

uint64_t gb_cli_model_version(const char *buffer, const char *name) {
    size_t n = strlen(name);
    const char *at = strncmp(buffer, name, n) == 0 ? buffer + n : "";
    uint64_t version;
    char *end;

    if (*at++ != '.' || strspn(at, "0123456789") != GB_CLI_MODEL_DIGITS)
        return 0;
    at += GB_CLI_MODEL_DIGITS;
    if (*at == '\0')
        return 1;
    if (at[0] != '.' || at[1] != 'v' || at[2] < '1' || at[2] > '9')
        return 0;
    version = strtoull(at + 2, &end, 10);
    return *end == '\0' && version <= GB_CLI_MODEL_VERSIONS ? version : 0;
}

int gb_cli_model_index(struct gb_cli *cli, const struct gb_cli_name *name, struct gb_cli_name *ret) {
    memcpy(ret->session, name->session, sizeof(ret->session));
    if (snprintf(ret->name, sizeof(ret->name), "%s.index", name->name) < (int)sizeof(ret->name))
        return 0;
    return gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND, "\"%s\" is too long for the name of a model", name->name);
}

/* --- the document of a model -------------------------------------------------------------------------------------- */

/* The names that it has go into paths here and into requests. */
static bool is_document(json_t *document) {
    json_int_t version = json_integer_value(json_object_get(document, "version"));
    json_t *shards = json_object_get(document, "shards");
    json_t *shard;
    size_t i;

    if (json_integer_value(json_object_get(document, GB_CLI_MODEL_MARK)) != GB_CLI_MODEL_FORM || version < 1 ||
        version > GB_CLI_MODEL_VERSIONS || json_array_size(shards) == 0 ||
        !json_is_string(gb_cli_at(document, "index.text")) || !gb_cli_model_holds(gb_cli_text(document, "index.file")))
        return false;
    json_array_foreach(shards, i, shard) {
        if (!gb_cli_is_name(gb_cli_text(shard, "buffer")) || !gb_cli_model_holds(gb_cli_text(shard, "file")))
            return false;
    }
    return true;
}

json_t *gb_cli_model_read(struct gb_cli *cli, const struct gb_cli_name *name, char ret_etag[GPUBUF_ETAG_SIZE]) {
    struct gb_cli_name index;
    char target[GB_CLI_PATH];
    const struct gpubuf_answer *answer;
    json_t *document;
    int r;

    if (gb_cli_model_index(cli, name, &index) < 0 ||
        gb_cli_target(cli, target, BUFFER "/data?format=raw", index.session, index.name) < 0)
        return NULL;
    do
        r = gpubuf_request(cli->client, "GET", target, NULL, NULL, 0, &cli->error);
    while (r < 0 && gb_cli_again(cli));
    if (r < 0)
        return NULL;
    answer = gpubuf_answer_of(cli->client);
    document = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (ret_etag)
        memcpy(ret_etag, answer->etag, GPUBUF_ETAG_SIZE);
    if (is_document(document))
        return document;
    if (json_integer_value(json_object_get(document, GB_CLI_MODEL_MARK)) > GB_CLI_MODEL_FORM)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, "the model \"%s\" was put by a newer gpubuf than this one", name->name);
    else
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, "the buffer \"%s\" is not the index of a model", index.name);
    json_decref(document);
    return NULL;
}

bool gb_cli_is_model(struct gb_cli *cli, const struct gb_cli_name *name) {
    struct gpubuf_error told = cli->error;
    struct gpubuf_error why;
    json_t *document;
    bool is;

    gb_cli_keep_problem(cli);
    cli->error = (struct gpubuf_error){.code = GPUBUF_OK};
    document = gb_cli_model_read(cli, name, NULL);
    is = document != NULL;
    json_decref(document);
    why = cli->error;
    cli->error = told;
    if (!is && why.code == GPUBUF_BAD_ANSWER) {
        cli->error = (struct gpubuf_error){.code = GPUBUF_OK};
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND, "%s, and no buffer is called \"%s\"", why.detail, name->name);
        cli->error.status = 404;
    }
    return is;
}

static int no_memory(struct gb_cli *cli) {
    return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
}

/* --- get ---------------------------------------------------------------------------------------------------------- */

/* One reading of a model: the files have no names until all are there. */
struct reading {
    struct gb_cli *cli;
    const struct gb_cli_name *name;
    const char *folder;
    json_t *document;
    struct gb_cli_sink *sinks; /* of the shards, and of the index behind them */
    size_t open;
    uint64_t bytes;
};

/* Makes the folders that a file is in; those that are there stay. */
static int make_folders(struct gb_cli *cli, const char *folder, const char *file) {
    char *path = gb_cli_path_in(folder, file);
    char *at = path ? path + strlen(folder) : NULL;
    int r = 0;

    if (!path)
        return no_memory(cli);
    while (r == 0 && (at = strchr(at, '/'))) {
        *at = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            r = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be made: %s", path, strerror(errno));
        *at++ = '/';
    }
    free(path);
    return r;
}

/* Opens a file; the exit status of what was said. */
static int open_file(struct reading *reading, const char *file, struct gb_cli_sink **ret) {
    char *path = gb_cli_path_in(reading->folder, file);
    int r = path ? make_folders(reading->cli, reading->folder, file) : no_memory(reading->cli);

    if (r == 0)
        r = gb_cli_sink_open(reading->cli, path, &reading->sinks[reading->open]);
    free(path);
    if (r != 0)
        return r;
    *ret = &reading->sinks[reading->open++];
    return 0;
}

/* *ret_gone: the shard is no longer there, which was not said. */
static int get_shard(struct reading *reading, json_t *shard, size_t i, bool *ret_gone) {
    struct gb_cli *cli = reading->cli;
    const char *buffer = gb_cli_text(shard, "buffer");
    const char *file = gb_cli_text(shard, "file");
    struct gpubuf_get_params params = {.format = "safetensors", .stream = cli->options.stream};
    struct gb_cli_progress progress;
    struct gb_cli_sink *sink;
    char label[GPUBUF_NAME_SIZE + 48];
    struct gpubuf_got got;
    int r = open_file(reading, file, &sink);

    if (r != 0)
        return r;
    params.connections = sink->seeks ? (uint32_t)cli->options.connections : 0;
    params.progress = gb_cli_moved;
    params.progress_arg = &progress;
    snprintf(label, sizeof(label), "%s (%zu of %zu)", buffer, i + 1,
             json_array_size(json_object_get(reading->document, "shards")));
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), label);
    do
        r = gpubuf_get(cli->client, reading->name->session, buffer, gb_cli_sink_target(sink), &params, &got,
                       &cli->error);
    while (r < 0 && !sink->given && gb_cli_again(cli));
    gb_cli_progress_end(&progress, r == 0);
    if (r == 0) {
        reading->bytes += got.bytes;
        return 0;
    }
    *ret_gone = cli->error.code == GPUBUF_BUFFER_NOT_FOUND && !sink->given;
    if (*ret_gone)
        return GB_CLI_NOT_FOUND;
    cli->about = file;
    r = gb_cli_sink_failed(cli, file);
    cli->about = NULL;
    return r;
}

static int get_index(struct reading *reading) {
    const char *text = gb_cli_text(json_object_get(reading->document, "index"), "text");
    const char *file = gb_cli_text(json_object_get(reading->document, "index"), "file");
    struct gb_cli_sink *sink;
    size_t left = strlen(text);
    int r = open_file(reading, file, &sink);

    while (r == 0 && left > 0) {
        ssize_t n = write(sink->fd, text, left);

        if (n < 0 && errno != EINTR)
            r = gb_cli_refused(reading->cli, GB_CLI_FAILED, "%s cannot be written: %s", file, strerror(errno));
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return r;
}

/* Ends the files, the index last. */
static int end_files(struct reading *reading, int r) {
    size_t i;

    for (i = 0; i < reading->open; i++) {
        int ended = gb_cli_sink_close(reading->cli, &reading->sinks[i], r == 0);

        r = r == 0 ? ended : r;
    }
    free(reading->sinks);
    reading->sinks = NULL;
    reading->open = 0;
    return r;
}

static int get_files(struct reading *reading, bool *ret_gone) {
    json_t *shards = json_object_get(reading->document, "shards");
    json_t *shard;
    size_t i;
    int r = 0;

    reading->bytes = 0;
    reading->sinks = calloc(json_array_size(shards) + 1, sizeof(*reading->sinks));
    if (!reading->sinks)
        return no_memory(reading->cli);
    json_array_foreach(shards, i, shard) {
        if (r == 0)
            r = get_shard(reading, shard, i, ret_gone);
    }
    if (r == 0)
        r = get_index(reading);
    return end_files(reading, r);
}

/* Reads the document again after a shard was not found. False: it is the same, or it is gone; cli->error is that of
 * the shard. */
static bool is_replaced(struct gb_cli *cli, const struct gb_cli_name *name, json_t **document) {
    struct gpubuf_error told = cli->error;
    json_t *now = gb_cli_model_read(cli, name, NULL);
    bool other = now && !json_equal(now, *document);

    cli->error = told;
    if (other) {
        json_decref(*document);
        *document = now;
    } else {
        json_decref(now);
    }
    return other;
}

static int show_files(const struct reading *reading) {
    struct gb_cli *cli = reading->cli;
    size_t files = json_array_size(json_object_get(reading->document, "shards")) + 1;
    json_t *value;
    char size[24];

    if (cli->options.json) {
        value = json_pack("{s:s, s:s, s:s, s:I, s:I, s:O}", "name", reading->name->name, "session",
                          reading->name->session, "folder", reading->folder, "files", (json_int_t)files, "bytes",
                          (json_int_t)reading->bytes, "shards", json_object_get(reading->document, "shards"));
        if (!value)
            return gb_cli_refused(cli, GB_CLI_FAILED,
                                  "the folder's name is not UTF-8 and cannot be shown; it is complete");
        return gb_cli_show(cli, value, NULL, 0);
    }
    if (!cli->options.quiet) {
        gb_cli_put(stdout, reading->name->name);
        printf("  %zu files  %s in ", files, gb_cli_bytes_text(reading->bytes, size));
        gb_cli_put(stdout, reading->folder);
        putchar('\n');
    }
    return GB_CLI_DONE;
}

int gb_cli_get_model(struct gb_cli *cli, const struct gb_cli_name *name, const char *folder) {
    struct reading reading = {.cli = cli, .name = name, .folder = folder};
    bool made = false;
    bool gone = true;
    int times;
    int r = GB_CLI_NOT_FOUND;

    if (gb_cli_options_idle(&cli->options, "raw npy slice offset bytes tensor",
                            "the files of a model come as they were put") < 0)
        return GB_CLI_USAGE;
    reading.document = gb_cli_model_read(cli, name, NULL);
    if (!reading.document)
        return gb_cli_failed(cli);
    made = mkdir(folder, 0777) == 0;
    for (times = 0; gone; times++) {
        if (times > 0 && (times == TIMES || !is_replaced(cli, name, &reading.document))) {
            gb_cli_failed(cli);
            break;
        }
        gone = false;
        r = get_files(&reading, &gone);
    }
    if (r == GB_CLI_DONE)
        r = show_files(&reading);
    else if (made)
        rmdir(folder);
    json_decref(reading.document);
    return r;
}

/* --- ls and rm ---------------------------------------------------------------------------------------------------- */

json_t *gb_cli_tensors(struct gb_cli *cli, const struct gb_cli_name *name, const char *prefix) {
    char target[GB_CLI_PATH];
    int r = prefix ? gb_cli_target(cli, target, BUFFER "/tensors?prefix={}", name->session, name->name, prefix)
                   : gb_cli_target(cli, target, BUFFER "/tensors", name->session, name->name);

    return r == 0 ? gb_cli_list(cli, target) : NULL;
}

/* Of one document. */
static json_t *tensors_of(struct gb_cli *cli, const struct gb_cli_name *name, json_t *document, const char *prefix) {
    json_t *all = json_array();
    json_t *shard;
    json_t *item;
    size_t i;
    size_t j;

    json_array_foreach(json_object_get(document, "shards"), i, shard) {
        struct gb_cli_name of = *name;
        json_t *items;

        snprintf(of.name, sizeof(of.name), "%s", gb_cli_text(shard, "buffer"));
        items = gb_cli_tensors(cli, &of, prefix);
        if (!items) {
            json_decref(all);
            return NULL;
        }
        json_array_foreach(items, j, item) {
            json_object_set(item, "buffer", json_object_get(shard, "buffer"));
        }
        json_array_extend(all, items);
        json_decref(items);
    }
    return all;
}

json_t *gb_cli_model_tensors(struct gb_cli *cli, const struct gb_cli_name *name, const char *prefix) {
    json_t *document = gb_cli_model_read(cli, name, NULL);
    json_t *items = NULL;
    int times = 0;

    while (document && !items && times++ < TIMES) {
        items = tensors_of(cli, name, document, prefix);
        if (!items && (cli->error.code != GPUBUF_BUFFER_NOT_FOUND || !is_replaced(cli, name, &document)))
            break;
    }
    json_decref(document);
    return items;
}

size_t gb_cli_model_drop(struct gb_cli *cli, const struct gb_cli_name *name, json_t *document) {
    char target[GB_CLI_PATH];
    size_t left = 0;
    json_t *shard;
    size_t i;

    json_array_foreach(json_object_get(document, "shards"), i, shard) {
        const char *buffer = gb_cli_text(shard, "buffer");
        json_t *answer = NULL;

        if (gb_cli_model_version(buffer, name->name) == 0)
            continue;
        if (gb_cli_target(cli, target, BUFFER "?when=unmapped", name->session, buffer) == 0)
            answer = gb_cli_request(cli, "DELETE", target, NULL);
        left += !answer && cli->error.code != GPUBUF_BUFFER_NOT_FOUND;
        json_decref(answer);
    }
    return left;
}
