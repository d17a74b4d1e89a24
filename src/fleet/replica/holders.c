/* The owner's side: nodes that keep copies of this node's sessions, how they are chosen, and what they report. The
 * record of a session here lists a holder before the directory does, and until after. The thread "gb-holders" does the
 * work; replica.c runs it, and holders report through the API. */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/runtime/call.h"
#include "fleet/replica/copies.h"

/* --- the choice --------------------------------------------------------------------------------------------------- */

#define ZONE "zone"
#define ZONE_SIZE 64

/* "": the node has no zone. */
static void zone_of(const struct gb_fleet_node *node, char ret[ZONE_SIZE]) {
    json_t *labels = json_loads(node->labels, 0, NULL);
    const char *zone = json_string_value(json_object_get(labels, ZONE));

    ret[0] = '\0';
    if (zone && strlen(zone) < ZONE_SIZE)
        strcpy(ret, zone);
    json_decref(labels);
}

static bool is_of(const struct gb_replicated *replicated, const struct gb_arrival_config *is,
                  const struct gb_name *node) {
    size_t i;

    for (i = 0; i < replicated->count; i++)
        if (gb_name_equal(&replicated->holders[i].is.node, node))
            return true;
    return gb_name_equal(&is->node, node);
}

/* A holder pulls from the owner, so it must reach the owner. It is notified by a call, or, without a URL, by an
 * order. */
static bool can_come(const struct gb_arrival_config *is, const struct gb_fleet_node *node) {
    return is->url_count > 0 && (node->url_count == 0 || gb_arrival_url(is, node));
}

static bool has_refused(const struct gb_refusal *refusals, size_t count, const struct gb_name *node) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_name_equal(&refusals[i].node, node))
            return true;
    return false;
}

static uint64_t free_bytes(const struct gb_fleet_node *node) {
    uint64_t most = 0;
    size_t i;

    for (i = 0; i < node->device_count; i++)
        if (node->devices[i].free_bytes > most)
            most = node->devices[i].free_bytes;
    return most;
}

/* Zones that have the session already: its owner's and its holders'. */
struct zones {
    char names[GB_FLEET_HOLDERS_MAX + 1][ZONE_SIZE];
    size_t count;
};

static void gather_zones(const struct gb_fleet_node *nodes, size_t count, const struct gb_arrival_config *is,
                         const struct gb_replicated *replicated, struct zones *ret) {
    size_t i;

    ret->count = 0;
    for (i = 0; i < count && ret->count <= GB_FLEET_HOLDERS_MAX; i++)
        if (is_of(replicated, is, &nodes[i].name))
            zone_of(&nodes[i], ret->names[ret->count++]);
}

static bool is_other_zone(const struct gb_fleet_node *node, const struct zones *zones) {
    char zone[ZONE_SIZE];
    size_t i = 0;

    zone_of(node, zone);
    while (i < zones->count && strcmp(zones->names[i], zone) != 0)
        i++;
    return zone[0] != '\0' && i == zones->count;
}

const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_replicated *replicated,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg) {
    const struct gb_fleet_node *two[2] = {NULL, NULL};
    struct zones zones;
    bool best_zone = false;
    uint32_t snapshot = 0;
    size_t i;

    gather_zones(nodes, count, is, replicated, &zones);
    for (i = 0; i < count; i++) {
        const struct gb_fleet_node *node = &nodes[i];
        bool other;
        uint32_t at;

        if (!node->alive || node->draining || is_of(replicated, is, &node->name) || !can_come(is, node) ||
            has_refused(refusals, refusal_count, &node->name) || free_bytes(node) < bytes)
            continue;
        other = is_other_zone(node, &zones);
        if (best_zone && !other)
            continue;
        if (other && !best_zone) { /* from here on, only nodes of another zone count */
            best_zone = true;
            two[0] = two[1] = NULL;
            snapshot = 0;
        }
        at = snapshot < 2 ? snapshot : random(arg) % (snapshot + 1);
        if (at < 2)
            two[at] = node;
        snapshot++;
    }
    if (two[1] && free_bytes(two[1]) > free_bytes(two[0]))
        return two[1];
    return two[0];
}

/* --- holders ------------------------------------------------------------------------------------------------------ */

