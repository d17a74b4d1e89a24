/* What an arrival asks of the owner, and how it waits: for calls of the core, asks of the fleet, requests to the owner
 * over the public interface, and the answers to requests with an Idempotency-Key. A stopped arrival waits for nothing
 * long. arrival.c, fleet/move and fleet/replica call, each on its own thread. */
#include "fleet/arrival/owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "core/runtime/call.h"

/* --- waking ------------------------------------------------------------------------------------------------------- */

/* For gb_call_new: arg is the wait. */
static void arrival_wake(void *arg) {
    struct gb_arrival_wait *wait = arg;
    struct gb_arrival *arrival = wait->arrival;

    pthread_mutex_lock(&arrival->lock);
    wait->done = true;
    pthread_cond_broadcast(&arrival->woken);
    pthread_mutex_unlock(&arrival->lock);
}

bool gb_arrival_is_stopped(struct gb_arrival *arrival) {
    bool stopped;

    pthread_mutex_lock(&arrival->lock);
    stopped = arrival->stopped;
    pthread_mutex_unlock(&arrival->lock);
    return stopped;
}

int gb_arrival_stopped_error(struct gb_arrival *arrival, struct gb_error *err) {
    enum gb_code why;

    pthread_mutex_lock(&arrival->lock);
    why = arrival->why;
    pthread_mutex_unlock(&arrival->lock);
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the session stays where it is");
    return gb_cancelled(err);
}

bool gb_arrival_pause(struct gb_arrival *arrival, unsigned ms) {
    struct timespec end = gb_after_ms(ms);
    bool stopped;
    int r = 0;

    pthread_mutex_lock(&arrival->lock);
    while (!arrival->stopped && r == 0)
        r = pthread_cond_timedwait(&arrival->woken, &arrival->lock, &end);
    stopped = arrival->stopped;
    pthread_mutex_unlock(&arrival->lock);
    return !stopped;
}

/* --- calls of the core -------------------------------------------------------------------------------------------- */

void *gb_arrival_call_new(struct gb_arrival *arrival, size_t size, struct gb_arrival_wait *wait, struct gb_error *err) {
    void *call;

    *wait = (struct gb_arrival_wait){.arrival = arrival};
    call = gb_call_new(size, arrival_wake, wait);
    if (!call)
        gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    return call;
}

/* The core ends by itself, except a wait for memory or bytes, which is cancelled. */
int gb_arrival_call_wait(struct gb_arrival_wait *wait, struct gb_call *call, struct gb_error *err) {
    struct gb_arrival *arrival = wait->arrival;
    bool cancelled = false;

    pthread_mutex_lock(&arrival->lock);
    while (!wait->done) {
        if (arrival->stopped && !arrival->decides && !cancelled) {
            cancelled = true;
            pthread_mutex_unlock(&arrival->lock);
            (void)gb_call_cancel(call, true);
            pthread_mutex_lock(&arrival->lock);
            continue;
        }
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    }
    pthread_mutex_unlock(&arrival->lock);
    return call->error.code == GB_OK ? 0 : gb_error_move(err, &call->error);
}

static bool any_done(const struct gb_arrival_wait *waits, size_t count) {
    size_t i;

    for (i = 0; i < count; i++)
        if (waits[i].done)
            return true;
    return false;
}

void gb_arrival_wait_any(struct gb_arrival *arrival, const struct gb_arrival_wait *waits, size_t count) {
    pthread_mutex_lock(&arrival->lock);
    while (!arrival->stopped && !any_done(waits, count))
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    pthread_mutex_unlock(&arrival->lock);
}

/* --- asks of the fleet -------------------------------------------------------------------------------------------- */

static void ask_done(struct gb_fleet_ask *ask) {
    arrival_wake(ask->arg);
}

struct gb_fleet_ask gb_arrival_ask(struct gb_arrival_wait *wait) {
    return (struct gb_fleet_ask){.done = ask_done, .arg = wait};
}

