#include "http/limits/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"

#define CLIENTS 65536

/* Many clients behind one address may start together. */
#define HANDSHAKES_BURST_S 10

static const struct {
    const char *name;
    const char *unit;    /* of a problem's member */
    const char *quota;   /* the unit of the RateLimit fields; NULL: no field for it */
    const char *address; /* options */
    const char *token;
    const char *text; /* what the bound counts */
} about[GB_HTTP_LIMITS] = {
    [GB_HTTP_LIMIT_REQUESTS] = {"requests", "requests/s", "requests", "--rate-requests", "--token-rate-requests",
                                "requests a second"},
    [GB_HTTP_LIMIT_BYTES] = {"bytes", "bytes/s", "content-bytes", "--rate-bytes", "--token-rate-bytes",
                             "bytes a second"},
    [GB_HTTP_LIMIT_CONNECTIONS] = {"connections", "connections", NULL, "--max-connections-per-address", "",
                                   "connections at a time"},
    [GB_HTTP_LIMIT_UPLOADS] = {"uploads", "uploads", NULL, "--max-uploads-per-client", "--max-uploads-per-token",
                               "open uploads in several requests"},
    [GB_HTTP_LIMIT_WAITS] = {"waits", "requests", "concurrent-requests", "--max-waits-per-client",
                             "--max-waits-per-token", "waiting requests at a time"},
    [GB_HTTP_LIMIT_LISTENERS] = {"listeners", "connections", "concurrent-requests", "--max-listeners-per-client",
                                 "--max-listeners-per-token", "listeners of the feed at a time"},
    [GB_HTTP_LIMIT_REPLIES] = {"replies", "bytes", NULL, "--max-reply-memory", "--max-reply-memory",
                               "bytes of replies that wait to be read"},
    [GB_HTTP_LIMIT_FAILURES] = {"failures", "requests", NULL, "--auth-failures", "", "failed authentications"},
    [GB_HTTP_LIMIT_HANDSHAKES] = {"handshakes", "connections/s", NULL, "--rate-handshakes", "",
                                  "new connections over TLS a second"},
};

const char *gb_http_limit_name(enum gb_http_limit limit) {
    return about[limit].name;
}

bool gb_limits_any(const struct gb_http_bound *bound) {
    return bound->requests_s || bound->bytes_s || bound->uploads || bound->waits || bound->listeners;
}

struct gb_http_bound gb_limits_whole(const struct gb_http_bound *bound) {
    struct gb_http_bound whole = *bound;

    if (whole.requests_burst == 0)
        whole.requests_burst = whole.requests_s * 2;
    if (whole.bytes_burst == 0)
        whole.bytes_burst = whole.bytes_s;
    if (whole.bytes_burst < whole.bytes_s / 4 + 1)
        whole.bytes_burst = whole.bytes_s / 4 + 1;
    return whole;
}

int gb_limits_init(struct gb_limits *limits, const struct gb_http_bounds *config, struct gb_error *err) {
    limits->config = *config;
    limits->config.address = gb_limits_whole(&config->address);
    limits->config.token = gb_limits_whole(&config->token);
    limits->bounds_address = gb_limits_any(&config->address);
    limits->bounds_token = gb_limits_any(&config->token);
    limits->clients = gb_clients_new(config->clients_max ? config->clients_max : CLIENTS, err);
    return limits->clients ? 0 : -1;
}

void gb_limits_done(struct gb_limits *limits) {
    gb_clients_unref(limits->clients);
}

void gb_limits_note(struct gb_limits *limits, enum gb_http_limit limit) {
    atomic_fetch_add_explicit(&limits->met[limit], 1, memory_order_relaxed);
}

bool gb_limits_handshake(struct gb_limits *limits, const struct gb_http_address *from) {
    const struct gb_http_bounds *config = &limits->config;
    struct gb_bucket_rate rate = {config->handshakes_s, config->handshakes_s * HANDSHAKES_BURST_S};
    struct gb_client *client;
    struct gb_client_key key;
    bool loopback;
    bool may;

    if (rate.per_s == 0 || from->family == 0 || gb_http_networks_have(config->trusted, config->trusted_count, from))
        return true;
    key = gb_client_key_of(from, &loopback);
    if (loopback && !config->local)
        return true;
    client = gb_client_get(limits->clients, key);
    may = gb_bucket_take(&client->handshakes, rate, 1, gb_clock_ns());
    gb_client_unref(client);
    if (!may)
        gb_limits_note(limits, GB_HTTP_LIMIT_HANDSHAKES);
    return may;
}

