/* put DIR NAME: the model that a folder has, as frameworks keep it. All of it is compared before any of it is sent. Of
 * several files each becomes a table under a name that is in no use, and the document that names them is written last
 * and in one step, if no other has come meanwhile: readers have the old model or the new. What fails before leaves
 * nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"
#include "cli/transfer/models.h"

#define BUFFER "/v1/sessions/{}/buffers/{}"
#define INDEX_FILE "model.safetensors.index.json"
#define ONE_FILE "model.safetensors"
#define ENDING ".safetensors"
#define INDEX_BYTES (32u << 20) /* of a file; the daemon's answers have at most 64 MiB, with a \ before each " */
#define HEADER_BYTES 100000000  /* as the format says */
#define LFS "version https://git-lfs"
#define SHARDS_MAX 99999 /* five digits */
#define HASTE_S 2        /* for each shard of an upload that is given up */
#define LATE_MS 100      /* between two looks at a shard that may still come */
#define LATE_TIMES 10
#define UNSEEN_BYTES (512u << 20) /* that may be sent between two calls for the progress */
#define UNTOUCHED "nothing was uploaded"

struct shard {
    char *file; /* within the folder */
    int fd;
    uint64_t bytes;
    size_t tensors;
    char buffer[GPUBUF_NAME_SIZE];
    bool made; /* it may be in the daemon, from this upload */
    bool late; /* its last bytes may have been sent, and no answer came: it may still come there */
};

struct model {
    struct gb_cli *cli;
    gb_cli_put_continued *put;
    const char *folder;
    const struct gb_cli_name *name;
    char *index;       /* the file of the index as it is; NULL: the folder has none */
    json_t *root;      /* the same as JSON */
    json_t *places;    /* the file of each tensor, by what the files say */
    struct shard *all; /* in the order of the names of their files */
    size_t count;
    uint64_t version;
    json_t *published; /* the document of the model whose place it takes; NULL: of none */
    char etag[GPUBUF_ETAG_SIZE];
    json_t *answers; /* the buffers that were made */
};

/* --- a folder: the files of the model ----------------------------------------------------------------------------- */

static int no_memory(struct gb_cli *cli) {
    return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory; " UNTOUCHED);
}

static int add_file(struct model *model, const char *file) {
    struct shard *all = realloc(model->all, (model->count + 1) * sizeof(*all));

    if (!all)
        return no_memory(model->cli);
    model->all = all;
    all[model->count] = (struct shard){.file = strdup(file), .fd = -1};
    if (!all[model->count].file)
        return no_memory(model->cli);
    model->count++;
    return 0;
}

static int by_file(const void *a, const void *b) {
    return strcmp(((const struct shard *)a)->file, ((const struct shard *)b)->file);
}

/* All of a file that is not too long, with a NUL behind. NULL with errno. */
static char *read_text(int fd, size_t most, size_t *ret_bytes) {
    struct stat info;
    char *text = NULL;
    size_t bytes = 0;
    ssize_t n = 1;

    if (fstat(fd, &info) < 0)
        return NULL;
    errno = S_ISREG(info.st_mode) ? EFBIG : EINVAL;
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > most || !(text = malloc((size_t)info.st_size + 1)))
        return NULL;
    while (bytes < (size_t)info.st_size && n > 0) {
        n = read(fd, text + bytes, (size_t)info.st_size - bytes);
        bytes += n > 0 ? (size_t)n : 0;
    }
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    *ret_bytes = bytes;
    return text;
}

/* What jansson says of a member that is there twice: its name in quotation marks, or all of it. */
static const char *twice(const json_error_t *why, size_t *ret_length) {
    const char *first = strchr(why->text, '"');
    const char *last = strrchr(why->text, '"');

    *ret_length = first && last > first ? (size_t)(last - first) + 1 : strlen(why->text);
    return first && last > first ? first : why->text;
}