/* An ask ends within seconds. A daemon that stops does not wait for it. */
int gb_arrival_ask_wait(struct gb_fleet_ask *ask, struct gb_error *err) {
    struct gb_arrival_wait *wait = ask->arg;
    struct gb_arrival *arrival = wait->arrival;
    bool done;

    pthread_mutex_lock(&arrival->lock);
    while (!wait->done && !arrival->stopped)
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    done = wait->done;
    pthread_mutex_unlock(&arrival->lock);
    if (!done)
        gb_fleet_cancel(arrival->config.fleet, ask); /* it may have ended meanwhile */
    if (!done)
        return gb_arrival_stopped_error(arrival, err);
    return ask->error.code == GB_OK ? 0 : gb_error_move(err, &ask->error);
}

int gb_arrival_find(struct gb_arrival *arrival, struct gb_fleet_find *ret, struct gb_error *err) {
    struct gb_arrival_wait wait = {.arrival = arrival};

    *ret = (struct gb_fleet_find){.ask = gb_arrival_ask(&wait)};
    if (!gb_fleet_find(arrival->config.fleet, &arrival->session, true, ret))
        return gb_arrival_ask_wait(&ret->ask, err);
    return ret->ask.error.code == GB_OK ? 0 : gb_error_move(err, &ret->ask.error);
}

int gb_arrival_request(struct gb_arrival *arrival, struct gb_fleet_call *ret, struct gb_error *err) {
    struct gb_arrival_wait wait = {.arrival = arrival};

    ret->ask = gb_arrival_ask(&wait);
    gb_fleet_call(arrival->config.fleet, ret);
    return gb_arrival_ask_wait(&ret->ask, err);
}

/* --- requests to the owner ---------------------------------------------------------------------------------------- */

#define PAGE_QUERY "limit=200"

const char *gb_arrival_url(const struct gb_arrival_config *config, const struct gb_fleet_node *node) {
    const char *url = NULL;
    size_t i;

    for (i = 0; i < config->url_count && !url; i++)
        url = gb_fleet_url_on(node, &config->urls[i].network);
    /* A node without URLs is in no named network, and may reach all of them. */
    if (config->url_count == 0 && node->url_count > 0)
        url = node->urls[0].url;
    return url;
}

int gb_arrival_locate(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_fleet_find find;
    const char *url;

    if (gb_arrival_find(arrival, &find, err) < 0)
        return -1;
    arrival->there = find.session;
    arrival->owner = find.owner;
    arrival->absent_s = find.absent_s;
    if (gb_name_equal(&find.session.node, &arrival->config.node))
        return 1;
    url = gb_arrival_url(&arrival->config, &find.owner);
    snprintf(arrival->base, sizeof(arrival->base), "%s", url ? url : "");
    if (!find.owner.alive)
        return gb_error_set(err, GB_ERR_OWNER_ABSENT, "the node \"%s\", which has the session \"%s\", is not there",
                            find.session.node.s, arrival->session.s);
    if (!url)
        return gb_error_set(err, GB_ERR_NODE_UNREACHABLE,
                            "the node \"%s\", which has the session \"%s\", is in no network of this one",
                            find.session.node.s, arrival->session.s);
    return gb_pull_origin_read(url, arrival->origin, err);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* "BASE/PATH?QUERY&ticket=..." */
static int write_url(struct gb_arrival *arrival, const char *method, const char *path, const char *query,
                     struct gb_fleet_call *call, struct gb_error *err) {
    char ticket[GB_FLEET_TICKET_SIZE] = "";
    int n;

    if (arrival->who[0] != '\0' && gb_fleet_ticket_make(arrival->config.fleet, method, path, query,
                                                        &arrival->owner.name, arrival->who, ticket, err) < 0)
        return -1;
    n = snprintf(call->url, sizeof(call->url), "%s%s%s%s%s%s", arrival->base, path, query[0] || ticket[0] ? "?" : "",
                 query,
                 !ticket[0] ? ""
                 : query[0] ? "&ticket="
                            : "ticket=",
                 ticket);
    return n > 0 && (size_t)n < sizeof(call->url)
               ? 0
               : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the URL of the session's owner is too long");
}

static enum gb_code code_of(const char *slug) {
    int code;

    for (code = GB_OK + 1; slug && code < GB_CODE_COUNT; code++)
        if (strcmp(gb_code_slug((enum gb_code)code), slug) == 0)
            return (enum gb_code)code;
    return GB_OK;
}

/* Takes the owner's problem as the error, if its code is known. A redirect means that the node has transferred the
 * session since the directory was read, or that the directory was restored. */
static int refused(const struct gb_arrival *arrival, const struct gb_fleet_call *call, const json_t *problem,
                   struct gb_error *err) {
    enum gb_code code = code_of(json_string_value(json_object_get(problem, "code")));
    const char *detail = json_string_value(json_object_get(problem, "detail"));

    if (call->status >= 300 && call->status < 400)
        return gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                            "the directory names the node \"%s\", and that node names another one; try again",
                            arrival->owner.name.s);
    if (code == GB_OK || !detail)
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the node \"%s\" answered %d, and does not say why",
                            arrival->owner.name.s, call->status);
    return gb_error_set(err, code, "node \"%s\": %.400s", arrival->owner.name.s, detail);
}

