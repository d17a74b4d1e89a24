/* The holder's side: copies that this node keeps for owners of sessions at other nodes, and the takeover of a session
 * whose owner is away. A copy is of a sealed buffer, so its bytes never change. The thread "gb-replica" does the work;
 * replica.c runs it, and the API asks. */
#include "fleet/replica/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/runtime/call.h"
#include "fleet/arrival/arrival.h"

/* Outcomes of a check, besides 0 and -1. DROP: nothing is to be kept. OWNER: the session is this node's now. */
enum { DROP = 1, OWNER };

/* --- taking over -------------------------------------------------------------------------------------------------- */

/* A session permits its takeover while its owner is away. This node has copies of its sealed buffers. */

/* A directory that was paused may have expired the leases of nodes that never stopped: the owner itself is asked. */
static int check_silent(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_fleet_call call = {.method = "GET"};
    struct gb_error why = GB_ERROR_INIT;

    if (arrival->base[0] == '\0' ||
        (size_t)snprintf(call.url, sizeof(call.url), "%s/livez", arrival->base) >= sizeof(call.url))
        return gb_error_set(err, GB_ERR_NODE_UNREACHABLE,
                            "the node \"%s\" is in no network of this one, which so cannot tell whether it has stopped",
                            arrival->owner.name.s);
    if (gb_arrival_request(arrival, &call, &why) < 0)
        return why.code == GB_ERR_NODE_UNREACHABLE ? 0 : gb_error_move(err, &why);
    free(call.answer);
    return gb_error_set(err, GB_ERR_NODE_ALIVE, "the node \"%s\" answers, though the directory does not know that",
                        arrival->owner.name.s);
}

static int register_takeover(struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    struct gb_arrival_wait wait = {.arrival = arrival};
    struct gb_fleet_register entry = {
        .ask = gb_arrival_ask(&wait), .session = {.name = arrival->session}, .from_copies = true};

    memcpy(entry.session.claim, arrival->claim, sizeof(arrival->claim));
    gb_fleet_take_over(arrival->config.fleet, &entry);
    if (gb_arrival_ask_wait(&entry.ask, err) < 0)
        return -1;
    arrival->there = entry.session;
    copy->taken = entry.session.epoch;
    return 0;
}

/* The copies become the session. The directory names this node already, so that a failure is tried again. */
static int become_owner(struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;

    if (gb_arrival_mark_lost(arrival, err) < 0 || gb_arrival_commit(arrival, copy->taken, NULL, err) < 0)
        return -1;
    gb_fleet_refresh(arrival->config.fleet, &arrival->session);
    return OWNER;
}

