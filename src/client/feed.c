/* What is waited for: gpubuf_feed_listen(), a stream of events (text/event-stream), and again where it ends; and
 * operations. The caller's function gets each event once and in order; after a break the stream is asked for from the
 * last id on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/client.h"
#include "client/http.h"

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define AGAIN_MS 2000 /* unless the daemon says otherwise */
#define AGAIN_MAX_MS 60000
#define QUIET_MS 60000 /* on top of a stall: by default the daemon sends a comment each 15 s */
#define WAIT_S 20

struct listening {
    const struct gpubuf_feed_params *params;
    gpubuf_news_fn *hear;
    struct gbc_request request; /* the present one, or the last */
    bool answered;              /* once */
    bool stood;                 /* since it was lost the last time */
    bool over;                  /* the caller ended it */
    struct gpubuf_opt last;     /* the id to continue from */
    struct gpubuf_opt next;     /* the same once the event is whole */
    uint64_t again_ms;
    struct gbc_text line; /* not whole yet */
    struct gbc_text data; /* of the event that is not whole yet */
};

/* --- events ------------------------------------------------------------------------------------------------------- */

static struct gpubuf_opt number_of(const char *text) {
    struct gpubuf_opt opt = {false, 0};
    char *end;

    opt.value = strtoull(text, &end, 10);
    opt.set = *text >= '0' && *text <= '9' && *end == '\0';
    return opt;
}

static int read_news(const json_t *object, struct gpubuf_news *ret) {
    const json_t *device = json_object_get(object, "device");

    memset(ret, 0, sizeof(*ret));
    ret->id = gbc_read_u64(object, "id");
    gbc_read_text(object, "at", ret->at, sizeof(ret->at));
    gbc_read_text(object, "type", ret->type, sizeof(ret->type));
    gbc_read_text(object, "session", ret->session, sizeof(ret->session));
    gbc_read_text(object, "pool", ret->pool, sizeof(ret->pool));
    gbc_read_text(object, "buffer", ret->buffer, sizeof(ret->buffer));
    ret->device.index = -1;
    if (device)
        gbc_read_device(device, &ret->device);
    ret->bytes = gbc_read_opt(object, "bytes");
    ret->count = gbc_read_opt(object, "count");
    ret->generation = gbc_read_u64(object, "generation");
    gbc_read_text(object, "lease", ret->lease, sizeof(ret->lease));
    gbc_read_text(object, "detail", ret->detail, sizeof(ret->detail));
    gbc_read_text(object, "head", ret->head, sizeof(ret->head));
    return ret->type[0] != '\0' ? 0 : -1;
}

/* The end of an event, or of a block that only sets something. */
static int dispatch(struct listening *l, struct gpubuf_error *err) {
    struct gpubuf_news news;
    json_t *object;
    int r;

    if (l->data.failed)
        return gbc_error_memory(err);
    if (l->next.set)
        l->last = l->next;
    if (l->data.bytes == 0)
        return 0;
    object = json_loadb(l->data.data, l->data.bytes, 0, NULL);
    r = read_news(object, &news);
    json_decref(object);
    if (r < 0)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "an event of the feed is not what a gpubufd says");
    news.json = l->data.data;
    l->over = l->hear(l->params->arg, &news) != 0;
    gbc_text_clear(&l->data);
    return l->over ? -1 : 0;
}

static int take_line(struct listening *l, struct gpubuf_error *err) {
    char *line = l->line.data ? l->line.data : "";
    char *value = strchr(line, ':');

    if (line[0] == '\0')
        return dispatch(l, err);
    if (!value || value == line) /* a comment, or nothing that is known */
        return 0;
    *value++ = '\0';
    value += *value == ' ';
    if (strcmp(line, "data") == 0) {
        if (l->data.bytes > 0)
            gbc_text_add(&l->data, "\n", 1);
        gbc_text_add(&l->data, value, strlen(value));
    } else if (strcmp(line, "id") == 0 && number_of(value).set) {
        l->next = number_of(value);
    } else if (strcmp(line, "retry") == 0 && number_of(value).set) {
        l->again_ms = number_of(value).value < AGAIN_MAX_MS ? number_of(value).value : AGAIN_MAX_MS;
    }
    return 0;
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

static int begun(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err) {
    struct listening *l = arg;
    const char *type = reply->type.data ? reply->type.data : "";

    if (strncasecmp(type, "text/event-stream", 17) != 0)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer is no feed but %s",
                             type[0] != '\0' ? type : "nothing");
    l->answered = l->stood = true;
    return 0;
}

static int take_bytes(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct listening *l = arg;
    const char *at = data;
    const char *end = at + bytes;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        gbc_text_add(&l->line, at, (size_t)((stop ? stop : end) - at));
        if (l->line.failed)
            return gbc_error_memory(err);
        if (l->line.bytes > LINE_MAX_BYTES || l->data.bytes > LINE_MAX_BYTES)
            return gbc_error_set(err, GPUBUF_BAD_ANSWER, "an event of the feed has more than %zu bytes",
                                 LINE_MAX_BYTES);
        if (!stop)
            return 0;
        if (l->line.bytes > 0 && l->line.data[l->line.bytes - 1] == '\r')
            l->line.data[--l->line.bytes] = '\0';
        if (take_line(l, err) < 0)
            return -1;
        gbc_text_clear(&l->line);
        at = stop + 1;
    }
    return 0;
}

