/* Leases on exported memory: what each connection holds, how a lease reaches its client, and /v1/leases. A lease that
 * its client did not get ends. share.c begins leases; the server's hooks end those of a connection. */
#include "api/resources/leases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/options.h"
#include "api/pipeline/async.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread.h"

/* --- who may ------------------------------------------------------------------------------------------------------ */

static bool listed(const struct gb_id_list *list, uint32_t id) {
    unsigned i;

    for (i = 0; i < list->count && list->id[i] != id; i++)
        ;
    return list->any || i < list->count;
}

/* The kernel names only the first group of a peer; the others are looked up by the lists here. */
static bool in_group(const struct gb_http_request *request, const struct gb_id_list *list) {
    unsigned i;

    if (listed(list, request->peer->gid))
        return true;
    for (i = 0; i < list->count; i++) {
        if (gb_http_peer_in_group(request, list->id[i]))
            return true;
    }
    return false;
}

static int no_uid(const struct gb_http_peer *peer, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_MAP_NOT_PERMITTED,
                        "user %u may not map here: start the daemon with --map-uids %u, or --map-gids and a group of "
                        "that user, or use tokens of scope map",
                        (unsigned)peer->uid, (unsigned)peer->uid);
}

int gb_share_permit_export(const struct gb_http_request *request, const char *session, bool write,
                           struct gb_error *err) {
    const struct gb_api *api = gb_api_of(request);
    const struct gb_http_peer *peer = request->peer;

    if (gb_tokens_required(api->core))
        return gb_api_permit(request, write ? GB_SCOPE_MAP_WRITE : GB_SCOPE_MAP, session, err);
    if (!peer && (api->map_peers.uids.any || api->map_peers.gids.any))
        return 0;
    if (!peer)
        return gb_error_set(
            err, GB_ERR_MAP_NOT_PERMITTED,
            "a connection over TCP does not name its user: use the UNIX socket or tokens of scope map, or "
            "start the daemon with --map-uids any");
    if (peer->uid == 0 || peer->uid == geteuid() || listed(&api->map_peers.uids, peer->uid) ||
        in_group(request, &api->map_peers.gids))
        return 0;
    return no_uid(peer, err);
}

int gb_share_permit(const struct gb_http_request *request, const char *session, bool write, struct gb_error *err) {
    if (!request->peer)
        return gb_error_set(
            err, GB_ERR_LOCAL_ONLY,
            "memory is mapped over the UNIX socket alone, with HTTP/1.1: a descriptor goes no other way");
    return gb_share_permit_export(request, session, write, err);
}

/* --- what a connection holds -------------------------------------------------------------------------------------- */

static void share_free(struct gb_share *share) {
    if (!share)
        return;
    gb_holder_end(share->holder);
    pthread_mutex_destroy(&share->lock);
    free(share->lease);
    free(share);
}

static int make_share(struct gb_http_request *request, struct gb_share **ret, struct gb_error *err) {
    const struct gb_http_peer *peer = request->peer;
    struct gb_share *share = calloc(1, sizeof(*share));

    if (!share)
        return gb_error_memory(err, "mapping");
    gb_mutex_init(&share->lock);
    if (gb_holder_new(gb_api_of(request)->core, peer->pid, peer->uid, peer->gid, &share->holder, err) < 0 ||
        gb_http_peer_hold(request, share, err) < 0) {
        share_free(share);
        return -1;
    }
    *ret = share;
    return 0;
}

struct gb_share *gb_share_take(struct gb_http_request *request, struct gb_error *err) {
    struct gb_share *share = request->peer->app;
    int r = 0;

    if (!share && make_share(request, &share, err) < 0)
        return NULL;
    pthread_mutex_lock(&share->lock);
    if (share->leases == share->size) {
        size_t size = share->size ? share->size * 2 : 8;
        int64_t *bigger = realloc(share->lease, size * sizeof(*bigger));

        if (bigger) {
            share->lease = bigger;
            share->size = size;
        } else {
            r = gb_error_memory(err, "mapping");
        }
    }
    pthread_mutex_unlock(&share->lock);
    return r < 0 ? NULL : share;
}

