/* cp from outside: the buffer of another daemon, what a server has under a URL, or a file of the daemon's own machine.
 * The daemon that is asked brings the bytes; this program waits, and shows how far it is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "cli/cli.h"
#include "cli/transfer/files.h"

#define OF_DAEMON "daemon:"
#define HEADERS_MAX 16
#define SHA256_BYTES 32
#define SHA512_BYTES 64

enum source {
    OF_BUFFER, /* the URL of a daemon's buffer */
    OF_SERVER,
    OF_FILE
};

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

bool gb_cli_is_url(const char *text) {
    return begins(text, "http://") || begins(text, "https://");
}

bool gb_cli_is_source(const char *text) {
    return gb_cli_is_url(text) || begins(text, OF_DAEMON);
}

/* Behind the bytes of a name, or NULL. */
static const char *behind_name(const char *at) {
    size_t n = at ? strcspn(at, "/?#") : 0;

    return n > 0 ? at + n : NULL;
}

static const char *behind_word(const char *at, const char *word) {
    return at && begins(at, word) ? at + strlen(word) : NULL;
}

/* Only a daemon's buffer is called http[s]://HOST/v1/sessions/SESSION/buffers/BUFFER. */
static enum source source_of(const char *text) {
    const char *at;

    if (!gb_cli_is_url(text))
        return OF_FILE;
    at = strstr(text, "://") + 3;
    at = behind_name(behind_word(at + strcspn(at, "/?#"), "/v1/sessions/"));
    at = behind_name(behind_word(at, "/buffers/"));
    return at && *at == '\0' ? OF_BUFFER : OF_SERVER;
}

/* --- the request -------------------------------------------------------------------------------------------------- */

static int put_token(struct gb_cli *cli, json_t *from) {
    const char *path = cli->options.source_token_file;
    const char *given = getenv("GPUBUF_SOURCE_TOKEN");
    char *token = NULL;
    const char *why;

    if (path) {
        given = token = gb_cli_read_token(path, &why);
        if (!token)
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--source-token-file %s: %s", path, why);
    }
    if (given && given[0] != '\0')
        json_object_set_new(from, "token", json_string(given));
    free(token);
    return 0;
}

/* NAME:VALUE */
static int put_header(struct gb_cli *cli, json_t *headers, const char *line, size_t n) {
    const char *sign = memchr(line, ':', n);
    size_t name = sign ? (size_t)(sign - line) : 0;
    size_t blanks = sign ? 1 + strspn(sign + 1, " ") : 0;

    if (name == 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "--header is NAME:VALUE, or @FILE with such lines"); /* which may be a secret */
    if (json_object_setn_new(headers, line, name, json_stringn(line + name + blanks, n - name - blanks)) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--header is not UTF-8");
    if (json_object_size(headers) > HEADERS_MAX)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "more than %d headers", HEADERS_MAX);
    return 0;
}

static int put_lines(struct gb_cli *cli, json_t *headers, const char *text) {
    const char *at;
    size_t n;
    int r = 0;

    for (at = text; r == 0 && *at != '\0'; at += n + (at[n] == '\n')) {
        n = strcspn(at, "\n");
        if (n > (at[0] == '\r'))
            r = put_header(cli, headers, at, at[n - 1] == '\r' ? n - 1 : n);
    }
    return r;
}

static int put_headers(struct gb_cli *cli, json_t *body) {
    const char *given = cli->options.header;
    json_t *headers;
    size_t bytes;
    char *text;
    int r;

    if (!given)
        return 0;
    headers = json_object();
    if (given[0] == '@') {
        text = gb_cli_read_file(cli, given + 1, &bytes);
        r = text ? put_lines(cli, headers, text)
                 : gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--header %s: %s", given, strerror(errno));
        free(text);
    } else {
        r = put_header(cli, headers, given, strlen(given));
    }
    json_object_set_new(body, "headers", headers);
    return r;
}

/* "HEX", as sha256sum and sha512sum print it, or "sha-256=BASE64" and the like. */
static int put_digest(struct gb_cli *cli, json_t *into) {
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"sha-256", SHA256_BYTES}, {"sha-512", SHA512_BYTES}};
    const char *given = cli->options.digest;
    char text[GB_BASE64_SIZE(SHA512_BYTES)];
    unsigned char bytes[SHA512_BYTES];
    const char *value;
    size_t i;

    for (i = 0; given && i < sizeof(known) / sizeof(known[0]); i++) {
        value = behind_word(given, known[i].name);
        if ((value && *value++ != '=') || (!gb_hex_read(value ? value : given, bytes, known[i].bytes) &&
                                           !(value && gb_base64_exact(value, strlen(value), bytes, known[i].bytes))))
            continue;
        gb_base64_write(bytes, known[i].bytes, false, text);
        json_object_set_new(into, "digest", json_pack("{s:s}", known[i].name, text));
        return 0;
    }
    if (!given)
        return 0;
    return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                        "--digest \"%s\" is not what sha256sum or sha512sum prints, nor sha-256=BASE64", given);
}

int gb_cli_put_tag(struct gb_cli *cli, json_t *into, const char *key) {
    const char *tag = cli->options.if_match;
    json_t *value;

    if (!tag)
        return 0;
    value = tag[0] == '"' || begins(tag, "W/") ? json_string(tag) : json_pack("s++", "\"", tag, "\"");
    if (!value)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--if-match is not UTF-8");
    return json_object_set_new(into, key, value);
}

