/* cp: between buffers on the device, between a buffer and a file, or from another daemon. */
#include <string.h>
#include <unistd.h>

#include "cli/files.h"
#include "cli/times.h"

static json_t *copy_body(const struct gb_cli_options *o, const struct gb_cli_name *from) {
    char source[2 * GPUBUF_NAME_SIZE];
    json_t *body;

    snprintf(source, sizeof source, "%s/%s", from->session, from->name);
    body = json_pack("{s:s}", "from", source);
    if (body == NULL)
        return NULL;
    if (o->given[GB_CLI_ID_from_offset])
        json_object_set_new(body, "from_offset", json_integer((json_int_t)o->from_offset));
    if (o->given[GB_CLI_ID_offset])
        json_object_set_new(body, "offset", json_integer((json_int_t)o->offset));
    if (o->given[GB_CLI_ID_bytes])
        json_object_set_new(body, "bytes", json_integer((json_int_t)o->bytes));
    if (o->stream != NULL)
        json_object_set_new(body, "stream", json_string(o->stream));
    if (o->in_place)
        json_object_set_new(body, "in_place", json_true());
    return body;
}

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
    struct gb_cli_name to;
    json_t *copied = NULL;

    if (gb_cli_one_name(cli, source, &from) < 0 || gb_cli_one_name(cli, target, &to) < 0 ||
        gb_cli_target(cli, path, "/v1/sessions/{}/buffers/{}/copy", to.session, to.name) < 0 ||
        (copied = gb_cli_request(cli, "POST", path, copy_body(&cli->options, &from))) == NULL) {
        int status = gb_cli_failed(cli);

        say_file(cli, source, target);
        return status;
    }
    gb_cli_times_put(cli);
    return gb_cli_show_buffer(cli, copied);
}

/* Options that would be ignored: what is copied says which. */
static int check_idle(const struct gb_cli *cli, bool from_file, bool to_file, bool from_url) {
    const char *ignored = "dtype shape raw npy kind pool device connections source-token-file";
    const char *why = "the copy of a buffer is as its source is; it is for files and other daemons";

    if (from_file) {
        ignored = "npy from-offset bytes source-token-file";
        why = "all of a file is uploaded, to --offset of the buffer";
    } else if (to_file) {
        ignored = "dtype shape kind pool device in-place from-offset source-token-file";
        why = "a download reads --bytes from --offset of the buffer on";
    } else if (from_url) {
        ignored = "dtype shape raw npy";
        why = "a buffer of another daemon comes as it is there";
    }
    return gb_cli_options_idle(&cli->options, ignored, why);
}

int gb_cli_run_cp(struct gb_cli *cli, int argc, char **argv) {
    bool from_file = gb_cli_is_file(argv[0]);
    bool to_file = gb_cli_is_file(argv[1]);

    (void)argc;
    if (gb_cli_is_url(argv[1]))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "TARGET is a buffer of the daemon that is asked, and a URL can be SOURCE alone: --url "
                              "says which daemon");
    if (gb_cli_is_url(argv[0]) && to_file)
        return gb_cli_refused(cli, GB_CLI_USAGE, "a URL is copied into a buffer; gpubuf --url URL get brings a file");
    if (!(from_file && to_file) && check_idle(cli, from_file, to_file, gb_cli_is_url(argv[0])) < 0)
        return GB_CLI_USAGE;
    if (gb_cli_is_url(argv[0]))
        return gb_cli_pull(cli, argv[0], argv[1]);
    if (from_file && to_file)
        return gb_cli_refused(cli, GB_CLI_USAGE, "cp copies from or to a buffer; for two files there is cp(1)");
    if (from_file)
        return gb_cli_put_file(cli, argv[0], argv[1]);
    return to_file ? gb_cli_get_file(cli, argv[0], argv[1]) : copy_buffer(cli, argv[0], argv[1]);
}
