#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/middleware/hook.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "http/message/fields.h"

#define KEY_MAX 255

/* Headers of a reply that are kept. The others describe the request rather than its outcome. */
static const char *const kept_headers[] = {
    "Content-Type",    "ETag",          "Location",      "Cache-Control",
    "Upload-Complete", "Upload-Offset", "Upload-Length", "Upload-Limit",
};

/* A reply, or an intent, on its way to the database. One reference is the request's, one the store's. */
struct gb_saving {
    atomic_int refs;
    atomic_bool finished;
    struct gb_http_request *request;
};

static void saving_unref(struct gb_saving *s) {
    if (s && atomic_fetch_sub(&s->refs, 1) == 1)
        free(s);
}

/* --- the key ------------------------------------------------------------------------------------------------------ */

bool gb_idempotency_wanted(const struct gb_http_request *request) {
    return gb_route_of(request)->keyed && gb_http_header(request, "Idempotency-Key");
}

/* Reads the key as it is, or as a string of structured fields, without its quotes and its parameters. */
static int read_key(const struct gb_http_request *request, const char **ret, size_t *ret_len, struct gb_error *err) {
    const char *key = gb_http_header(request, "Idempotency-Key");
    struct gb_field field;
    size_t len = strlen(key);
    unsigned lines = 0;
    unsigned line = 0;
    size_t at;

    while (gb_http_header_next(request, "Idempotency-Key", &line))
        lines++;
    if (key[0] == '"' && gb_field_item(key, &field) == 0) {
        key = field.text;
        len = field.text_n;
    }
    for (at = 0; at < len && key[at] > ' ' && key[at] < 0x7f && key[at] != '"' && key[at] != '\\'; at++)
        ;
    if (lines != 1 || len == 0 || len > KEY_MAX || at < len)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "Idempotency-Key must be one key of 1 to %d visible characters without blanks, quotes and "
                            "backslashes, as it is or between quotes",
                            KEY_MAX);
    *ret = key;
    *ret_len = len;
    return 0;
}

/* SHA-256 of the parts, each with its length before it. */
struct hash {
    struct gb_json_writer text;
};

static void add(struct hash *h, const char *s, size_t n) {
    char hex[GB_SHA256_HEX_SIZE];

    if (gb_sha256_hex(s ? s : "", n, hex, NULL) < 0)
        h->text.failed = true;
    gb_json_put_string(&h->text, NULL, hex);
}

static int end_hash(struct hash *h, char *ret_hex, struct gb_error *err) {
    int r = h->text.failed ? gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later")
                           : gb_sha256_hex(h->text.s, h->text.used, ret_hex, err);

    gb_json_done(&h->text);
    return r;
}

/* Headers that say what the request asks for. Conditions among them: whether a change is made depends on them. */
static const char *const asking_headers[] = {
    "Content-Type",  "Content-Encoding", "Content-Digest",  "Repr-Digest",   "If-Match",
    "If-None-Match", "If-Range",         "Upload-Complete", "Upload-Offset", "Upload-Length",
};

static void add_text(struct hash *h, const char *s) {
    add(h, s, strlen(s));
}

static void add_headers(struct hash *h, const struct gb_http_request *request) {
    const char *line;
    unsigned at;
    size_t i;

    for (i = 0; i < sizeof(asking_headers) / sizeof(asking_headers[0]); i++) {
        for (at = 0; (line = gb_http_header_next(request, asking_headers[i], &at));) {
            add_text(h, asking_headers[i]);
            add_text(h, line);
        }
    }
}

/* As keys were written before they could go to another node. */
static int identify_former(int64_t bearer, int64_t session, const char *key, size_t len, struct gb_key *ret,
                           struct gb_error *err) {
    struct hash id = {.text = {0}};
    char number[32];

    snprintf(number, sizeof(number), "token %" PRId64, bearer);
    add_text(&id, number);
    snprintf(number, sizeof(number), "%" PRId64, session);
    add_text(&id, number);
    add(&id, key, len);
    return end_hash(&id, ret->former_id, err);
}

/* A key belongs to one bearer in one session, not to a later session of the same name. The bearer is the recognised
 * token, however the header spells it, by its name, which a ticket tells another node. A change of a session itself is
 * also known when that is not there any more; what makes and deletes one belongs to none. */
static int identify_key(const struct gb_http_request *request, struct gb_key *ret, struct gb_error *err) {
    bool in_session = gb_route_of(request)->target >= GB_TARGET_MEMBER;
    bool of_session = gb_route_of(request)->target == GB_TARGET_SESSION && request->method == GB_HTTP_PATCH;
    struct gb_session_view view = {.rec = {.id = 0}};
    struct hash rest = {.text = {0}};
    char hex[GB_SHA256_HEX_SIZE];
    struct gb_name name;
    const char *key = NULL;
    size_t len = 0;
    int64_t bearer;

    if (read_key(request, &key, &len, err) < 0 || gb_api_bearer(request, &bearer, err) < 0)
        return -1;
    if ((in_session || of_session) && gb_param_name(request, 0, "session name", &name, NULL) == 0)
        (void)gb_session_get(gb_api_of(request)->core, &name, &view, NULL);
    gb_session_rec_done(&view.rec);
    add_text(&rest, gb_api_bearer_name(request));
    add(&rest, key, len);
    if (end_hash(&rest, hex, err) < 0)
        return -1;
    gb_key_id_write(in_session ? GB_KEY_WITHIN : GB_KEY_OF, view.rec.id, hex, ret->id);
    return identify_former(bearer, in_session ? view.rec.id : 0, key, len, ret, err);
}

