/* put: from a file or a pipe into a buffer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/files.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/resume.h"
#include "cli/settings.h"
#include "cli/source.h"
#include "cli/times.h"

bool gb_cli_ends_in(const char *text, const char *end) {
    size_t n = strlen(text);
    size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

bool gb_cli_is_file(const char *text) {
    return strcmp(text, "-") == 0 || text[0] == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0 ||
           strncmp(text, "file:", 5) == 0;
}

char *gb_cli_host_path(const struct gb_cli *cli, const char *path) {
    const char *host = cli->host != NULL ? cli->host : "";
    const char *mark = strstr(path, "%h");
    char *ret = NULL;
    char *at;

    if (cli->host == NULL || mark == NULL)
        return strdup(path);
    if (asprintf(&ret, "%.*s%s%s", (int)(mark - path), path, host, mark + 2) < 0)
        return NULL;
    for (at = ret + (mark - path); at < ret + (mark - path) + strlen(host); at++)
        if (*at == '/')
            *at = '_';
    return ret;
}

/* The file's name without folder and ending. */
static int name_from(struct gb_cli *cli, const char *path, struct gb_cli_name *ret) {
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    char name[GPUBUF_NAME_SIZE];

    if (strcmp(path, "-") == 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "standard input has no name: gpubuf put - NAME");
    snprintf(name, sizeof name, "%.*s", dot != NULL && dot != base ? (int)(dot - base) : (int)strlen(base), base);
    return gb_cli_name(cli, name, ret);
}

struct moving {
    struct gb_cli_progress progress;
    uint64_t expected; /* bytes, where the library does not know; GPUBUF_UNKNOWN: unknown here too */
};

static int moved(void *arg, uint64_t done, uint64_t total) {
    struct moving *moving = arg;

    total = total == GPUBUF_UNKNOWN ? moving->expected : total;
    gb_cli_progress_move(&moving->progress, done, total == GPUBUF_UNKNOWN ? 0 : total);
    return 0;
}

/* Bytes that --shape and --dtype make, of a pipe or device: dtypes have their bits in their names, or are bool.
 * GPUBUF_UNKNOWN: they do not say it. */
static uint64_t expected_bytes(const struct gb_cli_options *o) {
    const char *bits = o->dtype != NULL ? o->dtype + strcspn(o->dtype, "0123456789") : "8";
    const char *shape = o->shape;
    uint64_t bytes = o->dtype != NULL && strcmp(o->dtype, "bool") == 0 ? 1 : strtoull(bits, NULL, 10) / 8;

    if (shape == NULL || bytes == 0)
        return GPUBUF_UNKNOWN;
    while (*shape != '\0') {
        char *end;

        if (*shape < '0' || *shape > '9' || __builtin_mul_overflow(bytes, strtoull(shape, &end, 10), &bytes))
            return GPUBUF_UNKNOWN;
        shape = *end == ',' ? end + 1 : end;
    }
    return bytes;
}

static void put_params(const struct gb_cli_options *o, struct gpubuf_put_params *ret) {
    ret->format = o->raw ? "raw" : NULL;
    ret->dtype = o->dtype;
    ret->shape = o->shape;
    ret->stream = o->stream;
    ret->kind = o->kind;
    ret->pool = o->pool;
    ret->device = o->device;
    ret->side = o->side;
    ret->durability = o->durability;
    ret->spill = o->spill;
    ret->mirrored = o->mirrored;
    ret->in_place = o->in_place;
    ret->slice = o->slice;
    if (o->given[GB_CLI_ID_max_bytes] && o->max_bytes <= INT64_MAX)
        ret->max_bytes = gpubuf_some(o->max_bytes);
    ret->connections = (uint32_t)o->connections;
    if (o->given[GB_CLI_ID_offset])
        ret->offset = gpubuf_some(o->offset);
}