#define SILENT_MS 30000  /* a holder that has not reported for so long may be gone */
#define CALL_MS 2000     /* between two notifications of one holder */
#define CHOOSE_MS 10000  /* between two searches for missing holders */
#define REFUSED_MS 60000 /* a node that has refused is not chosen for so long */
#define NODES_MS 3000
#define IDLE_MS 60000

/* --- what is known ------------------------------------------------------------------------------------------------ */

void gb_holders_free(struct gb_replicas *r) {
    struct gb_replicated *replicated;
    size_t at = 0;

    while ((replicated = gb_map_next(&r->replicated, &at)))
        free(replicated);
    gb_map_done(&r->replicated);
    free(r->nodes);
}

static struct gb_replicated *replicated_of(struct gb_replicas *r, const struct gb_name *session) {
    struct gb_replicated *replicated = gb_map_get(&r->replicated, session->s);

    if (replicated)
        return replicated;
    replicated = calloc(1, sizeof(*replicated));
    if (!replicated)
        return NULL;
    replicated->session = *session;
    if (gb_map_put(&r->replicated, replicated->session.s, replicated) == 0)
        return replicated;
    free(replicated);
    return NULL;
}

static struct gb_holder_state *holder_of(struct gb_replicated *replicated, const struct gb_name *node,
                                         uint64_t number) {
    size_t i;

    for (i = 0; replicated && i < replicated->count; i++)
        if (gb_name_equal(&replicated->holders[i].is.node, node) && replicated->holders[i].is.number == number)
            return &replicated->holders[i];
    return NULL;
}

