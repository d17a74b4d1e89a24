/* The directory over HTTP: calls to etcd's endpoints or to hubs, with deadlines and repetitions, the login of a user,
 * and the clock and timers of the fleet's thread. Everything runs on that thread. The other files of src/fleet make the
 * transactions and call gb_etcd_send. */
#include "fleet/directory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "fleet/records.h"

/* --- timer -------------------------------------------------------------------------------------------------------- */

/* CLOCK_BOOTTIME continues while the machine sleeps, as leases do. */
uint64_t gb_boot_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return ((uint64_t)now.tv_sec * GB_NS_PER_S + (uint64_t)now.tv_nsec) / GB_NS_PER_MS;
}

void gb_timer_clear(struct gb_timers *timers, struct gb_timer *timer) {
    struct gb_timer **at = &timers->first;

    if (!timer->set)
        return;
    while (*at && *at != timer)
        at = &(*at)->next;
    if (*at)
        *at = timer->next;
    timer->set = false;
}

void gb_timer_set(struct gb_timers *timers, struct gb_timer *timer, uint64_t at_ms, void (*fn)(void *arg), void *arg) {
    struct gb_timer **at = &timers->first;

    gb_timer_clear(timers, timer);
    while (*at && (*at)->at_ms <= at_ms)
        at = &(*at)->next;
    *timer = (struct gb_timer){.at_ms = at_ms, .fn = fn, .arg = arg, .next = *at, .set = true};
    *at = timer;
}

uint64_t gb_timers_run(struct gb_timers *timers, uint64_t most_ms) {
    uint64_t now = gb_boot_ms();
    uint64_t left;

    while (timers->first && timers->first->at_ms <= now) {
        struct gb_timer *timer = timers->first;

        timers->first = timer->next;
        timer->set = false;
        timer->fn(timer->arg);
    }
    if (!timers->first)
        return most_ms;
    now = gb_boot_ms();
    left = timers->first->at_ms > now ? timers->first->at_ms - now : 0;
    return left < most_ms ? left : most_ms;
}

/* --- etcd --------------------------------------------------------------------------------------------------------- */

#define CONNECT_MS 1000
#define ANSWER_MAX (8u << 20)
#define BACKOFF_MS 500

static const char *const paths[] = {
    [GB_ETCD_TXN] = "/v3/kv/txn",
    [GB_ETCD_GRANT] = "/v3/lease/grant",
    [GB_ETCD_KEEPALIVE] = "/v3/lease/keepalive",
    [GB_ETCD_TIMETOLIVE] = "/v3/lease/timetolive",
    [GB_ETCD_REVOKE] = "/v3/lease/revoke",
    [GB_ETCD_WAIT] = "",
};
static const char *const hub_paths[] = {
    [GB_ETCD_TXN] = "/v1/fleet/directory/txn",
    [GB_ETCD_GRANT] = "/v1/fleet/directory/grant",
    [GB_ETCD_KEEPALIVE] = "/v1/fleet/directory/keepalive",
    [GB_ETCD_TIMETOLIVE] = "/v1/fleet/directory/timetolive",
    [GB_ETCD_REVOKE] = "/v1/fleet/directory/revoke",
    [GB_ETCD_WAIT] = "/v1/fleet/directory/wait",
};

/* A member gives a request up after two seconds. With hasleader, a member without a leader fails it at once.
 * Serializable reads go without hasleader, because such a member can answer them. */
#define TIMEOUT_HEADER "Grpc-Timeout: 2S"
#define LEADER_HEADER "Grpc-Metadata-hasleader: true"

/* --- login -------------------------------------------------------------------------------------------------------- */

static void resume(struct gb_etcd_call *call, const struct gb_error *err);

#define TOTAL_MS 3000
#define LOGIN_ANSWER_MAX (1u << 16)
#define SPREAD_MS 1000 /* nodes whose tokens ended together log in within this time */

int gb_etcd_login_init(struct gb_etcd_login *login, const char *user, struct gb_error *err) {
    const char *colon = strchr(user, ':');
    json_t *root;

    if (!colon || colon == user)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a user of etcd is written NAME:PASSWORD");
    root = json_pack("{s:s%, s:s}", "name", user, (size_t)(colon - user), "password", colon + 1);
    login->body = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return login->body ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet, or its user is not UTF-8");
}

