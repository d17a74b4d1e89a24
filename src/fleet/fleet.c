/* The fleet: its thread, opening and closing, and what the thread sends to other nodes: calls, orders, and requests
 * that a hub relays. The thread runs jobs, timers and HTTP in one loop, and nothing on it blocks. The daemon opens the
 * fleet; the API, the hub and the folders below src/fleet ask it. */
#include "fleet/fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/thread.h"
#include "fleet/directory.h"
#include "fleet/find.h"
#include "fleet/reconcile.h"
#include "fleet/state.h"

/* --- calls of other nodes ----------------------------------------------------------------------------------------- */

#define BREAKERS_MAX 256
#define FAILURES_MAX 3
#define CLOSED_MS 5000
#define CONNECT_MS 1000
#define ANSWER_MAX (1u << 20)

/* --- breakers ----------------------------------------------------------------------------------------------------- */

/* A node that has failed lately. */
struct gb_breaker {
    struct gb_breaker *next;
    char origin[GB_FLEET_URL_SIZE]; /* "http://HOST:PORT" */
    unsigned failures;              /* in a row */
    uint64_t until_ms;
};

static void breakers_free(struct gb_fleet *fleet) {
    struct gb_breaker *one;

    while ((one = fleet->breakers)) {
        fleet->breakers = one->next;
        free(one);
    }
}

static void origin_of(const char *url, char ret[GB_FLEET_URL_SIZE]) {
    const char *host = strstr(url, "://");
    size_t n = host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;

    snprintf(ret, GB_FLEET_URL_SIZE, "%.*s", (int)(n < GB_FLEET_URL_SIZE ? n : GB_FLEET_URL_SIZE - 1), url);
}

/* The node's breaker, or NULL. *ret_at: the pointer to it, or the end of the list. */
static struct gb_breaker *find_breaker(struct gb_fleet *fleet, const char *origin, struct gb_breaker ***ret_at) {
    struct gb_breaker **at;

    for (at = &fleet->breakers; *at && strcmp((*at)->origin, origin) != 0; at = &(*at)->next)
        ;
    *ret_at = at;
    return *at;
}

static void count_failure(struct gb_fleet *fleet, const char *origin) {
    struct gb_breaker **at;
    struct gb_breaker *one = find_breaker(fleet, origin, &at);
    size_t n = 0;

    if (!one) {
        for (at = &fleet->breakers; *at; at = &(*at)->next)
            n++;
        one = n < BREAKERS_MAX ? calloc(1, sizeof(*one)) : NULL;
        if (!one)
            return;
        snprintf(one->origin, sizeof(one->origin), "%s", origin);
        *at = one;
    }
    if (++one->failures >= FAILURES_MAX)
        one->until_ms = gb_boot_ms() + CLOSED_MS;
}

static void count_success(struct gb_fleet *fleet, const char *origin) {
    struct gb_breaker **at;
    struct gb_breaker *one = find_breaker(fleet, origin, &at);

    if (!one)
        return;
    *at = one->next;
    free(one);
}

/* --- the ask ------------------------------------------------------------------------------------------------------ */

struct calling {
    struct gb_job job;
    char method[16];
    char url[GB_FLEET_URL_SIZE + 512];
    char origin[GB_FLEET_URL_SIZE];
    char *body;
    bool out_of_memory;
    struct gb_http_ask http;
    char *answer;
};

static void give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct calling *c = gb_container_of(job, struct calling, job);
    struct gb_fleet_call *to = gb_container_of(ask, struct gb_fleet_call, ask);

    to->status = job->error.code == GB_OK ? c->http.status : 0;
    to->answer = NULL;
    to->bytes = 0;
    if (job->error.code != GB_OK)
        return;
    to->answer = c->answer;
    to->bytes = c->http.bytes;
    c->answer = NULL;
}

static void cancel(struct gb_job *job) {
    gb_http_client_cancel(&gb_container_of(job, struct calling, job)->http);
}

static void free_calling(struct gb_job *job) {
    struct calling *c = gb_container_of(job, struct calling, job);

    free(c->body);
    free(c->answer);
}