/* Reads the holders from the session's record, and keeps what is known of those that stay. */
static void take_record(struct gb_replicated *replicated, const struct gb_session_rec *rec) {
    struct gb_fleet_session is = {.holder_count = 0};
    struct gb_holder_state holders[GB_FLEET_HOLDERS_MAX] = {{.begun = 0}};
    size_t i;

    if (!gb_fleet_holders_read(gb_text_s(rec->holders), &is))
        is.holder_count = 0;
    for (i = 0; i < is.holder_count; i++) {
        const struct gb_holder_state *known = holder_of(replicated, &is.holders[i].node, is.holders[i].number);

        holders[i].heard_ms = gb_replicas_now_ms();
        if (known)
            holders[i] = *known;
        holders[i].is = is.holders[i];
    }
    if (strcmp(replicated->claim, rec->fleet_claim) != 0)
        replicated->written = false; /* written by another owner, or by an earlier process */
    snprintf(replicated->claim, sizeof(replicated->claim), "%.*s", GB_FLEET_CLAIM_SIZE - 1, rec->fleet_claim);
    memcpy(replicated->holders, holders, sizeof(holders));
    replicated->count = is.holder_count;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static int write_directory(struct gb_replicas *r, const struct gb_fleet_session *session, struct gb_error *err) {
    struct gb_arrival_wait wait = {.arrival = &r->waiter};
    struct gb_fleet_holder_set set = {.ask = gb_arrival_ask(&wait), .session = *session};

    gb_fleet_set_holders(r->config.arrival.fleet, &set);
    return gb_arrival_ask_wait(&set.ask, err);
}

static int write_record(struct gb_replicas *r, const struct gb_fleet_session *session, struct gb_error *err) {
    struct gb_text *holders;
    struct gb_arrival_wait wait;
    struct gb_session_call *call = NULL;
    int n = -1;

    if (gb_fleet_holders_text(session, &holders) == 0)
        call = gb_arrival_call_new(&r->waiter, sizeof(*call), &wait, err);
    if (call) {
        gb_session_hold(r->config.arrival.core, &session->name, session->claim, holders, call);
        n = gb_arrival_call_wait(&wait, &call->base, err);
        gb_call_unref(&call->base);
    }
    gb_text_unref(holders);
    return n;
}

/* A list is used for some seconds: a fleet may have thousands of nodes, and buffers are sealed in quick succession. */
static int list_nodes(struct gb_replicas *r) {
    struct gb_arrival_wait wait = {.arrival = &r->waiter};
    struct gb_fleet_nodes nodes = {.ask = gb_arrival_ask(&wait)};

    if (r->nodes && gb_replicas_now_ms() - r->nodes_ms < NODES_MS)
        return 0;
    gb_fleet_list_nodes(r->config.arrival.fleet, &nodes);
    if (gb_arrival_ask_wait(&nodes.ask, NULL) < 0)
        return -1;
    free(r->nodes);
    r->nodes = nodes.items;
    r->node_count = nodes.count;
    r->nodes_ms = gb_replicas_now_ms();
    return r->nodes ? 0 : -1;
}

/* --- one session -------------------------------------------------------------------------------------------------- */

static struct gb_fleet_session session_of(const struct gb_replicated *replicated) {
    struct gb_fleet_session session = {.name = replicated->session};
    size_t i;

    memcpy(session.claim, replicated->claim, sizeof(replicated->claim));
    for (i = 0; i < replicated->count; i++)
        session.holders[session.holder_count++] = replicated->holders[i].is;
    return session;
}

/* The record here lists a holder before the directory does, and until after. */
static int add_holder(struct gb_replicas *r, struct gb_replicated *replicated, const struct gb_name *node) {
    struct gb_holder_state *holder = &replicated->holders[replicated->count];
    struct gb_fleet_session session;

    pthread_mutex_lock(&r->lock);
    *holder = (struct gb_holder_state){.is = {.node = *node, .number = (uint64_t)gb_wall_us()}};
    holder->heard_ms = gb_replicas_now_ms();
    replicated->count++;
    replicated->written = false;
    pthread_mutex_unlock(&r->lock);
    session = session_of(replicated);
    if (write_record(r, &session, NULL) == 0)
        return 0;
    pthread_mutex_lock(&r->lock);
    replicated->count--;
    pthread_mutex_unlock(&r->lock);
    return -1;
}

static int remove_holder(struct gb_replicas *r, struct gb_replicated *replicated, size_t at) {
    struct gb_fleet_session session = session_of(replicated);

    session.holders[at] = session.holders[--session.holder_count];
    replicated->written = false;
    if (write_directory(r, &session, NULL) < 0 || write_record(r, &session, NULL) < 0)
        return -1;
    pthread_mutex_lock(&r->lock);
    replicated->holders[at] = replicated->holders[--replicated->count];
    replicated->written = true;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

static void note_refusal(struct gb_replicas *r, const struct gb_name *node) {
    if (r->refusal_count == GB_REFUSALS_MAX)
        memmove(r->refusals, r->refusals + 1, --r->refusal_count * sizeof(r->refusals[0]));
    r->refusals[r->refusal_count++] = (struct gb_refusal){.node = *node, .at_ms = gb_replicas_now_ms()};
}

static void drop_old_refusals(struct gb_replicas *r) {
    uint64_t now = gb_replicas_now_ms();
    size_t old = 0;

    while (old < r->refusal_count && now - r->refusals[old].at_ms >= REFUSED_MS)
        old++;
    memmove(r->refusals, r->refusals + old, (r->refusal_count - old) * sizeof(r->refusals[0]));
    r->refusal_count -= old;
}

static void order_holder(struct gb_replicas *r, const struct gb_replicated *replicated,
                         const struct gb_fleet_node *node) {
    struct gb_arrival_wait wait = {.arrival = &r->waiter};
    struct gb_fleet_order order = {.ask = gb_arrival_ask(&wait),
                                   .node = node->name,
                                   .uuid = node->uuid,
                                   .what = GB_ORDER_HOLD,
                                   .session = replicated->session};

    gb_fleet_order(r->config.arrival.fleet, &order);
    (void)gb_arrival_ask_wait(&order.ask, NULL); /* on failure it is notified again */
}

/* Notifies a holder. Returns the status; 0: no answer. */
static int notify_holder(struct gb_replicas *r, const struct gb_replicated *replicated,
                         const struct gb_fleet_node *node) {
    static const char path[] = "/v1/fleet/copies";
    const struct gb_arrival_config *is = &r->config.arrival;
    struct gb_arrival_wait wait = {.arrival = &r->waiter};
    struct gb_fleet_call call = {.ask = gb_arrival_ask(&wait), .method = "POST"};
    const char *url = gb_arrival_url(is, node);
    char *query = gb_fleet_ticket_query(is->fleet, "POST", path, &node->name, r->config.who);
    char body[GB_NAME_MAX + 32];
    int status = 0;

    if (node->url_count == 0) {
        free(query);
        order_holder(r, replicated, node);
        return 0;
    }
    snprintf(body, sizeof(body), "{\"session\":\"%s\"}", replicated->session.s);
    call.body = body;
    if (url && query && (size_t)snprintf(call.url, sizeof(call.url), "%s%s?%s", url, path, query) < sizeof(call.url)) {
        gb_fleet_call(is->fleet, &call);
        if (gb_arrival_ask_wait(&call.ask, NULL) == 0)
            status = call.status;
        free(call.answer);
    }
    free(query);
    return status;
}

static const struct gb_fleet_node *node_of(const struct gb_fleet_node *nodes, size_t count,
                                           const struct gb_name *name) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_name_equal(&nodes[i].name, name))
            return &nodes[i];
    return NULL;
}