static void login_done(struct gb_etcd_login *login) {
    gb_http_client_cancel(&login->ask);
    free(login->body);
    free(login->header);
}

/* --- those that wait ---------------------------------------------------------------------------------------------- */

static void login_end(struct gb_etcd *etcd, const struct gb_error *err) {
    struct gb_etcd_call *call;

    etcd->login.open = false;
    while ((call = etcd->login.waiting)) {
        etcd->login.waiting = call->next_waiting;
        call->waits = false;
        resume(call, err);
    }
}

/* The cancelled call no longer waits for a token. */
static void login_leave(struct gb_etcd *etcd, struct gb_etcd_call *call) {
    struct gb_etcd_call **at = &etcd->login.waiting;

    if (!call->waits)
        return;
    while (*at && *at != call)
        at = &(*at)->next_waiting;
    if (*at)
        *at = call->next_waiting;
    call->waits = false;
}

/* --- logging in --------------------------------------------------------------------------------------------------- */

/* The token of an answer as a header, or NULL. */
static char *header_of(const struct gb_http_ask *ask) {
    json_t *root = ask->status == 200 ? json_loads(ask->answer ? ask->answer : "", 0, NULL) : NULL;
    const char *token = json_string_value(json_object_get(root, "token"));
    char *header = NULL;

    if (token && strpbrk(token, "\r\n") == NULL && asprintf(&header, "Authorization: %s", token) < 0)
        header = NULL;
    json_decref(root);
    return header;
}

static void login_on_answer(struct gb_http_ask *ask) {
    struct gb_etcd_login *login = gb_container_of(ask, struct gb_etcd_login, ask);
    struct gb_etcd *etcd = gb_container_of(login, struct gb_etcd, login);
    struct gb_error err = GB_ERROR_INIT;
    char why[160] = "";

    login->header = header_of(ask);
    login->header_number++;
    if (!login->header) {
        if (ask->status > 0)
            (void)gb_refusal_read(ask->answer ? ask->answer : "", ask->bytes, why, sizeof(why));
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "%s does not let the user in: %s",
                     etcd->endpoints[login->endpoint], ask->status > 0 ? why : ask->why);
        login->endpoint = (login->endpoint + 1) % etcd->count;
    }
    free(ask->answer);
    ask->answer = NULL;
    login->again_ms = gb_boot_ms() + SPREAD_MS;
    login_end(etcd, login->header ? NULL : &err);
}

static void begin(void *arg) {
    struct gb_etcd *etcd = arg;
    struct gb_etcd_login *login = &etcd->login;
    struct gb_error err = GB_ERROR_INIT;

    snprintf(login->url, sizeof(login->url), "%s/v3/auth/authenticate", etcd->endpoints[login->endpoint]);
    login->ask = (struct gb_http_ask){.method = "POST", .url = login->url, .body = login->body};
    login->ask.body_bytes = strlen(login->body);
    login->ask.connect_ms = CONNECT_MS;
    login->ask.total_ms = TOTAL_MS;
    login->ask.answer_max = LOGIN_ANSWER_MAX;
    login->ask.done = login_on_answer;
    if (gb_fleet_http_start(etcd->client, &login->ask, &err) < 0)
        login_end(etcd, &err);
}

