/* Moves a session to another node: POST .../move, which starts the move at the new node, and POST .../handover, by
 * which the new node asks the owner. The owner alone changes the directory, and so decides. The steps run in the API's
 * threads; the fleet's thread answers the transfer. */

#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/fleet/own.h"
#include "api/pipeline/async.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/operations.h"
#include "api/pipeline/redirect.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/text.h"
#include "base/thread.h"
#include "fleet/move/move.h"

/* --- handover ----------------------------------------------------------------------------------------------------- */

/* POST /v1/fleet/sessions/{session}/handover: the new node asks the owner. "freeze" makes writers wait. "look" asks
 * whether their changes have ended. "thaw" lets writers continue. "keys" lists the answers to requests with an
 * Idempotency-Key. "give" transfers the session. "arrived" frees what is left here. */

#define FREEZE_MS 5000
#define GIVE_MS 2000 /* the other node waits 3 s for an answer, and asks again */
#define KEPT_MAX 1024
#define KEY_BODY_MAX (256u << 10) /* escaped, it may be three times as long, which the other node accepts */

/* --- handovers ---------------------------------------------------------------------------------------------------- */

enum state { GIVING, GIVEN, REFUSED };

struct handover {
    struct handover *next;
    struct gb_handovers *of;
    struct gb_api *api;
    struct gb_fleet_session mine;
    struct gb_name to;
    char claim[GB_FLEET_CLAIM_SIZE];
    uint64_t freeze;
    struct gb_session_call *call; /* valid until the call has ended */
    struct gb_error refusal;
    struct gb_fleet_transfer transfer; /* the fleet's until it has answered */

    /* By the lock: */
    enum state state;
    struct gb_error why;
    struct gb_name aside;            /* the name of what is left here; "": unknown */
    struct gb_http_request *waiting; /* the request that waits, with a reference */
};

struct gb_handovers {
    pthread_mutex_t lock;
    struct handover *first;
    size_t count;
};

struct gb_handovers *gb_handovers_new(void) {
    struct gb_handovers *handovers = calloc(1, sizeof(*handovers));

    if (handovers)
        gb_mutex_init(&handovers->lock);
    return handovers;
}

void gb_handovers_free(struct gb_handovers *handovers) {
    struct handover *next;
    struct handover *h;

    if (!handovers)
        return;
    for (h = handovers->first; h; h = next) {
        next = h->next;
        free(h);
    }
    pthread_mutex_destroy(&handovers->lock);
    free(handovers);
}

static struct handover *find_locked(struct gb_handovers *handovers, const char *claim) {
    struct handover *h = handovers->first;

    while (h && strcmp(h->claim, claim) != 0)
        h = h->next;
    return h;
}

static void take_out_locked(struct handover *h) {
    struct handover **at = &h->of->first;

    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    h->of->count--;
}

/* Makes room: drops the oldest handover whose new node never reported the arrival. */
static void forget_old_locked(struct gb_handovers *handovers) {
    struct handover *oldest = NULL;
    struct handover *h;

    if (handovers->count < KEPT_MAX)
        return;
    for (h = handovers->first; h; h = h->next)
        if (h->state != GIVING)
            oldest = h; /* new ones are in front */
    if (!oldest)
        return;
    take_out_locked(oldest);
    free(oldest);
}

/* --- transferring ------------------------------------------------------------------------------------------------- */

/* A session that is missing here may be at another node of the fleet. */
static void only_here(struct gb_error *err) {
    if (err->code == GB_ERR_SESSION_NOT_FOUND)
        err->code = GB_ERR_OWNER_UNKNOWN;
}

static void decide(struct handover *h, enum state state, const struct gb_error *why, const struct gb_name *aside) {
    struct gb_http_request *waiting;

    pthread_mutex_lock(&h->of->lock);
    h->state = state;
    if (why)
        h->why = *why;
    if (aside)
        h->aside = *aside;
    waiting = h->waiting;
    h->waiting = NULL;
    pthread_mutex_unlock(&h->of->lock);
    if (!waiting)
        return;
    gb_http_wake(waiting);
    gb_http_request_unref(waiting);
}