/* An upload has none: they are set once the buffer is there. */
static int set_labels(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *body = json_object();
    char target[GB_CLI_PATH];

    if (gb_cli_label_settings(cli, body) < 0 ||
        gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}", name->session, name->name) < 0) {
        json_decref(body);
        return gb_cli_failed(cli);
    }
    return gb_cli_show_buffer(cli, gb_cli_request(cli, "PATCH", target, body));
}

/* What the daemon says of bytes that it took as they are. */
static void warn(const struct gb_cli *cli, const struct gb_cli_name *name, json_t *buffer) {
    const char *warning = json_string_value(json_object_get(buffer, "warning"));

    if (warning == NULL || cli->options.quiet)
        return;
    fprintf(stderr, "gpubuf: warning: %s: ", name->name);
    gb_cli_put(stderr, warning);
    fputc('\n', stderr);
}

/* warned: of what the file is. */
static int put_buffer(struct gb_cli *cli, struct gb_cli_source *source, const struct gb_cli_name *name, bool warned) {
    struct gpubuf_put_params params = {0};
    struct moving moving = {.expected = expected_bytes(&cli->options)};
    const struct gpubuf_answer *answer;
    json_t *buffer = NULL;
    int rc;

    put_params(&cli->options, &params);
    params.progress = moved;
    params.progress_arg = &moving;
    gb_cli_progress_begin(&moving.progress, stderr, gb_cli_draws(cli), name->name);
    if (gb_cli_resumes(cli, source)) {
        buffer = gb_cli_put_resumable(cli, source, name, &params, &moving.progress);
        rc = buffer != NULL ? 0 : -1;
    } else {
        do
            rc = gpubuf_put(cli->client, name->session, name->name, gb_cli_source_of(source), &params, NULL,
                            &cli->error);
        while (rc < 0 && !source->taken && gb_cli_again(cli));
    }
    gb_cli_progress_end(&moving.progress, rc == 0);
    if (rc < 0) {
        int status;

        cli->about = name->name;
        status = gb_cli_failed(cli);
        cli->about = NULL; /* it ends with this file */
        return status;
    }
    gb_cli_times_put(cli);
    answer = gpubuf_answer_of(cli->client);
    if (buffer == NULL)
        buffer = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (!warned)
        warn(cli, name, buffer);
    if (cli->options.labels != NULL) {
        json_decref(buffer);
        return set_labels(cli, name);
    }
    return gb_cli_show_buffer(cli, buffer);
}

static int put_tensors(struct gb_cli *cli, struct gb_cli_source *source, const char *label) {
    const struct gb_cli_options *o = &cli->options;
    struct gpubuf_tensors_params params = {0};
    struct moving moving = {.expected = GPUBUF_UNKNOWN};
    const struct gpubuf_answer *answer;
    struct gpubuf_tensors tensors;
    char size[24];
    int rc;

    params.prefix = o->prefix;
    params.stream = o->stream;
    params.kind = o->kind;
    params.pool = o->pool;
    params.device = o->device;
    params.progress = moved;
    params.progress_arg = &moving;
    gb_cli_progress_begin(&moving.progress, stderr, gb_cli_draws(cli), label);
    do
        rc = gpubuf_tensors_put(cli->client, cli->session, gb_cli_source_of(source), &params, &tensors, &cli->error);
    while (rc < 0 && !source->taken && gb_cli_again(cli));
    gb_cli_progress_end(&moving.progress, rc == 0);
    if (rc < 0)
        return gb_cli_failed(cli);
    gb_cli_times_put(cli);
    answer = gpubuf_answer_of(cli->client);
    if (o->json)
        return gb_cli_show(cli, json_loadb(answer->body, answer->bytes, 0, NULL), NULL, 0);
    if (!o->quiet)
        printf("%llu tensors  %s  %llu new, %llu replaced\n", (unsigned long long)tensors.tensors,
               gb_cli_bytes_text(tensors.bytes, size), (unsigned long long)tensors.created,
               (unsigned long long)tensors.replaced);
    return GB_CLI_DONE;
}