uint64_t gb_share_holder(const struct gb_http_request *request) {
    struct gb_share *share = request->peer ? request->peer->app : NULL;
    uint64_t id = 0;

    if (!share)
        return 0;
    pthread_mutex_lock(&share->lock);
    if (share->holder)
        id = gb_holder_id(share->holder);
    pthread_mutex_unlock(&share->lock);
    return id;
}

/* Adds a lease that the client was given; removes one that the client has ended; returns whether the client has it. */
static void share_add(struct gb_share *share, int64_t lease) {
    pthread_mutex_lock(&share->lock);
    if (share->leases < share->size)
        share->lease[share->leases++] = lease;
    pthread_mutex_unlock(&share->lock);
}

static size_t find_locked(const struct gb_share *share, int64_t lease) {
    size_t i;

    for (i = 0; i < share->leases && share->lease[i] != lease; i++)
        ;
    return i;
}

static void share_remove(struct gb_share *share, int64_t lease) {
    size_t i;

    pthread_mutex_lock(&share->lock);
    i = find_locked(share, lease);
    if (i < share->leases)
        share->lease[i] = share->lease[--share->leases];
    pthread_mutex_unlock(&share->lock);
}

static bool share_has(struct gb_share *share, int64_t lease) {
    bool has;

    pthread_mutex_lock(&share->lock);
    has = find_locked(share, lease) < share->leases;
    pthread_mutex_unlock(&share->lock);
    return has;
}

/* --- the server's hooks ------------------------------------------------------------------------------------------- */

void gb_api_peer_gone(void *app, struct gb_http_peer *peer) {
    struct gb_share *share = peer->app;
    struct gb_holder *holder;

    (void)app;
    pthread_mutex_lock(&share->lock);
    holder = share->holder;
    share->holder = NULL;
    pthread_mutex_unlock(&share->lock);
    gb_holder_end(holder);
}

void gb_api_peer_free(void *app, struct gb_http_peer *peer) {
    (void)app;
    share_free(peer->app);
}

bool gb_api_peer_busy(void *app, const struct gb_http_peer *peer) {
    struct gb_share *share = peer->app;
    bool busy;

    (void)app;
    pthread_mutex_lock(&share->lock);
    busy = share->holder && gb_holder_maps(share->holder); /* other connections may have ended the client's leases */
    pthread_mutex_unlock(&share->lock);
    return busy;
}

/* --- a lease on its way to the client ----------------------------------------------------------------------------- */

/* One reference is the request's, one the call's. If the client did not get the lease, the last of the two ends it. */
enum { WAITING, FINISHED, GIVEN, LEFT };

struct grant {
    atomic_int refs;
    atomic_int state;
    struct gb_core *core;
    struct gb_lease_call *call;
    struct gb_share *share;          /* borrowed, lives as long as the request; NULL: no connection has it */
    struct gb_http_request *request; /* the call's reference */
    gb_grant_render *render;
};

