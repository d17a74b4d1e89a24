#include "fleet/login.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "fleet/etcd.h"

#define CONNECT_MS 1000
#define TOTAL_MS 3000
#define ANSWER_MAX (1u << 16)
#define SPREAD_MS 1000 /* in which nodes log in again that etcd forgot together */

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

void gb_etcd_login_done(struct gb_etcd_login *login) {
    gb_http_client_cancel(&login->ask);
    free(login->body);
    free(login->header);
}

/* --- those that wait ---------------------------------------------------------------------------------------------- */

static void end(struct gb_etcd *etcd, const struct gb_error *err) {
    struct gb_etcd_call *call;

    etcd->login.open = false;
    while ((call = etcd->login.waiting)) {
        etcd->login.waiting = call->next_waiting;
        call->waits = false;
        gb_etcd_go_on(call, err);
    }
}

void gb_etcd_login_leave(struct gb_etcd *etcd, struct gb_etcd_call *call) {
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

/* The token of an answer, as a header; NULL: there is none. */
static char *header_of(const struct gb_http_ask *ask) {
    json_t *root = ask->status == 200 ? json_loads(ask->answer ? ask->answer : "", 0, NULL) : NULL;
    const char *token = json_string_value(json_object_get(root, "token"));
    char *header = NULL;

    if (token && strpbrk(token, "\r\n") == NULL && asprintf(&header, "Authorization: %s", token) < 0)
        header = NULL;
    json_decref(root);
    return header;
}

static void on_answer(struct gb_http_ask *ask) {
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
    end(etcd, login->header ? NULL : &err);
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
    login->ask.answer_max = ANSWER_MAX;
    login->ask.done = on_answer;
    if (gb_fleet_http_start(etcd->client, &login->ask, &err) < 0)
        end(etcd, &err);
}

void gb_etcd_login_wait(struct gb_etcd *etcd, struct gb_etcd_call *call) {
    struct gb_etcd_login *login = &etcd->login;
    uint64_t now = gb_boot_ms();
    uint32_t chance = 0;

    call->waits = true;
    call->next_waiting = login->waiting;
    login->waiting = call;
    if (login->open)
        return;
    login->open = true;
    /* A password costs etcd fifty milliseconds of a core. */
    if (login->again_ms > 0)
        gb_random(&chance, sizeof(chance), NULL);
    now = login->again_ms > now ? login->again_ms : now;
    gb_timer_set(etcd->timers, &login->timer, now + chance % SPREAD_MS, begin, etcd);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

bool gb_etcd_login_is_over(int status, const char *text, size_t n) {
    char why[160];

    if (status == 401)
        return true;
    if (status != 400)
        return false;
    (void)gb_refusal_read(text, n, why, sizeof(why));
    return strstr(why, "auth token") || strstr(why, "auth store is old") || strstr(why, "user name is empty");
}

/* Several calls find it out, one after the other. */
void gb_etcd_login_drop(struct gb_etcd *etcd, const struct gb_etcd_call *call) {
    if (etcd->login.header && call->header_used == etcd->login.header_number) {
        free(etcd->login.header);
        etcd->login.header = NULL;
    }
}