static void on_answer(struct gb_http_ask *http) {
    struct calling *c = gb_container_of(http, struct calling, http);

    if (http->status == 0) {
        count_failure(c->job.fleet, c->origin);
        gb_error_set(&c->job.error, GB_ERR_NODE_UNREACHABLE, "%s: %s", c->origin, http->why);
    } else {
        count_success(c->job.fleet, c->origin);
        c->answer = http->answer ? http->answer : strdup("");
        http->answer = NULL;
    }
    gb_job_end(&c->job);
}

static void start(struct gb_job *job) {
    struct calling *c = gb_container_of(job, struct calling, job);
    struct gb_breaker **at;
    struct gb_breaker *breaker = find_breaker(job->fleet, c->origin, &at);

    c->http = (struct gb_http_ask){.method = c->method, .url = c->url, .body = c->body};
    c->http.body_bytes = c->body ? strlen(c->body) : 0;
    c->http.once = strcmp(c->method, "GET") != 0;
    c->http.connect_ms = CONNECT_MS;
    c->http.total_ms = GB_FLEET_CALL_MS;
    c->http.answer_max = ANSWER_MAX;
    c->http.done = on_answer;
    if (c->out_of_memory)
        gb_error_set(&job->error, GB_ERR_SATURATED, "no memory to ask another node");
    else if (breaker && breaker->until_ms > gb_boot_ms())
        gb_error_set(&job->error, GB_ERR_NODE_UNREACHABLE, "%s did not answer %u times, and is left alone for %d s",
                     c->origin, breaker->failures, CLOSED_MS / 1000);
    else if (gb_fleet_http_start(job->fleet->client, &c->http, &job->error) == 0)
        return;
    gb_job_end(job);
}

void gb_fleet_call(struct gb_fleet *fleet, struct gb_fleet_call *call) {
    struct calling *c = gb_job_new(fleet, sizeof(*c), start);

    call->status = 0;
    call->answer = NULL;
    call->bytes = 0;
    if (c) {
        snprintf(c->method, sizeof(c->method), "%s", call->method);
        snprintf(c->url, sizeof(c->url), "%s", call->url);
        origin_of(c->url, c->origin);
        c->body = call->body ? strdup(call->body) : NULL;
        c->out_of_memory = call->body && !c->body;
        c->job.give = give;
        c->job.cancel = cancel;
        c->job.free = free_calling;
    }
    gb_job_ask(fleet, c ? &c->job : NULL, &call->ask);
}

/* --- requests that a hub relays ----------------------------------------------------------------------------------- */

struct relaying {
    struct gb_job job;
    enum gb_fleet_relay_op op;
    bool reads;
    bool serializable;
    char *body;
    int status;
    char *answer;
    bool too_long;
};

static void relay_give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct relaying *r = gb_container_of(job, struct relaying, job);
    struct gb_fleet_relay *to = gb_container_of(ask, struct gb_fleet_relay, ask);

    to->status = r->status;
    to->answer = r->answer;
    to->too_long = r->too_long;
    r->answer = NULL;
}

static void free_relaying(struct gb_job *job) {
    struct relaying *r = gb_container_of(job, struct relaying, job);

    free(r->body);
    free(r->answer);
    free(r->job.call.answer);
}

static void relay_on_answer(struct gb_etcd_call *call) {
    struct relaying *r = gb_container_of((struct gb_job *)call->arg, struct relaying, job);

    r->job.error = call->error;
    r->status = call->status;
    r->too_long = call->ask.too_long;
    r->answer = call->answer;
    call->answer = NULL;
    gb_job_end(&r->job);
}

static void relay_start(struct gb_job *job) {
    static const enum gb_etcd_kind kinds[] = {
        [GB_RELAY_TXN] = GB_ETCD_TXN,
        [GB_RELAY_GRANT] = GB_ETCD_GRANT,
        [GB_RELAY_KEEPALIVE] = GB_ETCD_KEEPALIVE,
        [GB_RELAY_TIMETOLIVE] = GB_ETCD_TIMETOLIVE,
        [GB_RELAY_REVOKE] = GB_ETCD_REVOKE,
    };
    struct relaying *r = gb_container_of(job, struct relaying, job);
    char *body = r->body;
    bool repeat = r->op == GB_RELAY_TXN ? r->reads : r->op != GB_RELAY_GRANT;

    r->body = NULL;
    job->call.raw = true;
    job->call.done = relay_on_answer;
    gb_etcd_send(&job->fleet->etcd, &job->call, kinds[r->op], body, job->deadline_ms, repeat,
                 r->serializable ? GB_ETCD_MEMBER : GB_ETCD_MAJORITY);
}

