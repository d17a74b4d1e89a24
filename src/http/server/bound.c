/* A request and the bounds of its client: which client it counts for, what that may begin, and what the reply says of
 * it. http/limits has the clients and their counts. The thread that has the request calls this. */
#include "http/server/bound.h"

#include "base/clock.h"
#include "http/limits/limits.h"
#include "http/message/network.h"
#include "http/server/exchange.h"
#include "http/server/state.h"

/* --- which client ------------------------------------------------------------------------------------------------- */

void gb_bound_resolve(struct gb_exchange *ex) {
    const struct gb_http_bounds *config = &ex->server->limits.config;

    if (config->trusted_count == 0)
        return;
    gb_forwarded_resolve(&ex->req, config->forwarded, config->trusted, config->trusted_count);
    if (ex->req.from.family != 0) {
        ex->req.local = false;
        ex->req.peer = NULL;
    }
}

/* Loopback stands for all users of the machine, and often for a proxy with many clients. */
static bool address_key(const struct gb_exchange *ex, struct gb_client_key *ret) {
    bool local = ex->server->limits.config.local;
    bool loopback;

    if (ex->req.from.family == 0) {
        *ret = (struct gb_client_key){.low = ex->peer ? ex->peer->seen.uid : 0, .kind = GB_CLIENT_USER};
        return local;
    }
    *ret = gb_client_key_of(&ex->req.from, &loopback);
    return local || !loopback;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static int refuse_bound(struct gb_exchange *ex, struct gb_refusal_of why, struct gb_error *err) {
    why.of_token = ex->client && ex->client->key.kind == GB_CLIENT_TOKEN && why.limit != GB_HTTP_LIMIT_FAILURES;
    ex->refusal = why;
    gb_limits_note(&ex->server->limits, why.limit);
    return gb_limits_refuse(&why, err);
}

static int refuse_open(struct gb_exchange *ex, enum gb_open what, struct gb_error *err) {
    static const enum gb_http_limit limit[GB_OPENS] = {[GB_OPEN_UPLOADS] = GB_HTTP_LIMIT_UPLOADS,
                                                       [GB_OPEN_WAITS] = GB_HTTP_LIMIT_WAITS,
                                                       [GB_OPEN_LISTENERS] = GB_HTTP_LIMIT_LISTENERS};

    return refuse_bound(
        ex, (struct gb_refusal_of){.limit = limit[what], .permitted = atomic_load(&ex->client->bound.open[what])}, err);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Bodies that went out without asking (those are short) may have taken a burst more than there was. */
static int admit(struct gb_exchange *ex, struct gb_error *err) {
    struct gb_bucket_rate requests = gb_client_requests(ex->client);
    struct gb_bucket_rate bytes = gb_client_bytes(ex->client);
    uint64_t now_ns = gb_clock_ns();
    struct gb_refusal_of why = {.limit = GB_HTTP_LIMIT_BYTES, .permitted = bytes.per_s, .burst = bytes.burst};

    if (bytes.per_s > 0) {
        uint64_t debt_ns = gb_bucket_debt_ns(&ex->client->bytes, bytes, now_ns);
        uint64_t patience_ns = gb_bucket_ns(bytes, bytes.burst);

        why.wait_ns = debt_ns > patience_ns ? debt_ns - patience_ns : 0;
        if (why.wait_ns > 0)
            return refuse_bound(ex, why, err);
    }
    if (requests.per_s == 0 || gb_bucket_take(&ex->client->requests, requests, 1, now_ns))
        return 0;
    why = (struct gb_refusal_of){.limit = GB_HTTP_LIMIT_REQUESTS,
                                 .permitted = requests.per_s,
                                 .burst = requests.burst,
                                 .wait_ns = gb_bucket_wait_ns(&ex->client->requests, requests, 1, now_ns)};
    return refuse_bound(ex, why, err);
}

bool gb_http_bounds_tokens(const struct gb_http_request *request) {
    return ((const struct gb_exchange *)request)->server->limits.bounds_token;
}

int gb_http_bound_client(struct gb_http_request *request, uint64_t token, const struct gb_http_bound *bound,
                         struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_limits *limits = &ex->server->limits;
    struct gb_client_key key = {.low = token, .kind = GB_CLIENT_TOKEN};
    struct gb_http_bound whole;

    if (ex->client)
        return 0;
    if (token > 0 && bound)
        whole = gb_limits_whole(bound);
    else if (token > 0 ? !limits->bounds_token : !limits->bounds_address || !address_key(ex, &key))
        return 0;
    else
        whole = token > 0 ? limits->config.token : limits->config.address;
    if (!gb_limits_any(&whole))
        return 0;
    ex->client = gb_client_get_bound(limits->clients, key, &whole);
    return admit(ex, err);
}

void gb_bound_refused(struct gb_exchange *ex, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    gb_bound_resolve(ex);
    if (gb_http_bound_client(&ex->req, 0, NULL, &why) < 0)
        *err = why;
}

int gb_http_authentication_failed(struct gb_http_request *request, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_limits *limits = &ex->server->limits;
    struct gb_client *client;
    struct gb_client_key key;
    uint64_t wait_ns;

    if (limits->config.failures == 0 || !address_key(ex, &key))
        return 0;
    client = gb_client_get(limits->clients, key);
    wait_ns = gb_client_failed(client, limits->config.failures, gb_clock_ns());
    gb_client_unref(client);
    if (wait_ns == 0)
        return 0;
    *err = GB_ERROR_INIT;
    return refuse_bound(ex,
                        (struct gb_refusal_of){
                            .limit = GB_HTTP_LIMIT_FAILURES, .permitted = limits->config.failures, .wait_ns = wait_ns},
                        err);
}

/* --- what is open ------------------------------------------------------------------------------------------------- */

static int open_one(struct gb_exchange *ex, enum gb_open what, struct gb_client **ret, struct gb_error *err) {
    *ret = NULL;
    if (!ex->client)
        return 0;
    if (!gb_client_open(ex->client, what))
        return refuse_open(ex, what, err);
    *ret = gb_client_ref(ex->client);
    return 0;
}

int gb_http_upload_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err) {
    if (open_one(gb_exchange_of(request), GB_OPEN_UPLOADS, ret, err) < 0)
        return -1;
    if (*ret)
        gb_clients_ref(gb_clients_of(*ret));
    return 0;
}

void gb_http_upload_ended(void *client) {
    struct gb_clients *clients = client ? gb_clients_of(client) : NULL;

    if (!client)
        return;
    gb_client_close(client, GB_OPEN_UPLOADS);
    gb_client_unref(client);
    gb_clients_unref(clients);
}

int gb_bound_listener_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err) {
    return open_one(gb_exchange_of(request), GB_OPEN_LISTENERS, ret, err);
}