static int refuse_json(struct model *model, const char *path, const json_error_t *why) {
    size_t n;
    const char *name = twice(why, &n);

    if (json_error_code(why) == json_error_duplicate_key)
        return gb_cli_refused(model->cli, GB_CLI_FAILED, "%s has %.*s twice, before byte %d; " UNTOUCHED, path, (int)n,
                              name, why->position);
    return gb_cli_refused(model->cli, GB_CLI_FAILED, "%s is not JSON: %s, at byte %d; " UNTOUCHED, path, why->text,
                          why->position);
}

/* The files that the index names, each once. */
static int list_indexed(struct model *model, const char *path) {
    json_t *map = json_object_get(model->root, "weight_map");
    json_t *seen = json_object();
    const char *tensor;
    json_t *file;
    int r = 0;

    if (json_object_size(map) == 0)
        r = gb_cli_refused(model->cli, GB_CLI_FAILED,
                           "%s has no weight_map that names the file of each tensor; " UNTOUCHED, path);
    json_object_foreach(map, tensor, file) {
        if (r == 0 && (!json_is_string(file) || !gb_cli_model_holds(json_string_value(file))))
            r = gb_cli_refused(model->cli, GB_CLI_FAILED,
                               "%s: the file of \"%s\" must be the name of one in this folder%s%s%s; " UNTOUCHED, path,
                               tensor, json_is_string(file) ? ", and is \"" : "",
                               json_is_string(file) ? json_string_value(file) : "", json_is_string(file) ? "\"" : "");
        if (r == 0 && !json_object_get(seen, json_string_value(file))) {
            json_object_set(seen, json_string_value(file), file);
            r = add_file(model, json_string_value(file));
        }
    }
    json_decref(seen);
    if (r == 0 && model->count > SHARDS_MAX)
        r = gb_cli_refused(model->cli, GB_CLI_FAILED, "%s names %zu files, and %d are permitted; " UNTOUCHED, path,
                           model->count, SHARDS_MAX);
    return r;
}

static int read_index(struct model *model, int fd, const char *path) {
    json_error_t why;
    size_t bytes;

    model->index = read_text(fd, INDEX_BYTES, &bytes);
    if (!model->index)
        return gb_cli_refused(model->cli, GB_CLI_FAILED, "%s cannot be read: %s; " UNTOUCHED, path, strerror(errno));
    model->root = json_loadb(model->index, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!model->root)
        return refuse_json(model, path, &why);
    return list_indexed(model, path);
}

/* Without an index: the one file that can be meant. */
static int list_folder(struct model *model, DIR *folder) {
    const struct dirent *entry;
    size_t i;
    int r = 0;

    while (r == 0 && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && gb_cli_ends_in(entry->d_name, ENDING))
            r = add_file(model, entry->d_name);
    for (i = 0; i < model->count && r == 0; i++)
        if (strcmp(model->all[i].file, ONE_FILE) == 0) { /* the others are of something else */
            struct shard one = model->all[i];

            model->all[i] = model->all[0];
            model->all[0] = one;
            while (model->count > 1)
                free(model->all[--model->count].file);
        }
    if (r != 0 || model->count == 1)
        return r;
    if (model->count == 0)
        return gb_cli_refused(model->cli, GB_CLI_FAILED,
                              "%s has no model: neither " INDEX_FILE " nor a file that ends in " ENDING, model->folder);
    qsort(model->all, model->count, sizeof(*model->all), by_file);
    return gb_cli_refused(model->cli, GB_CLI_FAILED,
                          "%s has %zu files that end in " ENDING ", such as %s and %s, and no " INDEX_FILE
                          " that names those of the model: put it there, or upload one file, gpubuf put %s%s%s NAME",
                          model->folder, model->count, model->all[0].file, model->all[1].file, model->folder,
                          gb_cli_ends_in(model->folder, "/") ? "" : "/", model->all[0].file);
}