static void set_aside(void *arg, const struct gb_name *aside) {
    decide(arg, GIVEN, NULL, aside);
}

static void regained(void *arg) {
    struct handover *h = arg;

    decide(h, REFUSED, &h->refusal, NULL);
}

/* An undecided session stays as it is: the next process of this node asks the directory. */
static void transferred(struct gb_fleet_ask *ask) {
    struct handover *h = gb_container_of(ask, struct handover, transfer.ask);
    struct gb_session_call *call;

    if (ask->error.code == GB_OK) {
        gb_fleet_give_aside(h->api, &h->mine, set_aside, h);
        return;
    }
    h->refusal = ask->error;
    call = h->transfer.undecided ? NULL : gb_call_new(sizeof(*call), regained, h);
    if (!call) {
        decide(h, REFUSED, &h->refusal, NULL);
        return;
    }
    gb_session_regain(h->api->core, &h->mine.name, h->freeze, call);
    gb_call_unref(&call->base);
}

static enum gb_step reply_given(const struct gb_name *to, uint64_t epoch, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "node", to->s);
    gb_json_put_u64(&out, "epoch", epoch);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_handovers *handovers = gb_api_of(request)->handovers;
    struct gb_error why = GB_ERROR_INIT;
    enum state state = REFUSED;
    struct gb_name to = {""};
    uint64_t epoch = 0;
    struct handover *h;

    gb_error_set(&why, GB_ERR_SESSION_MOVING, "this handover is over");
    pthread_mutex_lock(&handovers->lock);
    h = find_locked(handovers, request->state);
    if (h) {
        state = h->state;
        to = h->to;
        epoch = h->mine.epoch + 1;
        why = h->why;
    }
    pthread_mutex_unlock(&handovers->lock);
    if (state == GIVEN)
        return reply_given(&to, epoch, response, err);
    if (state == GIVING && !request->timed_out)
        return GB_STEP_WAIT;
    if (state == GIVING)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the directory has not said yet whether the session was given; ask again");
    else
        *err = why;
    only_here(err);
    return GB_STEP_ERROR;
}

static enum gb_step await(struct gb_http_request *request, const char *claim, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_handovers *handovers = gb_api_of(request)->handovers;
    struct gb_http_request *before = NULL;
    struct handover *h;

    request->state = strdup(claim);
    request->state_free = free;
    request->resume = resume;
    request->deadline_ns = gb_clock_ns() + GIVE_MS * GB_NS_PER_MS;
    if (!request->state) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    pthread_mutex_lock(&handovers->lock);
    h = find_locked(handovers, claim);
    if (h && h->state == GIVING) {
        before = h->waiting;
        h->waiting = gb_http_request_ref(request);
    }
    pthread_mutex_unlock(&handovers->lock);
    if (before)
        gb_http_request_unref(before); /* it ends at its deadline */
    return resume(request, response, err);
}

/* --- the steps ---------------------------------------------------------------------------------------------------- */

struct handover_step {
    struct gb_name session;
    const char *step;
    uint64_t epoch;
    uint64_t freeze;
    uint64_t after;
    bool last;
    struct gb_name to;
    const char *claim;
};

static int read_own(const struct gb_http_request *request, const struct handover_step *q, struct gb_fleet_session *ret,
                    struct gb_error *err) {
    if (gb_fleet_session(gb_api_of(request), &q->session, ret) &&
        !gb_fleet_owner_is_uncertain(gb_api_of(request)->fleet, q->session.s))
        return 0;
    return gb_error_set(err, GB_ERR_OWNER_UNKNOWN, "this node has no registered session \"%s\"", q->session.s);
}

static bool is_utf8(const char *s) {
    size_t n = 1;

    for (; *s && n > 0; s += n)
        n = gb_utf8_len(s);
    return n > 0;
}

