#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/signals.h"

#define TOKEN_BYTES 4096

static const struct {
    int code;
    const char *text;
} hints[] = {
#define GB_CLI_HINT(code, text) {GPUBUF_##code, text},
#include "cli/hints.def"
#undef GB_CLI_HINT
};

int gb_cli_status_of(const struct gpubuf_error *err) {
    switch (err->code) {
    case GPUBUF_CANNOT_CONNECT:
    case GPUBUF_CONNECTION_LOST:
    case GPUBUF_CLIENT_TIMEOUT:
    case GPUBUF_TLS_FAILED:
        return GB_CLI_UNREACHABLE;
    case GPUBUF_BAD_ARGUMENT:
        return GB_CLI_USAGE;
    case GPUBUF_INTERRUPTED:
        return GB_CLI_INTERRUPTED;
    default:
        return err->status == 404 && err->code != GPUBUF_NO_ROUTE ? GB_CLI_NOT_FOUND : GB_CLI_FAILED;
    }
}

/* The daemon's own problem document where there was one, with all its members. */
static json_t *problem_of(struct gb_cli *cli) {
    const struct gpubuf_answer *answer = cli->client != NULL ? gpubuf_answer_of(cli->client) : NULL;
    json_t *problem = NULL;

    if (cli->error.status >= 400 && answer != NULL && answer->body != NULL)
        problem = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (json_is_object(problem) && strcmp(gb_cli_text(problem, "code"), cli->error.slug) == 0)
        return problem;
    json_decref(problem);
    return json_pack("{s:s, s:s, s:b, s:i}", "code", cli->error.slug, "detail", cli->error.detail, "retryable",
                     cli->error.retryable, "status", cli->error.status);
}

static void put_holders(json_t *problem) {
    json_t *holders = json_object_get(problem, "holders");
    json_t *holder;
    size_t i;

    json_array_foreach(holders, i, holder) {
        bool exported = gb_cli_number(holder, "pid") == 0;

        fputs("gpubuf: lease ", stderr);
        gb_cli_put(stderr, gb_cli_text(holder, "lease"));
        if (exported)
            fputs(" is an export made at ", stderr);
        else
            fprintf(stderr, " is held by process %.0f of user %.0f since ", gb_cli_number(holder, "pid"),
                    gb_cli_number(holder, "uid"));
        gb_cli_put(stderr, gb_cli_text(holder, "since"));
        fputs(exported ? ": \"gpubuf leases rm\" ends it, once no process uses the handle\n" : "\n", stderr);
    }
}

/* Whether what was broken off has no effect: a transfer that does not write where the bytes stand. */
static bool left_nothing(const struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;

    return gb_cli_has_word("put get cp", cli->command->name) && !o->in_place && !o->given[GB_CLI_ID_offset] &&
           !o->slice;
}

static void put_native(const struct gpubuf_error *err) {
    fputs(" (", stderr);
    gb_cli_put(stderr, err->native_call);
    fputs(", ", stderr);
    gb_cli_put(stderr, err->native_name);
    if (err->native_message[0] != '\0' && strstr(err->detail, err->native_message) == NULL) {
        fputs(": ", stderr);
        gb_cli_put(stderr, err->native_message);
    }
    fputs(")", stderr);
}

/* Room that will never be there is not made by trimming; a path that the user wrote says nothing of versions. */
static bool helps(const struct gb_cli *cli, const struct gpubuf_error *err) {
    if (err->code == GPUBUF_OUT_OF_MEMORY)
        return err->retryable;
    return err->code != GPUBUF_NO_ROUTE || strcmp(cli->command->name, "call") != 0;
}