static int list_files(struct model *model) {
    char *path = gb_cli_path_in(model->folder, INDEX_FILE);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    DIR *folder = NULL;
    int r;

    if (!path) {
        r = no_memory(model->cli);
    } else if (fd >= 0) {
        r = read_index(model, fd, path);
        close(fd);
    } else if (errno != ENOENT) {
        r = gb_cli_refused(model->cli, GB_CLI_FAILED, "%s cannot be read: %s; " UNTOUCHED, path, strerror(errno));
    } else if (!(folder = opendir(model->folder))) {
        r = gb_cli_refused(model->cli, GB_CLI_FAILED, "%s cannot be read: %s", model->folder, strerror(errno));
    } else {
        r = list_folder(model, folder);
        closedir(folder);
    }
    free(path);
    if (r == 0)
        qsort(model->all, model->count, sizeof(*model->all), by_file);
    return r;
}

/* --- what the files say, compared before any of it is sent -------------------------------------------------------- */

/* Where the bytes of a tensor end behind the header. -1: its entry does not say it. */
static json_int_t end_of(json_t *entry) {
    json_t *end = json_array_get(json_object_get(entry, "data_offsets"), 1);

    return json_is_integer(end) ? json_integer_value(end) : -1;
}

/* Notes the tensors of a file. */
static int take_header(struct model *model, struct shard *shard, const char *path, json_t *header, uint64_t front) {
    struct gb_cli *cli = model->cli;
    json_int_t end = 0;
    const char *tensor;
    json_t *entry;

    json_object_foreach(header, tensor, entry) {
        json_t *other = json_object_get(model->places, tensor);

        if (strcmp(tensor, "__metadata__") == 0)
            continue;
        if (other)
            return gb_cli_refused(cli, GB_CLI_FAILED, "\"%s\" is a tensor of %s and of %s; " UNTOUCHED, tensor,
                                  json_string_value(other), shard->file);
        if (end_of(entry) < 0)
            return gb_cli_refused(cli, GB_CLI_FAILED,
                                  "%s does not say by data_offsets where its tensor \"%s\" is; " UNTOUCHED, path,
                                  tensor);
        end = end_of(entry) > end ? end_of(entry) : end;
        if (json_object_set_new(model->places, tensor, json_string(shard->file)) < 0)
            return gb_cli_refused(cli, GB_CLI_FAILED, "the name of %s is not UTF-8; " UNTOUCHED, path);
        shard->tensors++;
    }
    if (front + (uint64_t)end == shard->bytes)
        return 0;
    return gb_cli_refused(
        cli, GB_CLI_FAILED, "%s has %" PRIu64 " bytes, and %" PRIu64 " by its header: it is %s; " UNTOUCHED, path,
        shard->bytes, front + (uint64_t)end, front + (uint64_t)end > shard->bytes ? "cut" : "too long");
}

/* What begins so: eight bytes of a length, and JSON of it. */
static int check_header(struct model *model, struct shard *shard, const char *path) {
    unsigned char front[32] = {0};
    ssize_t n = pread(shard->fd, front, sizeof(front) - 1, 0);
    uint64_t length = 0;
    json_error_t why;
    json_t *header;
    char *text;
    int i;
    int r;

    for (i = 7; i >= 0; i--)
        length = length << 8 | front[i];
    if (n < 8 || length > HEADER_BYTES || (n > 8 && front[8] != '{'))
        return gb_cli_refused(model->cli, GB_CLI_FAILED, "%s is no safetensors file%s; " UNTOUCHED, path,
                              n > 0 && strncmp((const char *)front, LFS, strlen(LFS)) == 0
                                  ? " but a pointer of Git LFS, in whose place \"git lfs pull\" brings the file"
                                  : "");
    if (length > shard->bytes - 8)
        return gb_cli_refused(model->cli, GB_CLI_FAILED,
                              "%s has %" PRIu64 " bytes, and its header alone %" PRIu64 ": it is cut; " UNTOUCHED, path,
                              shard->bytes, length + 8);
    text = malloc(length + 1);
    if (!text || pread(shard->fd, text, length, 8) != (ssize_t)length) {
        free(text);
        return gb_cli_refused(model->cli, GB_CLI_FAILED, "the header of %s cannot be read; " UNTOUCHED, path);
    }
    header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    free(text);
    r = header ? take_header(model, shard, path, header, 8 + length) : refuse_json(model, path, &why);
    json_decref(header);
    return r;
}

