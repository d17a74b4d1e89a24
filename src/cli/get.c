/* get and cp: from buffers into files and into each other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"
#include "cli/progress.h"
#include "cli/sink.h"
#include "cli/times.h"

static int moved(void *arg, uint64_t done, uint64_t total) {
    gb_cli_progress_move(arg, done, total == GPUBUF_UNKNOWN ? 0 : total);
    return 0;
}

static bool wants_npy(const struct gb_cli_options *o, const char *path) {
    return o->npy || (!o->raw && path != NULL && gb_cli_ends_in(path, ".npy") && !o->given[GB_CLI_ID_offset] &&
                      !o->given[GB_CLI_ID_bytes]);
}

static void get_params(const struct gb_cli_options *o, const char *path, struct gpubuf_get_params *ret) {
    ret->format = wants_npy(o, path) ? "npy" : NULL;
    if (!o->raw && path != NULL && gb_cli_ends_in(path, ".safetensors"))
        ret->format = "safetensors";
    ret->stream = o->stream;
    ret->slice = o->slice;
    ret->connections = (uint32_t)o->connections;
    if (o->given[GB_CLI_ID_offset])
        ret->offset = gpubuf_some(o->offset);
    if (o->given[GB_CLI_ID_bytes])
        ret->length = gpubuf_some(o->bytes);
}

static json_t *shape_of(const struct gpubuf_got *got) {
    json_t *shape = json_array();
    unsigned i;

    for (i = 0; i < got->ndim && i < GPUBUF_DIMS_MAX; i++)
        json_array_append_new(shape, json_integer((json_int_t)got->shape[i]));
    return shape;
}

/* The size is the file's, which may have a header before the buffer's bytes. */
static void put_got(json_t *value) {
    char shape[GB_CLI_CELL];
    char size[24];

    gb_cli_cell(value, &(struct gb_cli_column){"", "shape", GB_CLI_FORM_SHAPE}, shape);
    gb_cli_put(stdout, gb_cli_text(value, "name"));
    fputs("  ", stdout);
    gb_cli_put(stdout, gb_cli_text(value, "dtype"));
    printf(" %s  generation %.0f  %s in ", shape, gb_cli_number(value, "generation"),
           gb_cli_bytes_text((uint64_t)gb_cli_number(value, "bytes"), size));
    gb_cli_put(stdout, gb_cli_text(value, "file"));
    putchar('\n');
}

/* What came, unless it went to standard output. */
static int show_got(struct gb_cli *cli, const struct gb_cli_name *name, const char *path,
                    const struct gpubuf_got *got) {
    json_t *value = json_pack("{s:s, s:s, s:I, s:s, s:o, s:I, s:s}", "name", name->name, "session", name->session,
                              "bytes", (json_int_t)got->bytes, "dtype", got->dtype, "shape", shape_of(got),
                              "generation", (json_int_t)got->generation, "file", path);

    if (value == NULL)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the file's name is not UTF-8 and cannot be shown; it is complete");
    if (cli->options.json)
        return gb_cli_show(cli, value, NULL, 0);
    if (!cli->options.quiet)
        put_got(value);
    json_decref(value);
    return GB_CLI_DONE;
}

/* A write that fails is said of the file, as by other programs. One of a pipe without a reader and an interrupt end the
 * command in ways of their own. */
static int failed(struct gb_cli *cli, const char *path) {
    const struct gpubuf_error *err = &cli->error;
    int why = err->code == GPUBUF_OUTPUT_FAILED ? err->native_code : 0;

    if (why == 0 || why == EPIPE || why == EINTR || atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    return gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", path, strerror(why));
}

static int get_buffer(struct gb_cli *cli, const struct gb_cli_name *name, const char *path) {
    bool out = path == NULL || strcmp(path, "-") == 0;
    struct gpubuf_get_params params = {0};
    struct gb_cli_progress progress;
    struct gb_cli_sink sink;
    struct gpubuf_got got;
    int rc = gb_cli_sink_open(cli, path, &sink);
    int ended;

    if (rc != 0)
        return rc;
    get_params(&cli->options, path, &params);
    params.progress = moved;
    params.progress_arg = &progress;
    if (!sink.seeks)
        params.connections = 0;
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), name->name);
    do
        rc = gpubuf_get(cli->client, name->session, name->name, gb_cli_target_of(&sink), &params, &got, &cli->error);
    while (rc < 0 && !sink.given && gb_cli_again(cli));
    gb_cli_progress_end(&progress, rc == 0);
    if (rc == 0 && !out)
        gb_cli_warn_no_archive(cli, &sink, path);
    ended = gb_cli_sink_close(cli, &sink, rc == 0);
    if (rc < 0)
        return failed(cli, out ? "standard output" : path);
    gb_cli_times_get(cli, name, got.bytes);
    return ended != 0 || out ? ended : show_got(cli, name, path, &got);
}

/* "a,b" names, "p*" all that begin with p. -1 with cli->error set when it is neither. The prefix is the caller's. */
static int take_names(struct gb_cli *cli, const char *given, const char *names, struct gpubuf_tensors_params *ret,
                      char **ret_prefix) {
    if (strcspn(given, "*?[") < strlen(given) - gb_cli_ends_in(given, "*"))
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "\"%s\": get takes several buffers as a beginning of names with * behind it, or as names "
                            "with commas between them",
                            given);
    ret->names = names;
    if (!gb_cli_ends_in(names, "*"))
        return 0;
    ret->names = NULL;
    ret->prefix = *ret_prefix = strndup(names, strlen(names) - 1);
    return *ret_prefix != NULL ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
}