void gb_fleet_relay(struct gb_fleet *fleet, struct gb_fleet_relay *relay) {
    struct relaying *r = gb_job_new(fleet, sizeof(*r), relay_start);

    relay->status = 0;
    relay->answer = NULL;
    if (r) {
        r->op = relay->op;
        r->reads = relay->reads;
        r->serializable = relay->serializable;
        r->body = strdup(relay->body);
        r->job.give = relay_give;
        r->job.free = free_relaying;
    }
    gb_job_ask(fleet, r ? &r->job : NULL, &relay->ask);
}

/* --- orders to nodes without a URL -------------------------------------------------------------------------------- */

/* Another node writes the order into the directory. The node finds it there, itself or through a hub. */

#define WAIT_MS 10000 /* of one wait at a hub */
#define SLACK_MS 3000 /* in which the answer must come */
#define ORDERS_MAX 64 /* in one answer */

static const char *const words[] = {
    [GB_ORDER_DRAIN] = "drain",
    [GB_ORDER_UNDRAIN] = "undrain",
    [GB_ORDER_MOVE] = "move",
    [GB_ORDER_HOLD] = "hold",
};

const char *gb_order_word(enum gb_order_what what) {
    return words[what];
}

/* --- giving one --------------------------------------------------------------------------------------------------- */

struct ordering {
    struct gb_job job;
    struct gb_name node;
    int64_t lease;
    char *record;
};

static void free_ordering(struct gb_job *job) {
    free(gb_container_of(job, struct ordering, job)->record);
}

static void on_written(struct gb_etcd_call *call) {
    struct ordering *o = gb_container_of((struct gb_job *)call->arg, struct ordering, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && (call->refusal != 0 || !call->txn.succeeded))
        gb_error_set(&err, GB_ERR_NODE_UNREACHABLE,
                     "the node \"%s\" has no address, and is not there to ask for orders; try again when it is",
                     o->node.s);
    gb_job_fail(&o->job, &err);
}

/* The order depends on the node's lease: a node that rejoins later must not carry out an old order. */
static void start_ordering(struct gb_job *job) {
    struct ordering *o = gb_container_of(job, struct ordering, job);
    struct gb_fleet *fleet = job->fleet;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char id[24];
    uint64_t number;

    if (gb_random(&number, sizeof(number), &err) < 0 || !o->record) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for an order; try again later");
        gb_job_fail(job, &err);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "alive", o->node.s, NULL, key);
    gb_txn_compare_there(&txn, key);
    snprintf(id, sizeof(id), "%016" PRIx64, number);
    gb_fleet_put(fleet, &txn, "ctl", o->node.s, id, o->record, o->lease);
    job->call.done = on_written;
    gb_etcd_send(&fleet->etcd, &job->call, GB_ETCD_TXN, gb_txn_finish(&txn), job->deadline_ms, true, GB_ETCD_MAJORITY);
}

void gb_fleet_order(struct gb_fleet *fleet, struct gb_fleet_order *order) {
    struct ordering *o = gb_job_new(fleet, sizeof(*o), start_ordering);

    if (o) {
        o->node = order->node;
        o->lease = (int64_t)order->uuid;
        o->record = gb_fleet_order_write(words[order->what], &order->session);
        o->job.free = free_ordering;
    }
    gb_job_ask(fleet, o ? &o->job : NULL, &order->ask);
}

/* --- following them ----------------------------------------------------------------------------------------------- */

static void poll_orders(void *arg);

static void poll_later(struct gb_fleet *fleet, uint64_t ms) {
    gb_timer_set(&fleet->timers, &fleet->orders.timer, gb_boot_ms() + ms, poll_orders, fleet);
}

/* Without hubs, the directory is polled: etcd keeps no request waiting. */
static uint64_t pause_ms(const struct gb_fleet *fleet) {
    return fleet->etcd.as ? 0 : gb_member_third_ms(fleet);
}

static void on_deleted(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    /* An order that could not be deleted is carried out again, which is harmless. An order that failed is read
     * again. */
    poll_later(fleet, call->error.code == GB_OK && call->txn.count > 0 ? 0 : 1000);
}