static int check_file(struct model *model, struct shard *shard) {
    const char *named = model->index ? ", which " INDEX_FILE " names," : "";
    char *path = gb_cli_path_in(model->folder, shard->file);
    struct stat info;
    int r;

    if (!path)
        return no_memory(model->cli);
    shard->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (shard->fd < 0 || fstat(shard->fd, &info) < 0) {
        r = gb_cli_refused(model->cli, GB_CLI_FAILED, "%s%s cannot be read: %s; " UNTOUCHED, path, named,
                           strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        r = gb_cli_refused(model->cli, GB_CLI_FAILED, "%s%s is no file; " UNTOUCHED, path, named);
    } else {
        shard->bytes = (uint64_t)info.st_size;
        r = check_header(model, shard, path);
    }
    free(path);
    return r;
}

/* Each tensor of the index must be where it says. What files have beyond it harms no one. */
static int check_map(struct model *model) {
    const char *tensor;
    json_t *file;

    json_object_foreach(json_object_get(model->root, "weight_map"), tensor, file) {
        json_t *place = json_object_get(model->places, tensor);

        if (!json_equal(place, file))
            return gb_cli_refused(model->cli, GB_CLI_FAILED,
                                  "%s says that %s has the tensor \"%s\", which %s%s; " UNTOUCHED, INDEX_FILE,
                                  json_string_value(file), tensor, place ? "is in " : "it has not",
                                  place ? json_string_value(place) : "");
    }
    return 0;
}

static int check_model(struct model *model) {
    size_t i;
    int r = list_files(model);

    for (i = 0; i < model->count && r == 0; i++)
        r = check_file(model, &model->all[i]);
    return r == 0 ? check_map(model) : r;
}

/* --- put: what is there ------------------------------------------------------------------------------------------- */

/* Whether the daemon has a buffer of that name. -1 with cli->error: it does not say. */
static int exists(struct gb_cli *cli, const struct gb_cli_name *name) {
    char target[GB_CLI_PATH];
    json_t *buffer;

    if (gb_cli_target(cli, target, BUFFER, name->session, name->name) < 0)
        return -1;
    buffer = gb_cli_request(cli, "GET", target, NULL);
    json_decref(buffer);
    return buffer ? 1 : cli->error.code == GPUBUF_BUFFER_NOT_FOUND ? 0 : -1;
}

static bool is_published(const struct model *model, const char *buffer) {
    json_t *shards = json_object_get(model->published, "shards");
    json_t *shard;
    size_t i;

    json_array_foreach(shards, i, shard) {
        if (strcmp(gb_cli_text(shard, "buffer"), buffer) == 0)
            return true;
    }
    return false;
}

/* The version is later than all that has left a shard. Shards of no published model take memory for nothing. */
static void take_names(struct model *model, json_t *items) {
    json_t *published = json_object_get(model->published, "version");
    const char *stray = NULL;
    size_t strays = 0;
    json_t *item;
    size_t i;

    model->version = (uint64_t)json_integer_value(published);
    json_array_foreach(items, i, item) {
        const char *buffer = gb_cli_text(item, "name");
        uint64_t version = gb_cli_model_version(buffer, model->name->name);

        model->version = version > model->version ? version : model->version;
        if (version == 0 || is_published(model, buffer))
            continue;
        stray = stray ? stray : buffer;
        strays++;
    }
    model->version++;
    if (strays > 0 && !model->cli->options.quiet)
        fprintf(stderr,
                "gpubuf: warning: %s%s no part of the published model \"%s\": of an upload that was broken off, or is "
                "under way (\"gpubuf rm\" deletes buffers)\n",
                stray, strays > 1 ? " and others are" : " is", model->name->name);
}

/* "m.00001", and of a later version "m.00001.v2": no other model's shards are called so. */
static int name_shard(const char *name, uint64_t version, size_t number, char ret[GPUBUF_NAME_SIZE]) {
    char behind[24] = "";

    if (version > 1)
        snprintf(behind, sizeof(behind), ".v%" PRIu64, version);
    return snprintf(ret, GPUBUF_NAME_SIZE, "%s.%0*zu%s", name, GB_CLI_MODEL_DIGITS, number, behind) < GPUBUF_NAME_SIZE
               ? 0
               : -1;
}

/* The index of a sealed model takes no other: said before anything is sent. */
static int check_sealed(struct model *model) {
    struct gb_cli *cli = model->cli;
    struct gb_cli_name at;
    char target[GB_CLI_PATH];
    json_t *index = NULL;
    bool sealed;

    if (!model->published)
        return 0;
    if (gb_cli_model_index(cli, model->name, &at) == 0 && gb_cli_target(cli, target, BUFFER, at.session, at.name) == 0)
        index = gb_cli_request(cli, "GET", target, NULL);
    if (!index)
        return gb_cli_failed(cli);
    sealed = json_is_true(json_object_get(index, "sealed"));
    json_decref(index);
    if (!sealed)
        return 0;
    return gb_cli_refused(
        cli, GB_CLI_FAILED,
        "the model \"%s\" is sealed, and no other takes its place: give this one another name; " UNTOUCHED,
        model->name->name);
}

/* Reads what is published and finds names for what is to be. */
static int plan(struct model *model) {
    struct gb_cli *cli = model->cli;
    const char *name = model->name->name;
    char target[GB_CLI_PATH];
    json_t *items = NULL;
    size_t i;
    int r = exists(cli, model->name);

    if (r > 0)
        return gb_cli_refused(
            cli, GB_CLI_FAILED,
            "\"%s\" is a buffer, and this model would be %zu others beside it: \"gpubuf rm %s\" makes "
            "room for the name; " UNTOUCHED,
            name, model->count, name);
    if (r == 0)
        model->published = gb_cli_model_read(cli, model->name, model->etag);
    if (r < 0 || (!model->published && cli->error.code != GPUBUF_BUFFER_NOT_FOUND))
        return gb_cli_failed(cli);
    r = check_sealed(model);
    if (r != 0)
        return r;
    if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers?prefix={}", model->name->session, name) == 0)
        items = gb_cli_list(cli, target);
    if (!items)
        return gb_cli_failed(cli);
    take_names(model, items);
    json_decref(items);
    for (i = 0; i < model->count; i++)
        if (name_shard(name, model->version, i + 1, model->all[i].buffer) < 0)
            return gb_cli_refused(cli, GB_CLI_USAGE, "\"%s\" is too long for the name of a model; " UNTOUCHED, name);
    return 0;
}

/* --- put: the upload, and back ------------------------------------------------------------------------------------ */

/* The buffer as the daemon answered, which is taken, with the labels of --labels. NULL with cli->error set. */
static json_t *take_answer(struct model *model, const char *buffer, json_t *answer) {
    struct gb_cli *cli = model->cli;
    char target[GB_CLI_PATH];
    json_t *body;

    if (!cli->options.labels)
        return answer;
    json_decref(answer);
    body = json_object();
    if (gb_cli_label_settings(cli, body) == 0 && gb_cli_target(cli, target, BUFFER, model->name->session, buffer) == 0)
        return gb_cli_request(cli, "PATCH", target, body);
    json_decref(body);
    return NULL;
}

/* if_none_match: as the library takes it. */
static int put_file(struct model *model, struct shard *shard, const char *label, const char *if_none_match) {
    struct gb_cli *cli = model->cli;
    const struct gpubuf_answer *answered = gpubuf_answer_of(cli->client);
    struct gb_cli_name buffer = *model->name;
    struct gpubuf_put_params params = {0};
    struct gb_cli_progress progress;
    json_t *answer = NULL;
    int r;

    snprintf(buffer.name, sizeof(buffer.name), "%s", shard->buffer);
    gb_cli_put_params(&cli->options, &params);
    params.format = "safetensors";
    params.pack = true;
    params.how.if_none_match = if_none_match;
    params.progress = gb_cli_moved;
    params.progress_arg = &progress;
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), label);
    shard->made = true;
    if (cli->options.retry > 0) {
        answer = model->put(cli, shard->fd, shard->bytes, &buffer, &params, &progress);
        r = answer ? 0 : -1;
    } else {
        do
            r = gpubuf_put(cli->client, buffer.session, buffer.name, gpubuf_from_fd(shard->fd, 0, shard->bytes),
                           &params, NULL, &cli->error);
        while (r < 0 && gb_cli_again(cli));
        answer = r == 0 ? json_loadb(answered->body, answered->bytes, 0, NULL) : NULL;
    }
    gb_cli_progress_end(&progress, r == 0);
    if (r < 0) {
        shard->made = cli->error.code != GPUBUF_PRECONDITION_FAILED; /* that is another's */
        shard->late = cli->error.status == 0 && progress.done + UNSEEN_BYTES >= shard->bytes;
        return -1;
    }
    gb_cli_times_put(cli);
    answer = take_answer(model, shard->buffer, answer);
    return answer && json_array_append_new(model->answers, answer) == 0 ? 0 : -1;
}

