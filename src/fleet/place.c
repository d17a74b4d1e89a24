/* Lists the nodes and the sessions of the fleet, and chooses nodes for a new session. Lists are read page by page, with
 * serializable reads. One malformed record never hides the others. The API and fleet/replica ask. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/directory.h"
#include "fleet/state.h"

/* Reads all nodes for a job, then runs done, with job->error set if that failed. [the thread] */
struct gb_node_list {
    struct gb_job *job;
    void (*done)(struct gb_job *job);
    struct gb_fleet_node *items;
    size_t count;
    size_t room;
    size_t page;      /* keys in one request */
    int64_t revision; /* of the first page; all pages are read at it */
    char after[GB_FLEET_KEY_SIZE];
    bool alive; /* nodes/ has been read, alive/ is being read */
};

#define NODES_PAGE 256
#define NODES_MAX 10000
#define SESSIONS_MAX 1000
#define SESSIONS_PAGE 64

/* --- reading all nodes -------------------------------------------------------------------------------------------- */

static void read_nodes(struct gb_node_list *list);

static void fail_list(struct gb_node_list *list, const struct gb_error *err) {
    list->job->error = *err;
    list->done(list->job);
}

static int add_node(struct gb_node_list *list, const struct gb_kv *kv, const char *prefix) {
    struct gb_fleet_node *grown;
    struct gb_name name;

    if (!gb_fleet_name_of(kv->key, prefix, &name) || list->count == NODES_MAX)
        return 0;
    if (list->count == list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 16;

        grown = realloc(list->items, room * sizeof(*grown));
        if (!grown)
            return -1;
        list->items = grown;
        list->room = room;
    }
    /* A malformed record is left out. */
    if (gb_fleet_node_of(name.s, kv, NULL, &list->items[list->count], NULL) == 0)
        list->count++;
    return 0;
}

/* Both lists are ordered by name. */
static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct gb_fleet_node *)a)->name.s, ((const struct gb_fleet_node *)b)->name.s);
}

static void set_alive(struct gb_node_list *list, const struct gb_kv *kv, const char *prefix) {
    struct gb_fleet_node key;
    struct gb_fleet_node *node;
    struct gb_fleet_alive alive;

    if (!gb_fleet_name_of(kv->key, prefix, &key.name))
        return;
    node = list->count > 0 ? bsearch(&key, list->items, list->count, sizeof(key), compare_names) : NULL;
    if (node && gb_fleet_alive_read(kv->value, kv->bytes, &alive, NULL) == 0)
        gb_fleet_node_set_alive(node, &alive);
}

static void on_nodes(struct gb_etcd_call *call) {
    struct gb_node_list *list = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_error err = call->error;
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (call->ask.too_long && list->page > 1) { /* a value among them is too long for a record */
        list->page /= 2;
        read_nodes(list);
        return;
    }
    if (err.code == GB_OK)
        gb_fleet_check_meta(list->job->fleet, gb_txn_result(&call->txn, 0), &err);
    gb_fleet_key(list->job->fleet, list->alive ? "alive" : "nodes", "", NULL, prefix);
    for (i = 0; i < kvs->count && err.code == GB_OK; i++) {
        if (list->alive)
            set_alive(list, &kvs->items[i], prefix);
        else if (add_node(list, &kvs->items[i], prefix) < 0)
            gb_error_set(&err, GB_ERR_SATURATED, "no memory for the list of nodes");
    }
    if (err.code != GB_OK) {
        fail_list(list, &err);
        return;
    }
    if (list->revision == 0)
        list->revision = call->txn.revision;
    if (kvs->more && kvs->count > 0) {
        gb_fleet_behind(kvs->items[kvs->count - 1].key, list->after);
        read_nodes(list);
    } else if (!list->alive) {
        list->alive = true;
        list->after[0] = '\0';
        read_nodes(list);
    } else {
        list->done(list->job);
    }
}

static void read_nodes(struct gb_node_list *list) {
    struct gb_job *job = list->job;
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.limit = list->page, .revision = list->revision, .serializable = true};

    gb_fleet_read_meta(job->fleet, &txn, true);
    gb_fleet_get_all(job->fleet, &txn, range, list->after, list->alive ? "alive" : "nodes", "", NULL);
    job->call.arg = list;
    gb_job_txn(job, &txn, GB_ETCD_MEMBER, on_nodes);
}

