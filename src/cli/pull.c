/* cp from a URL: the daemon brings a buffer of another one, while this program shows how far it is. */
#include <stdlib.h>
#include <string.h>

#include "cli/files.h"
#include "cli/progress.h"
#include "cli/settings.h"

/* --- the request -------------------------------------------------------------------------------------------------- */

static int put_token(struct gb_cli *cli, json_t *from) {
    const char *path = cli->options.source_token_file;
    const char *given = getenv("GPUBUF_SOURCE_TOKEN");
    char *token = NULL;
    const char *why;

    if (path != NULL) {
        given = token = gb_cli_read_token(path, &why);
        if (token == NULL)
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--source-token-file %s: %s", path, why);
    }
    if (given != NULL && given[0] != '\0')
        json_object_set_new(from, "token", json_string(given));
    free(token);
    return 0;
}

static int put_options(struct gb_cli *cli, json_t *body) {
    static const struct {
        enum gb_cli_option_id id;
        const char *name;
    } refused[] = {{GB_CLI_ID_offset, "offset"},
                   {GB_CLI_ID_from_offset, "from-offset"},
                   {GB_CLI_ID_bytes, "bytes"},
                   {GB_CLI_ID_in_place, "in-place"}};
    const struct gb_cli_options *o = &cli->options;
    size_t i;

    for (i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (o->given[refused[i].id])
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--%s does not go with a URL: all of the source is copied",
                                refused[i].name);
    if (o->kind != NULL)
        json_object_set_new(body, "kind", json_string(o->kind));
    if (o->pool != NULL)
        json_object_set_new(body, "pool", json_string(o->pool));
    if (o->device != NULL)
        json_object_set_new(body, "device", gb_cli_device(o->device));
    if (o->stream != NULL)
        json_object_set_new(body, "stream", json_string(o->stream));
    return 0;
}

static json_t *body_of(struct gb_cli *cli, const char *url) {
    json_t *from = json_pack("{s:s}", "url", url);
    json_t *body = json_pack("{s:O}", "from", from);
    int rc = from != NULL && body != NULL ? 0 : gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the URL is not UTF-8");

    if (rc == 0 && cli->options.given[GB_CLI_ID_connections])
        json_object_set_new(from, "parts", json_integer((json_int_t)cli->options.connections));
    if (rc == 0 && (put_token(cli, from) < 0 || put_options(cli, body) < 0))
        rc = -1;
    json_decref(from);
    if (rc == 0)
        return body;
    json_decref(body);
    return NULL;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* A pull is a multipart upload of its buffer. */
static void show_progress(struct gb_cli *cli, struct gb_cli_progress *progress, const struct gb_cli_name *to) {
    char target[GB_CLI_PATH];
    json_t *uploads;
    json_t *upload;
    size_t i;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/uploads", to->session) < 0)
        return;
    uploads = gb_cli_items(cli, target);
    json_array_foreach(uploads, i, upload) {
        if (strcmp(gb_cli_text(upload, "buffer"), to->name) == 0 && strcmp(gb_cli_text(upload, "state"), "open") == 0)
            gb_cli_progress_move(progress, (uint64_t)gb_cli_number(upload, "received_bytes"),
                                 (uint64_t)gb_cli_number(upload, "bytes"));
    }
    json_decref(uploads);
}

static bool goes_on(const json_t *operation) {
    const char *state = json_string_value(json_object_get(operation, "state"));

    return state != NULL && (strcmp(state, "queued") == 0 || strcmp(state, "running") == 0);
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
        show_progress(cli, &progress, to);
        operation = gb_cli_request_with(cli, "GET", target, "Prefer: wait=1", NULL);
        on = goes_on(operation);
        if (on)
            json_decref(operation);
    }
    bytes = (uint64_t)(operation != NULL ? gb_cli_number(operation, "result.pulled.bytes") : 0);
    done = operation != NULL && strcmp(gb_cli_text(operation, "state"), "done") == 0;
    if (done)
        gb_cli_progress_move(&progress, bytes, bytes);
    gb_cli_progress_end(&progress, done);
    json_decref(operation);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

bool gb_cli_is_url(const char *text) {
    return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

int gb_cli_pull(struct gb_cli *cli, const char *url, const char *target) {
    char path[GB_CLI_PATH];
    struct gb_cli_name to;
    json_t *result;
    json_t *answer;
    json_t *body;

    if (gb_cli_one_name(cli, target, &to) < 0 ||
        gb_cli_target(cli, path, "/v1/sessions/{}/buffers/{}/copy", to.session, to.name) < 0)
        return gb_cli_failed(cli);
    body = body_of(cli, url);
    if (body == NULL)
        return gb_cli_failed(cli);
    answer = gb_cli_request_with(cli, "POST", path, "Prefer: respond-async", body);
    if (answer == NULL)
        return gb_cli_failed(cli);
    if (gpubuf_answer_of(cli->client)->status == 202) {
        watch(cli, gb_cli_text(answer, "id"), &to);
        result = gb_cli_result(cli, gb_cli_text(answer, "id"));
        json_decref(answer);
        answer = result;
    }
    return answer == NULL ? gb_cli_failed(cli) : gb_cli_show_buffer(cli, answer);
}