/* A client that no interrupt stops and that has little patience. */
static gpubuf_client *hasty(struct gb_cli *cli) {
    struct gb_cli_options given = cli->options;
    struct gpubuf_error told = cli->error;
    gpubuf_client *client = NULL;

    cli->options.timeout = HASTE_S;
    if (gb_cli_open(cli, NULL, NULL, &client) < 0)
        client = NULL;
    cli->options = given;
    cli->error = told;
    return client;
}

/* Deletes a shard; one that is not there is waited for if it may still come. */
static bool withdraw_shard(struct model *model, gpubuf_client *client, const struct shard *shard) {
    struct gpubuf_error why;
    char target[GB_CLI_PATH];
    int times = 0;

    if (!client || gb_cli_target(model->cli, target, BUFFER, model->name->session, shard->buffer) < 0)
        return false;
    while (gpubuf_request(client, "DELETE", target, NULL, NULL, 0, &why) < 0) {
        if (why.code != GPUBUF_BUFFER_NOT_FOUND || !shard->late || times++ == LATE_TIMES)
            return why.code == GPUBUF_BUFFER_NOT_FOUND;
        poll(NULL, 0, LATE_MS);
    }
    return true;
}

/* What of this upload is in the daemon goes again. */
static void withdraw(struct model *model, gpubuf_client *client) {
    const char *left = NULL;
    size_t i;

    for (i = 0; i < model->count; i++)
        if (model->all[i].made && !withdraw_shard(model, client, &model->all[i]))
            left = left ? left : model->all[i].buffer;
    if (left)
        fprintf(stderr, "gpubuf: %s may be left of this upload, which is of no model: \"gpubuf rm\" deletes it\n",
                left);
    else
        fprintf(stderr, "gpubuf: no part of the model was left in the daemon%s\n",
                model->published ? ", and the one before is unchanged" : "");
}