static uint32_t chance(void *arg) {
    uint32_t value = 0;

    (void)arg;
    (void)gb_random(&value, sizeof(value), NULL);
    return value;
}

/* What a session needs. */
struct plan {
    unsigned wanted;
    uint64_t edition;
    uint64_t bytes; /* about how much room a holder needs */
};

/* A copy of the holder's state: reports change it at any time. */
static struct gb_holder_state snapshot(struct gb_replicas *r, const struct gb_replicated *replicated, size_t i) {
    struct gb_holder_state holder;

    pthread_mutex_lock(&r->lock);
    holder = replicated->holders[i];
    pthread_mutex_unlock(&r->lock);
    return holder;
}

static bool is_behind(const struct gb_holder_state *holder, const struct plan *plan) {
    return holder->known < plan->edition;
}

/* A holder is notified of each edition at once, and again after CALL_MS. */
static bool is_due(const struct gb_holder_state *holder, const struct plan *plan, uint64_t now) {
    return is_behind(holder, plan) && (holder->notified < plan->edition || now - holder->notified_ms >= CALL_MS);
}

static bool needs_nodes(struct gb_replicas *r, const struct gb_replicated *replicated, const struct plan *plan,
                        uint64_t now) {
    struct gb_holder_state holder;
    size_t i;

    if (replicated->count < plan->wanted && (replicated->chosen_ms == 0 || now - replicated->chosen_ms >= CHOOSE_MS))
        return true;
    for (i = 0; i < replicated->count; i++) {
        holder = snapshot(r, replicated, i);
        if (now - holder.heard_ms >= SILENT_MS || is_due(&holder, plan, now))
            return true;
    }
    return replicated->count > plan->wanted;
}

/* A live holder that does not report may be missing in a restored directory: the holders are written again. */
static void write_again(struct gb_replicas *r, struct gb_replicated *replicated, size_t i) {
    pthread_mutex_lock(&r->lock);
    replicated->holders[i].heard_ms = gb_replicas_now_ms();
    pthread_mutex_unlock(&r->lock);
    replicated->written = false;
}

/* Removes holders beyond the wanted number, holders that are away or drain, and this node itself. */
static void remove_holders(struct gb_replicas *r, struct gb_replicated *replicated, const struct plan *plan,
                           const struct gb_fleet_node *nodes, size_t count) {
    uint64_t now = gb_replicas_now_ms();
    size_t i = 0;

    while (i < replicated->count) {
        struct gb_holder_state holder = snapshot(r, replicated, i);
        const struct gb_fleet_node *node = node_of(nodes, count, &holder.is.node);
        bool gone = !node || (!node->alive && now - holder.heard_ms >= SILENT_MS) || node->draining ||
                    gb_name_equal(&holder.is.node, &r->config.arrival.node);

        if (!gone && now - holder.heard_ms >= SILENT_MS)
            write_again(r, replicated, i);
        if ((!gone && replicated->count <= plan->wanted) || remove_holder(r, replicated, i) < 0)
            i++;
    }
}

static void add_holders(struct gb_replicas *r, struct gb_replicated *replicated, const struct plan *plan,
                        const struct gb_fleet_node *nodes, size_t count) {
    const struct gb_fleet_node *node;

    replicated->chosen_ms = gb_replicas_now_ms();
    while (replicated->count < plan->wanted) {
        node = gb_holder_choose(nodes, count, &r->config.arrival, replicated, r->refusals, r->refusal_count,
                                plan->bytes, chance, NULL);
        if (!node || add_holder(r, replicated, &node->name) < 0)
            return;
    }
}