/* The call continues, or fails, when the login has ended. */
static void login_wait(struct gb_etcd *etcd, struct gb_etcd_call *call) {
    struct gb_etcd_login *login = &etcd->login;
    uint64_t now = gb_boot_ms();
    uint32_t chance = 0;

    call->waits = true;
    call->next_waiting = login->waiting;
    login->waiting = call;
    if (login->open)
        return;
    login->open = true;
    /* Checking a password costs etcd 50 ms of a core: repeated logins are spread. */
    if (login->again_ms > 0)
        gb_random(&chance, sizeof(chance), NULL);
    now = login->again_ms > now ? login->again_ms : now;
    gb_timer_set(etcd->timers, &login->timer, now + chance % SPREAD_MS, begin, etcd);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

/* Whether an answer says that the token is no longer valid. */
static bool login_has_ended(int status, const char *text, size_t n) {
    char why[160];

    if (status == 401)
        return true;
    if (status != 400)
        return false;
    (void)gb_refusal_read(text, n, why, sizeof(why));
    return strstr(why, "auth token") || strstr(why, "auth store is old") || strstr(why, "user name is empty");
}

/* Several calls may carry the same invalid token: only the first drops it. */
static void login_drop(struct gb_etcd *etcd, const struct gb_etcd_call *call) {
    if (etcd->login.header && call->header_used == etcd->login.header_number) {
        free(etcd->login.header);
        etcd->login.header = NULL;
    }
}

/* --- endpoints ---------------------------------------------------------------------------------------------------- */

static int add_endpoint(struct gb_etcd *etcd, const char *text, size_t n, struct gb_error *err) {
    char *url = strndup(text, n);

    if (!url)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory");
    while (n > 0 && url[n - 1] == '/')
        url[--n] = '\0';
    if (etcd->count == GB_ETCD_ENDPOINTS_MAX || !gb_fleet_url_is_valid(url)) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "--fleet: \"%s\" is no endpoint: a URL, at most %d with commas between", url,
                     GB_ETCD_ENDPOINTS_MAX);
        free(url);
        return -1;
    }
    etcd->endpoints[etcd->count++] = url;
    return 0;
}

int gb_etcd_init(struct gb_etcd *etcd, const char *endpoints, struct gb_http_client *client, struct gb_timers *timers,
                 struct gb_error *err) {
    const char *at = endpoints;

    *etcd = (struct gb_etcd){.client = client, .timers = timers, .most_ms = 30000};
    for (;;) {
        size_t n = strcspn(at, ",");

        if (add_endpoint(etcd, at, n, err) < 0) {
            gb_etcd_done(etcd);
            return -1;
        }
        if (at[n] == '\0')
            return 0;
        at += n + 1;
    }
}

void gb_etcd_done(struct gb_etcd *etcd) {
    while (etcd->count > 0)
        free(etcd->endpoints[--etcd->count]);
    login_done(&etcd->login);
    free(etcd->as);
    free(etcd->authorization);
}

int gb_etcd_by_hubs(struct gb_etcd *etcd, const char *node, const char *secret, struct gb_error *err) {
    if (asprintf(&etcd->as, "?node=%s", node) < 0)
        etcd->as = NULL;
    if (secret && secret[0] != '\0' && asprintf(&etcd->authorization, "Authorization: Bearer %s", secret) < 0)
        etcd->authorization = NULL;
    if (!etcd->as || (secret && secret[0] != '\0' && !etcd->authorization))
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    return 0;
}

uint64_t gb_etcd_again_ms(const struct gb_etcd *etcd) {
    uint64_t at = gb_boot_ms() + 1000;

    return etcd->majority.retry_ms > at ? etcd->majority.retry_ms : at;
}

int64_t gb_etcd_now_s(const struct gb_etcd *etcd) {
    return (gb_wall_us() / 1000 + atomic_load(&etcd->offset_ms)) / 1000;
}

/* Learns how far the clocks are apart. A Date is cut to whole seconds: half a second is added as the average. */
static void learn_offset(struct gb_etcd *etcd, const struct gb_http_ask *ask) {
    if (ask->date_s > 0)
        atomic_store(&etcd->offset_ms, ask->date_s * 1000 + 500 - ask->wall_us / 1000);
}

/* --- signs of a restore ------------------------------------------------------------------------------------------- */

static void suspect(struct gb_etcd *etcd, bool certain, unsigned for_s) {
    if (etcd->suspect)
        etcd->suspect(etcd->suspect_arg, certain, for_s);
}

void gb_etcd_check_connections(struct gb_etcd *etcd) {
    uint64_t breaks = gb_http_client_breaks(etcd->client);

    if (breaks == etcd->breaks)
        return;
    etcd->breaks = breaks;
    etcd->lost = true;
    suspect(etcd, false, 0);
}

void gb_etcd_rolled_back(struct gb_etcd *etcd) {
    suspect(etcd, true, 0);
}

/* The directory has answered. If it was lost before, it may have been away for long. */
static void meet(struct gb_etcd *etcd) {
    bool lost = etcd->lost;

    etcd->met = true;
    etcd->lost = false;
    if (lost)
        suspect(etcd, false, 0);
}

/* The revision in an answer of a majority is never below the one known when the request was sent, unless the directory
 * was restored. The term rises with each leader. Behind a proxy, which keeps its connections, only the term shows a
 * restart. */