static enum gb_step reply_freeze(uint64_t freeze, bool quiet, struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "freeze", freeze);
    gb_json_put_bool(&out, "quiet", quiet);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step look(struct gb_http_request *request, const struct handover_step *q,
                         struct gb_http_response *response, struct gb_error *err) {
    bool quiet;

    if (gb_session_frozen(gb_api_of(request)->core, &q->session, q->freeze, &quiet, err) < 0)
        return GB_STEP_ERROR;
    return reply_freeze(q->freeze, quiet, response, err);
}

static enum gb_step freeze(struct gb_http_request *request, const struct handover_step *q,
                           struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet_session mine;
    struct handover_step frozen = *q;

    if (read_own(request, q, &mine, err) < 0)
        return GB_STEP_ERROR;
    if (mine.epoch != q->epoch) {
        gb_error_set(err, GB_ERR_SUPERSEDED, "the session \"%s\" is at epoch %llu here", q->session.s,
                     (unsigned long long)mine.epoch);
        return GB_STEP_ERROR;
    }
    if (gb_session_freeze(gb_api_of(request)->core, &q->session, mine.claim, FREEZE_MS, &frozen.freeze, err) < 0)
        return GB_STEP_ERROR;
    return look(request, &frozen, response, err);
}

/* A session that is being transferred stays frozen. */
static enum gb_step thaw(struct gb_http_request *request, const struct handover_step *q,
                         struct gb_http_response *response, struct gb_error *err) {
    gb_session_thaw(gb_api_of(request)->core, &q->session, q->freeze);
    return reply_freeze(q->freeze, false, response, err);
}

/* A reply that is not UTF-8 or too long is left out: to the new node, the answer to that key is lost. */
static void render_key(struct gb_json_writer *out, const struct gb_key_copy *copy) {
    const struct gb_idempotency_reply *a = copy->answer;
    bool known =
        a && a->body_len <= KEY_BODY_MAX && strlen(a->body) == a->body_len && is_utf8(a->body) && is_utf8(a->headers);

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "id", copy->id);
    gb_json_put_string(out, "fingerprint", copy->fingerprint);
    gb_json_put_u64(out, "left_us", copy->left_us > 0 ? (uint64_t)copy->left_us : 0);
    gb_json_put_u64(out, "status", known ? (uint64_t)a->status : 0);
    gb_json_put_untrusted(out, "headers", known ? a->headers : "", SIZE_MAX);
    gb_json_put_untrusted(out, "body", known ? a->body : "", SIZE_MAX);
    gb_json_close(out, '}');
}

static enum gb_step keys(struct gb_http_request *request, const struct handover_step *q,
                         struct gb_http_response *response, struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_session_view view = {.used_bytes = 0};
    struct gb_json_writer out = {0};
    struct gb_fleet_session mine;
    struct gb_key_page *page;
    size_t i;
    int r;

    if (read_own(request, q, &mine, err) < 0 || gb_session_get(core, &q->session, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_session_rec_done(&view.rec);
    page = malloc(sizeof(*page));
    if (!page) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    r = gb_keys_page(core, view.rec.id, q->after, q->last, KEY_BODY_MAX, page, err);
    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "keys", '[');
    for (i = 0; i < page->count; i++)
        render_key(&out, &page->items[i]);
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "after", page->after);
    gb_json_put_bool(&out, "more", page->more);
    gb_json_put_bool(&out, "open", page->open);
    gb_json_close(&out, '}');
    gb_key_page_done(page);
    free(page);
    if (r == 0)
        return gb_reply_json(&out, 200, response, err);
    gb_json_done(&out);
    return GB_STEP_ERROR;
}

/* The database has noted that the session may become another node's. The fleet may be closed by then. */
static void noted(void *arg) {
    struct handover *h = arg;
    struct gb_error err = h->call->base.error;

    pthread_mutex_lock(&h->api->fleet_lock);
    if (err.code == GB_OK && h->api->fleet)
        gb_fleet_transfer(h->api->fleet, &h->transfer);
    else
        gb_error_set(&err, GB_ERR_DRAINING, "the daemon leaves the fleet");
    pthread_mutex_unlock(&h->api->fleet_lock);
    if (err.code != GB_OK)
        decide(h, REFUSED, &err, NULL);
}