static int tick(void *arg) {
    struct listening *l = arg;

    if (!l->over && l->params->tick && l->params->tick(l->params->arg) != 0)
        l->over = true;
    return l->over;
}

/* What was heard already is not asked for again by the same words. */
static int only_unheard(struct gbc_request *request) {
    struct listening *l = request->again_arg;

    return l->answered ? -1 : 0;
}

static void listen_once(gpubuf_client *client, struct listening *l, struct gpubuf_error *err) {
    const struct gbc_down down = {.begin = begun, .write = take_bytes, .arg = l};
    struct gbc_request *request = &l->request;
    char last[24];

    gbc_request_done(request);
    gbc_request_init(request, "GET", "/v1/feed");
    gbc_query(request, "type", l->params->types);
    gbc_header(request, "Accept", "text/event-stream");
    snprintf(last, sizeof(last), "%" PRIu64, l->last.value);
    gbc_header(request, "Last-Event-ID", l->last.set ? last : NULL);
    request->down = &down;
    request->tick = tick;
    request->tick_arg = l;
    request->quiet_ms = QUIET_MS;
    request->again = only_unheard;
    request->again_arg = l;
    request->once = l->answered;
    l->next.set = false;
    gbc_text_clear(&l->line);
    gbc_text_clear(&l->data);
    gbc_ask(client, request, err);
    request->down = NULL;
}

/* --- and again ---------------------------------------------------------------------------------------------------- */

static bool may_pass(const struct gpubuf_error *why) {
    return why->code == GPUBUF_OK || why->code == GPUBUF_CANNOT_CONNECT || why->code == GPUBUF_CONNECTION_LOST ||
           why->code == GPUBUF_CLIENT_TIMEOUT || why->status == 429 || why->status == 503;
}

static int run(gpubuf_client *client, struct listening *l, struct gpubuf_error *err) {
    for (;;) {
        struct gpubuf_error why;

        gbc_error_init(&why);
        listen_once(client, l, &why);
        if (!l->over && l->answered && may_pass(&why)) {
            l->over = l->params->again && l->params->again(l->params->arg, l->stood, &why) != 0;
            l->stood = false;
            gbc_error_init(&why);
            if (!l->over && gbc_pause(client->conn, l->again_ms, &why) == 0)
                continue;
        }
        if (l->over)
            return 0;
        if (err)
            *err = why;
        return -1;
    }
}

int gpubuf_feed_listen(gpubuf_client *client, const struct gpubuf_feed_params *params, gpubuf_news_fn *hear,
                       struct gpubuf_error *err) {
    static const struct gpubuf_feed_params none;
    struct listening l = {.params = params ? params : &none, .hear = hear, .again_ms = AGAIN_MS};
    int r;

    gbc_error_init(err);
    l.last = l.params->after;
    r = run(client, &l, err);
    gbc_request_done(&l.request);
    gbc_text_done(&l.line);
    gbc_text_done(&l.data);
    return r;
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static int take_state(const json_t *object, void *ret) {
    gbc_read_text(object, "state", ret, GPUBUF_WORD_SIZE);
    return json_object_get(object, "id") && json_object_get(object, "state") ? 0 : -1;
}

static int ask(gpubuf_client *client, const char *id, uint32_t wait_s, char *ret_state, struct gpubuf_error *err) {
    const struct gpubuf_how how = {.wait_s = wait_s};
    struct gbc_request request;

    gbc_request_init(&request, "GET", "/v1/operations/%", id);
    gbc_how(&request, &how);
    return gbc_call(client, &request, &how, take_state, ret_state, err);
}

static bool ended(const char *state) {
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

/* The problem of one that failed, or was cancelled, which has none. */
static int failure(gpubuf_client *client, const char *id, const char *state, struct gpubuf_error *err) {
    json_t *object;

    if (strcmp(state, "cancelled") == 0)
        return gbc_error_set(err, GPUBUF_CANCELLED, "operation %s was cancelled", id);
    object = json_loads(client->answer.body, 0, NULL);
    if (!gbc_error_json(err, json_object_get(object, "problem")))
        gbc_error_set(err, GPUBUF_BAD_ANSWER, "operation %s failed and does not say why", id);
    json_decref(object);
    return -1;
}

int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_error *err) {
    uint64_t end_ms = gbc_now_ms() + timeout_s * (uint64_t)1000;
    char state[GPUBUF_WORD_SIZE];

    gbc_error_init(err);
    for (;;) {
        uint64_t now_ms = gbc_now_ms();
        uint32_t wait_s = WAIT_S;

        if (timeout_s > 0 && now_ms < end_ms && (end_ms - now_ms) / 1000 < WAIT_S)
            wait_s = (uint32_t)((end_ms - now_ms) / 1000) + 1;
        if (ask(client, id, wait_s, state, err) < 0)
            return -1;
        if (ended(state))
            break;
        if (timeout_s > 0 && gbc_now_ms() >= end_ms)
            return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "operation %s is still %s after %u s", id, state,
                                 (unsigned)timeout_s);
    }
    return strcmp(state, "done") == 0 ? 0 : failure(client, id, state, err);
}
