/* `gpubufd check`: reads a configuration file as the daemon would, and tells each mistake with its line. Nothing is
 * started, and the environment is left out. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "daemon/certificates.h"
#include "daemon/checks.h"
#include "daemon/commands/command.h"
#include "daemon/listen.h"
#include "daemon/tokens_file.h"

enum own { JSON, OWNS };

static const struct gb_command_verb helps[] = {
    {"FILE [--json]", "Reads a configuration file as the daemon would, and tells each mistake with its line. Nothing "
                      "is started, and the environment is left out"},
};

static const struct gb_command_option owns[OWNS] = {
    [JSON] = {"--json", "", "one JSON object", 1u << 0},
};

static const struct gb_command about = {
    .word = "check", .verbs = helps, .verb_count = 1, .options = owns, .option_count = OWNS};

struct check {
    const char *path;
    struct gb_json_writer *out;    /* NULL: lines of text */
    unsigned lines[GB_OPTION_IDS]; /* where each was set last; 0: it was not */
    unsigned line;                 /* that is read; 0: the file is read */
    unsigned mistakes;
    unsigned options; /* that were set */
};

/* --- what was found ----------------------------------------------------------------------------------------------- */

/* The first option that the text names as --NAME and the file has. */
static unsigned line_of(const struct check *check, const char *text) {
    while ((text = strstr(text, "--")) != NULL) {
        size_t n = strspn(text + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        const struct gb_option_spec *spec = gb_option_find(text + 2, n);

        if (spec && check->lines[spec - gb_option_specs] > 0)
            return check->lines[spec - gb_option_specs];
        text += 2 + n;
    }
    return 0;
}

/* Of a line the detail begins with its place already. */
static void put_mistake(struct check *check, const struct gb_error *err) {
    unsigned line = check->line > 0 ? check->line : line_of(check, err->detail);

    check->mistakes++;
    if (check->out) {
        gb_json_open(check->out, NULL, '{');
        if (line > 0)
            gb_json_put_u64(check->out, "line", line);
        else
            gb_json_put_null(check->out, "line");
        gb_json_put_untrusted(check->out, "detail", err->detail, sizeof(err->detail));
        gb_json_close(check->out, '}');
    } else if (check->line > 0) {
        fprintf(stderr, "%s\n", err->detail);
    } else if (line > 0) {
        fprintf(stderr, "%s:%u: %s\n", check->path, line, err->detail);
    } else {
        fprintf(stderr, "%s: %s\n", check->path, err->detail);
    }
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void read_line(struct check *check, struct gb_options *options, char *line) {
    const struct gb_option_spec *spec = NULL;
    struct gb_error err = GB_ERROR_INIT;

    check->line++;
    if (gb_options_line(options, check->path, check->line, line, &spec, &err) != 0) {
        put_mistake(check, &err);
    } else if (spec) {
        check->lines[spec - gb_option_specs] = check->line;
        check->options++;
    }
}

static int read_file(struct check *check, struct gb_options *options) {
    FILE *file = fopen(check->path, "re");
    char *line = NULL;
    size_t size = 0;
    bool failed;

    if (!file)
        return -1;
    while (getline(&line, &size, file) >= 0)
        read_line(check, options, line);
    failed = !feof(file); /* also when there was no memory for a line */
    free(line);
    fclose(file);
    check->line = 0;
    return failed ? -1 : 0;
}

static void check_listen(struct check *check, const struct gb_text_list *specs, bool tls) {
    size_t i;

    for (i = 0; i < specs->count; i++) {
        struct gb_error err = GB_ERROR_INIT;

        if ((tls || strcmp(specs->items[i], "none") != 0) && gb_listen_check(specs->items[i], tls, &err) != 0)
            put_mistake(check, &err);
    }
}

static void check_tokens_file(struct check *check, const char *path) {
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_error err = GB_ERROR_INIT;

    if (path[0] == '\0')
        return;
    if (gb_tokens_file_read(&file, path, &why) != 0) {
        gb_error_set(&err, why.code, "--tokens-file: %s", why.detail);
        put_mistake(check, &err);
    }
    gb_tokens_file_done(&file);
}

/* What the start would say of the options together. */
static void check_all(struct check *check, struct gb_daemon *daemon) {
    const struct gb_options *o = &daemon->options;
    struct gb_socket_rights rights;
    struct gb_error err;
    size_t i;

    for (i = 0; i < gb_options_checks_count; i++) {
        err = (struct gb_error)GB_ERROR_INIT;
        if (gb_options_checks[i].run(daemon, &err) != 0)
            put_mistake(check, &err);
    }
    check_listen(check, &o->listen, false);
    check_listen(check, &o->tls_listen, true);
    err = (struct gb_error)GB_ERROR_INIT;
    if (gb_socket_rights_read(o->socket_mode, o->socket_group, &rights, &err) != 0)
        put_mistake(check, &err);
    err = (struct gb_error)GB_ERROR_INIT;
    if (gb_daemon_try_tls(o, &err) != 0)
        put_mistake(check, &err);
    check_tokens_file(check, o->tokens_file);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* The file's own mistakes first: what lines with mistakes leave out is not held against the rest. */
static int run(struct check *check, struct gb_daemon *daemon) {
    struct gb_error err = GB_ERROR_INIT;

    if (read_file(check, &daemon->options) != 0)
        return -1;
    if (gb_options_defaults(&daemon->options, &err) != 0)
        put_mistake(check, &err);
    else
        check_all(check, daemon);
    return 0;
}

static int run_json(struct check *check, struct gb_daemon *daemon) {
    struct gb_json_writer out = {0};
    int r;

    check->out = &out;
    gb_json_open(&out, NULL, '{');
    gb_json_put_untrusted(&out, "file", check->path, PATH_MAX);
    gb_json_open(&out, "mistakes", '[');
    r = run(check, daemon);
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "options", check->options);
    gb_json_close(&out, '}');
    gb_json_end(&out);
    if (r == 0)
        fwrite(out.s, 1, out.used, stdout);
    gb_json_done(&out);
    return r;
}

enum gb_exit gb_check_command(struct gb_options *options, int argc, char **argv) {
    struct gb_daemon daemon = {.signal_fd = -1};
    struct gb_error err = GB_ERROR_INIT;
    struct check check = {.path = NULL};
    struct gb_command_line line = {.most = 1};
    const char *json;
    int r = gb_command_read(&about, options, argc, argv, &line, &err);

    json = line.own[JSON];
    check.path = line.words[0];
    if (r == 0 && !check.path && !options->help)
        r = gb_error_set(&err, GB_ERR_INVALID_ARGUMENT, "check needs a FILE");
    if (r != 0)
        return gb_command_usage_error(&about, &err);
    if (options->help) {
        gb_command_help(stdout, &about, 0);
        return GB_EXIT_OK;
    }
    daemon.options = *options; /* the command line wins over the file, as for the daemon */
    *options = (struct gb_options){0};
    r = json ? run_json(&check, &daemon) : run(&check, &daemon);
    if (r != 0)
        fprintf(stderr, "gpubufd: %s cannot be read: %s\n", check.path, strerror(errno));
    else if (!json && check.mistakes == 0)
        printf("%s: %u option%s, no mistakes\n", check.path, check.options, check.options == 1 ? "" : "s");
    gb_daemon_done(&daemon);
    return r != 0 || check.mistakes > 0 ? GB_EXIT_CONFIG : GB_EXIT_OK;
}