static int put_shards(struct model *model) {
    struct gb_cli *cli = model->cli;
    char label[GPUBUF_NAME_SIZE + 48];
    int r = 0;
    size_t i;

    for (i = 0; i < model->count && r == 0; i++) {
        snprintf(label, sizeof(label), "%s (%zu of %zu)", model->all[i].buffer, i + 1, model->count);
        r = put_file(model, &model->all[i], label, "*");
    }
    if (r == 0)
        return GB_CLI_DONE;
    cli->about = model->all[i - 1].file;
    r = cli->error.code == GPUBUF_PRECONDITION_FAILED
            ? gb_cli_refused(cli, GB_CLI_FAILED,
                             "the buffer \"%s\" came there meanwhile: another upload of the model \"%s\" is under way",
                             model->all[i - 1].buffer, model->name->name)
            : gb_cli_failed(cli);
    cli->about = NULL;
    return r;
}

/* --- put: the publication ----------------------------------------------------------------------------------------- */

static json_t *document_of(const struct model *model) {
    json_t *shards = json_array();
    json_t *document =
        json_pack("{s:i, s:I, s:o, s:{s:s, s:s}}", GB_CLI_MODEL_MARK, GB_CLI_MODEL_FORM, "version",
                  (json_int_t)model->version, "shards", shards, "index", "file", INDEX_FILE, "text", model->index);
    size_t i;

    for (i = 0; i < model->count && document; i++) {
        const struct shard *shard = &model->all[i];

        json_array_append_new(shards,
                              json_pack("{s:s, s:s, s:I, s:I}", "buffer", shard->buffer, "file", shard->file, "bytes",
                                        (json_int_t)shard->bytes, "tensors", (json_int_t)shard->tensors));
    }
    return document;
}