/* Whether the order can be deleted. A malformed or unknown order can be, too. */
static bool follow(struct gb_fleet *fleet, const struct gb_kv *kv) {
    struct gb_name session = {""};
    char word[16];
    size_t i;

    if (!fleet->on.order || !gb_fleet_order_read(kv->value, kv->bytes, word, sizeof(word), &session))
        return true;
    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i], word) == 0)
            return fleet->on.order(fleet->on.app, (enum gb_order_what)i, &session);
    return true;
}

static void on_orders(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 0);
    struct gb_txn txn = {0};
    size_t i;

    if (call->error.code != GB_OK) {
        poll_later(fleet, gb_etcd_again_ms(&fleet->etcd) - gb_boot_ms());
        return;
    }
    if (kvs->count == 0) {
        poll_later(fleet, pause_ms(fleet));
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    for (i = 0; i < kvs->count && i < ORDERS_MAX; i++)
        if (follow(fleet, &kvs->items[i]))
            gb_txn_delete(&txn, kvs->items[i].key);
    call->done = on_deleted;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

static void ask_hub(struct gb_fleet *fleet) {
    char *body = NULL;

    if (asprintf(&body, "{\"wait_ms\":%d}", WAIT_MS) < 0)
        body = NULL;
    gb_etcd_send(&fleet->etcd, &fleet->orders.call, GB_ETCD_WAIT, body, gb_boot_ms() + WAIT_MS + SLACK_MS, true,
                 GB_ETCD_PROBE);
}

static void ask_directory(struct gb_fleet *fleet) {
    struct gb_txn_range range = {.limit = ORDERS_MAX, .serializable = true};
    struct gb_txn txn = {0};

    gb_fleet_get_all(fleet, &txn, range, "", "ctl", fleet->own.name.s, "");
    gb_etcd_send(&fleet->etcd, &fleet->orders.call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS,
                 true, GB_ETCD_MEMBER);
}

static void poll_orders(void *arg) {
    struct gb_fleet *fleet = arg;

    fleet->orders.call.arg = fleet;
    fleet->orders.call.done = on_orders;
    if (!fleet->member.held)
        poll_later(fleet, 1000); /* orders are for nodes that hold their lease */
    else if (fleet->etcd.as)
        ask_hub(fleet);
    else
        ask_directory(fleet);
}

static void orders_start(struct gb_fleet *fleet) {
    if (fleet->own.url_count == 0)
        poll_later(fleet, 0);
}

static void orders_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->orders.timer);
    gb_etcd_cancel(&fleet->orders.call);
}

/* --- draining ----------------------------------------------------------------------------------------------------- */

#define LEAVE_MS 1500 /* to revoke the lease */
#define TTL_S 30
#define TTL_MAX_S 3600

static void publish(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_member_publish(fleet);
}

void gb_fleet_set_draining(struct gb_fleet *fleet, bool draining) {
    struct gb_job *job;

    if (atomic_exchange(&fleet->draining, draining) == draining)
        return;
    job = gb_job_new(fleet, sizeof(*job), publish);
    if (job) /* without memory, the next renewal publishes it */
        gb_job_ask(fleet, job, NULL);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void on_revoked(struct gb_etcd_call *call) {
    (void)call;
}

/* Revokes the lease, unless the directory does not answer. */
static void leave(struct gb_fleet *fleet) {
    struct gb_etcd_call *call = &fleet->member.call;
    bool holds = fleet->member.held && fleet->member.deadline_ms > gb_boot_ms() && fleet->member.failing_ms == 0;

    gb_member_cancel(fleet);
    orders_cancel(fleet);
    gb_etcd_cancel(&fleet->sweep);
    gb_timer_clear(&fleet->timers, &fleet->sweep_again);
    if (!holds)
        return;
    call->done = on_revoked;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_REVOKE, gb_lease_text((int64_t)fleet->own.uuid, false),
                 gb_boot_ms() + LEAVE_MS, true, GB_ETCD_PROBE);
    while (call->open)
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 100));
}