void gb_bound_listener_ended(struct gb_client *client) {
    if (!client)
        return;
    gb_client_close(client, GB_OPEN_LISTENERS);
    gb_client_unref(client);
}

int gb_bound_may_wait(struct gb_exchange *ex, struct gb_error *err) {
    if (!ex->client || ex->counted_wait)
        return 0;
    if (!gb_client_open(ex->client, GB_OPEN_WAITS))
        return refuse_open(ex, GB_OPEN_WAITS, err);
    ex->counted_wait = true;
    return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void gb_bound_explain(struct gb_exchange *ex) {
    if (ex->err.code == GB_ERR_TOO_MANY_REQUESTS)
        gb_limits_explain(&ex->refusal, &ex->resp);
}

void gb_bound_advertise(struct gb_exchange *ex) {
    if (ex->client && !ex->resp.canned)
        gb_limits_advertise(ex->client, &ex->resp);
}

void gb_bound_leave(struct gb_exchange *ex) {
    if (ex->counted_wait)
        gb_client_close(ex->client, GB_OPEN_WAITS);
    ex->counted_wait = false;
    gb_client_unref(ex->client);
    ex->client = NULL;
    gb_client_unref(ex->payer);
    ex->payer = NULL;
}

/* --- memory of replies -------------------------------------------------------------------------------------------- */

struct gb_client *gb_bound_payer(struct gb_exchange *ex) {
    struct gb_client_key key;

    if (!ex->payer && ex->client)
        ex->payer = gb_client_ref(ex->client);
    else if (!ex->payer && address_key(ex, &key))
        ex->payer = gb_client_get(ex->server->limits.clients, key);
    return ex->payer;
}

int gb_bound_refuse_reply(struct gb_exchange *ex, uint64_t permitted, struct gb_error *err) {
    return refuse_bound(ex, (struct gb_refusal_of){.limit = GB_HTTP_LIMIT_REPLIES, .permitted = permitted}, err);
}