/* Whether the holder is due for a notification. Notes that it is notified now. */
static bool take_due(struct gb_replicas *r, struct gb_holder_state *holder, const struct plan *plan) {
    uint64_t now = gb_replicas_now_ms();
    bool due;

    pthread_mutex_lock(&r->lock);
    due = is_due(holder, plan, now);
    if (due) {
        holder->notified_ms = now;
        holder->notified = plan->edition;
    }
    pthread_mutex_unlock(&r->lock);
    return due;
}

static void notify_holders(struct gb_replicas *r, struct gb_replicated *replicated, const struct plan *plan,
                           const struct gb_fleet_node *nodes, size_t count) {
    size_t i = 0;

    while (i < replicated->count) {
        const struct gb_fleet_node *node =
            take_due(r, &replicated->holders[i], plan) ? node_of(nodes, count, &replicated->holders[i].is.node) : NULL;
        bool refuses = node && node->alive && notify_holder(r, replicated, node) == 507;

        if (refuses) {
            note_refusal(r, &node->name);
            replicated->chosen_ms = 0;
        }
        if (!refuses || remove_holder(r, replicated, i) < 0)
            i++; /* otherwise another holder has moved to this index */
    }
}

/* Names that were given up are free once all holders know that edition. */
static void release(struct gb_replicas *r, const struct gb_replicated *replicated) {
    uint64_t least = UINT64_MAX;
    size_t i;

    pthread_mutex_lock(&r->lock);
    for (i = 0; i < replicated->count; i++)
        if (replicated->holders[i].known < least)
            least = replicated->holders[i].known;
    pthread_mutex_unlock(&r->lock);
    if (replicated->count > 0 && least > 0)
        gb_session_release_names(r->config.arrival.core, &replicated->session, least);
}

/* Returns whether more is to be done soon. */
static bool reconcile(struct gb_replicas *r, struct gb_replicated *replicated, const struct plan *plan) {
    struct gb_fleet_session session;
    size_t i;

    if (!replicated->written && replicated->count > 0) {
        session = session_of(replicated);
        if (write_directory(r, &session, NULL) < 0)
            return true;
        replicated->written = true;
    }
    if (needs_nodes(r, replicated, plan, gb_replicas_now_ms()) && list_nodes(r) == 0) {
        remove_holders(r, replicated, plan, r->nodes, r->node_count);
        if (replicated->count < plan->wanted)
            add_holders(r, replicated, plan, r->nodes, r->node_count);
        session = session_of(replicated);
        if (!replicated->written && write_directory(r, &session, NULL) == 0)
            replicated->written = true;
        if (replicated->written)
            notify_holders(r, replicated, plan, r->nodes, r->node_count);
    }
    release(r, replicated);
    for (i = 0; i < replicated->count; i++) {
        struct gb_holder_state holder = snapshot(r, replicated, i);

        if (is_behind(&holder, plan))
            return true;
    }
    return replicated->count < plan->wanted;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

struct one {
    struct gb_name name;
    struct plan plan;
};

struct walk {
    struct gb_replicas *replicas;
    struct one *items;
    size_t count;
    size_t room;
};

static int note(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    const struct gb_session_rec *rec = &view->rec;
    struct walk *walk = arg;
    struct gb_replicated *replicated;
    struct one *grown;

    (void)err;
    if (rec->fleet_epoch == 0 || (rec->replicas == 0 && !rec->holders))
        return 0;
    if (walk->count == walk->room) {
        grown = realloc(walk->items, (walk->room + 16) * sizeof(*grown));
        if (!grown)
            return 0;
        walk->items = grown;
        walk->room += 16;
    }
    pthread_mutex_lock(&walk->replicas->lock);
    replicated = replicated_of(walk->replicas, &rec->name);
    if (replicated) {
        take_record(replicated, rec);
        replicated->round = walk->replicas->round;
        walk->items[walk->count++] =
            (struct one){.name = rec->name, .plan = {.wanted = rec->replicas, .bytes = view->used_bytes}};
    }
    pthread_mutex_unlock(&walk->replicas->lock);
    return 0;
}

static void drop_gone(struct gb_replicas *r) {
    struct gb_replicated *replicated;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    while ((replicated = gb_map_next(&r->replicated, &at)))
        if (replicated->round != r->round) {
            gb_map_take(&r->replicated, replicated->session.s);
            free(replicated);
        }
    pthread_mutex_unlock(&r->lock);
}

unsigned gb_holders_reconcile(struct gb_replicas *r) {
    struct walk walk = {.replicas = r};
    struct gb_page page = {.limit = UINT32_MAX};
    bool more = false;
    size_t i;

    r->round++;
    gb_session_list(r->config.arrival.core, &page, note, &walk, NULL);
    drop_gone(r);
    drop_old_refusals(r);
    for (i = 0; i < walk.count && gb_fleet_is_joined(r->config.arrival.fleet); i++) {
        struct one *one = &walk.items[i];

        one->plan.edition = gb_session_edition(r->config.arrival.core, &one->name);
        if (one->plan.edition > 0)
            more |= reconcile(r, gb_map_get(&r->replicated, one->name.s), &one->plan);
    }
    free(walk.items);
    return walk.count == 0 ? IDLE_MS : more ? CALL_MS : GB_REPLICA_CHECK_MS;
}

/* --- reports of holders ------------------------------------------------------------------------------------------- */

static int no_holder(const struct gb_name *session, const struct gb_name *node, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SUPERSEDED,
                        "the node \"%s\" is no holder of copies for the session \"%s\" any more", node->s, session->s);
}