static void *run(void *arg) {
    struct gb_fleet *fleet = arg;
    bool ended = false;

    gb_restored_watch(fleet);
    gb_member_start(fleet);
    orders_start(fleet);
    while (gb_jobs_take(fleet))
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 60000));
    gb_jobs_drain(fleet);
    leave(fleet);
    while (!ended) {
        gb_jobs_take(fleet);
        pthread_mutex_lock(&fleet->lock);
        ended = !fleet->queue && !fleet->refused.asks;
        pthread_mutex_unlock(&fleet->lock);
    }
    return NULL;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static int take_own(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    struct gb_fleet_node *own = &fleet->own;
    const char *labels = config->labels && config->labels[0] ? config->labels : "{}";
    size_t i;

    own->name = config->node;
    own->uuid = config->uuid;
    if (config->uuid == 0 || config->uuid > INT64_MAX || config->node.s[0] == '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a node needs a name and a uuid");
    if (!gb_fleet_labels_are_valid(labels))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the labels of the node must be texts, %d bytes in all",
                            GB_FLEET_LABELS_SIZE - 1);
    snprintf(own->labels, sizeof(own->labels), "%s", labels);
    snprintf(own->version, sizeof(own->version), "%s", config->version ? config->version : "");
    if (config->url_count > GB_FLEET_NETWORKS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a node is in %d networks at most", GB_FLEET_NETWORKS_MAX);
    for (i = 0; i < config->url_count; i++) {
        if (!gb_fleet_url_is_valid(config->urls[i].url))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "\"%s\" is no URL of a node", config->urls[i].url);
        own->urls[i] = config->urls[i];
    }
    own->url_count = config->url_count;
    return 0;
}

/* The files must be readable, so that a wrong name is found at the start. */
static int check_files(const struct gb_fleet_config *config, struct gb_error *err) {
    const char *const files[] = {config->ca_file, config->cert_file, config->key_file};
    size_t i;

    for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i] && files[i][0] && access(files[i], R_OK) < 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the file \"%s\" for the fleet's directory cannot be read", files[i]);
    return 0;
}

static int take_directory(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    struct gb_http_tls tls = {.ca = config->ca_file, .cert = config->cert_file, .key = config->key_file};
    const char *name = config->fleet && config->fleet[0] ? config->fleet : "main";
    struct gb_name checked;

    if (gb_name_parse("fleet name", name, strlen(name), &checked, err) < 0) {
        err->code = GB_ERR_INVALID_ARGUMENT;
        return -1;
    }
    if (check_files(config, err) < 0)
        return -1;
    fleet->name = strdup(name);
    if (gb_http_begin() == 0) {
        fleet->client = gb_http_client_new(&tls, false);
        if (!fleet->client)
            gb_http_end();
    }
    if (!fleet->client)
        return gb_error_set(err, GB_ERR_INTERNAL, "libcurl does not start");
    if (!fleet->name)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (gb_etcd_init(&fleet->etcd, config->endpoints, fleet->client, &fleet->timers, err) < 0)
        return -1;
    if (config->user && config->user[0] && gb_etcd_login_init(&fleet->etcd.login, config->user, err) < 0)
        return -1;
    return config->hubs ? gb_etcd_by_hubs(&fleet->etcd, config->node.s, config->secret, err) : 0;
}

static void destroy(struct gb_fleet *fleet) {
    struct gb_unregister *one;

    gb_member_done(fleet);
    while ((one = fleet->unregisters)) {
        fleet->unregisters = one->next;
        free(one);
    }
    breakers_free(fleet);
    gb_suspects_free(fleet);
    gb_find_cache_free(fleet->finds);
    gb_etcd_done(&fleet->etcd);
    if (fleet->client) {
        gb_http_client_free(fleet->client);
        gb_http_end();
    }
    pthread_cond_destroy(&fleet->delivered);
    pthread_mutex_destroy(&fleet->lock);
    free(fleet->name);
    free(fleet);
}

static struct gb_fleet *make(void) {
    struct gb_fleet *fleet = calloc(1, sizeof(*fleet));

    if (!fleet)
        return NULL;
    gb_mutex_init(&fleet->lock);
    gb_cond_init(&fleet->delivered);
    fleet->queue_end = &fleet->queue;
    fleet->refused.fleet = fleet;
    fleet->finds = gb_find_cache_new();
    return fleet;
}