/* --- what the client learns --------------------------------------------------------------------------------------- */

static bool is_rate(enum gb_http_limit limit) {
    return limit == GB_HTTP_LIMIT_REQUESTS || limit == GB_HTTP_LIMIT_BYTES;
}

static uint64_t seconds_of(uint64_t ns) {
    return ns > GB_NS_PER_S ? (ns + GB_NS_PER_S - 1) / GB_NS_PER_S : 1;
}

int gb_limits_refuse(const struct gb_refusal_of *why, struct gb_error *err) {
    const char *whose = why->of_token ? "this token" : "this address";
    const char *option = why->of_token ? about[why->limit].token : about[why->limit].address;

    if (why->limit == GB_HTTP_LIMIT_FAILURES)
        return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                            "more than %" PRIu64 " requests of this address had a token that is not known "
                            "(%s): the next is looked at in %" PRIu64 " s; one with a valid token is answered",
                            why->permitted, option, seconds_of(why->wait_ns));
    if (is_rate(why->limit))
        return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                            "%s of %s are bounded by %" PRIu64 ", %" PRIu64 " at once (%s): ask again in %" PRIu64 " s",
                            about[why->limit].text, whose, why->permitted, why->burst, option,
                            seconds_of(why->wait_ns));
    return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                        "%s of %s are bounded by %" PRIu64 ", which is reached (%s): %s one of them first",
                        about[why->limit].text, whose, why->permitted, option,
                        why->limit == GB_HTTP_LIMIT_REPLIES ? "read" : "end");
}

static void add_policy(const struct gb_refusal_of *why, uint64_t left, uint64_t wait_ns,
                       struct gb_http_response *response) {
    const char *name = about[why->limit].name;
    const char *quota = about[why->limit].quota;

    if (!quota)
        return;
    if (!is_rate(why->limit)) {
        gb_http_response_header(response, NULL, "RateLimit-Policy", "\"%s\";q=%" PRIu64 ";qu=\"%s\"", name,
                                why->permitted, quota);
        gb_http_response_header(response, NULL, "RateLimit", "\"%s\";r=%" PRIu64, name, left);
        return;
    }
    gb_http_response_header(response, NULL, "RateLimit-Policy", "\"%s\";q=%" PRIu64 ";w=%" PRIu64 ";qu=\"%s\"", name,
                            why->burst, (why->burst + why->permitted - 1) / why->permitted, quota);
    gb_http_response_header(response, NULL, "RateLimit", "\"%s\";r=%" PRIu64 ";t=%" PRIu64, name, left,
                            wait_ns > 0 ? seconds_of(wait_ns) : 0);
}

void gb_limits_explain(const struct gb_refusal_of *why, struct gb_http_response *response) {
    uint64_t seconds = seconds_of(why->wait_ns);
    char text[256];
    char *copy;
    int n;

    gb_http_response_header(response, NULL, "Retry-After", "%" PRIu64, seconds);
    add_policy(why, 0, why->wait_ns, response);
    n = snprintf(text, sizeof(text),
                 ",\"limit\":{\"name\":\"%s\",\"of\":\"%s\",\"permitted\":%" PRIu64 ",\"unit\":\"%s\"",
                 about[why->limit].name, why->of_token ? "token" : "address", why->permitted, about[why->limit].unit);
    if (is_rate(why->limit))
        n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"burst\":%" PRIu64, why->burst);
    n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"retry_after_s\":%" PRIu64 "}", seconds);
    copy = strdup(text);
    gb_http_response_problem(response, NULL, copy, copy ? (size_t)n : 0);
}

void gb_limits_advertise(const struct gb_client *client, struct gb_http_response *response) {
    struct gb_bucket_rate rate = gb_client_requests(client);
    struct gb_refusal_of what = {.limit = GB_HTTP_LIMIT_REQUESTS, .permitted = rate.per_s, .burst = rate.burst};
    uint64_t now_ns = gb_clock_ns();

    if (rate.per_s > 0)
        add_policy(&what, gb_bucket_left(&client->requests, rate, now_ns),
                   gb_bucket_wait_ns(&client->requests, rate, rate.burst, now_ns), response);
}