/* A file without tensors is that length and {}, with blanks up to a multiple of eight. */
#define EMPTY_BYTES 16

/* Of "SESSION/NAMES", which *name is moved to; else the one in use. */
static const char *session_of(const struct gb_cli *cli, const char **name, char ret[GPUBUF_NAME_SIZE]) {
    const char *slash = strchr(*name, '/');

    if (slash == NULL || slash == *name)
        return cli->session;
    snprintf(ret, GPUBUF_NAME_SIZE, "%.*s", (int)(slash - *name), *name);
    *name = slash + 1;
    return ret;
}

/* Several buffers of a session, "[SESSION/]NAMES", into one safetensors file. */
static int get_tensors(struct gb_cli *cli, const char *given, const char *path) {
    char session[GPUBUF_NAME_SIZE];
    const char *names = given;
    const char *in = session_of(cli, &names, session);
    struct gpubuf_tensors_params params = {0};
    struct gb_cli_progress progress;
    struct gb_cli_sink sink;
    uint64_t bytes = 0;
    char *prefix = NULL;
    char size[24];
    bool none;
    int rc;
    int ended;

    if (take_names(cli, given, names, &params, &prefix) < 0)
        return gb_cli_failed(cli);
    rc = gb_cli_sink_open(cli, path, &sink);
    if (rc != 0) {
        free(prefix);
        return rc;
    }
    params.stream = cli->options.stream;
    params.progress = moved;
    params.progress_arg = &progress;
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), names);
    do
        rc = gpubuf_tensors_get(cli->client, in, gb_cli_target_of(&sink), &params, &bytes, &cli->error);
    while (rc < 0 && !sink.given && gb_cli_again(cli));
    none = rc == 0 && prefix != NULL && bytes <= EMPTY_BYTES;
    gb_cli_progress_end(&progress, rc == 0);
    ended = gb_cli_sink_close(cli, &sink, rc == 0 && !none);
    free(prefix);
    if (none)
        return gb_cli_none_matches(cli, given);
    if (rc < 0)
        return failed(cli, path);
    gb_cli_times_put(cli);
    if (ended == 0 && cli->options.json)
        return gb_cli_show(cli, json_pack("{s:s, s:I}", "file", path, "bytes", (json_int_t)bytes), NULL, 0);
    if (ended == 0 && !cli->options.quiet)
        printf("%s  %s\n", path, gb_cli_bytes_text(bytes, size));
    return ended;
}

static int refuse_target(struct gb_cli *cli, const char *path) {
    bool out = path == NULL || strcmp(path, "-") == 0;

    if (out && cli->options.json)
        return gb_cli_refused(cli, GB_CLI_USAGE, "standard output cannot have both bytes and JSON; name a file");
    if (path == NULL && isatty(STDOUT_FILENO))
        return gb_cli_refused(cli, GB_CLI_USAGE, "bytes are not for a terminal; name a file, or - if you mean it");
    if (cli->host != NULL && (out || strstr(path, "%h") == NULL))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "with --hosts each host needs a file of its own: put %%h into the name");
    return 0;
}

/* Options that would be ignored, said before anything is asked. */
static int check_idle(const struct gb_cli *cli, const char *path, bool many) {
    if (many)
        return gb_cli_options_idle(&cli->options, "raw npy slice offset bytes connections",
                                   "several buffers go whole into one safetensors file");
    if (cli->options.raw)
        return gb_cli_options_idle(&cli->options, "npy", "--raw asks for the bytes as they are");
    if (path != NULL && gb_cli_ends_in(path, ".safetensors"))
        return gb_cli_options_idle(&cli->options, "npy", "the FILE ends in .safetensors, and becomes one");
    return 0;
}

/* The file that is meant; malloc'd. In a folder it is called as the buffer is. */
static char *path_for(const struct gb_cli *cli, const char *name, const char *given) {
    const char *slash = strrchr(name, '/');
    char *path = gb_cli_host_path(cli, given);
    char *whole = NULL;
    struct stat info;
    bool ends;

    if (path == NULL || path[0] == '\0' || strcmp(path, "-") == 0)
        return path;
    ends = gb_cli_ends_in(path, "/");
    if (!ends && !(stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
        return path;
    if (asprintf(&whole, "%s%s%s", path, ends ? "" : "/", slash != NULL ? slash + 1 : name) < 0)
        whole = NULL;
    free(path);
    return whole;
}

int gb_cli_get_file(struct gb_cli *cli, const char *name, const char *given) {
    struct gb_cli_name source;
    char *path = NULL;
    bool many;
    int rc = refuse_target(cli, given);

    if (rc != 0)
        return rc;
    if (given != NULL)
        path = path_for(cli, name, strncmp(given, "file:", 5) == 0 ? given + 5 : given);
    if (given != NULL && path == NULL)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    many = path != NULL && gb_cli_ends_in(path, ".safetensors") && strpbrk(name, "*?[,") != NULL;
    if (check_idle(cli, path, many) < 0)
        rc = GB_CLI_USAGE;
    else if (many)
        rc = get_tensors(cli, name, path);
    else if (gb_cli_one_name(cli, name, &source) < 0)
        rc = gb_cli_failed(cli);
    else
        rc = get_buffer(cli, &source, path);
    free(path);
    return rc;
}

int gb_cli_run_get(struct gb_cli *cli, int argc, char **argv) {
    return gb_cli_get_file(cli, argv[0], argc > 1 ? argv[1] : NULL);
}