static int take_over(struct gb_copy *copy, bool forced, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    const struct gb_fleet_session *there = &arrival->there;

    if (copy->taken > 0)
        return become_owner(copy, err);
    if (!forced && arrival->config.url_count == 0)
        return 0; /* no client could reach the session here */
    if (!forced && (there->on_partition != GB_ON_PARTITION_STOP || there->failover_after_s == 0 ||
                    arrival->absent_s < there->failover_after_s))
        return 0;
    if ((!forced && check_silent(arrival, err) < 0) || register_takeover(copy, err) < 0)
        return -1;
    return become_owner(copy, err);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

#define LIST_MS 30000 /* between two readings of the list of sessions */
#define WATCH_MS 2000 /* between two checks of a session that may be taken over */
#define SHED_MS 60000 /* copies that were shed are not pulled again for so long */
#define SHED "the memory was wanted for something else"
#define AGAIN_MS 5000 /* after a failure */

uint64_t gb_replicas_now_ms(void) {
    return gb_clock_ns() / GB_NS_PER_MS;
}

void gb_replicas_wake(struct gb_replicas *r) {
    pthread_mutex_lock(&r->lock);
    r->wakes++;
    pthread_cond_broadcast(&r->woken);
    pthread_mutex_unlock(&r->lock);
}

/* --- one of them -------------------------------------------------------------------------------------------------- */

static struct gb_copy *copy_new(struct gb_replicas *r, const struct gb_name *session) {
    struct gb_copy *copy = calloc(1, sizeof(*copy));
    bool replicated;

    if (!copy)
        return NULL;
    gb_arrival_init(&copy->arrival, &r->config.arrival, session, r->config.who);
    strcpy(copy->arrival.suffix, GB_REPLICA_SUFFIX);
    copy->arrival.only_sealed = true;
    copy->published.session = *session;
    pthread_mutex_lock(&r->lock);
    replicated = !r->stopping && gb_map_put(&r->copies, copy->published.session.s, copy) == 0;
    pthread_mutex_unlock(&r->lock);
    if (replicated) {
        gb_core_keep_copies(r->config.arrival.core); /* the core asks this node whether copies are left */
        return copy;
    }
    gb_arrival_done(&copy->arrival);
    free(copy);
    return NULL;
}

static void copy_free(struct gb_copy *copy) {
    gb_arrival_done(&copy->arrival);
    free(copy);
}

/* Sets what other threads see of the copy. */
static void publish(struct gb_replicas *r, struct gb_copy *copy, bool current, const char *problem) {
    pthread_mutex_lock(&r->lock);
    copy->published.owner = copy->arrival.there.node;
    copy->published.stage = copy->arrival.stage;
    copy->published.buffers = copy->arrival.here;
    copy->published.bytes = copy->arrival.bytes;
    copy->published.current = current;
    copy->published_number = copy->number;
    snprintf(copy->published.problem, sizeof(copy->published.problem), "%s", problem);
    pthread_mutex_unlock(&r->lock);
}

/* Drops everything that came under the former number. */
static void empty(struct gb_replicas *r, struct gb_copy *copy) {
    struct gb_arrival *arrival = &copy->arrival;

    copy->number = copy->edition = 0;
    publish(r, copy, false, "");
    if (arrival->stage.s[0] != '\0')
        gb_arrival_unstage(arrival);
    gb_arrival_items_free(arrival);
    free(arrival->described);
    arrival->described = NULL;
    arrival->stage.s[0] = '\0';
    arrival->here = arrival->bytes = 0;
    publish(r, copy, false, "");
}

/* Removes the session from the list of those whose copies this node keeps. */
static void drop_held(struct gb_replicas *r, const struct gb_name *session) {
    struct gb_arrival_wait wait = {.arrival = &r->list_wait};
    struct gb_fleet_held_drop drop = {.ask = gb_arrival_ask(&wait), .session = *session};

    gb_fleet_drop_held(r->config.arrival.fleet, &drop);
    (void)gb_arrival_ask_wait(&drop.ask, NULL); /* on failure it is listed again, and dropped again */
}

static void drop(struct gb_replicas *r, struct gb_copy *copy) {
    struct gb_name session = copy->published.session;

    empty(r, copy);
    pthread_mutex_lock(&r->lock);
    gb_map_take(&r->copies, session.s);
    pthread_mutex_unlock(&r->lock);
    copy_free(copy);
    drop_held(r, &session);
}

/* --- comparing with the owner ------------------------------------------------------------------------------------- */

static uint64_t others_bytes(struct gb_replicas *r, const struct gb_copy *without) {
    const struct gb_copy *copy;
    uint64_t bytes = 0;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    while ((copy = gb_map_next(&r->copies, &at)))
        bytes += copy != without ? copy->published.bytes : 0;
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

static json_t *step(struct gb_copy *copy, json_t *body, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    char path[64 + GB_NAME_MAX];
    bool answered;

    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/copies", arrival->session.s);
    return gb_arrival_post(arrival, path, body, &answered, err);
}

/* Asks the owner for its edition. */
static int begin(struct gb_copy *copy, uint64_t *ret, struct gb_error *err) {
    json_t *root = step(copy,
                        json_pack("{s:s, s:s, s:I}", "step", "begin", "node", copy->arrival.config.node.s, "number",
                                  (json_int_t)copy->number),
                        err);
    const json_t *edition = json_object_get(root, "edition");

    *ret = json_is_integer(edition) ? (uint64_t)json_integer_value(edition) : 0;
    json_decref(root);
    if (root && *ret == 0)
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read",
                            copy->arrival.owner.name.s);
    return root ? 0 : -1;
}

static int done(struct gb_copy *copy, uint64_t edition, const char *problem, struct gb_error *err) {
    const struct gb_arrival *arrival = &copy->arrival;
    json_t *root = step(copy,
                        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "step", "done", "node", arrival->config.node.s,
                                  "number", (json_int_t)copy->number, "edition", (json_int_t)edition, "buffers",
                                  (json_int_t)arrival->here, "bytes", (json_int_t)arrival->bytes, "problem", problem),
                        err);

    json_decref(root);
    return root ? 0 : -1;
}