/* After an answer that failed or was lost: 1: the daemon has this text; 0: it has another or none; -1: it says
 * nothing. */
static int has_text(struct model *model, gpubuf_client *client, const struct gb_cli_name *index, const char *text) {
    const struct gpubuf_answer *answer;
    struct gpubuf_error why;
    char target[GB_CLI_PATH];

    if (!client || gb_cli_target(model->cli, target, BUFFER "/data?format=raw", index->session, index->name) < 0)
        return -1;
    if (gpubuf_request(client, "GET", target, NULL, NULL, 0, &why) < 0)
        return why.code == GPUBUF_BUFFER_NOT_FOUND ? 0 : -1;
    answer = gpubuf_answer_of(client);
    return answer->bytes == strlen(text) && memcmp(answer->body, text, answer->bytes) == 0;
}

static int put_index(struct model *model, const struct gb_cli_name *index, const char *text) {
    struct gb_cli *cli = model->cli;
    struct gpubuf_put_params params = {.format = "raw", .durability = cli->options.durability};
    int r;

    params.kind = model->published ? NULL : "pageable"; /* no GPU is needed to read it */
    params.spill = cli->options.spill;
    params.stream = cli->options.stream;
    params.how.if_match = model->published ? model->etag : NULL;
    params.how.if_none_match = model->published ? NULL : "*";
    do
        r = gpubuf_put(cli->client, index->session, index->name, gpubuf_from_memory(text, strlen(text)), &params, NULL,
                       &cli->error);
    while (r < 0 && gb_cli_again(cli));
    return r;
}

/* The one step before which readers have the old model, and behind which they have the new. *ret_known: it is known
 * that nothing was published. */
static int publish(struct model *model, bool *ret_known) {
    struct gb_cli *cli = model->cli;
    json_t *document = document_of(model);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    gpubuf_client *client = NULL;
    struct gb_cli_name index;
    int has = 0;
    int r = -1;

    *ret_known = true;
    if (!text)
        gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    else if (gb_cli_model_index(cli, model->name, &index) == 0)
        r = put_index(model, &index, text);
    if (r < 0 && text) {
        int times = cli->error.status == 0 ? LATE_TIMES : 0; /* without an answer it may still come there */

        client = hasty(cli);
        while ((has = has_text(model, client, &index, text)) == 0 && times-- > 0)
            poll(NULL, 0, LATE_MS);
        gpubuf_close(client);
    }
    free(text);
    json_decref(document);
    if (r == 0 || has > 0)
        return GB_CLI_DONE;
    *ret_known = has == 0;
    if (has < 0)
        fprintf(stderr, "gpubuf: whether \"%s\" was published is not known: \"gpubuf ls %s\" shows it\n",
                model->name->name, model->name->name);
    if (cli->error.code == GPUBUF_PRECONDITION_FAILED)
        return gb_cli_refused(cli, GB_CLI_FAILED,
                              "another model was published as \"%s\" meanwhile: repeat the command if this one is to "
                              "take its place",
                              model->name->name);
    return gb_cli_failed(cli);
}