static int refuse_parts(struct gb_cli *cli) {
    static const struct {
        enum gb_cli_option_id id;
        const char *name;
    } refused[] = {{GB_CLI_ID_offset, "offset"},
                   {GB_CLI_ID_from_offset, "from-offset"},
                   {GB_CLI_ID_bytes, "bytes"},
                   {GB_CLI_ID_in_place, "in-place"}};
    size_t i;

    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (cli->options.given[refused[i].id])
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s does not go with a URL or a file: all of it is copied",
                                refused[i].name);
    return 0;
}

/* What is known of the source: beside the URL of a buffer, or beside what the buffer is to be. */
static int put_known(struct gb_cli *cli, json_t *into) {
    if (cli->options.given[GB_CLI_ID_connections])
        json_object_set_new(into, "parts", json_integer((json_int_t)cli->options.connections));
    return gb_cli_put_tag(cli, into, "if_match") < 0 ? -1 : put_digest(cli, into);
}

static json_t *body_of(struct gb_cli *cli, enum source kind, const char *source) {
    json_t *from = kind == OF_BUFFER ? json_pack("{s:s}", "url", source) : NULL;
    json_t *body = kind == OF_BUFFER   ? json_pack("{s:O}", "from", from)
                   : kind == OF_SERVER ? json_pack("{s:s}", "from_url", source)
                                       : json_pack("{s:s}", "from_file", source + strlen(OF_DAEMON));
    int r = body ? refuse_parts(cli) : gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the source is not UTF-8");

    if (r == 0)
        r = put_known(cli, from ? from : body);
    if (r == 0 && kind == OF_BUFFER)
        r = put_token(cli, from);
    if (r == 0 && kind == OF_SERVER)
        r = put_headers(cli, body);
    if (r == 0 && cli->options.raw)
        json_object_set_new(body, "format", json_string("raw"));
    if (r == 0)
        r = gb_cli_buffer_settings(cli, body);
    json_decref(from);
    if (r == 0)
        return body;
    json_decref(body);
    return NULL;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static bool goes_on(const json_t *operation) {
    const char *state = json_string_value(json_object_get(operation, "state"));

    return state && (strcmp(state, "queued") == 0 || strcmp(state, "running") == 0);
}

/* Until the operation has ended, or cannot be asked for: what waits then says so. */
static void watch(struct gb_cli *cli, const char *id, const struct gb_cli_name *to) {
    struct gb_cli_progress progress;
    char target[GB_CLI_PATH];
    json_t *operation = NULL;
    uint64_t bytes;
    bool on = true;
    bool done;

    if (!gb_cli_draws(cli) || gb_cli_target(cli, target, "/v1/operations/{}", id) < 0)
        return;
    gb_cli_progress_begin(&progress, stderr, true, to->name);
    while (on) {
        operation = gb_cli_request_with(cli, "GET", target, "Prefer: wait=1", NULL);
        on = goes_on(operation);
        if (on && json_is_object(json_object_get(operation, "progress")))
            gb_cli_progress_move(&progress, (uint64_t)gb_cli_number(operation, "progress.bytes"),
                                 (uint64_t)gb_cli_number(operation, "progress.total_bytes"));
        if (on)
            json_decref(operation);
    }
    bytes = (uint64_t)(operation ? gb_cli_number(operation, "result.pulled.bytes") : 0);
    done = operation && strcmp(gb_cli_text(operation, "state"), "done") == 0;
    if (done)
        gb_cli_progress_move(&progress, bytes, bytes);
    gb_cli_progress_end(&progress, done);
    json_decref(operation);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Options that would be ignored. */
static const struct {
    const char *options;
    const char *why;
} idle[] = {{"dtype shape raw npy header labels", "a buffer of another daemon comes as it is there"},
            {"npy source-token-file", "a server has no token of a daemon; --header takes what it wants"},
            {"npy source-token-file header", "a file is read by the daemon itself"}};

int gb_cli_copy_source(struct gb_cli *cli, const char *source, const char *target) {
    enum source kind = source_of(source);
    char path[GB_CLI_PATH];
    struct gb_cli_name to;
    json_t *result;
    json_t *answer;
    json_t *body;

    if (gb_cli_options_idle(&cli->options, idle[kind].options, idle[kind].why) < 0)
        return GB_CLI_USAGE;
    if (gb_cli_one_name(cli, target, &to) < 0 ||
        gb_cli_target(cli, path, "/v1/sessions/{}/buffers/{}/copy", to.session, to.name) < 0)
        return gb_cli_failed(cli);
    body = body_of(cli, kind, source);
    if (!body)
        return gb_cli_failed(cli);
    answer = gb_cli_request_with(cli, "POST", path, "Prefer: respond-async", body);
    if (!answer)
        return gb_cli_failed(cli);
    if (gpubuf_answer_of(cli->client)->status == 202) {
        watch(cli, gb_cli_text(answer, "id"), &to);
        result = gb_cli_result(cli, gb_cli_text(answer, "id"));
        json_decref(answer);
        answer = result;
    }
    return !answer ? gb_cli_failed(cli) : gb_cli_show_buffer(cli, answer);
}