static void unref(struct grant *g) {
    if (atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    gb_call_unref(&g->call->base);
    free(g);
}

/* Ends the lease. If memory for the call is exhausted, the lease ends with the connection or when it expires. */
static void end_lease(const struct grant *g) {
    struct gb_call *call = g->call->base.error.code == GB_OK ? gb_call_new(sizeof(*call), NULL, NULL) : NULL;

    if (!call)
        return;
    gb_lease_end(g->core, g->call->lease.id, NULL, false, call); /* no client knows how to reach the bytes */
    gb_call_unref(call);
}

static void done(void *arg) {
    struct grant *g = arg;

    if (atomic_exchange(&g->state, FINISHED) == LEFT)
        end_lease(g);
    gb_http_wake(g->request);
    gb_http_request_unref(g->request);
    unref(g);
}

static void grant_free(void *state) {
    struct grant *g = state;

    if (atomic_exchange(&g->state, LEFT) == FINISHED)
        end_lease(g);
    unref(g);
}

struct gb_lease_call *gb_grant_begin(struct gb_http_request *request, struct gb_share *share, gb_grant_render *render,
                                     struct gb_error *err) {
    struct grant *g = calloc(1, sizeof(*g));

    if (g)
        g->call = gb_call_new(sizeof(*g->call), done, g);
    if (!g || !g->call) {
        free(g);
        gb_error_memory(err, "request");
        return NULL;
    }
    atomic_init(&g->refs, 2);
    atomic_init(&g->state, WAITING);
    g->core = gb_api_of(request)->core;
    g->share = share;
    g->render = render;
    g->request = gb_http_request_ref(request);
    request->state = g;
    request->state_free = grant_free;
    request->resume = gb_grant_resume;
    return g->call;
}

static enum gb_step reply(const struct gb_http_request *request, struct grant *g, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_json_writer out = {0};
    int fd;

    g->render(&out, request, g->call);
    if (gb_json_reply(&out, response, 200, err) < 0)
        return GB_STEP_ERROR;
    fd = gb_lease_take_fd(g->call);
    if (fd >= 0 && gb_http_response_fd(response, fd, err) < 0)
        return GB_STEP_ERROR;
    if (g->share)
        share_add(g->share, g->call->lease.id);
    atomic_store(&g->state, GIVEN);
    return GB_STEP_REPLY;
}

enum gb_step gb_grant_resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct grant *g = request->state;

    if (atomic_load(&g->state) == FINISHED) {
        if (g->call->base.error.code == GB_OK)
            return reply(request, g, response, err);
        *err = g->call->base.error;
        return GB_STEP_ERROR;
    }
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the lease was not granted in the permitted time; it is given up");
    return GB_STEP_ERROR;
}

int gb_grant_mode(const json_t *body, bool *ret_write, struct gb_error *err) {
    const char *mode = "read";

    if (gb_json_string(body, "mode", &mode, err) < 0)
        return -1;
    *ret_write = strcmp(mode, "write") == 0;
    if (!*ret_write && strcmp(mode, "read") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "mode must be \"read\" or \"write\", not \"%.40s\"", mode);
    return 0;
}

void gb_grant_handle(struct gb_json_writer *out, const char *key, const unsigned char *bytes) {
    char text[GB_BASE64_SIZE(GB_EXPORT_HANDLE_BYTES)];

    if (!bytes) {
        gb_json_put_null(out, key);
        return;
    }
    gb_base64_write(bytes, GB_EXPORT_HANDLE_BYTES, false, text);
    gb_json_put_string(out, key, text);
}

/* --- leases ------------------------------------------------------------------------------------------------------- */

/* /v1/leases, and the holders in problem documents. */

/* The most holders that a problem document names; there may be thousands. */
#define HOLDERS_MAX 16

static void render_id(struct gb_json_writer *out, int64_t id) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, id);
    gb_json_put_string(out, "lease", text);
}

static void render_who(struct gb_json_writer *out, const struct gb_lease_view *view) {
    gb_json_put_u64(out, "pid", (uint64_t)view->pid);
    gb_json_put_u64(out, "uid", (uint64_t)view->uid);
    gb_json_put_time(out, "since", view->since_us);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

struct walk {
    struct gb_json_writer out;
    const char *session;   /* of this session alone; "": of all */
    struct gb_name prefix; /* of buffers with such names alone */
    unsigned left;
    int64_t seen_id; /* the last lease looked at */
    int64_t last_id; /* the last on the page */
    bool more;
};

static void render_lease(struct gb_json_writer *out, const struct gb_lease_view *view) {
    gb_json_open(out, NULL, '{');
    render_id(out, view->id);
    gb_json_put_string(out, "session", view->session.s);
    gb_json_put_string(out, "buffer", view->buffer.s);
    gb_json_put_string(out, "mode", view->write ? "write" : "read");
    gb_json_put_string(out, "way", gb_export_way_name(view->way));
    render_who(out, view);
    gb_json_put_time_or_null(out, "expires_at", view->expires_at_us);
    gb_json_put_i64(out, "generation", view->generation);
    gb_json_put_u64(out, "bytes", view->bytes);
    gb_json_put_string(out, "state", gb_lease_state_name(view->state));
    gb_json_close(out, '}');
}

static int visit(void *arg, const struct gb_lease_view *view, struct gb_error *err) {
    struct walk *walk = arg;

    (void)err;
    walk->seen_id = view->id;
    if ((walk->session[0] && strcmp(walk->session, view->session.s) != 0) ||
        !gb_api_has_prefix(&walk->prefix, view->buffer.s))
        return 0;
    if (walk->left == 0 || gb_render_list_full(&walk->out)) {
        walk->more = true;
        return 0;
    }
    walk->left--;
    walk->last_id = view->id;
    render_lease(&walk->out, view);
    return 0;
}

/* Walks pages of the core until one page here is full; leases that the token does not see are skipped. */
static int fill_page(struct gb_core *core, struct walk *walk, struct gb_error *err) {
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};

    while (page.more && !walk->more) {
        page.after = walk->seen_id;
        if (gb_lease_list(core, &page, visit, walk, err) < 0)
            return -1;
    }
    return 0;
}

