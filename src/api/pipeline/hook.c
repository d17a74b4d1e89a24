/* What runs around every handler: Prefer: respond-async, Idempotency-Key, and the wait for bytes that are on disk.
 * Handlers do not know of it. http calls gb_api_pipeline in place of each handler; in a fleet
 * redirect.c does, once it knows that the request stays here. */
#include "api/pipeline/hook.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/operations.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "core/core.h"
#include "http/message/fields.h"

/* --- bytes on disk ------------------------------------------------------------------------------------------------ */

/* How long a request waits without "Prefer: wait", unless --wait-max is less. */
#define WAIT_S 3600

struct loading {
    struct gb_load_waiter waiter;
    struct gb_core *core;
    struct gb_http_request *request; /* a reference */
};

static void wake(void *arg) {
    gb_http_wake(arg);
}

static void loading_free(void *state) {
    struct loading *loading = state;

    gb_loads_leave(loading->core, &loading->waiter);
    gb_http_request_unref(loading->request);
    free(loading);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct loading *loading = request->state;

    if (request->timed_out) {
        gb_error_set(err, GB_ERR_TIMED_OUT,
                     "the bytes are on disk and were not loaded in the permitted time; try again");
        return GB_STEP_ERROR;
    }
    request->state = NULL;
    request->state_free = NULL;
    loading_free(loading);
    return request->route->handler(request, response, err);
}

/* The work of a handler that was refused is dropped with its state, and before it the way to cancel it, which another
 * thread may be about to go. */
static bool wait_for_load(struct gb_http_request *request, struct gb_http_response *response, uint64_t sequence) {
    uint64_t wait_s = gb_http_prefer_wait(request, WAIT_S, WAIT_S, NULL);
    struct loading *loading = wait_s > 0 ? calloc(1, sizeof(*loading)) : NULL;

    if (!loading)
        return false;
    gb_request_hooks_offer(request, NULL);
    if (request->state_free)
        request->state_free(request->state);
    gb_http_response_done(response);
    loading->core = gb_api_of(request)->core;
    loading->request = gb_http_request_ref(request);
    loading->waiter.waker = (struct gb_waker){wake, request};
    request->state = loading;
    request->state_free = loading_free;
    request->resume = resume;
    request->deadline_ns = request->started_ns + wait_s * GB_NS_PER_S;
    if (!gb_loads_wait(loading->core, sequence, &loading->waiter))
        gb_http_wake(request);
    return true;
}

enum gb_step gb_loading_run(gb_http_handler *handler, struct gb_http_request *request,
                            struct gb_http_response *response, struct gb_error *err) {
    uint64_t sequence = gb_loads_sequence(gb_api_of(request)->core);
    enum gb_step step = handler(request, response, err);

    if (step != GB_STEP_ERROR || err->code != GB_ERR_NOT_LOADED || request->timed_out ||
        request->route->body == GB_BODY_STREAM || !wait_for_load(request, response, sequence))
        return step;
    *err = GB_ERROR_INIT;
    return GB_STEP_WAIT;
}

/* --- Idempotency-Key ---------------------------------------------------------------------------------------------- */

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