/* What the request asks for. The first letter is no digit, which tells it from a former one. */
static int identify(const struct gb_http_request *request, struct gb_key *ret, struct gb_error *err) {
    /* Without the ticket and the way through the fleet, which are others when it is sent again. */
    const struct gb_http_text *target = request->shown.s ? &request->shown : &request->target;
    struct hash former = {.text = {0}};
    struct hash head = {.text = {0}};
    char hex[GB_SHA256_HEX_SIZE];

    if (identify_key(request, ret, err) < 0)
        return -1;
    add_text(&head, gb_http_method_name(request->method));
    add(&head, target->s, target->len);
    add_headers(&head, request);
    if (end_hash(&head, hex, err) < 0)
        return -1;
    snprintf(ret->fingerprint, sizeof(ret->fingerprint), "k%.*s", GB_KEY_HEAD - 1, hex);
    add_text(&former, gb_http_method_name(request->method));
    add(&former, target->s, target->len);
    add(&former, request->body, request->body_len);
    if (end_hash(&former, ret->former, err) < 0)
        return -1;
    if (request->route->body == GB_BODY_STREAM) {
        gb_key_body_unread(request, ret->fingerprint + GB_KEY_HEAD);
        return 0;
    }
    if (gb_sha256_hex(request->body_len > 0 ? request->body : "", request->body_len, hex, err) < 0)
        return -1;
    memcpy(ret->fingerprint + GB_KEY_HEAD, hex, GB_KEY_BODY);
    return 0;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static const char *kept_name(const char *name, size_t n) {
    size_t i;

    for (i = 0; i < sizeof(kept_headers) / sizeof(kept_headers[0]); i++) {
        if (strlen(kept_headers[i]) == n && strncasecmp(kept_headers[i], name, n) == 0)
            return kept_headers[i];
    }
    return NULL;
}

static struct gb_idempotency_reply *capture(const struct gb_http_response *response) {
    struct gb_idempotency_reply *answer;
    char *lines = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&lines, &size);
    unsigned i;

    if (!out)
        return NULL;
    for (i = 0; i < response->headers; i++) {
        if (kept_name(response->header[i].name, strlen(response->header[i].name)))
            fprintf(out, "%s: %s\n", response->header[i].name, response->header[i].value);
    }
    if (fclose(out) != 0) {
        free(lines);
        return NULL;
    }
    answer = gb_idempotency_reply_new(response->status, lines, response->body, response->body_len);
    free(lines);
    return answer;
}

static int replay(const struct gb_idempotency_reply *answer, struct gb_http_response *response, struct gb_error *err) {
    const char *line = answer->headers;
    char *body;

    for (; *line; line += strcspn(line, "\n") + 1) {
        size_t n = strcspn(line, ":");
        size_t end = strcspn(line, "\n");
        const char *name = kept_name(line, n);

        if (name && end > n + 2 &&
            gb_http_response_header(response, err, name, "%.*s", (int)(end - n - 2), line + n + 2) < 0)
            return -1;
    }
    if (gb_http_response_header(response, err, "Idempotency-Replayed", "true") < 0)
        return -1;
    response->status = answer->status;
    if (answer->body_len == 0)
        return 0;
    body = malloc(answer->body_len);
    if (!body)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    memcpy(body, answer->body, answer->body_len);
    gb_http_response_take(response, body, answer->body_len);
    return 0;
}

/* A multipart upload does not outlive the process: a reply that points to an ended one would send the client
 * nowhere. */
static bool is_gone(const struct gb_request_hooks *hooks, const struct gb_idempotency_reply *answer) {
    const char *at = strstr(answer->headers, "Location: /v1/sessions/");
    struct gb_multipart_view *view;
    struct gb_name session = {""};
    char id[GB_MULTIPART_ID_SIZE];
    char name[GB_NAME_MAX + 1];
    bool gone;

    if (!at || sscanf(at, "Location: /v1/sessions/%128[^/]/uploads/%31[^/\n]", name, id) != 2)
        return false;
    strcpy(session.s, name);
    view = malloc(sizeof(*view));
    gone = view && gb_multipart_get(hooks->api->core, &session, id, view, NULL) < 0;
    free(view);
    return gone;
}

/* --- the way of a request ----------------------------------------------------------------------------------------- */

int gb_idempotency_reused(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_KEY_REUSED,
                        "this Idempotency-Key was used for a request with another method, path, query, header or body; "
                        "use a new one");
}