static int prepare(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    uint64_t chance = 0;

    if (!fleet->finds)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (take_own(fleet, config, err) < 0 || take_directory(fleet, config, err) < 0 ||
        gb_random(&chance, sizeof(chance), err) < 0)
        return -1;
    fleet->member.ttl_s = config->ttl_s > 0 ? config->ttl_s : TTL_S;
    if (fleet->member.ttl_s < 2 || fleet->member.ttl_s > TTL_MAX_S)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a lease lives for 2 to %d seconds", TTL_MAX_S);
    /* 52 bits: programs that read JSON keep 53. */
    fleet->member.incarnation = (chance >> 12) | 1;
    fleet->on = config->on;
    snprintf(fleet->known_uuid, sizeof(fleet->known_uuid), "%s", config->known_uuid ? config->known_uuid : "");
    memcpy(fleet->stat.fleet_uuid, fleet->known_uuid, sizeof(fleet->known_uuid));
    fleet->stat.incarnation = fleet->member.incarnation;
    atomic_store(&fleet->starting, true);
    fleet->stat.since_ns = gb_clock_ns();
    gb_error_set(&fleet->stat.why, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory has not answered yet");
    return 0;
}

int gb_fleet_open(const struct gb_fleet_config *config, struct gb_fleet **ret, struct gb_error *err) {
    struct gb_fleet *fleet = make();

    *ret = NULL;
    if (!fleet)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (prepare(fleet, config, err) < 0 || gb_thread_start(&fleet->thread, "gb-fleet", run, fleet, err) < 0) {
        destroy(fleet);
        return -1;
    }
    *ret = fleet;
    return 0;
}

void gb_fleet_close(struct gb_fleet *fleet) {
    if (!fleet)
        return;
    pthread_mutex_lock(&fleet->lock);
    fleet->stopping = true;
    pthread_mutex_unlock(&fleet->lock);
    gb_http_client_wake(fleet->client);
    pthread_join(fleet->thread, NULL);
    destroy(fleet);
}

/* --- making a fleet ----------------------------------------------------------------------------------------------- */

static int make_uuid(char ret[40], struct gb_error *err) {
    unsigned char b[16];

    if (gb_random(b, sizeof(b), err) < 0)
        return -1;
    b[6] = (unsigned char)((b[6] & 15) | 64);
    b[8] = (unsigned char)((b[8] & 63) | 128);
    gb_uuid_text(b, ret);
    return 0;
}

struct making {
    char uuid[40];
    int result;
    struct gb_error error;
};

static void on_made(struct gb_etcd_call *call) {
    struct making *making = call->arg;
    const struct gb_kvs *meta = gb_txn_result(&call->txn, 0);
    char uuid[40];

    making->result = -1;
    making->error = call->error;
    if (call->error.code != GB_OK)
        return;
    making->result = 0;
    if (call->txn.succeeded)
        return;
    if (meta->count == 0)
        making->result = gb_error_set(&making->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory does not say why");
    else if (gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, &making->error) < 0)
        making->result = -1;
    else if (strcmp(uuid, making->uuid) != 0) /* the same uuid: an answer was lost, and this one is of the repetition */
        making->result = 1;
    if (making->result == 1)
        memcpy(making->uuid, uuid, sizeof(uuid));
}

static int make_meta(struct gb_fleet *fleet, struct making *making, struct gb_error *err) {
    struct gb_etcd_call call = {.arg = making, .done = on_made};
    struct gb_txn txn = {0};
    char value[80];

    if (make_uuid(making->uuid, err) < 0)
        return -1;
    snprintf(value, sizeof(value), "{\"uuid\":\"%s\",\"schema\":1}", making->uuid);
    gb_fleet_compare(fleet, &txn, "meta", NULL, NULL, GB_TXN_CREATED, 0);
    gb_fleet_put(fleet, &txn, "meta", NULL, NULL, value, 0);
    gb_txn_else(&txn);
    gb_fleet_read_meta(fleet, &txn, false);
    gb_etcd_send(&fleet->etcd, &call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + 2 * GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
    while (call.open)
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 100));
    if (making->result < 0)
        gb_error_move(err, &making->error);
    return making->result;
}

int gb_fleet_init(const struct gb_fleet_config *config, char ret_uuid[40], struct gb_error *err) {
    struct gb_fleet *fleet = make();
    struct making making = {0};
    int r = -1;

    if (!fleet)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (take_directory(fleet, config, err) == 0)
        r = make_meta(fleet, &making, err);
    if (r >= 0)
        memcpy(ret_uuid, making.uuid, sizeof(making.uuid));
    destroy(fleet);
    return r;
}