enum gb_step gb_api_lease_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct walk walk = {.session = ""};
    char cursor[GB_CURSOR_SIZE];
    struct gb_name bound;
    struct gb_page page;

    if (gb_page_read(request, &page, err) < 0 || gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0 ||
        gb_api_prefix(request, &walk.prefix, err) < 0)
        return GB_STEP_ERROR;
    walk.session = bound.s;
    walk.left = page.limit;
    walk.seen_id = page.after;
    gb_render_list_open(&walk.out);
    if (fill_page(gb_api_of(request)->core, &walk, err) < 0) {
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    return gb_list_reply(request, &walk.out, walk.more ? gb_cursor_text(walk.last_id, cursor) : NULL, response, err);
}

/* --- one ---------------------------------------------------------------------------------------------------------- */

static int not_found(const struct gb_http_request *request, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_LEASE_NOT_FOUND, "there is no lease \"%.40s\", or it has ended",
                        request->param[0].s);
}

static int read_id(const struct gb_http_request *request, int64_t *ret, struct gb_error *err) {
    const struct gb_http_text *text = &request->param[0];
    uint64_t id;

    if (gb_parse_u64(text->s, text->len, &id) != GB_PARSE_OK || id == 0 || id > INT64_MAX)
        return not_found(request, err);
    *ret = (int64_t)id;
    return 0;
}

static bool has(const struct gb_http_request *request, int64_t id) {
    struct gb_share *share = request->peer ? request->peer->app : NULL;

    return share && share_has(share, id);
}

/* Checks that the bearer may see the lease. Scope read sees all leases of its session, or all; scope map sees those of
 * its own connection, and exports. view: NULL if no such lease exists, which is reported to a bearer of scope read. */
static int permit_look(const struct gb_http_request *request, const struct gb_lease_view *view, struct gb_error *err) {
    struct gb_name bound;

    if (view && view->exported && gb_api_permit(request, GB_SCOPE_MAP, view->session.s, NULL) == 0)
        return 0;
    if (gb_api_bound(request, GB_SCOPE_VERIFY, &bound, err) < 0)
        return -1;
    return view && bound.s[0] && !gb_name_equal(&bound, &view->session) ? not_found(request, err) : 0;
}

/* A lease on a buffer that the token does not reach is reported like one that does not exist. */
static int check_reach(const struct gb_http_request *request, const struct gb_lease_view *view, struct gb_error *err) {
    struct gb_name prefix;

    if (gb_api_prefix(request, &prefix, err) < 0)
        return -1;
    return gb_api_has_prefix(&prefix, view->buffer.s) ? 0 : not_found(request, err);
}