static int repeat(struct gb_request_hooks *hooks, struct gb_http_response *response, struct gb_error *err) {
    switch (hooks->first.state) {
    case GB_KEY_UNDER_WAY:
        return gb_error_set(err, GB_ERR_KEY_IN_USE,
                            "the first request with this Idempotency-Key is under way; "
                            "ask again to get its answer");
    case GB_KEY_ANSWERED:
        if (!is_gone(hooks, hooks->first.answer))
            return replay(hooks->first.answer, response, err);
        return gb_error_set(
            err, GB_ERR_ANSWER_LOST,
            "the upload that the first request with this Idempotency-Key began has ended; begin another one with a new "
            "key");
    case GB_KEY_UNANSWERED:
        return gb_error_set(err, GB_ERR_ANSWER_LOST,
                            "the first request with this Idempotency-Key was carried out, or may have been, and the "
                            "daemon ended before its answer was kept; look at the resource, then use a new key");
    case GB_KEY_CLAIMED:
    case GB_KEY_OTHER:
        break;
    }
    return gb_idempotency_reused(err);
}

enum gb_step gb_idempotency_repeat(struct gb_request_hooks *hooks, struct gb_http_response *response,
                                   struct gb_error *err) {
    return repeat(hooks, response, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

enum gb_step gb_idempotency_begin(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                  struct gb_http_response *response, struct gb_error *err) {
    if (identify(request, &hooks->key, err) < 0 || gb_key_claim(hooks->api->core, &hooks->key, &hooks->first, err) < 0)
        return GB_STEP_ERROR;
    hooks->claimed = hooks->first.state == GB_KEY_CLAIMED;
    if (hooks->claimed)
        return GB_STEP_WAIT;
    return hooks->first.body[0] && hooks->first.state != GB_KEY_UNDER_WAY ? gb_key_sink_compare(hooks, request, err)
                                                                          : gb_idempotency_repeat(hooks, response, err);
}

/* A success, or a refusal that trying again does not change. Bytes that were damaged on their way may come again. */
static bool is_final(const struct gb_request_hooks *hooks, const struct gb_http_response *response) {
    int status = hooks->step == GB_STEP_ERROR ? gb_code_status(hooks->error.code) : response->status;

    if (hooks->step == GB_STEP_REPLY)
        return status >= 200 && status < 300;
    return status >= 400 && status < 500 && !gb_error_retryable(&hooks->error) && status != 401 && status != 403 &&
           hooks->error.code != GB_ERR_DIGEST_MISMATCH;
}

static void saved(void *arg, const struct gb_error *error) {
    struct gb_saving *s = arg;
    struct gb_http_request *request = s->request;

    (void)error; /* the key knows: the reply is given all the same, and not again */
    atomic_store(&s->finished, true);
    saving_unref(s);
    gb_http_wake(request);
    gb_http_request_unref(request);
}

static struct gb_saving *saving_new(struct gb_http_request *request) {
    struct gb_saving *s = calloc(1, sizeof(*s));

    if (s) {
        atomic_init(&s->refs, 2);
        s->request = gb_http_request_ref(request);
    }
    return s;
}

bool gb_request_hooks_intend(struct gb_http_request *request, const char *note) {
    struct gb_request_hooks *hooks = request->hooks;
    struct gb_store_mark mark = gb_request_hooks_mark(request);

    if (!mark.key[0])
        return true;
    if (!hooks->intent) {
        hooks->intent = saving_new(request);
        if (!hooks->intent)
            return true;
        gb_key_intend(hooks->api->core, &mark, note, saved, hooks->intent);
    }
    return atomic_load(&hooks->intent->finished);
}

static enum gb_step resume_nothing(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    (void)request;
    (void)response;
    (void)err;
    return GB_STEP_WAIT;
}

bool gb_idempotency_end(struct gb_request_hooks *hooks, struct gb_http_request *request,
                        struct gb_http_response *response) {
    struct gb_core *core = hooks->api->core;
    struct gb_saving *s = NULL;
    struct gb_idempotency_reply *answer = NULL;

    hooks->claimed = false;
    if (is_final(hooks, response)) {
        if (hooks->step == GB_STEP_ERROR)
            gb_http_problem(response, request, &hooks->error);
        answer = capture(response);
        s = answer ? saving_new(request) : NULL;
    }
    if (!s) {
        gb_idempotency_reply_unref(answer);
        gb_key_give_up(core, &hooks->key, hooks->done || hooks->step == GB_STEP_REPLY);
        return false;
    }
    hooks->step = GB_STEP_REPLY;
    hooks->saving = s;
    request->resume = resume_nothing;
    request->deadline_ns = 0;
    gb_key_keep(core, &hooks->key, answer, saved, s);
    return !request->timed_out;
}

bool gb_idempotency_saved(const struct gb_request_hooks *hooks) {
    return atomic_load(&hooks->saving->finished);
}

void gb_idempotency_free(struct gb_request_hooks *hooks) {
    saving_unref(hooks->saving);
    saving_unref(hooks->intent);
    gb_idempotency_reply_unref(hooks->first.answer);
    if (hooks->claimed)
        gb_key_give_up(hooks->api->core, &hooks->key, hooks->began);
}