/* Whether the request brings a key and its route hears it. */
static bool idempotency_wanted(const struct gb_http_request *request) {
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
    int r = h->text.failed ? gb_error_memory(err, "request") : gb_sha256_hex(h->text.s, h->text.used, ret_hex, err);

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
 * token, however the header spells it, by its name, which a ticket carries to another node. The key of a change of a
 * session itself outlives the session. The keys of its creation and deletion belong to no session. */
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

/* Writes GB_KEY_BODY characters and a NUL: a body that has not been read. */
static void key_body_unread(const struct gb_http_request *request, char *out) {
    snprintf(out, GB_KEY_BODY + 1, "-------%c%016" PRIx64, request->has_content_length ? 'l' : 'c',
             request->has_content_length ? request->content_length : 0);
}

/* What the request asks for. The first letter is not a digit, as that of a former fingerprint is. */
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
        key_body_unread(request, ret->fingerprint + GB_KEY_HEAD);
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
        return gb_error_memory(err, "reply");
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

/* Returns -1 with KEY_REUSED. */
static int idempotency_reused(struct gb_error *err) {
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
    return idempotency_reused(err);
}

/* The reply to a request whose key is not claimed, as hooks->first says. Returns REPLY or ERROR. */
static enum gb_step idempotency_repeat(struct gb_request_hooks *hooks, struct gb_http_response *response,
                                       struct gb_error *err) {
    return repeat(hooks, response, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

/* --- the body of a request with a key ----------------------------------------------------------------------------- */

/* The body of a streamed request with a key: its length and checksum, as it is received, belong to what the request
 * asks for. */

#define SCRATCH_BYTES (64u << 10)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_request_hooks *hooks;
    struct gb_http_sink *inner; /* NULL: the body is compared with the first one's */
    char *room;                 /* last given; without inner it is the sink's own */
    uint64_t most;              /* without inner: the first one's length */
    uint64_t bytes;
    uint32_t crc;
};

static void describe(const struct sink *s, char *out) {
    snprintf(out, GB_KEY_BODY + 1, "%08" PRIx32 "%016" PRIx64, s->crc, s->bytes);
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    void *room = s->room;
    int r = 1;

    if (s->inner) {
        r = s->inner->room(s->inner, &room, ret_n, err);
        s->room = r > 0 ? room : s->room;
    } else {
        *ret_n = SCRATCH_BYTES;
    }
    *ret_ptr = room;
    return r;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->crc = gb_crc32c(s->crc, s->room, n);
    s->bytes += n;
    if (s->inner)
        return s->inner->fill(s->inner, n, err);
    return s->bytes > s->most ? idempotency_reused(err) : 0;
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->inner && s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    } else {
        free(s->room);
    }
    free(s);
}

static enum gb_step compare(const struct sink *s, struct gb_http_response *response, struct gb_error *err) {
    struct gb_request_hooks *hooks = s->hooks;
    char body[GB_KEY_BODY + 1];

    describe(s, body);
    if (strcmp(body, hooks->first.body) == 0)
        return idempotency_repeat(hooks, response, err);
    idempotency_reused(err);
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    struct gb_http_sink *inner = s->inner;
    struct gb_request_hooks *hooks = s->hooks;

    if (!inner)
        return compare(s, response, err);
    describe(s, hooks->key.fingerprint + GB_KEY_HEAD);
    gb_key_describe(hooks->api->core, &hooks->key);
    s->inner = NULL;
    s->room = NULL;
    request->sink = inner;
    sink_free(&s->sink);
    return inner->end(inner, request, response, err);
}

static struct sink *sink_new(struct gb_request_hooks *hooks, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_error_memory(err, "request");
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->hooks = hooks;
    return s;
}

/* Around request->sink: the key is described when the body has arrived. Returns BODY, or ERROR without a sink. */
static enum gb_step key_sink_wrap(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                  struct gb_error *err) {
    struct gb_http_sink *inner = request->sink;
    struct sink *s = sink_new(hooks, err);

    request->sink = s ? &s->sink : NULL;
    if (s)
        s->inner = inner;
    else
        inner->free(inner);
    return s ? GB_STEP_BODY : GB_STEP_ERROR;
}

/* Instead of one: reads the body, then hooks->first is the reply if it has that body. Returns BODY or ERROR. */
static enum gb_step key_sink_compare(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                     struct gb_error *err) {
    struct sink *s = sink_new(hooks, err);

    if (!s)
        return GB_STEP_ERROR;
    s->most = strtoull(hooks->first.body + GB_KEY_BODY - 16, NULL, 16);
    if (request->has_content_length && request->content_length != s->most)
        idempotency_reused(err);
    else if (!(s->room = malloc(SCRATCH_BYTES)))
        gb_error_memory(err, "request");
    else
        request->sink = &s->sink;
    if (request->sink)
        return GB_STEP_BODY;
    sink_free(&s->sink);
    return GB_STEP_ERROR;
}

/* --- a key from claim to reply ------------------------------------------------------------------------------------ */

/* Claims the key. Returns WAIT when it is claimed, REPLY when the response is filled with the first reply, ERROR, or
 * BODY to compare the body with that of the first request. */
static enum gb_step idempotency_begin(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                      struct gb_http_response *response, struct gb_error *err) {
    if (identify(request, &hooks->key, err) < 0 || gb_key_claim(hooks->api->core, &hooks->key, &hooks->first, err) < 0)
        return GB_STEP_ERROR;
    hooks->claimed = hooks->first.state == GB_KEY_CLAIMED;
    if (hooks->claimed)
        return GB_STEP_WAIT;
    return hooks->first.body[0] && hooks->first.state != GB_KEY_UNDER_WAY ? key_sink_compare(hooks, request, err)
                                                                          : idempotency_repeat(hooks, response, err);
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

/* Ends the key after the handler has ended with hooks->step and hooks->error. Returns true when the response is
 * complete and its write to the database has begun: request->resume is set, and the reply waits. */
static bool idempotency_end(struct gb_request_hooks *hooks, struct gb_http_request *request,
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

static void idempotency_free(struct gb_request_hooks *hooks) {
    saving_unref(hooks->saving);
    saving_unref(hooks->intent);
    gb_idempotency_reply_unref(hooks->first.answer);
    if (hooks->claimed)
        gb_key_give_up(hooks->api->core, &hooks->key, hooks->began);
}

/* --- around a handler --------------------------------------------------------------------------------------------- */

static void end_operation(struct gb_request_hooks *hooks, struct gb_http_response *response) {
    struct gb_operation *op = hooks->op;

    hooks->op = NULL;
    if (op && op->number > 0)
        gb_operation_end(hooks->api->operations, op, response, &hooks->error);
    else if (op)
        gb_operations_give_back(hooks->api->operations, op);
}

static void hooks_free(void *arg) {
    struct gb_http_response none = {.status = 503};
    struct gb_request_hooks *hooks = arg;

    /* An operation that is still there: the server ended before the work did. */
    gb_error_set(&hooks->error, GB_ERR_DRAINING, "the daemon has stopped");
    end_operation(hooks, &none);
    idempotency_free(hooks);
    free(hooks);
}

void gb_request_hooks_stream(const struct gb_http_request *request, const struct gb_name *stream) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->stream = *stream;
}

void gb_request_hooks_stay(struct gb_http_request *request, bool stays) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->stays = stays;
}

/* Work that begins when the client has left already, as of a request that asked the fleet's directory first. */
void gb_request_hooks_offer(struct gb_http_request *request,
                            bool (*cancel)(struct gb_http_request *request, bool act)) {
    struct gb_request_hooks *hooks = request->hooks;

    if (request->detached && hooks && hooks->op)
        gb_operation_offer(hooks->api->operations, hooks->op, request, cancel);
    else
        request->cancel = cancel;
}

struct gb_store_mark gb_request_hooks_mark(const struct gb_http_request *request) {
    struct gb_request_hooks *hooks = request->hooks;

    return hooks && hooks->claimed ? gb_key_mark(hooks->api->core, &hooks->key) : (struct gb_store_mark){.key = ""};
}

void gb_request_hooks_done(const struct gb_http_request *request) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->done = true;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static enum gb_step reply_accepted(struct gb_operations *ops, struct gb_operation *op,
                                   struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_operation_render(ops, op, &out);
    if (gb_http_response_header(response, err, "Location", "/v1/operations/%s", op->id) < 0 ||
        gb_http_response_header(response, err, "Preference-Applied", "respond-async") < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_reply_json(&out, 202, response, err);
}

/* The handler waits, so the client gets its 202 and the request continues detached. */
static enum gb_step leave(struct gb_request_hooks *hooks, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_operations *ops = hooks->api->operations;
    struct gb_operation *op = hooks->op;
    enum gb_step step;

    op->stream = hooks->stream;
    if (gb_operation_publish(ops, op, request, err) < 0) {
        *err = GB_ERROR_INIT;
        return GB_STEP_WAIT;
    }
    if (hooks->claimed)
        gb_key_note(hooks->api->core, &hooks->key, op->id);
    gb_operation_ref(ops, op);
    gb_operation_attach(ops, op, gb_http_detach(request)); /* the detached request owns hooks now */
    step = reply_accepted(ops, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* The work of a key continues and its reply is kept, also if the client does not wait that long. */
static enum gb_step outlast(struct gb_http_request *request, struct gb_error *err) {
    gb_http_detach(request);
    gb_error_set(
        err, GB_ERR_TIMED_OUT,
        "the work has not ended in the permitted time; it goes on: ask again with the same key for its answer");
    return GB_STEP_ERROR;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void explain_cancelled(struct gb_operations *ops, const struct gb_operation *op, struct gb_error *err) {
    if (err->code != GB_ERR_CANCELLED || gb_operation_cancel_said(ops, op))
        return;
    *err = GB_ERROR_INIT;
    if (op->gone == GB_ERR_SESSION_MOVING)
        gb_error_set(err, op->gone,
                     "the session \"%s\" has gone to another node of the fleet meanwhile; ask there for it again",
                     op->session.s);
    else if (op->gone == GB_ERR_SUPERSEDED)
        gb_error_set(err, op->gone, "another node of the fleet has the session \"%s\" now", op->session.s);
    else
        gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "the session \"%s\" was deleted meanwhile", op->session.s);
}

static enum gb_step conclude(struct gb_request_hooks *hooks, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    if (request->detached && hooks->step == GB_STEP_ERROR) {
        gb_http_problem(response, request, &hooks->error);
        hooks->step = GB_STEP_REPLY;
    }
    end_operation(hooks, response);
    if (hooks->step == GB_STEP_ERROR)
        *err = hooks->error;
    return hooks->step;
}

static enum gb_step end(struct gb_request_hooks *hooks, enum gb_step step, struct gb_http_request *request,
                        struct gb_http_response *response, struct gb_error *err) {
    hooks->step = step;
    if (step == GB_STEP_ERROR) {
        if (request->detached && hooks->op)
            explain_cancelled(hooks->api->operations, hooks->op, err);
        hooks->error = *err;
        *err = GB_ERROR_INIT;
    }
    if (hooks->claimed && idempotency_end(hooks, request, response))
        return GB_STEP_WAIT;
    return conclude(hooks, request, response, err);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Replies with the operation of the first request with this key, to a client that asks for one as well. */
static enum gb_step join(struct gb_request_hooks *hooks, struct gb_http_response *response, struct gb_error *err) {
    struct gb_operations *ops = hooks->api->operations;
    const char *note = hooks->first.note;
    struct gb_operation *op = hooks->op && note[0] ? gb_operation_find(ops, note, NULL) : NULL;
    enum gb_step step;

    if (!op)
        return GB_STEP_ERROR;
    *err = GB_ERROR_INIT;
    step = reply_accepted(ops, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* The bodies that come here are whole, or say in other ways where they belong. Ignoring it would take a part for the
 * whole, or put it elsewhere (RFC 9110, 14.5). */
static int refuse_range(const struct gb_http_request *request, struct gb_error *err) {
    bool sends = request->method == GB_HTTP_PUT || request->method == GB_HTTP_PATCH || request->method == GB_HTTP_POST;

    if (!sends || !gb_http_header(request, "Content-Range"))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "Content-Range is not taken; send a part of data to ?offset=N, or append it at Upload-Offset: "
                        "N, where the route has these, and else the whole");
}

/* Reads what the request asks for. Returns WAIT to continue with *ret, which is NULL if the request asks for nothing;
 * any other step is the reply. */
static enum gb_step begin(struct gb_http_request *request, struct gb_http_response *response,
                          struct gb_request_hooks **ret, struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    bool keyed = idempotency_wanted(request);
    struct gb_request_hooks *hooks;
    bool async = false;
    enum gb_step step;

    if (refuse_range(request, err) < 0)
        return GB_STEP_ERROR;
    if (route->operation[0])
        gb_http_prefer_wait(request, 0, 0, &async);
    if (!async && !keyed)
        return GB_STEP_WAIT;
    hooks = calloc(1, sizeof(*hooks));
    if (!hooks) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    hooks->api = gb_api_of(request);
    request->hooks = hooks;
    request->hooks_free = hooks_free;
    if (gb_http_may_detach(request, err) < 0)
        return GB_STEP_ERROR;
    hooks->op = async ? gb_operations_reserve(hooks->api->operations, gb_route_reads(route), err) : NULL;
    if (async && !hooks->op)
        return GB_STEP_ERROR;
    *ret = hooks;
    if (!keyed)
        return GB_STEP_WAIT;
    step = idempotency_begin(hooks, request, response, err);
    return step == GB_STEP_ERROR && err->code == GB_ERR_KEY_IN_USE ? join(hooks, response, err) : step;
}

enum gb_step gb_api_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct gb_request_hooks *hooks = request->hooks;
    enum gb_step step = GB_STEP_WAIT;

    if (!hooks)
        step = begin(request, response, &hooks, err);
    if (step != GB_STEP_WAIT)
        return step;
    if (!hooks)
        return gb_loading_run(handler, request, response, err);
    if (hooks->saving)
        return atomic_load(&hooks->saving->finished) || request->timed_out ? conclude(hooks, request, response, err)
                                                                           : GB_STEP_WAIT;
    if (hooks->claimed && request->timed_out && !request->detached)
        return outlast(request, err);
    step = gb_loading_run(handler, request, response, err);
    if (step == GB_STEP_BODY)
        return hooks->claimed ? key_sink_wrap(hooks, request, err) : step;
    hooks->began = true;
    if (step != GB_STEP_WAIT)
        return end(hooks, step, request, response, err);
    /* A client that leaves does not end the work of its key: it will ask again. */
    if (hooks->claimed && !hooks->op && !request->detached)
        request->cancel = NULL;
    if (!hooks->op || request->detached || hooks->stays)
        return step;
    return leave(hooks, request, response, err);
}