/* Returns the answer, or NULL with err. *ret_answered: the owner has answered. */
static json_t *ask(struct gb_arrival *arrival, const char *method, const char *path, const char *query, char *body,
                   bool *ret_answered, struct gb_error *err) {
    struct gb_fleet_call call = {.method = method, .body = body};
    json_t *root = NULL;

    *ret_answered = false;
    if (write_url(arrival, method, path, query, &call, err) < 0 || gb_arrival_request(arrival, &call, err) < 0)
        return NULL;
    *ret_answered = true;
    root = json_loadb(call.answer ? call.answer : "", call.bytes, JSON_REJECT_DUPLICATES, NULL);
    if (call.status != 200) {
        refused(arrival, &call, root, err);
        json_decref(root);
        root = NULL;
    } else if (!json_is_object(root)) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read", arrival->owner.name.s);
        json_decref(root);
        root = NULL;
    }
    free(call.answer);
    return root;
}

json_t *gb_arrival_get(struct gb_arrival *arrival, const char *path, const char *query, struct gb_error *err) {
    bool answered;

    return ask(arrival, "GET", path, query, NULL, &answered, err);
}

json_t *gb_arrival_post(struct gb_arrival *arrival, const char *path, json_t *body, bool *ret_answered,
                        struct gb_error *err) {
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *root = NULL;

    *ret_answered = false;
    if (text)
        root = ask(arrival, "POST", path, "", text, ret_answered, err);
    else
        gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    json_decref(body);
    free(text);
    return root;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

const char *gb_arrival_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

int gb_arrival_each(struct gb_arrival *arrival, const char *list, gb_arrival_each_fn *each, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    char query[512] = PAGE_QUERY;
    const json_t *item;
    const char *cursor;
    bool more;
    json_t *root;
    size_t i;
    int r = 0;

    snprintf(path, sizeof(path), "/v1/sessions/%s/%s", arrival->session.s, list);
    do {
        root = gb_arrival_get(arrival, path, query, err);
        if (!root)
            return -1;
        json_array_foreach(json_object_get(root, "items"), i, item) {
            r = each(arrival, item, err);
            if (r < 0)
                break;
        }
        cursor = json_string_value(json_object_get(root, "next_cursor"));
        more = cursor != NULL;
        if (more && (size_t)snprintf(query, sizeof(query), PAGE_QUERY "&cursor=%s", cursor) >= sizeof(query))
            r = gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the list of %s of the node \"%s\" cannot be read", list,
                             arrival->owner.name.s);
        json_decref(root);
    } while (r == 0 && more);
    return r;
}

/* --- answers to requests with a key ------------------------------------------------------------------------------- */

#define OPEN_PAUSE_MS 5
#define OPEN_TRIES 100 /* how often the owner is asked for answers that it is about to have */

/* Keys that are being written to the database. */
struct keeping {
    struct gb_arrival_wait wait;
    size_t pending; /* by the arrival's lock, as error */
    struct gb_error error;
};

static void release(struct keeping *keeping, const struct gb_error *error) {
    struct gb_arrival *arrival = keeping->wait.arrival;

    pthread_mutex_lock(&arrival->lock);
    if (error && keeping->error.code == GB_OK)
        keeping->error = *error;
    if (--keeping->pending == 0) {
        keeping->wait.done = true;
        pthread_cond_broadcast(&arrival->woken);
    }
    pthread_mutex_unlock(&arrival->lock);
}

static void kept(void *arg, const struct gb_error *error) {
    release(arg, error);
}