static int bring(struct gb_replicas *r, struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    uint64_t others = others_bytes(r, copy);
    uint64_t before = arrival->pulled_bytes;
    int n = 0;

    arrival->bytes_max = others < r->config.bytes_max ? r->config.bytes_max - others : 0;
    if (arrival->stage.s[0] == '\0' && gb_arrival_stage(arrival, err) < 0) {
        arrival->stage.s[0] = '\0';
        return -1;
    }
    publish(r, copy, false, "");
    n = gb_arrival_stage_again(arrival, err);
    if (n == 0)
        n = gb_arrival_bring(arrival, true, err);
    pthread_mutex_lock(&r->lock);
    r->stat.pulled_bytes += arrival->pulled_bytes - before;
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* Keeps the local session from expiring, although no client uses it. */
static void touch(struct gb_copy *copy) {
    struct gb_session_view view;

    if (copy->arrival.stage.s[0] == '\0' ||
        gb_session_heartbeat(copy->arrival.config.core, &copy->arrival.stage, &view, NULL) < 0)
        return;
    gb_session_rec_done(&view.rec);
}

/* Memory that was short a moment ago would be short again. */
static bool is_shed(const struct gb_copy *copy) {
    return copy->shed_ms > 0 && gb_replicas_now_ms() - copy->shed_ms < SHED_MS;
}

/* The owner is alive, and this node is a holder. */
static int compare(struct gb_replicas *r, struct gb_copy *copy, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    uint64_t edition;

    touch(copy);
    if (begin(copy, &edition, err) < 0)
        return -1;
    if (edition == copy->edition)
        return done(copy, edition, "", err);
    if (is_shed(copy))
        return done(copy, edition, SHED, err);
    if (bring(r, copy, &why) < 0) {
        (void)done(copy, 0, why.detail, NULL); /* it knows no new edition */
        return gb_error_move(err, &why);
    }
    copy->edition = copy->arrival.problem.code == GB_OK ? edition : 0;
    publish(r, copy, copy->edition > 0, copy->arrival.problem.detail);
    return done(copy, edition, copy->arrival.problem.detail, err);
}

/* --- whether it is a holder --------------------------------------------------------------------------------------- */

static bool is_forced(struct gb_replicas *r, struct gb_copy *copy) {
    bool forced;

    pthread_mutex_lock(&r->lock);
    forced = copy->take != NULL;
    pthread_mutex_unlock(&r->lock);
    return forced;
}

/* Answers the operator who asked for a takeover. */
static void answer_take(struct gb_replicas *r, struct gb_copy *copy, const struct gb_error *why) {
    struct gb_error none = GB_ERROR_INIT;
    struct gb_session_call *call;

    pthread_mutex_lock(&r->lock);
    call = copy->take;
    copy->take = NULL;
    pthread_mutex_unlock(&r->lock);
    if (!call)
        return;
    if (!why)
        gb_error_set(&none, GB_ERR_SESSION_NOT_FOUND, "this node has no copies for the session any more");
    gb_call_finish(&call->base, why ? why : &none);
}

/* The copies have become the session: the record of the copy ends. */
static void retire(struct gb_replicas *r, struct gb_copy *copy) {
    struct gb_name session = copy->published.session;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_call *call;

    pthread_mutex_lock(&r->lock);
    gb_map_take(&r->copies, session.s);
    r->stat.takeovers++;
    call = copy->take;
    copy->take = NULL;
    pthread_mutex_unlock(&r->lock);
    if (call) {
        call->base.free_result = gb_session_call_done;
        call->created = gb_session_get(r->config.arrival.core, &session, &call->session, &err) == 0;
        gb_call_finish(&call->base, call->created ? NULL : &err);
    }
    copy_free(copy);
    drop_held(r, &session);
    gb_replicas_wake(r);
}

/* Compares the copy with the directory and the owner. Returns DROP, OWNER, 0 or -1. */
static int check(struct gb_replicas *r, struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    const struct gb_fleet_holder *listed;
    struct gb_error why = GB_ERROR_INIT;
    int there = gb_arrival_locate(arrival, &why);

    if (there > 0 && copy->taken)
        return take_over(copy, false, err);
    if (there > 0 || why.code == GB_ERR_SESSION_NOT_FOUND)
        return DROP;
    if (there < 0 && why.code != GB_ERR_OWNER_ABSENT)
        return gb_error_move(err, &why);
    listed = gb_fleet_holder_of(&arrival->there, &arrival->config.node);
    if (!listed)
        return DROP;
    if (listed->number != copy->number) {
        empty(r, copy);
        copy->number = listed->number;
    }
    if (there == 0 && is_forced(r, copy))
        return gb_error_set(err, GB_ERR_NODE_ALIVE, "the session \"%s\" is on the node \"%s\", which is alive",
                            arrival->session.s, arrival->owner.name.s);
    if (there == 0)
        return compare(r, copy, err);
    return arrival->stage.s[0] != '\0' ? take_over(copy, is_forced(r, copy), err) : 0;
}

static bool is_watched(const struct gb_copy *copy) {
    return copy->arrival.there.failover_after_s > 0;
}

static bool is_due(const struct gb_copy *copy, uint64_t now) {
    uint64_t since = now - copy->checked_ms;
    unsigned ms = is_watched(copy) ? WATCH_MS : copy->published.problem[0] != '\0' ? AGAIN_MS : GB_REPLICA_CHECK_MS;

    return copy->checked_ms == 0 || since >= ms;
}

static void update(struct gb_replicas *r, struct gb_copy *copy) {
    struct gb_error err = GB_ERROR_INIT;
    int n;

    copy->checked_ms = gb_replicas_now_ms();
    n = check(r, copy, &err);
    if (n == DROP) {
        answer_take(r, copy, NULL);
        drop(r, copy);
    } else if (n == OWNER) {
        retire(r, copy);
    } else if (n < 0) {
        copy->edition = 0;
        publish(r, copy, false, err.detail);
        answer_take(r, copy, &err);
    }
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static struct gb_copy *find(struct gb_replicas *r, const char *session) {
    struct gb_copy *copy;

    pthread_mutex_lock(&r->lock);
    copy = gb_map_get(&r->copies, session);
    pthread_mutex_unlock(&r->lock);
    return copy;
}

/* Reads for which sessions this node is a holder. */
static void read_list(struct gb_replicas *r) {
    struct gb_arrival_wait wait = {.arrival = &r->list_wait};
    struct gb_fleet_held held = {.ask = gb_arrival_ask(&wait)};
    size_t i;

    gb_fleet_list_held(r->config.arrival.fleet, &held);
    if (gb_arrival_ask_wait(&held.ask, NULL) == 0) {
        for (i = 0; i < held.count; i++)
            if (!find(r, held.names[i].s))
                copy_new(r, &held.names[i]);
        r->listed_ms = gb_replicas_now_ms();
    }
    free(held.names);
}

/* Adds the sessions that owners have asked for. */
static void add_wanted(struct gb_replicas *r) {
    struct gb_map wanted;
    struct gb_copy *copy;
    struct gb_name *name;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    wanted = r->wanted;
    r->wanted = (struct gb_map){0};
    pthread_mutex_unlock(&r->lock);
    while ((name = gb_map_next(&wanted, &at))) {
        copy = find(r, name->s);
        if (!copy)
            copy = copy_new(r, name);
        if (copy)
            copy->checked_ms = 0;
        free(name);
    }
    gb_map_done(&wanted);
}

/* Copies of the process before this one. They cannot be compared with what has changed since. */
struct leftovers {
    struct gb_name names[16];
    char claims[16][GB_FLEET_CLAIM_SIZE];
    size_t count;
};

static int note_leftover(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct leftovers *left = arg;
    const char *name = view->rec.name.s;
    size_t n = strlen(name);
    size_t suffix = strlen(GB_REPLICA_SUFFIX);

    (void)err;
    if (left->count == 16 || view->rec.fleet_epoch > 0 || view->rec.fleet_claim[0] == '\0' || n <= suffix ||
        strcmp(name + n - suffix, GB_REPLICA_SUFFIX) != 0)
        return 0;
    snprintf(left->claims[left->count], GB_FLEET_CLAIM_SIZE, "%.*s", GB_FLEET_CLAIM_SIZE - 1, view->rec.fleet_claim);
    left->names[left->count++] = view->rec.name;
    return 0;
}

/* A session that was being taken over when that process ended arrives by itself: it is not deleted. */
static bool is_taken_over(struct gb_replicas *r, const struct gb_name *stage, const char *claim) {
    struct gb_arrival probe;
    struct gb_fleet_find found;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name session;
    bool taken;

    snprintf(session.s, sizeof(session.s), "%.*s", (int)(strlen(stage->s) - strlen(GB_REPLICA_SUFFIX)), stage->s);
    gb_arrival_init(&probe, &r->config.arrival, &session, r->config.who);
    taken = gb_arrival_find(&probe, &found, &err) == 0 ? strcmp(found.session.claim, claim) == 0
                                                       : err.code != GB_ERR_SESSION_NOT_FOUND;
    gb_arrival_done(&probe);
    return taken;
}

static void remove_leftovers(struct gb_replicas *r) {
    struct leftovers left = {.count = 0};
    struct gb_page page = {.limit = UINT32_MAX};
    struct gb_arrival_wait wait;
    struct gb_call *call;
    size_t i;

    gb_session_list(r->config.arrival.core, &page, note_leftover, &left, NULL);
    for (i = 0; i < left.count; i++) {
        if (is_taken_over(r, &left.names[i], left.claims[i]))
            continue;
        call = gb_arrival_call_new(&r->list_wait, sizeof(*call), &wait, NULL);
        if (!call)
            return;
        gb_session_delete(r->config.arrival.core, &left.names[i], NULL, call);
        (void)gb_arrival_call_wait(&wait, call, NULL);
        gb_call_unref(call);
    }
    r->cleaned = left.count == 0;
}

/* The number stays: this node remains a holder, without copies for now. */
static void shed_copy(struct gb_replicas *r, struct gb_copy *copy) {
    uint64_t number = copy->number;

    empty(r, copy);
    copy->number = number;
    copy->shed_ms = gb_replicas_now_ms();
    copy->checked_ms = 0; /* the owner is informed at once */
    publish(r, copy, false, SHED);
}

/* Drops copies, the largest first, until as much is free as was needed. */
static void shed_copies(struct gb_replicas *r) {
    struct gb_copy *largest;
    struct gb_copy *copy;
    uint64_t needed;
    uint64_t bytes;
    size_t at;

    pthread_mutex_lock(&r->lock);
    needed = r->needed_bytes;
    r->needed_bytes = 0;
    pthread_mutex_unlock(&r->lock);
    while (needed > 0) {
        largest = NULL;
        pthread_mutex_lock(&r->lock);
        for (at = 0; (copy = gb_map_next(&r->copies, &at));)
            if (copy->published.bytes > 0 && (!largest || copy->published.bytes > largest->published.bytes))
                largest = copy;
        pthread_mutex_unlock(&r->lock);
        if (!largest)
            return;
        bytes = largest->published.bytes;
        shed_copy(r, largest);
        needed = bytes < needed ? needed - bytes : 0;
    }
}

/* A list of all copies. Updating one may drop it, and no other. */
static struct gb_copy **all_copies(struct gb_replicas *r, size_t *ret_count) {
    struct gb_copy **all;
    struct gb_copy *copy;
    size_t at = 0;

    *ret_count = 0;
    pthread_mutex_lock(&r->lock);
    all = calloc(r->copies.count + 1, sizeof(*all));
    while (all && (copy = gb_map_next(&r->copies, &at)))
        all[(*ret_count)++] = copy;
    pthread_mutex_unlock(&r->lock);
    return all;
}

void gb_copies_update(struct gb_replicas *r) {
    uint64_t now = gb_replicas_now_ms();
    struct gb_copy **all;
    size_t count;
    size_t i;

    if (!gb_fleet_is_joined(r->config.arrival.fleet))
        return;
    if (!r->cleaned && r->copies.count == 0)
        remove_leftovers(r);
    if (r->listed_ms == 0 || now - r->listed_ms >= LIST_MS)
        read_list(r);
    add_wanted(r);
    shed_copies(r);
    all = all_copies(r, &count);
    for (i = 0; i < count; i++)
        if (is_due(all[i], now))
            update(r, all[i]);
    free(all);
}

unsigned gb_copies_pause_ms(struct gb_replicas *r) {
    const struct gb_copy *copy;
    unsigned ms = GB_REPLICA_CHECK_MS;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    if (!gb_fleet_is_joined(r->config.arrival.fleet))
        ms = 1000;
    while ((copy = gb_map_next(&r->copies, &at))) {
        if (is_watched(copy))
            ms = ms < WATCH_MS ? ms : WATCH_MS;
        else if (copy->published.problem[0] != '\0')
            ms = ms < AGAIN_MS ? ms : AGAIN_MS;
    }
    pthread_mutex_unlock(&r->lock);
    return ms;
}

void gb_copies_free(struct gb_replicas *r) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_copy *copy;
    size_t at = 0;
    void *name;

    gb_error_set(&err, GB_ERR_DRAINING, "the daemon is stopping");
    while ((copy = gb_map_next(&r->copies, &at))) {
        answer_take(r, copy, &err);
        copy_free(copy);
    }
    gb_map_done(&r->copies);
    for (at = 0; (name = gb_map_next(&r->wanted, &at));)
        free(name);
    gb_map_done(&r->wanted);
}

/* --- called from other threads ------------------------------------------------------------------------------------ */

/* The session is checked at once; without memory, at its usual time. */
static void want_locked(struct gb_replicas *r, const struct gb_name *session) {
    struct gb_name *name = gb_map_get(&r->wanted, session->s) ? NULL : malloc(sizeof(*name));

    if (!name)
        return;
    *name = *session;
    if (gb_map_put(&r->wanted, name->s, name) < 0)
        free(name);
}

int gb_replicas_want(struct gb_replicas *r, const struct gb_name *session, struct gb_error *err) {
    if (r->config.bytes_max == 0)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "the node \"%s\" keeps no copies (--fleet-replica-bytes)",
                            r->config.arrival.node.s);
    pthread_mutex_lock(&r->lock);
    want_locked(r, session);
    pthread_mutex_unlock(&r->lock);
    gb_replicas_wake(r);
    return 0;
}