static void node_list_start(struct gb_node_list *list, struct gb_job *job, void (*done)(struct gb_job *job)) {
    *list = (struct gb_node_list){.job = job, .done = done, .page = NODES_PAGE};
    read_nodes(list);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

struct listing {
    struct gb_job job;
    struct gb_node_list list;
};

static void give_nodes(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct listing *l = gb_container_of(job, struct listing, job);
    struct gb_fleet_nodes *nodes = gb_container_of(ask, struct gb_fleet_nodes, ask);

    nodes->items = NULL;
    nodes->count = 0;
    if (job->error.code != GB_OK)
        return;
    nodes->items = l->list.items;
    nodes->count = l->list.count;
    l->list.items = NULL;
}

static void free_nodes(struct gb_job *job) {
    free(gb_container_of(job, struct listing, job)->list.items);
}

static void start_nodes(struct gb_job *job) {
    node_list_start(&gb_container_of(job, struct listing, job)->list, job, gb_job_end);
}

void gb_fleet_list_nodes(struct gb_fleet *fleet, struct gb_fleet_nodes *nodes) {
    struct listing *l = gb_job_new(fleet, sizeof(*l), start_nodes);

    nodes->items = NULL;
    nodes->count = 0;
    if (l) {
        l->job.give = give_nodes;
        l->job.free = free_nodes;
    }
    gb_job_ask(fleet, l ? &l->job : NULL, &nodes->ask);
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

struct sessions {
    struct gb_job job;
    char after[GB_FLEET_KEY_SIZE]; /* the last key that was read */
    struct gb_name node;
    struct gb_name prefix;
    size_t limit;
    size_t page;                    /* keys that are asked for at a time */
    struct gb_fleet_session *items; /* room for `limit` */
    size_t count;
    bool more;
    bool page_more;
    struct gb_name names[SESSIONS_PAGE]; /* the node's sessions whose records are read */
    size_t name_count;
};

static void give_sessions(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct sessions *s = gb_container_of(job, struct sessions, job);
    struct gb_fleet_sessions *to = gb_container_of(ask, struct gb_fleet_sessions, ask);

    to->items = NULL;
    to->count = 0;
    to->more = false;
    if (job->error.code != GB_OK)
        return;
    to->items = s->items;
    to->count = s->count;
    to->more = s->more;
    s->items = NULL;
}

static void free_sessions(struct gb_job *job) {
    free(gb_container_of(job, struct sessions, job)->items);
}

static void read_sessions(struct sessions *s);

static void add_session(struct sessions *s, const struct gb_name *name, const struct gb_kv *kv) {
    struct gb_fleet_session *one = &s->items[s->count];

    *one = (struct gb_fleet_session){.name = *name};
    if (gb_fleet_session_read(kv->value, kv->bytes, one, NULL) < 0 || one->deleted)
        return;
    if (s->node.s[0] && !gb_name_equal(&one->node, &s->node))
        return;
    s->count++;
}

/* Reads the next page, or ends. */
static void next_page(struct sessions *s) {
    if (s->count < s->limit && s->page_more) {
        read_sessions(s);
        return;
    }
    s->more = s->more || s->page_more;
    gb_job_end(&s->job);
}

static void on_session_records(struct gb_etcd_call *call) {
    struct sessions *s = gb_container_of((struct gb_job *)call->arg, struct sessions, job);
    size_t i;

    if (gb_job_check(&s->job) < 0)
        return;
    for (i = 0; i < s->name_count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&call->txn, i + 1);

        if (kvs->count > 0)
            add_session(s, &s->names[i], &kvs->items[0]);
    }
    next_page(s);
}

static void read_session_records(struct sessions *s) {
    struct gb_txn txn = {0};
    size_t i;

    gb_fleet_read_meta(s->job.fleet, &txn, true);
    for (i = 0; i < s->name_count; i++) {
        gb_fleet_get(s->job.fleet, &txn, "sessions", s->names[i].s, NULL, true);
    }
    gb_job_txn(&s->job, &txn, GB_ETCD_MEMBER, on_session_records);
}

/* "/gpubuf/F/sessions/" or "/gpubuf/F/owned/N/", then the beginning of a name. */
static void sessions_prefix(const struct sessions *s, const char *names, char ret[GB_FLEET_KEY_SIZE]) {
    if (s->node.s[0])
        gb_fleet_key(s->job.fleet, "owned", s->node.s, names, ret);
    else
        gb_fleet_key(s->job.fleet, "sessions", names, NULL, ret);
}

static void on_sessions(struct gb_etcd_call *call) {
    struct sessions *s = gb_container_of((struct gb_job *)call->arg, struct sessions, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    char prefix[GB_FLEET_KEY_SIZE];
    struct gb_name name;
    size_t i;

    if (call->ask.too_long && s->page > 1) {
        s->page /= 2;
        read_sessions(s);
        return;
    }
    if (gb_job_check(&s->job) < 0)
        return;
    sessions_prefix(s, "", prefix);
    s->name_count = 0;
    s->page_more = kvs->more && kvs->count > 0;
    for (i = 0; i < kvs->count && i < SESSIONS_PAGE && s->count < s->limit; i++) {
        gb_fleet_behind(kvs->items[i].key, s->after); /* also after a key without a name, or this page is read again */
        if (!gb_fleet_name_of(kvs->items[i].key, prefix, &name))
            continue;
        if (s->node.s[0])
            s->names[s->name_count++] = name;
        else
            add_session(s, &name, &kvs->items[i]);
    }
    if (s->name_count > 0)
        read_session_records(s);
    else
        next_page(s);
}

static void read_sessions(struct sessions *s) {
    size_t left = s->limit - s->count;
    struct gb_txn_range range = {.serializable = true, .keys_only = s->node.s[0] != '\0'};
    struct gb_txn txn = {0};
    char prefix[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];

    sessions_prefix(s, s->prefix.s, prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    gb_fleet_read_meta(s->job.fleet, &txn, true);
    range.after = s->after[0] != '\0';
    range.key = range.after ? s->after : prefix;
    range.end = end;
    range.limit = left < s->page ? left : s->page;
    gb_txn_get(&txn, &range);
    gb_job_txn(&s->job, &txn, GB_ETCD_MEMBER, on_sessions);
}

static void start_sessions(struct gb_job *job) {
    struct sessions *s = gb_container_of(job, struct sessions, job);
    struct gb_error err = GB_ERROR_INIT;

    s->items = calloc(s->limit, sizeof(*s->items));
    if (s->items) {
        read_sessions(s);
    } else {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for the list of sessions");
        gb_job_fail(job, &err);
    }
}

void gb_fleet_list_sessions(struct gb_fleet *fleet, struct gb_fleet_sessions *sessions) {
    struct sessions *s = gb_job_new(fleet, sizeof(*s), start_sessions);

    sessions->items = NULL;
    sessions->count = 0;
    sessions->more = false;
    if (s) {
        s->node = sessions->node;
        s->prefix = sessions->prefix;
        s->page = SESSIONS_PAGE;
        if (sessions->after.s[0] && s->node.s[0])
            gb_fleet_key(fleet, "owned", s->node.s, sessions->after.s, s->after);
        else if (sessions->after.s[0])
            gb_fleet_key(fleet, "sessions", sessions->after.s, NULL, s->after);
        s->limit = sessions->limit == 0 || sessions->limit > SESSIONS_MAX ? SESSIONS_MAX : sessions->limit;
        s->job.give = give_sessions;
        s->job.free = free_sessions;
    }
    gb_job_ask(fleet, s ? &s->job : NULL, &sessions->ask);
}

/* --- place -------------------------------------------------------------------------------------------------------- */

enum reason { FITS, ABSENT, DRAINING, UNREACHABLE, LABELS, MEMORY, EXCLUDED, REASONS };

static uint64_t room_of(const struct gb_fleet_device *device) {
    uint64_t uncommitted = device->bytes > device->committed_bytes ? device->bytes - device->committed_bytes : 0;

    return device->free_bytes < uncommitted ? device->free_bytes : uncommitted;
}

/* The room of the device that has the most. */
static uint64_t most_room(const struct gb_fleet_node *node) {
    uint64_t most = 0;
    size_t i;

    for (i = 0; i < node->device_count; i++)
        if (room_of(&node->devices[i]) > most)
            most = room_of(&node->devices[i]);
    return most;
}

static enum reason evaluate(const struct gb_fleet_node *node, const struct gb_place_constraints *constraints) {
    if (constraints->excluded && gb_name_equal(&node->name, constraints->excluded))
        return EXCLUDED;
    if (!node->alive)
        return ABSENT;
    if (node->draining)
        return DRAINING;
    if (!gb_fleet_url_on(node, constraints->network))
        return UNREACHABLE;
    if (!gb_fleet_labels_match(node->labels, constraints->select))
        return LABELS;
    return constraints->bytes > 0 && most_room(node) < constraints->bytes ? MEMORY : FITS;
}

static void explain(size_t count, const size_t reasons[REASONS], struct gb_error *err) {
    gb_error_set(
        err, GB_ERR_NO_NODE_FITS,
        "of %zu nodes %zu are not alive, %zu drain, %zu are not in this network, %zu lack the labels, %zu lack "
        "the memory",
        count - reasons[EXCLUDED], reasons[ABSENT], reasons[DRAINING], reasons[UNREACHABLE], reasons[LABELS],
        reasons[MEMORY]);
}

size_t gb_place_choose(const struct gb_fleet_node *nodes, size_t count, const struct gb_place_constraints *constraints,
                       uint32_t (*random)(void *arg), void *arg, const struct gb_fleet_node *ret[GB_FLEET_HOPS_MAX],
                       struct gb_error *err) {
    size_t reasons[REASONS] = {0};
    size_t seen = 0;
    size_t chosen = 0;
    size_t i;

    /* Samples the nodes that fit in one pass: each is as likely as any other. */
    for (i = 0; i < count; i++) {
        enum reason reason = evaluate(&nodes[i], constraints);
        size_t at;

        reasons[reason]++;
        if (reason != FITS)
            continue;
        seen++;
        at = random(arg) % seen;
        if (chosen < GB_FLEET_HOPS_MAX) {
            if (at < chosen)
                ret[chosen] = ret[at];
            ret[at] = &nodes[i];
            chosen++;
        } else if (at < GB_FLEET_HOPS_MAX) {
            ret[at] = &nodes[i];
        }
    }
    if (chosen == 0)
        explain(count, reasons, err);
    if (chosen > 1 && most_room(ret[1]) > most_room(ret[0])) {
        const struct gb_fleet_node *first = ret[0];

        ret[0] = ret[1];
        ret[1] = first;
    }
    return chosen;
}

/* --- the ask ------------------------------------------------------------------------------------------------------ */

struct placing {
    struct gb_job job;
    struct gb_node_list list;
    char select[GB_FLEET_LABELS_SIZE];
    uint64_t bytes;
    struct gb_name network;
    struct gb_name excluded;
    const struct gb_fleet_node *chosen[GB_FLEET_HOPS_MAX];
    size_t count;
};

static uint32_t chance(void *arg) {
    uint32_t n = 0;

    (void)arg;
    gb_random(&n, sizeof(n), NULL);
    return n;
}

static void give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct placing *p = gb_container_of(job, struct placing, job);
    struct gb_fleet_place *to = gb_container_of(ask, struct gb_fleet_place, ask);
    size_t i;

    to->count = job->error.code == GB_OK ? p->count : 0;
    for (i = 0; i < to->count; i++)
        to->nodes[i] = *p->chosen[i];
}

static void free_placing(struct gb_job *job) {
    free(gb_container_of(job, struct placing, job)->list.items);
}

static void choose(struct gb_job *job) {
    struct placing *p = gb_container_of(job, struct placing, job);
    struct gb_place_constraints constraints = {
        .select = p->select, .bytes = p->bytes, .network = &p->network, .excluded = &p->excluded};

    if (job->error.code == GB_OK)
        p->count = gb_place_choose(p->list.items, p->list.count, &constraints, chance, NULL, p->chosen, &job->error);
    gb_job_end(job);
}

static void start(struct gb_job *job) {
    node_list_start(&gb_container_of(job, struct placing, job)->list, job, choose);
}

void gb_fleet_place(struct gb_fleet *fleet, struct gb_fleet_place *place) {
    struct placing *p = gb_job_new(fleet, sizeof(*p), start);

    place->count = 0;
    if (p) {
        snprintf(p->select, sizeof(p->select), "%s", place->select);
        p->bytes = place->bytes;
        p->network = place->network;
        p->excluded = place->excluded;
        p->job.give = give;
        p->job.free = free_placing;
    }
    gb_job_ask(fleet, p ? &p->job : NULL, &place->ask);
}
