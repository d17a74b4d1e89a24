/* get and cp: from buffers into files (files.c), and into each other. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"
#include "cli/transfer/models.h"

#define TABLE_ENDING ".safetensors"

/* --- get ---------------------------------------------------------------------------------------------------------- */

static bool wants_npy(const struct gb_cli_options *o, const char *path) {
    return o->npy || (!o->raw && path && gb_cli_ends_in(path, ".npy") && !o->given[GB_CLI_ID_offset] &&
                      !o->given[GB_CLI_ID_bytes]);
}

static void get_params(const struct gb_cli_options *o, const char *path, struct gpubuf_get_params *ret) {
    bool part = o->given[GB_CLI_ID_offset] || o->given[GB_CLI_ID_bytes] || o->slice || o->tensor;

    ret->format = wants_npy(o, path) ? "npy" : o->raw || part ? NULL : "own";
    if (!o->raw && path && gb_cli_ends_in(path, ".safetensors"))
        ret->format = "safetensors";
    ret->stream = o->stream;
    ret->slice = o->slice;
    ret->tensor = o->tensor;
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

    if (!value)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the file's name is not UTF-8 and cannot be shown; it is complete");
    if (cli->options.json)
        return gb_cli_show(cli, value, NULL, 0);
    if (!cli->options.quiet)
        put_got(value);
    json_decref(value);
    return GB_CLI_DONE;
}

/* name: also of a model, of which --tensor names one. */
static int get_buffer(struct gb_cli *cli, struct gb_cli_name *name, const char *path) {
    bool out = !path || strcmp(path, "-") == 0;
    struct gpubuf_get_params params = {0};
    struct gb_cli_progress progress;
    struct gb_cli_sink sink;
    struct gpubuf_got got;
    int r = gb_cli_sink_open(cli, path, &sink);
    int ended;

    if (r != 0)
        return r;
    get_params(&cli->options, path, &params);
    params.progress = gb_cli_moved;
    params.progress_arg = &progress;
    if (!sink.seeks)
        params.connections = 0;
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), name->name);
    do
        r = gpubuf_get(cli->client, name->session, name->name, gb_cli_sink_target(&sink), &params, &got, &cli->error);
    while (r < 0 && !sink.given && (gb_cli_again(cli) || gb_cli_model_shard(cli, name)));
    gb_cli_progress_end(&progress, r == 0);
    if (r == 0 && !out && strcmp(got.dtype, "tensors") != 0)
        gb_cli_warn_no_archive(cli, sink.seeks ? sink.fd : -1, path);
    ended = gb_cli_sink_close(cli, &sink, r == 0);
    if (r < 0 && cli->error.code == GPUBUF_BUFFER_NOT_FOUND && gb_cli_is_model(cli, name))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "\"%s\" is a model in several files, which go into a folder: gpubuf get %s DIR/",
                              name->name, name->name);
    if (r < 0)
        return gb_cli_sink_failed(cli, out ? "standard output" : path);
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
    return *ret_prefix ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
}

/* A file without tensors is that length and {}, with blanks up to a multiple of eight. */
#define EMPTY_BYTES 16

/* Of "SESSION/NAMES", which *name is moved to; else the one in use. */
static const char *session_of(const struct gb_cli *cli, const char **name, char ret[GPUBUF_NAME_SIZE]) {
    const char *slash = strchr(*name, '/');

    if (!slash || slash == *name)
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
    int r;
    int ended;

    if (take_names(cli, given, names, &params, &prefix) < 0)
        return gb_cli_failed(cli);
    r = gb_cli_sink_open(cli, path, &sink);
    if (r != 0) {
        free(prefix);
        return r;
    }
    params.stream = cli->options.stream;
    params.progress = gb_cli_moved;
    params.progress_arg = &progress;
    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(cli), names);
    do
        r = gpubuf_tensors_get(cli->client, in, gb_cli_sink_target(&sink), &params, &bytes, &cli->error);
    while (r < 0 && !sink.given && gb_cli_again(cli));
    none = r == 0 && prefix && bytes <= EMPTY_BYTES;
    gb_cli_progress_end(&progress, r == 0);
    ended = gb_cli_sink_close(cli, &sink, r == 0 && !none);
    free(prefix);
    if (none)
        return gb_cli_none_matches(cli, given);
    if (r < 0)
        return gb_cli_sink_failed(cli, path);
    gb_cli_times_put(cli);
    if (ended == 0 && cli->options.json)
        return gb_cli_show(cli, json_pack("{s:s, s:I}", "file", path, "bytes", (json_int_t)bytes), NULL, 0);
    if (ended == 0 && !cli->options.quiet)
        printf("%s  %s\n", path, gb_cli_bytes_text(bytes, size));
    return ended;
}