bool gb_replicas_have(struct gb_replicas *r, const struct gb_name *session) {
    const struct gb_copy *copy;
    bool has;

    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    copy = gb_map_get(&r->copies, session->s);
    has = copy && copy->published.stage.s[0] != '\0';
    pthread_mutex_unlock(&r->lock);
    return has;
}

void gb_replicas_take(struct gb_replicas *r, const struct gb_name *session, struct gb_session_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_copy *copy;

    pthread_mutex_lock(&r->lock);
    copy = gb_map_get(&r->copies, session->s);
    if (r->stopping)
        gb_error_set(&err, GB_ERR_DRAINING, "the daemon is stopping");
    else if (!copy)
        gb_error_set(&err, GB_ERR_SESSION_NOT_FOUND, "this node has no copies for the session \"%s\"", session->s);
    else if (copy->take)
        gb_error_set(&err, GB_ERR_SATURATED, "the session \"%s\" is being taken over already", session->s);
    else
        copy->take = call;
    if (err.code == GB_OK)
        want_locked(r, session);
    pthread_mutex_unlock(&r->lock);
    if (err.code == GB_OK)
        gb_replicas_wake(r);
    else
        gb_call_finish(&call->base, &err);
}

bool gb_replicas_stage(struct gb_replicas *r, const struct gb_name *session, uint64_t number, struct gb_name *ret) {
    const struct gb_copy *copy;
    bool has;

    pthread_mutex_lock(&r->lock);
    copy = gb_map_get(&r->copies, session->s);
    has = copy && copy->published_number == number && number > 0 && copy->published.stage.s[0] != '\0';
    if (has)
        *ret = copy->published.stage;
    pthread_mutex_unlock(&r->lock);
    return has;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct gb_replica_copies *)a)->session.s, ((const struct gb_replica_copies *)b)->session.s);
}

size_t gb_replicas_list(struct gb_replicas *r, struct gb_replica_copies **ret) {
    const struct gb_copy *copy;
    size_t count = 0;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    *ret = calloc(r->copies.count + 1, sizeof(**ret));
    while (*ret && (copy = gb_map_next(&r->copies, &at)))
        (*ret)[count++] = copy->published;
    pthread_mutex_unlock(&r->lock);
    if (count > 1)
        qsort(*ret, count, sizeof(**ret), compare_names);
    return count;
}