/* Options that would be ignored, said before anything is read. */
static int check_idle(const struct gb_cli *cli, bool many) {
    if (many)
        return gb_cli_options_idle(&cli->options,
                                   "dtype shape npy mirrored max-bytes in-place offset bytes slice connections",
                                   "the tensors of a safetensors file become buffers of their own; with a NAME, or "
                                   "--raw, the file becomes one");
    return gb_cli_options_idle(&cli->options, "prefix",
                               "it goes before the names of tensors: a FILE ending in .safetensors, and no NAME");
}

static int refuse_of_one(struct gb_cli *cli) {
    const char *durability = cli->options.durability;
    const char *option = durability != NULL ? "--durability" : "--spill";

    if (cli->options.labels != NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--labels is of one buffer: \"gpubuf set 'NAME*' --labels %s\" gives them to the tensors "
                              "of a file",
                              cli->options.labels);

    return gb_cli_refused(
        cli, GB_CLI_USAGE,
        "%s is of one buffer; the tensors of a file have that of their session: \"gpubuf sessions set "
        "%s %s %s\"",
        option, cli->session, option, durability != NULL ? durability : cli->options.spill);
}

/* "FILE" of "file:FILE". */
static const char *path_in(const char *given) {
    return strncmp(given, "file:", 5) == 0 ? given + 5 : given;
}

/* Whether a file without a NAME becomes a buffer for each of its tensors. */
static bool is_tensors(const struct gb_cli *cli, const char *given) {
    return !cli->options.raw && gb_cli_ends_in(given, ".safetensors");
}

int gb_cli_put_file(struct gb_cli *cli, const char *given, const char *name) {
    bool many = name == NULL && is_tensors(cli, given);
    char *path = gb_cli_host_path(cli, path_in(given));
    struct gb_cli_name target;
    struct gb_cli_source source;
    int rc;

    if (path == NULL)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    if (check_idle(cli, many) < 0) {
        free(path);
        return GB_CLI_USAGE;
    }
    if (many && cli->options.side != NULL) {
        free(path);
        return gb_cli_refused(cli, GB_CLI_USAGE, "--side is of one buffer: gpubuf put FILE NAME --side SIDE");
    }
    if (many && (cli->options.durability != NULL || cli->options.spill != NULL || cli->options.labels != NULL)) {
        free(path);
        return refuse_of_one(cli);
    }
    if (!many && (name != NULL ? gb_cli_one_name(cli, name, &target) : name_from(cli, path, &target)) < 0)
        rc = gb_cli_failed(cli);
    else if (cli->host != NULL && strcmp(path, "-") == 0)
        rc = gb_cli_refused(cli, GB_CLI_USAGE, "standard input cannot go to several hosts; name a file");
    else
        rc = gb_cli_source_open(cli, path, cli->options.shape != NULL || cli->options.slice != NULL,
                                expected_bytes(&cli->options), &source);
    if (rc == 0) {
        bool warned = gb_cli_warn_archive(cli, &source, path);

        rc = many ? put_tensors(cli, &source, path) : put_buffer(cli, &source, &target, warned);
        gb_cli_source_close(&source);
    }
    free(path);
    return rc;
}

/* "SESSION/", into which files go by their own names. */
static bool is_session(const char *text) {
    const char *slash = strchr(text, '/');

    return slash != NULL && slash != text && slash[1] == '\0' && text[0] != '.';
}

/* Of "put *.npy" where two files match, the second is not meant as a name. */
static bool looks_like_file(const char *file, const char *name) {
    const char *dot = strrchr(file, '.');
    struct stat info;

    return dot != NULL && strchr(dot, '/') == NULL && gb_cli_ends_in(name, dot) && stat(name, &info) == 0 &&
           S_ISREG(info.st_mode);
}