static int show_model(struct model *model) {
    struct gb_cli *cli = model->cli;
    uint64_t tensors = 0;
    uint64_t bytes = 0;
    char size[24];
    size_t i;

    for (i = 0; i < model->count; i++) {
        tensors += model->all[i].tensors;
        bytes += model->all[i].bytes;
    }
    if (cli->options.json)
        return gb_cli_show(cli,
                           json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:O}", "name", model->name->name, "session",
                                     model->name->session, "version", (json_int_t)model->version, "tensors",
                                     (json_int_t)tensors, "bytes", (json_int_t)bytes, "replaced",
                                     model->published != NULL, "shards", model->answers),
                           NULL, 0);
    if (!cli->options.quiet)
        printf("%s  %zu files  %" PRIu64 " tensors  %s  version %" PRIu64 "\n", model->name->name, model->count,
               tensors, gb_cli_bytes_text(bytes, size), model->version);
    return GB_CLI_DONE;
}

/* The model of several files. */
static int put_several(struct model *model) {
    struct gb_cli *cli = model->cli;
    bool known = true;
    int r = plan(model);

    if (r != 0)
        return r;
    r = put_shards(model);
    if (r == GB_CLI_DONE)
        r = publish(model, &known);
    if (r != GB_CLI_DONE) {
        gpubuf_client *client = known ? hasty(cli) : NULL;

        if (known)
            withdraw(model, client);
        gpubuf_close(client);
        return r;
    }
    if (gb_cli_model_drop(cli, model->name, model->published) > 0)
        fprintf(stderr,
                "gpubuf: warning: the new model is published, and not all of the one before could be deleted: "
                "%s\n",
                cli->error.detail);
    return show_model(model);
}

/* The model of one file: a buffer, which is replaced as any is. */
static int put_one(struct model *model) {
    struct gb_cli *cli = model->cli;
    const char *name = model->name->name;
    struct shard *shard = &model->all[0];
    int r = gb_cli_model_hides(cli, model->name);

    if (r != 0)
        return r;
    snprintf(shard->buffer, sizeof(shard->buffer), "%s", name);
    if (put_file(model, shard, name, NULL) == 0)
        return gb_cli_show_buffer(cli, json_incref(json_array_get(model->answers, 0)));
    cli->about = name;
    return gb_cli_failed(cli);
}

int gb_cli_put_model(struct gb_cli *cli, const char *given, const char *text, gb_cli_put_continued *put) {
    struct model model = {.cli = cli, .put = put, .places = json_object(), .answers = json_array()};
    char *folder = gb_cli_host_path(cli, given);
    struct gb_cli_name name;
    int r;

    model.folder = folder;
    if (!folder)
        r = no_memory(cli);
    else if (gb_cli_options_idle(
                 &cli->options,
                 "dtype shape raw mirrored in-place offset slice tensor side prefix max-bytes connections",
                 "the files of a model become tables as they are") < 0)
        r = GB_CLI_USAGE;
    else if (gb_cli_one_name(cli, text, &name) < 0)
        r = gb_cli_failed(cli);
    else if (!gb_cli_is_name(name.name))
        r = gb_cli_refused(cli, GB_CLI_USAGE,
                           "\"%s\" is no name of a model: letters, digits and, after the first, . _ and -", name.name);
    else
        r = check_model(&model);
    if (r == 0) {
        model.name = &name;
        r = model.count == 1 ? put_one(&model) : put_several(&model);
    }
    while (model.count > 0) {
        struct shard *last = &model.all[--model.count];

        if (last->fd >= 0)
            close(last->fd);
        free(last->file);
    }
    free(model.all);
    free(model.index);
    free(folder);
    json_decref(model.root);
    json_decref(model.places);
    json_decref(model.published);
    json_decref(model.answers);
    return r;
}