static int begin_giving(struct gb_http_request *request, const struct handover_step *q, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct handover *h = calloc(1, sizeof(*h));
    struct gb_session_call *call = h ? gb_call_new(sizeof(*call), noted, h) : NULL;

    if (!call) {
        free(h);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    if (read_own(request, q, &h->mine, err) < 0) {
        gb_call_unref(&call->base);
        gb_call_unref(&call->base);
        free(h);
        return -1;
    }
    h->call = call;
    h->of = api->handovers;
    h->api = api;
    h->freeze = q->freeze;
    h->transfer.ask.done = transferred;
    h->transfer.session = h->mine;
    h->to = h->transfer.to = q->to;
    snprintf(h->claim, sizeof(h->claim), "%s", q->claim);
    memcpy(h->transfer.claim, h->claim, sizeof(h->transfer.claim));
    pthread_mutex_lock(&h->of->lock);
    forget_old_locked(h->of);
    h->next = h->of->first;
    h->of->first = h;
    h->of->count++;
    pthread_mutex_unlock(&h->of->lock);
    gb_session_give(api->core, &q->session, q->freeze, call);
    gb_call_unref(&call->base);
    return 0;
}

/* The new node repeats the step if the answer is late. */
static enum gb_step give(struct gb_http_request *request, const struct handover_step *q,
                         struct gb_http_response *response, struct gb_error *err) {
    struct gb_handovers *handovers = gb_api_of(request)->handovers;
    struct handover *h;
    bool begun;

    pthread_mutex_lock(&handovers->lock);
    h = find_locked(handovers, q->claim);
    if (h && h->state == REFUSED && h->freeze != q->freeze) { /* of an earlier freeze, which ended too soon */
        take_out_locked(h);
        free(h);
        h = NULL;
    }
    begun = h != NULL;
    pthread_mutex_unlock(&handovers->lock);
    if (!begun && begin_giving(request, q, err) < 0)
        return GB_STEP_ERROR;
    return await(request, q->claim, response, err);
}

static enum gb_step arrived(struct gb_http_request *request, const struct handover_step *q,
                            struct gb_http_response *response, struct gb_error *err) {
    struct gb_handovers *handovers = gb_api_of(request)->handovers;
    struct gb_name aside = {""};
    struct gb_json_writer out = {0};
    struct gb_call *call = NULL;
    struct handover *h;

    pthread_mutex_lock(&handovers->lock);
    h = find_locked(handovers, q->claim);
    if (h && h->state == GIVEN) {
        aside = h->aside;
        take_out_locked(h);
        free(h);
    }
    pthread_mutex_unlock(&handovers->lock);
    if (aside.s[0] != '\0')
        call = gb_call_new(sizeof(*call), NULL, NULL);
    if (call) { /* otherwise it is freed when it expires */
        gb_session_delete(gb_api_of(request)->core, &aside, NULL, call);
        gb_call_unref(call);
    }
    gb_json_open(&out, NULL, '{');
    gb_json_put_bool(&out, "freed", call != NULL);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

typedef enum gb_step step_fn(struct gb_http_request *request, const struct handover_step *q,
                             struct gb_http_response *response, struct gb_error *err);

static const struct {
    const char *name;
    const char *needs; /* the field that it needs */
    step_fn *run;
} steps[] = {
    {"freeze", "epoch", freeze}, {"look", "freeze", look}, {"thaw", "freeze", thaw},
    {"keys", "after", keys},     {"give", "claim", give},  {"arrived", "claim", arrived},
};

static bool is_claim(const char *text) {
    return text[0] != '\0' && strlen(text) < GB_FLEET_CLAIM_SIZE && text[strspn(text, "0123456789abcdef-")] == '\0';
}

static int read_fields(const json_t *body, struct handover_step *q, struct gb_error *err) {
    q->step = q->claim = "";
    if (gb_json_string(body, "step", &q->step, err) < 0 || gb_json_u64(body, "epoch", &q->epoch, err) < 0 ||
        gb_json_u64(body, "freeze", &q->freeze, err) < 0 || gb_json_u64(body, "after", &q->after, err) < 0 ||
        gb_json_bool(body, "last", &q->last, err) < 0 || gb_json_name(body, "to", &q->to, err) < 0 ||
        gb_json_string(body, "claim", &q->claim, err) < 0)
        return -1;
    if (!json_object_get(body, "claim") || is_claim(q->claim))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'claim' is no claim of a session");
}

static enum gb_step run(struct gb_http_request *request, const json_t *body, struct handover_step *q,
                        struct gb_http_response *response, struct gb_error *err) {
    size_t i;

    if (read_fields(body, q, err) < 0)
        return GB_STEP_ERROR;
    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (strcmp(q->step, steps[i].name) != 0)
            continue;
        if (!json_object_get(body, steps[i].needs) ||
            (steps[i].run == give && (q->to.s[0] == '\0' || !json_object_get(body, "freeze")))) {
            gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the step '%s' needs the field '%s'%s", steps[i].name,
                         steps[i].needs, steps[i].run == give ? ", 'to' and 'freeze'" : "");
            return GB_STEP_ERROR;
        }
        return gb_fleet_needed(request, err) < 0 ? GB_STEP_ERROR : steps[i].run(request, q, response, err);
    }
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'step' is freeze, look, thaw, keys, give or arrived");
    return GB_STEP_ERROR;
}