/* One of several files: that it is there, and what its buffer is called. */
static int check_file(struct gb_cli *cli, const char *given, char *ret_name) {
    char *path = gb_cli_host_path(cli, path_in(given));
    struct gb_cli_name name = {.name = ""};
    struct stat info;
    int rc = GB_CLI_DONE;

    if (path == NULL)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    if (!is_tensors(cli, given) && name_from(cli, path, &name) < 0)
        rc = gb_cli_failed(cli);
    else if (stat(path, &info) < 0)
        rc = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be read: %s; nothing was uploaded", path, strerror(errno));
    else if (name.name[0] != '\0' && !gb_cli_is_name(name.name))
        rc = gb_cli_refused(cli, GB_CLI_USAGE,
                            "%s would become the buffer \"%s\", which is no name: letters, digits and, after the "
                            "first, . _ and -; \"gpubuf put %s NAME\" gives it another. Nothing was uploaded",
                            path, name.name, path);
    snprintf(ret_name, GPUBUF_NAME_SIZE, "%s", name.name);
    free(path);
    return rc;
}

/* What is wrong with one of several files is said before any of them is sent: also that two have one name, of which the
 * second would take the place of the first. */
static int check_files(struct gb_cli *cli, int argc, char **argv) {
    char(*names)[GPUBUF_NAME_SIZE] = calloc((size_t)argc, sizeof *names);
    int rc = names != NULL ? GB_CLI_DONE : gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    int i;
    int j;

    for (i = 0; i < argc && rc == GB_CLI_DONE; i++) {
        rc = check_file(cli, argv[i], names[i]);
        for (j = 0; j < i && rc == GB_CLI_DONE; j++)
            if (names[i][0] != '\0' && strcmp(names[i], names[j]) == 0)
                rc = gb_cli_refused(cli, GB_CLI_USAGE,
                                    "%s and %s would both become the buffer \"%s\", called as the file without its "
                                    "last ending: \"gpubuf put FILE NAME\" gives one another name. Nothing was "
                                    "uploaded",
                                    argv[j], argv[i], names[i]);
    }
    free(names);
    return rc;
}

/* What can be checked is checked of all before; then all are tried. The exit status of the first that failed. */
static int put_several(struct gb_cli *cli, int argc, char **argv) {
    const char *own = cli->session;
    char session[GPUBUF_NAME_SIZE];
    int worst = GB_CLI_DONE;
    int i;

    if (is_session(argv[argc - 1])) {
        snprintf(session, sizeof session, "%.*s", (int)strcspn(argv[argc - 1], "/"), argv[argc - 1]);
        cli->session = session;
        argc--;
    }
    worst = check_files(cli, argc, argv);
    if (worst != GB_CLI_DONE) {
        cli->session = own;
        return worst;
    }
    cli->several = json_array();
    for (i = 0; i < argc && !atomic_load(&cli->interrupted); i++) {
        int status = gb_cli_put_file(cli, argv[i], NULL);

        worst = worst == GB_CLI_DONE ? status : worst;
    }
    if (cli->options.json && worst == GB_CLI_DONE)
        gb_cli_json(stdout, cli->several);
    json_decref(cli->several);
    cli->several = NULL;
    cli->session = own;
    return worst;
}

int gb_cli_run_put(struct gb_cli *cli, int argc, char **argv) {
    bool named = argc == 2 && !is_session(argv[1]) && (strcmp(argv[1], "-") == 0 || !gb_cli_is_file(argv[1]));

    json_t *labels = json_object();
    int rc = gb_cli_label_settings(cli, labels);

    json_decref(labels);
    if (rc < 0) /* before anything is uploaded */
        return gb_cli_failed(cli);
    if (named && looks_like_file(argv[0], argv[1]))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "%s is a file here, and as the second word it would be the buffer's name: with a "
                              "session behind them both are uploaded, \"gpubuf put %s %s %s/\"",
                              argv[1], argv[0], argv[1], cli->session);
    if (argc == 1 || named)
        return gb_cli_put_file(cli, argv[0], argc > 1 ? argv[1] : NULL);
    return put_several(cli, argc, argv);
}