enum gb_step gb_api_lease_get(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_lease_view view;
    struct gb_json_writer out = {0};
    int64_t id = 0;
    bool there = read_id(request, &id, NULL) == 0 && gb_lease_get(gb_api_of(request)->core, id, &view, NULL) == 0;

    if ((!has(request, id) && permit_look(request, there ? &view : NULL, err) < 0) ||
        (there ? check_reach(request, &view, err) : not_found(request, err)) < 0)
        return GB_STEP_ERROR;
    render_lease(&out, &view);
    return gb_reply_json(&out, 200, response, err);
}

/* Checks that the bearer may end the lease. Another connection's lease is for administrators of its session. An export
 * belongs to no connection: a bearer that may make one may end it. A lease that the bearer may not see is reported like
 * one that does not exist. */
static int permit_end(const struct gb_http_request *request, int64_t id, bool *ret_outside, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_lease_view view;
    int r;

    if (gb_lease_get(gb_api_of(request)->core, id, &view, NULL) < 0)
        return not_found(request, err);
    if (check_reach(request, &view, err) < 0)
        return -1;
    if (has(request, id))
        return 0;
    *ret_outside = !view.exported;
    r = view.exported ? gb_share_permit_export(request, view.session.s, view.write, &why)
                      : gb_api_permit(request, GB_SCOPE_ADMIN, view.session.s, &why);
    if (r < 0 && why.code == GB_ERR_FORBIDDEN && permit_look(request, &view, NULL) < 0)
        return not_found(request, err);
    return r < 0 ? gb_error_move(err, &why) : 0;
}

static enum gb_step reply_ended(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    int64_t id;

    if (request->peer && request->peer->app && read_id(request, &id, NULL) == 0)
        share_remove(request->peer->app, id);
    return gb_reply_nothing(request, result, response, err);
}

enum gb_step gb_api_lease_end(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    bool outside = false;
    struct gb_call *call;
    int64_t id;

    if (read_id(request, &id, err) < 0)
        return GB_STEP_ERROR;
    if (permit_end(request, id, &outside, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_lease_end(gb_api_of(request)->core, id, NULL, outside, call);
    return gb_async_end(request, response, reply_ended, 0, err);
}

/* --- whom to ask -------------------------------------------------------------------------------------------------- */

struct holders {
    struct gb_locator at; /* the name: only of a request to a buffer */
    struct gb_lease_view view[HOLDERS_MAX];
    unsigned count;
    int64_t seen_id;
};

static int collect(void *arg, const struct gb_lease_view *view, struct gb_error *err) {
    struct holders *h = arg;

    (void)err;
    h->seen_id = view->id;
    if (h->count < HOLDERS_MAX && strcmp(view->session.s, h->at.session.s) == 0)
        h->view[h->count++] = *view;
    return 0;
}

static void find(const struct gb_http_request *request, struct holders *h) {
    struct gb_core *core = gb_api_of(request)->core;
    enum gb_target target = gb_route_of(request)->target;
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};

    if (gb_param_name(request, 0, "session name", &h->at.session, NULL) < 0)
        return;
    if (target == GB_TARGET_SESSION) {
        while (page.more && h->count < HOLDERS_MAX && gb_lease_list(core, &page, collect, h, NULL) == 0)
            page.after = h->seen_id;
        return;
    }
    if (target == GB_TARGET_BUFFER && gb_param_name(request, 1, "buffer name", &h->at.name, NULL) == 0)
        h->count = gb_lease_holders(core, &h->at, h->view, HOLDERS_MAX);
}

void gb_api_explain(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response) {
    struct gb_json_writer out = {.comma = true}; /* its members follow others */
    struct holders h = {.count = 0};
    unsigned i;

    (void)app;
    if (error->code != GB_ERR_MAPPED || response->problem_members || !request->route)
        return;
    find(request, &h);
    gb_json_open(&out, "holders", '[');
    for (i = 0; i < h.count; i++) {
        gb_json_open(&out, NULL, '{');
        render_id(&out, h.view[i].id);
        render_who(&out, &h.view[i]);
        gb_json_put_string(&out, "mode", h.view[i].write ? "write" : "read");
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    if (out.failed)
        gb_json_done(&out);
    else
        gb_http_response_problem(response, response->problem_type, out.s, out.used);
}