int gb_cli_failed(struct gb_cli *cli) {
    struct gpubuf_error *err = &cli->error;
    json_t *problem;
    size_t i;

    if (err->code == GPUBUF_INTERRUPTED || atomic_load(&cli->interrupted)) {
        fprintf(stderr, "gpubuf: interrupted%s\n", left_nothing(cli) ? "; nothing is half-done" : "");
        return GB_CLI_INTERRUPTED;
    }
    problem = problem_of(cli);
    if (cli->options.json)
        gb_cli_json(stdout, json_object_size(problem) > 0 ? problem : json_null());
    fputs("gpubuf: ", stderr);
    gb_cli_put(stderr, err->detail[0] != '\0' ? err->detail : err->title);
    if (err->native_name[0] != '\0')
        put_native(err);
    fputs("\n", stderr);
    put_holders(problem);
    for (i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (hints[i].code == err->code && helps(cli, err))
            fprintf(stderr, "gpubuf: %s\n", hints[i].text);
    json_decref(problem);
    return gb_cli_status_of(err);
}

int gb_cli_refused(struct gb_cli *cli, int status, const char *format, ...) {
    va_list args;

    memset(&cli->error, 0, sizeof cli->error);
    cli->error.code = status == GB_CLI_USAGE ? GPUBUF_BAD_ARGUMENT : GPUBUF_INPUT_FAILED;
    snprintf(cli->error.slug, sizeof cli->error.slug, "%s", gpubuf_code_slug(cli->error.code));
    va_start(args, format);
    vsnprintf(cli->error.detail, sizeof cli->error.detail, format, args);
    va_end(args);
    return gb_cli_failed(cli) == GB_CLI_INTERRUPTED ? GB_CLI_INTERRUPTED : status;
}

static int read_token(struct gb_cli *cli) {
    char text[TOKEN_BYTES + 1];
    ssize_t n;
    int fd;

    if (cli->options.token_file == NULL)
        return 0;
    fd = open(cli->options.token_file, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, TOKEN_BYTES);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--token-file %s: %s", cli->options.token_file,
                              n < 0 ? strerror(errno) : "the file is empty");
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    cli->token = strdup(text);
    return cli->token != NULL ? 0 : gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
}

static void trace(void *arg, const char *line) {
    (void)arg;
    fputs(GB_CLI_TRACE, stderr);
    gb_cli_put(stderr, line);
    fputs("\n", stderr);
}

int gb_cli_open(struct gb_cli *cli, const char *url, const char *socket, gpubuf_client **ret) {
    struct gpubuf_options options = {0};

    options.url = url != NULL ? url : cli->options.url;
    options.socket = socket != NULL ? socket : cli->options.socket;
    options.token = cli->token;
    options.cacert = cli->options.cacert;
    options.cert = cli->options.cert;
    options.key = cli->options.key;
    options.plain_token = cli->options.plain_token;
    if (cli->options.timeout > 0)
        options.answer_timeout_s = options.stall_timeout_s = options.connect_timeout_s =
            (uint32_t)(cli->options.timeout + 0.999);
    if (cli->options.verbose)
        options.trace = trace;
    options.user_agent = "gpubuf/" GB_CLI_VERSION;
    return gpubuf_open(&options, ret, &cli->error);
}

int gb_cli_end_of(const struct gb_cli *cli, int status) {
    int number = atomic_load(&cli->interrupted);

    return status == GB_CLI_INTERRUPTED && number > 0 ? 128 + number : status;
}

int gb_cli_run(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_signals signals;
    int rc = read_token(cli);

    if (rc != 0)
        return rc;
    cli->session = cli->options.session != NULL ? cli->options.session : getenv("GPUBUF_SESSION");
    if (cli->session == NULL || cli->session[0] == '\0')
        cli->session = "default";
    if (gb_cli_open(cli, NULL, NULL, &cli->client) < 0) {
        rc = gb_cli_failed(cli);
    } else if (gb_cli_signals_begin(&signals, cli) < 0) {
        rc = gb_cli_refused(cli, GB_CLI_FAILED, "no thread can be started for signals: %s", strerror(errno));
    } else {
        rc = cli->command->run(cli, argc, argv);
        gb_cli_signals_end(&signals);
    }
    if (fflush(stdout) != 0 && rc == 0)
        rc = gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(errno));
    gpubuf_close(cli->client);
    cli->client = NULL;
    free(cli->token);
    cli->token = NULL;
    return gb_cli_end_of(cli, rc);
}