enum gb_step gb_api_fleet_session_handover(struct gb_http_request *request, struct gb_http_response *response,
                                           struct gb_error *err) {
    struct handover_step q = {.step = NULL};
    enum gb_step step;
    json_t *body;

    if (gb_param_name(request, 0, "session name", &q.session, err) < 0 ||
        gb_body_object(request, "step epoch freeze after last to claim", false, &body, err) < 0)
        return GB_STEP_ERROR;
    step = run(request, body, &q, response, err);
    json_decref(body);
    if (step == GB_STEP_ERROR)
        only_here(err);
    return step;
}

/* --- the move ----------------------------------------------------------------------------------------------------- */

/* POST /v1/fleet/sessions/{session}/move: the new node brings the session. Any other node redirects to it. */

struct moving {
    struct gb_name session;
    struct gb_name to; /* "": the fleet chooses */
    char select[GB_FLEET_LABELS_SIZE];
};

static int read_moving(const struct gb_http_request *request, struct moving *ret, struct gb_error *err) {
    json_t *body;
    int r;

    *ret = (struct moving){.select = ""};
    if (gb_param_name(request, 0, "session name", &ret->session, err) < 0 ||
        gb_body_object(request, "to select", true, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "to", &ret->to, err);
    if (r >= 0 && gb_fleet_read_select(body, ret->select, err) < 0)
        r = -1;
    if (r > 0 && json_object_get(body, "select"))
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'to' names the node; 'select' does not go with it");
    json_decref(body);
    return r < 0 ? -1 : gb_fleet_needed(request, err);
}

/* --- here --------------------------------------------------------------------------------------------------------- */

static void render_skipped(struct gb_json_writer *out, const struct gb_move_call *call) {
    size_t i;

    gb_json_open(out, "skipped", '[');
    for (i = 0; i < call->listed; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "name", call->list[i].name.s);
        gb_json_put_string(out, "code", gb_code_slug(call->list[i].code));
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

static enum gb_step reply_moved(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    const struct gb_move_call *call = result;
    const char *base = gb_fleet_own_url(api->fleet, gb_redirect_network(request));
    char url[GB_FLEET_URL_SIZE + GB_NAME_MAX + 16];
    struct gb_json_writer out = {0};

    snprintf(url, sizeof(url), "%s/v1/sessions/%s", base ? base : "", call->session.s);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "name", call->session.s);
    gb_json_put_string(&out, "node", api->fleet_is.node.s);
    gb_json_put_u64(&out, "epoch", call->epoch);
    gb_json_put_untrusted(&out, "url", url, SIZE_MAX);
    gb_json_open(&out, "former", '{');
    gb_json_put_string(&out, "node", call->former.s);
    gb_json_put_u64(&out, "epoch", call->former_epoch);
    gb_json_close(&out, '}');
    gb_json_put_u64(&out, "buffers", call->buffers);
    gb_json_put_u64(&out, "bytes", call->bytes);
    gb_json_put_u64(&out, "pulled_bytes", call->pulled_bytes);
    gb_json_put_u64(&out, "rounds", call->rounds);
    gb_json_put_number(&out, "frozen_ms", (double)(call->frozen_ns / 1000) / 1000.0);
    gb_json_put_u64(&out, "skipped_buffers", call->skipped);
    render_skipped(&out, call);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step start(struct gb_http_request *request, const struct gb_name *session,
                          struct gb_http_response *response, struct gb_error *err) {
    char who[GB_TICKET_WHO_SIZE] = "";
    struct gb_move_call *call;

    gb_asking_end(request);
    gb_request_hooks_stay(request, false);
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    if (!gb_api_ticket_who(request, who))
        who[0] = '\0';
    gb_move_start(gb_api_of(request)->moves, session, who, call);
    return gb_async_end(request, response, reply_moved, 0, err);
}

/* --- elsewhere ---------------------------------------------------------------------------------------------------- */

static enum gb_step send_named(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_fleet_order order = {.what = GB_ORDER_MOVE};
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    order.node = moving.to;
    order.session = moving.session;
    return gb_send_to_node(request, response, &order, err);
}

static enum gb_step chosen(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_node *node = &asking->of.place.nodes[0];
    const char *base = gb_fleet_url_on(node, gb_redirect_network(request));
    struct moving moving;

    if (!gb_name_equal(&node->name, &gb_api_of(request)->fleet_is.node) && base)
        return gb_redirect_to(request, response, &node->name, base, 0, 1, err);
    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    return start(request, &moving.session, response, err);
}

static enum gb_step found(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_fleet_session there = ((struct gb_asking *)request->state)->of.find.session;
    struct gb_asking *asking;
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    asking = gb_asking_begin(request, chosen, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->of.place.excluded = there.node;
    asking->of.place.network = *gb_redirect_network(request);
    asking->of.place.bytes = there.quota_bytes == GB_UNLIMITED ? 0 : there.quota_bytes;
    strcpy(asking->of.place.select, moving.select);
    gb_fleet_place(asking->fleet, &asking->of.place);
    return gb_asking_wait(request, response, err);
}

static enum gb_step choose(struct gb_http_request *request, const struct moving *moving,
                           struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, found, err);

    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, &moving->session, true, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}

enum gb_step gb_api_fleet_session_move(struct gb_http_request *request, struct gb_http_response *response,
                                       struct gb_error *err) {
    const struct gb_name *self = &gb_api_of(request)->fleet_is.node;
    bool sent_here = request->aside[GB_ASIDE_VIA].s != NULL;
    struct moving moving;

    if (read_moving(request, &moving, err) < 0)
        return GB_STEP_ERROR;
    if (moving.to.s[0] != '\0' ? gb_name_equal(&moving.to, self) : sent_here)
        return start(request, &moving.session, response, err);
    gb_request_hooks_stay(request, true);
    if (sent_here) {
        gb_error_set(err, GB_ERR_OWNER_UNKNOWN, "the request was sent here for the node \"%s\", and this is \"%s\"",
                     moving.to.s, self->s);
        return GB_STEP_ERROR;
    }
    if (moving.to.s[0] != '\0')
        return gb_ask_nodes(request, send_named, response, err);
    return choose(request, &moving, response, err);
}