/* The database ends all writes soon. */
static int await(struct keeping *keeping, struct gb_error *err) {
    struct gb_arrival *arrival = keeping->wait.arrival;

    release(keeping, NULL);
    pthread_mutex_lock(&arrival->lock);
    while (!keeping->wait.done)
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    pthread_mutex_unlock(&arrival->lock);
    return keeping->error.code == GB_OK ? 0 : gb_error_move(err, &keeping->error);
}

static bool read_text(const json_t *item, const char *key, size_t length, char *ret) {
    const char *text = gb_arrival_text(item, key);

    if (strlen(text) != length)
        return false;
    memcpy(ret, text, length + 1);
    return true;
}

static int bring(struct gb_arrival *arrival, const json_t *item, struct keeping *keeping, struct gb_error *err) {
    const char *body = gb_arrival_text(item, "body");
    int status = (int)json_integer_value(json_object_get(item, "status"));
    struct gb_key_copy copy = {.left_us = json_integer_value(json_object_get(item, "left_us"))};
    int r;

    if (!read_text(item, "id", sizeof(copy.id) - 1, copy.id) ||
        (copy.id[0] != GB_KEY_WITHIN && copy.id[0] != GB_KEY_OF) ||
        !read_text(item, "fingerprint", sizeof(copy.fingerprint) - 1, copy.fingerprint))
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the keys that the node \"%s\" tells cannot be read",
                            arrival->owner.name.s);
    if (status > 0) {
        copy.answer = gb_idempotency_reply_new(status, gb_arrival_text(item, "headers"), body, strlen(body));
        if (!copy.answer)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    }
    pthread_mutex_lock(&arrival->lock);
    keeping->pending++;
    pthread_mutex_unlock(&arrival->lock);
    r = gb_key_bring(arrival->config.core, arrival->stage_id, &copy, kept, keeping, err);
    if (r < 0)
        release(keeping, NULL);
    gb_idempotency_reply_unref(copy.answer);
    return r;
}

static int bring_page(struct gb_arrival *arrival, json_t *root, struct gb_error *err) {
    struct keeping keeping = {.wait = {.arrival = arrival}, .pending = 1};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_error unkept = GB_ERROR_INIT;
    const json_t *item;
    size_t i;
    int r = 0;

    json_array_foreach(json_object_get(root, "keys"), i, item) {
        r = bring(arrival, item, &keeping, &why);
        if (r < 0)
            break;
    }
    if (await(&keeping, &unkept) < 0 && r == 0) {
        r = -1;
        gb_error_move(&why, &unkept);
    }
    return r < 0 ? gb_error_move(err, &why) : 0;
}

/* An owner of an earlier version does not know this step. */
static json_t *keys_ask(struct gb_arrival *arrival, bool last, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    json_t *body = json_pack("{s:s, s:I, s:b}", "step", "keys", "after", (json_int_t)arrival->keys_after, "last", last);
    struct gb_error why = GB_ERROR_INIT;
    bool answered;
    json_t *root;

    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/handover", arrival->session.s);
    root = gb_arrival_post(arrival, path, body, &answered, &why);
    if (root)
        return root;
    if (answered && (why.code == GB_ERR_UNKNOWN_FIELD || why.code == GB_ERR_INVALID_ARGUMENT))
        arrival->keyless = true;
    else
        gb_error_move(err, &why);
    return NULL;
}

int gb_arrival_bring_keys(struct gb_arrival *arrival, bool last, struct gb_error *err) {
    unsigned tries = 0;
    bool more = true;
    bool open = false;
    json_t *root;
    int r = 0;

    while (r == 0 && !arrival->keyless && (more || (last && open && tries++ < OPEN_TRIES))) {
        if (!more && !gb_arrival_pause(arrival, OPEN_PAUSE_MS))
            return gb_arrival_stopped_error(arrival, err);
        root = keys_ask(arrival, last, err);
        if (!root)
            return arrival->keyless ? 0 : -1;
        arrival->keys_after = (uint64_t)json_integer_value(json_object_get(root, "after"));
        more = json_is_true(json_object_get(root, "more"));
        open = json_is_true(json_object_get(root, "open"));
        r = bring_page(arrival, root, err);
        json_decref(root);
    }
    return r;
}
