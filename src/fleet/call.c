/* Small requests to other nodes. One that does not answer is left alone for a while. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

#define BREAKERS_MAX 256
#define FAILURES_MAX 3
#define CLOSED_MS 5000
#define CONNECT_MS 1000
#define ANSWER_MAX (1u << 20)

/* --- breakers ----------------------------------------------------------------------------------------------------- */

/* Of a node that failed lately. */
struct gb_breaker {
    struct gb_breaker *next;
    char origin[GB_FLEET_URL_SIZE]; /* "http://HOST:PORT" */
    unsigned failures;              /* in a row */
    uint64_t until_ms;
};

void gb_breakers_free(struct gb_fleet *fleet) {
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

/* The breaker and the place from which it hangs; NULL if there is none. */
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