static void compare_revision(struct gb_etcd_call *call) {
    const struct gb_txn_answer *txn = &call->txn;
    struct gb_etcd *etcd = call->etcd;
    bool rose;

    if (call->kind != GB_ETCD_TXN || call->need == GB_ETCD_MEMBER || call->raw)
        return;
    if (txn->revision < call->known || (txn->term > 0 && txn->term < call->term)) {
        etcd->revision = txn->revision;
        etcd->term = txn->term;
        suspect(etcd, true, 0);
        return;
    }
    rose = txn->term > etcd->term && etcd->term > 0;
    etcd->revision = txn->revision > etcd->revision ? txn->revision : etcd->revision;
    etcd->term = txn->term > etcd->term ? txn->term : etcd->term;
    if (rose)
        suspect(etcd, false, 0);
}

/* --- the outcome -------------------------------------------------------------------------------------------------- */

/* Half of the delay is random, so that nodes that were cut off together do not return together. */
static void back_off(struct gb_etcd_breaker *breaker, unsigned most_ms) {
    uint64_t now = gb_boot_ms();
    uint32_t chance = 0;
    unsigned next = breaker->backoff_ms > 0 ? 2 * breaker->backoff_ms : BACKOFF_MS;

    if (now < breaker->retry_ms)
        return; /* another call that failed at the same time has set this delay */
    breaker->backoff_ms = next < most_ms ? next : most_ms;
    gb_random(&chance, sizeof(chance), NULL);
    breaker->retry_ms = now + breaker->backoff_ms / 2 + chance % (breaker->backoff_ms / 2 + 1);
}

static struct gb_etcd_breaker *breaker_of(struct gb_etcd *etcd, enum gb_etcd_need need) {
    return need == GB_ETCD_MEMBER ? &etcd->member : &etcd->majority;
}

static void end(struct gb_etcd_call *call) {
    struct gb_txn_answer txn;
    struct gb_lease_answer lease;

    free(call->body);
    call->body = NULL;
    call->open = false;
    /* done may send the call again. */
    txn = call->txn;
    lease = call->lease;
    call->done(call);
    gb_txn_answer_done(&txn);
    gb_lease_answer_done(&lease);
}

static void fail(struct gb_etcd_call *call) {
    struct gb_etcd *etcd = call->etcd;

    atomic_fetch_add(&etcd->failures, 1);
    /* The breaker counts silence only. It ignores an answer that is too long, a wait that a hub ended, and answers to
     * another node's request. */
    if (!call->ask.too_long && call->kind != GB_ETCD_WAIT && !(call->raw && call->ask.status > 0))
        back_off(breaker_of(etcd, call->need), etcd->most_ms);
    call->txn = (struct gb_txn_answer){0};
    call->lease = (struct gb_lease_answer){0};
    end(call);
}

/* --- attempts ----------------------------------------------------------------------------------------------------- */

static void on_answer(struct gb_http_ask *ask);

int gb_fleet_http_start(struct gb_http_client *client, struct gb_http_ask *ask, struct gb_error *err) {
    ask->quick = true;
    return gb_http_client_start(client, ask) < 0
               ? gb_error_set(err, GB_ERR_SATURATED, "no memory for a request to another machine")
               : 0;
}

static void add_headers(struct gb_etcd_call *call) {
    const struct gb_etcd *etcd = call->etcd;

    if (etcd->as) {
        if (etcd->authorization)
            gb_http_ask_header(&call->ask, etcd->authorization);
        return;
    }
    gb_http_ask_header(&call->ask, TIMEOUT_HEADER);
    if (call->need != GB_ETCD_MEMBER)
        gb_http_ask_header(&call->ask, LEADER_HEADER);
    if (etcd->login.header)
        gb_http_ask_header(&call->ask, etcd->login.header);
    call->header_used = etcd->login.header_number;
}