static int refuse_target(struct gb_cli *cli, const char *path) {
    bool out = !path || strcmp(path, "-") == 0;

    if (out && cli->options.json)
        return gb_cli_refused(cli, GB_CLI_USAGE, "standard output cannot have both bytes and JSON; name a file");
    if (!path && isatty(STDOUT_FILENO))
        return gb_cli_refused(cli, GB_CLI_USAGE, "bytes are not for a terminal; name a file, or - if you mean it");
    if (cli->host && (out || !strstr(path, "%h")))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "with --hosts each host needs a file of its own: put %%h into the name");
    return 0;
}

/* Options that would be ignored, said before anything is asked. */
static int check_idle_get(const struct gb_cli *cli, const char *path, bool many) {
    if (many)
        return gb_cli_options_idle(&cli->options, "raw npy slice offset bytes tensor connections",
                                   "several buffers go whole into one safetensors file");
    if (cli->options.raw)
        return gb_cli_options_idle(&cli->options, "npy", "--raw asks for the bytes as they are");
    if (path && gb_cli_ends_in(path, ".safetensors"))
        return gb_cli_options_idle(&cli->options, "npy", "the FILE ends in .safetensors, and becomes one");
    return 0;
}

/* Whether it stands for a file in it, or for the files of a model. */
static bool is_into(const char *path) {
    return path && path[0] != '\0' && strcmp(path, "-") != 0 && (gb_cli_ends_in(path, "/") || gb_cli_is_folder(path));
}

/* Into a folder: a file that is called as the buffer is, and ends as a table's does; or the files of a model. */
static int get_into(struct gb_cli *cli, struct gb_cli_name *name, const char *folder) {
    bool part = cli->options.raw || cli->options.npy || cli->options.tensor || cli->options.slice ||
                cli->options.given[GB_CLI_ID_offset] || cli->options.given[GB_CLI_ID_bytes];
    char file[GPUBUF_NAME_SIZE + sizeof TABLE_ENDING];
    char target[GB_CLI_PATH];
    json_t *buffer = NULL;
    bool table;
    bool made;
    char *path;
    int r;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}", name->session, name->name) == 0)
        buffer = gb_cli_request(cli, "GET", target, NULL);
    if (!buffer && cli->error.code == GPUBUF_BUFFER_NOT_FOUND && gb_cli_is_model(cli, name))
        return gb_cli_get_model(cli, name, folder);
    if (!buffer)
        return gb_cli_failed(cli);
    table = strcmp(gb_cli_text(buffer, "dtype"), "tensors") == 0;
    json_decref(buffer);
    snprintf(file, sizeof(file), "%s%s", name->name,
             table && !part && !gb_cli_ends_in(name->name, TABLE_ENDING) ? TABLE_ENDING : "");
    path = gb_cli_path_in(folder, file);
    made = mkdir(folder, 0777) == 0;
    r = path ? get_buffer(cli, name, path) : gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    free(path);
    if (r != GB_CLI_DONE && made)
        rmdir(folder);
    return r;
}

/* given: - or NULL is standard output. A file appears when all of it is there. */
static int get_file(struct gb_cli *cli, const char *name, const char *given) {
    struct gb_cli_name source;
    char *path = NULL;
    bool many;
    int r = refuse_target(cli, given);

    if (r != 0)
        return r;
    if (given)
        path = gb_cli_host_path(cli, strncmp(given, "file:", 5) == 0 ? given + 5 : given);
    if (given && !path)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    many = path && gb_cli_ends_in(path, ".safetensors") && strpbrk(name, "*?[,");
    if (check_idle_get(cli, path, many) < 0)
        r = GB_CLI_USAGE;
    else if (many)
        r = get_tensors(cli, name, path);
    else if (gb_cli_one_name(cli, name, &source) < 0)
        r = gb_cli_failed(cli);
    else
        r = is_into(path) ? get_into(cli, &source, path) : get_buffer(cli, &source, path);
    free(path);
    return r;
}