int gb_replicas_begin(struct gb_replicas *r, const struct gb_name *session, const struct gb_name *node, uint64_t number,
                      uint64_t *ret_edition, struct gb_error *err) {
    uint64_t edition = gb_session_edition(r->config.arrival.core, session);
    struct gb_holder_state *holder;

    pthread_mutex_lock(&r->lock);
    holder = holder_of(gb_map_get(&r->replicated, session->s), node, number);
    if (holder) {
        holder->begun = edition;
        holder->heard_ms = gb_replicas_now_ms();
    }
    pthread_mutex_unlock(&r->lock);
    *ret_edition = edition;
    return holder ? 0 : no_holder(session, node, err);
}

int gb_replicas_done(struct gb_replicas *r, const struct gb_name *session, const struct gb_name *node, uint64_t number,
                     uint64_t edition, uint64_t buffers, uint64_t bytes, const char *problem, struct gb_error *err) {
    struct gb_holder_state *holder;

    pthread_mutex_lock(&r->lock);
    holder = holder_of(gb_map_get(&r->replicated, session->s), node, number);
    if (holder) {
        holder->heard_ms = gb_replicas_now_ms();
        holder->buffers = buffers;
        holder->bytes = bytes;
        snprintf(holder->problem, sizeof(holder->problem), "%s", problem);
        if (edition == holder->begun && edition > holder->known)
            holder->known = edition;
        holder->complete = problem[0] == '\0' && holder->known == edition;
    }
    r->wakes += holder != NULL;
    pthread_cond_broadcast(&r->woken);
    pthread_mutex_unlock(&r->lock);
    return holder ? 0 : no_holder(session, node, err);
}

size_t gb_replicas_holders(struct gb_replicas *r, const struct gb_name *session,
                           struct gb_replica_holder ret[GB_FLEET_HOLDERS_MAX]) {
    uint64_t edition = gb_session_edition(r->config.arrival.core, session);
    const struct gb_replicated *replicated;
    size_t i = 0;

    pthread_mutex_lock(&r->lock);
    replicated = gb_map_get(&r->replicated, session->s);
    for (i = 0; replicated && i < replicated->count; i++) {
        const struct gb_holder_state *holder = &replicated->holders[i];

        ret[i] = (struct gb_replica_holder){.node = holder->is.node,
                                            .buffers = holder->buffers,
                                            .bytes = holder->bytes,
                                            .current = holder->complete && holder->known == edition};
        memcpy(ret[i].problem, holder->problem, sizeof(holder->problem));
    }
    pthread_mutex_unlock(&r->lock);
    return i;
}