static int attempt(struct gb_etcd_call *call) {
    struct gb_etcd *etcd = call->etcd;
    uint64_t now = gb_boot_ms();
    size_t left = etcd->count - call->attempts;
    unsigned total = call->deadline_ms > now ? (unsigned)(call->deadline_ms - now) : 0;

    if (etcd->login.body && !etcd->login.header) {
        login_wait(etcd, call);
        return 0;
    }
    if (left == 0 || total == 0)
        return gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory did not answer in time");
    /* A silent endpoint leaves time for the endpoints after it. */
    if (call->kind != GB_ETCD_WAIT && left > 1)
        total = total / (unsigned)left > 0 ? total / (unsigned)left : 1;
    call->endpoint = (call->first + call->attempts) % etcd->count;
    call->attempts++;
    snprintf(call->url, sizeof(call->url), "%s%s%s", etcd->endpoints[call->endpoint],
             etcd->as ? hub_paths[call->kind] : paths[call->kind], etcd->as ? etcd->as : "");
    call->ask = (struct gb_http_ask){.method = "POST", .url = call->url, .body = call->body};
    call->ask.body_bytes = strlen(call->body);
    call->ask.watched = true;
    call->ask.connect_ms = total < CONNECT_MS ? total : CONNECT_MS;
    call->ask.total_ms = total;
    call->ask.answer_max = ANSWER_MAX;
    /* Otherwise libcurl repeats it after an old connection breaks; if that then fails to connect, it seems never
     * sent. */
    call->ask.once = !call->repeat;
    call->ask.done = on_answer;
    call->sent_ms = now;
    call->known = etcd->revision;
    call->term = etcd->term;
    atomic_fetch_add(&etcd->requests, 1);
    add_headers(call);
    return gb_fleet_http_start(etcd->client, &call->ask, &call->error);
}

/* Returns 0 for a refusal that counts as an answer, or -1 with the reason. */
static int read_refusal(struct gb_etcd_call *call, const char *text, size_t n) {
    char why[160];
    int code = gb_refusal_read(text, n, why, sizeof(why));
    bool lease = call->kind == GB_ETCD_TXN || call->kind == GB_ETCD_REVOKE || call->kind == GB_ETCD_GRANT;

    if (lease && (code == GB_ETCD_NO_LEASE || code == GB_ETCD_LEASE_EXISTS)) {
        call->refusal = code;
        return 0;
    }
    call->etcd->full = call->etcd->full || code == GB_ETCD_NO_SPACE;
    /* A member that cannot reach the others may have forwarded the request. */
    call->carried = call->carried || call->ask.status >= 500;
    return gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE, "%s answered %d: %s",
                        call->etcd->endpoints[call->endpoint], call->ask.status, why);
}

static int read_answer(struct gb_etcd_call *call) {
    const struct gb_http_ask *ask = &call->ask;
    const char *text = ask->answer ? ask->answer : "";
    uint64_t cluster;
    int r;

    if (ask->status == 0)
        return gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE, "%s: %s", call->etcd->endpoints[call->endpoint],
                            ask->why);
    if (call->raw && ask->status < 500) {
        call->status = ask->status;
        call->answer = call->ask.answer;
        call->ask.answer = NULL;
        return 0;
    }
    if (ask->status != 200)
        return read_refusal(call, text, ask->bytes);
    if (call->kind == GB_ETCD_TXN || call->kind == GB_ETCD_WAIT)
        r = gb_txn_read(text, ask->bytes, &call->txn, &call->error);
    else
        r = gb_lease_read(text, ask->bytes, &call->lease, &call->error);
    if (r < 0)
        return -1;
    cluster = call->txn.cluster_id != 0 ? call->txn.cluster_id : call->lease.cluster_id;
    if (call->etcd->cluster_id == 0 || cluster == call->etcd->cluster_id)
        return 0;
    gb_txn_answer_done(&call->txn);
    gb_lease_answer_done(&call->lease);
    return gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE,
                        "%s is another directory: its cluster is %" PRIu64 ", the fleet's is %" PRIu64,
                        call->etcd->endpoints[call->endpoint], cluster, call->etcd->cluster_id);
}

/* The call has waited for a token. err: why the login failed, or NULL. */
static void resume(struct gb_etcd_call *call, const struct gb_error *err) {
    if (err)
        call->error = *err;
    else if (attempt(call) == 0)
        return;
    fail(call);
}