int gb_cli_run_get(struct gb_cli *cli, int argc, char **argv) {
    return get_file(cli, argv[0], argc > 1 ? argv[1] : NULL);
}

/* --- cp ----------------------------------------------------------------------------------------------------------- */

/* Who wrote x.npy where a buffer is meant may have meant the file of that name. */
static void say_file(const struct gb_cli *cli, const char *source, const char *target) {
    if (cli->error.code == GPUBUF_BUFFER_NOT_FOUND || cli->error.code == GPUBUF_INVALID_NAME ||
        cli->error.code == GPUBUF_BAD_ARGUMENT) {
        if (access(source, R_OK) == 0)
            fprintf(stderr, "gpubuf: the file %s is meant by ./%s or file:%s, or by \"gpubuf put %s %s\".\n", source,
                    source, source, source, target);
        else
            fputs("gpubuf: SOURCE and TARGET are buffers; a file begins with /, ./, ../ or file:\n", stderr);
    }
}

static int copy_buffer(struct gb_cli *cli, const char *source, const char *target) {
    char path[GB_CLI_PATH];
    struct gb_cli_name from;
    json_t *copied = NULL;
    json_t *body;

    if (gb_cli_one_name(cli, source, &from) == 0 && gb_cli_buffer_target(cli, target, "/copy", path) == 0) {
        body = json_pack("{s:s++}", "from", from.session, "/", from.name);
        if (gb_cli_put_tag(cli, body, "from_if_match") == 0)
            copied = gb_cli_post(cli, path, body);
        else
            json_decref(body);
    }
    if (!copied) {
        int status = gb_cli_failed(cli);

        say_file(cli, source, target);
        return status;
    }
    gb_cli_times_put(cli);
    return gb_cli_show_buffer(cli, copied);
}

/* Options that would be ignored: what is copied says which. */
static int check_idle_cp(const struct gb_cli *cli, bool from_file, bool to_file) {
    const char *ignored =
        "dtype shape raw npy kind pool device connections source-token-file header digest labels durability";
    const char *why = "the copy of a buffer is as its source is; it is for files and other daemons";

    if (from_file) {
        ignored = "npy from-offset bytes source-token-file header digest if-match";
        why = "all of a file is uploaded, to --offset of the buffer";
    } else if (to_file) {
        ignored = "dtype shape kind pool device in-place from-offset source-token-file header digest if-match labels "
                  "durability";
        why = "a download reads --bytes from --offset of the buffer on";
    }
    return gb_cli_options_idle(&cli->options, ignored, why);
}

int gb_cli_run_cp(struct gb_cli *cli, int argc, char **argv) {
    bool from_file = gb_cli_is_file(argv[0]);
    bool to_file = gb_cli_is_file(argv[1]);

    (void)argc;
    if (gb_cli_is_source(argv[1]))
        return gb_cli_refused(
            cli, GB_CLI_USAGE,
            "TARGET is a buffer of the daemon that is asked, and a URL or daemon:PATH can be SOURCE alone: "
            "--url says which daemon");
    if (gb_cli_is_source(argv[0]) && to_file)
        return gb_cli_refused(
            cli, GB_CLI_USAGE,
            "a URL or a file of the daemon is copied into a buffer; gpubuf --url URL get brings a file");
    if (gb_cli_is_source(argv[0]))
        return gb_cli_copy_source(cli, argv[0], argv[1]);
    if (!(from_file && to_file) && check_idle_cp(cli, from_file, to_file) < 0)
        return GB_CLI_USAGE;
    if (from_file && to_file)
        return gb_cli_refused(cli, GB_CLI_USAGE, "cp copies from or to a buffer; for two files there is cp(1)");
    if (from_file)
        return gb_cli_put_file(cli, argv[0], argv[1]);
    return to_file ? get_file(cli, argv[0], argv[1]) : copy_buffer(cli, argv[0], argv[1]);
}