/* etcd refused the token and did nothing: the call is sent once more with a new token. */
static bool log_in_again(struct gb_etcd_call *call) {
    struct gb_http_ask *ask = &call->ask;

    if (!call->etcd->login.body || call->logged_in_again ||
        !login_has_ended(ask->status, ask->answer ? ask->answer : "", ask->bytes))
        return false;
    free(ask->answer);
    ask->answer = NULL;
    call->logged_in_again = true;
    call->attempts--;
    login_drop(call->etcd, call);
    if (attempt(call) < 0)
        fail(call);
    return true;
}

/* The hub is overloaded. Its nodes stay there, because they would overload the other hubs too. */
static bool is_busy(const struct gb_etcd_call *call) {
    return call->etcd->as && call->ask.status == 503 && call->ask.answer &&
           strstr(call->ask.answer, "\"saturated\"") != NULL;
}

/* A proxy answers for a directory that it cannot reach: etcd and hubs always answer with JSON. */
static bool is_gone(const struct gb_http_ask *ask) {
    return ask->status >= 502 && ask->status <= 504 && !(ask->answer && ask->answer[0] == '{');
}

static void on_answer(struct gb_http_ask *ask) {
    struct gb_etcd_call *call = gb_container_of(ask, struct gb_etcd_call, ask);
    struct gb_etcd *etcd = call->etcd;
    struct gb_error first;
    bool busy = is_busy(call);
    bool gone = is_gone(ask);
    int r;

    gb_etcd_check_connections(etcd);
    if (ask->status > 0 && ask->suspect_s > 0)
        suspect(etcd, false, ask->suspect_s);
    if (log_in_again(call))
        return;
    call->error = GB_ERROR_INIT;
    call->carried = call->carried || ask->sent;
    r = read_answer(call);
    free(ask->answer);
    ask->answer = NULL;
    if (r == 0) {
        learn_offset(etcd, ask);
        meet(etcd);
        compare_revision(call);
        etcd->preferred = call->endpoint;
        etcd->member = (struct gb_etcd_breaker){0};
        if (call->need != GB_ETCD_MEMBER)
            etcd->majority = (struct gb_etcd_breaker){0};
        end(call);
        return;
    }
    first = call->error;
    etcd->lost = etcd->lost || gone || (!etcd->met && ask->status == 0);
    if (etcd->preferred == call->endpoint && !busy)
        etcd->preferred = (etcd->preferred + 1) % etcd->count;
    /* A wait leaves no time for another one at the next endpoint. */
    if ((call->repeat || !call->carried) && !ask->too_long && !busy && call->attempts < etcd->count &&
        call->kind != GB_ETCD_WAIT) {
        call->error = GB_ERROR_INIT;
        if (attempt(call) == 0)
            return;
        call->error = first;
    }
    fail(call);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void on_refused(void *arg) {
    struct gb_etcd_call *call = arg;

    atomic_fetch_add(&call->etcd->failures, 1);
    end(call);
}

void gb_etcd_send(struct gb_etcd *etcd, struct gb_etcd_call *call, enum gb_etcd_kind kind, char *body,
                  uint64_t deadline_ms, bool repeat, enum gb_etcd_need need) {
    gb_etcd_check_connections(etcd);
    call->etcd = etcd;
    call->kind = kind;
    call->body = body;
    call->deadline_ms = deadline_ms;
    call->repeat = repeat;
    call->need = need;
    call->attempts = 0;
    call->ask.too_long = false;
    call->logged_in_again = false;
    call->first = etcd->preferred;
    call->error = GB_ERROR_INIT;
    call->carried = false;
    call->refusal = 0;
    call->status = 0;
    call->answer = NULL;
    call->txn = (struct gb_txn_answer){0};
    call->lease = (struct gb_lease_answer){0};
    call->open = true;
    if (!body)
        gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE, "no memory for a request to the directory");
    else if (need != GB_ETCD_PROBE && !call->raw && gb_boot_ms() < breaker_of(etcd, need)->retry_ms)
        gb_error_set(&call->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory did not answer lately");
    else if (attempt(call) == 0)
        return;
    gb_timer_set(etcd->timers, &call->timer, 0, on_refused, call);
}

void gb_etcd_cancel(struct gb_etcd_call *call) {
    if (!call->open)
        return;
    login_leave(call->etcd, call);
    gb_http_client_cancel(&call->ask);
    gb_timer_clear(call->etcd->timers, &call->timer);
    free(call->body);
    call->body = NULL;
    call->open = false;
}
