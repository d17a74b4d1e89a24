/* One connection by libcurl: a request, its answer, and again where that may be. */
#include "client/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "client/client.h"
#include "client/epochs.h"
#include "client/http_peer.h"
#include "client/socket.h"

#define LOOK_MS 100 /* how soon an interruption is seen, and how often tick is called */
#define PAUSE_FIRST_MS 50
#define PAUSE_MAX_MS 2000
#define RETRY_AFTER_MAX_S 10
#define REDIRECTED 1 /* of an attempt */

uint64_t gbc_now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int gbc_http_begin(void) {
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -1;
}

void gbc_http_end(void) {
    curl_global_cleanup();
}

struct gbc_conn *gbc_conn_new(struct gbc_settings *set, struct gpubuf_error *err) {
    struct gbc_conn *conn = calloc(1, sizeof(*conn));

    if (!conn) {
        gbc_error_memory(err);
        return NULL;
    }
    conn->set = set;
    conn->easy = curl_easy_init();
    conn->multi = curl_multi_init();
    if (!conn->easy || !conn->multi) {
        gbc_conn_free(conn);
        gbc_error_memory(err);
        return NULL;
    }
    return conn;
}

void gbc_conn_free(struct gbc_conn *conn) {
    if (!conn)
        return;
    curl_easy_cleanup(conn->easy);
    curl_multi_cleanup(conn->multi);
    gbc_reply_done(&conn->reply);
    gbc_text_done(&conn->hop);
    gbc_text_done(&conn->origin);
    free(conn);
}

struct gbc_reply *gbc_reply_of(struct gbc_conn *conn) {
    return &conn->reply;
}

double gbc_took_ms(const struct gbc_conn *conn) {
    return conn->took_ms;
}

/* --- one attempt -------------------------------------------------------------------------------------------------- */

static int interrupted(struct gbc_conn *conn, struct gpubuf_error *err) {
    struct gbc_request *request = conn->request;

    if (request->even_so)
        return 0;
    if (atomic_load(&conn->set->interrupted))
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (request->tick && request->tick(request->tick_arg) != 0)
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "the progress callback asked for it");
    return 0;
}

static int overdue(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_settings *set = conn->set;
    uint64_t since = gbc_now_ms() - conn->moved_ms;

    if (conn->sent && !conn->answered) {
        if (since >= set->answer_ms + conn->request->wait_s * (uint64_t)1000)
            return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "no answer within %llu s of the request",
                                 (unsigned long long)(since / 1000));
    } else if (since >= set->stall_ms + set->connect_ms + conn->request->quiet_ms) {
        return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "nothing moved for %llu s",
                             (unsigned long long)(since / 1000));
    }
    return 0;
}

/* Runs it to its end: 0, or -1 with err. */
static int run(struct gbc_conn *conn, CURLcode *ret, struct gpubuf_error *err) {
    uint64_t look_ms = 0;
    CURLMsg *message;
    int running = 1;
    int left;

    while (running > 0) {
        if (curl_multi_perform(conn->multi, &running) != CURLM_OK)
            return gbc_error_set(err, GPUBUF_NO_MEMORY, "libcurl cannot go on");
        if (running > 0) {
            if (gbc_now_ms() >= look_ms) {
                if (interrupted(conn, err) < 0 || overdue(conn, err) < 0)
                    return -1;
                look_ms = gbc_now_ms() + LOOK_MS;
            }
            curl_multi_poll(conn->multi, NULL, 0, LOOK_MS, NULL);
        }
    }
    *ret = CURLE_RECV_ERROR;
    while ((message = curl_multi_info_read(conn->multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE)
            *ret = message->data.result;
    }
    return 0;
}

/* No daemon listens, or it refuses the connection: for a UNIX socket the reason is known. */
static int unreached(struct gbc_conn *conn, const char *said, struct gpubuf_error *err) {
    char why[GBC_REFUSAL_SIZE];
    long number = 0;

    if (conn->set->socket && conn->hops == 0)
        curl_easy_getinfo(conn->easy, CURLINFO_OS_ERRNO, &number);
    if (number == EACCES || number == EPERM) {
        gbc_socket_refusal(conn->set->socket, why, sizeof(why));
        said = why;
    } else if (number != 0 && strerrordesc_np((int)number)) { /* libcurl speaks of a host and a port */
        said = strerrordesc_np((int)number);
    }
    return gbc_error_set(err, GPUBUF_CANNOT_CONNECT, "%s cannot be reached: %s", gbc_redirect_origin(conn), said);
}

static int told(struct gbc_conn *conn, CURLcode code, struct gpubuf_error *err) {
    const char *url = gbc_redirect_origin(conn);
    const char *said = conn->said[0] != '\0' ? conn->said : curl_easy_strerror(code);

    if (conn->inner.code != GPUBUF_OK) {
        if (err && err->code == GPUBUF_OK)
            *err = conn->inner;
        return -1;
    }
    if (!gbc_redirect_away(conn) && gbc_peer_explain(conn, code, false, said, err) < 0)
        return -1;
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return unreached(conn, said, err);
    case CURLE_OPERATION_TIMEDOUT:
        return gbc_error_set(err, conn->sent || conn->answered ? GPUBUF_CLIENT_TIMEOUT : GPUBUF_CANNOT_CONNECT,
                             "%s: %s", url, said);
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return gbc_error_set(err, GPUBUF_CONNECTION_LOST, "the connection to %s ended before the answer did: %s", url,
                             said);
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
        return gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", url, said);
    case CURLE_OUT_OF_MEMORY:
        return gbc_error_memory(err);
    case CURLE_URL_MALFORMAT:
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s: %s", url, said);
    default:
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "%s: %s", url, said);
    }
}

/* A gpubufd gives none but within a fleet. To follow one could take the token to another host, or out of TLS. */
static int redirected(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *to = conn->reply.location.bytes > 0 ? conn->reply.location.data : "nowhere";

    return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                         "%s redirects to %.256s (status %d), which is not followed: give the daemon's own address",
                         gbc_redirect_origin(conn), to, conn->reply.status);
}

/* While there are tokens, the paths from /v1 on need one. */
static bool is_guarded(const struct gbc_request *request) {
    return strncmp(request->target.data, "/v1", 3) == 0;
}

/* An earlier request of this client was let in, perhaps the first half of this one. */
static int token_ended(const struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_text *body = &conn->reply.body;
    struct gpubuf_error why;
    char said[256];

    gbc_error_init(&why);
    gbc_error_problem(&why, conn->reply.status, body->failed ? NULL : body->data, body->failed ? 0 : body->bytes);
    if (why.code == GPUBUF_UNAUTHENTICATED) {
        gbc_copy(said, sizeof(said), why.detail);
        snprintf(why.detail, sizeof(why.detail),
                 "the token, which the daemon accepted before, ended while it was in use: %s", said);
    }
    if (err && err->code == GPUBUF_OK)
        *err = why;
    return -1;
}

static int judge(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_text *body = &conn->reply.body;

    if (conn->reply.status < 100)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "%s gave no HTTP status", gbc_redirect_origin(conn));
    if (conn->reply.status != 400)
        atomic_store(&conn->set->spoken, 1);
    if (conn->reply.status >= 300 && conn->reply.status < 400 && conn->reply.status != 304)
        return redirected(conn, err);
    if (conn->reply.status < 400)
        return body->failed ? gbc_error_memory(err) : 0;
    if (conn->reply.status == 401 && atomic_load(&conn->set->let_in) && !gbc_redirect_away(conn))
        return token_ended(conn, err);
    if (conn->reply.status == 400 && !gbc_redirect_away(conn) && gbc_peer_other_scheme(conn, err) < 0)
        return -1;
    gbc_error_problem(err, conn->reply.status, body->failed ? NULL : body->data, body->failed ? 0 : body->bytes);
    if (err)
        err->retry_after_s = conn->reply.retry_after_s;
    return -1;
}

static int attempt(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    CURLcode code = CURLE_OK;
    curl_off_t took_us = 0;
    int r;

    conn->took_ms = -1;
    conn->request = request;
    conn->moved_ms = gbc_now_ms();
    conn->sent = false;
    conn->answered = false;
    conn->said[0] = '\0';
    gbc_error_init(&conn->inner);
    gbc_reply_clear(&conn->reply);
    if (gbc_conn_set(conn, err) < 0 || curl_multi_add_handle(conn->multi, conn->easy) != CURLM_OK) {
        gbc_conn_unset(conn);
        return gbc_error_memory(err);
    }
    r = run(conn, &code, err);
    conn->code = code;
    if (curl_easy_getinfo(conn->easy, CURLINFO_TOTAL_TIME_T, &took_us) == CURLE_OK)
        conn->took_ms = (double)took_us / 1e3;
    curl_multi_remove_handle(conn->multi, conn->easy);
    gbc_conn_unset(conn);
    if (conn->answered && conn->reply.status < 400 && conn->set->token && is_guarded(request))
        atomic_store(&conn->set->let_in, 1);
    if (r < 0)
        return -1;
    if (conn->answered && gbc_redirect_is(&conn->reply))
        r = REDIRECTED;
    else
        r = code == CURLE_OK ? judge(conn, err) : told(conn, code, err);
    if (conn->answered)
        gbc_epochs_answer(conn->set->epochs, request->method, request->target.data, &conn->reply,
                          r < 0 ? err->code : GPUBUF_OK);
    return r;
}

/* --- and again ---------------------------------------------------------------------------------------------------- */

/* A daemon's 429: a rate passes. Another bound passes when the client ends something, and a further guess of the token
 * only makes the wait longer. The answer to HEAD does not say whose it is. */
static bool may_pass(const struct gbc_conn *conn, const struct gpubuf_error *why) {
    bool named = why->code == GPUBUF_TOO_MANY_REQUESTS || strcmp(conn->request->method, "HEAD") == 0;

    return conn->reply.rate_limited || !named;
}

/* What passes, and not within seconds. */
static bool takes_long(int code) {
    return code == GPUBUF_TIMED_OUT || code == GPUBUF_NOT_LOADED || code == GPUBUF_OWNER_ABSENT ||
           code == GPUBUF_NODE_UNREACHABLE;
}

/* It may have been carried out. An owner that became uncertain says so in place of the answer to a change. */
static bool is_unknown(const struct gpubuf_error *why) {
    return why->code == GPUBUF_CONNECTION_LOST || why->code == GPUBUF_OWNER_UNCERTAIN;
}

/* The request was not carried out and may succeed later, or its outcome is unknown and it is idempotent. A load is
 * waited for in another way: put.c asks for it. */
static bool may_repeat(const struct gbc_conn *conn, const struct gpubuf_error *why) {
    const struct gbc_request *request = conn->request;
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    bool writes = strcmp(request->method, "PUT") == 0 || strcmp(request->method, "DELETE") == 0;

    if (request->once)
        return false;
    if (why->code == GPUBUF_CANNOT_CONNECT || why->code == GPUBUF_TICKET_INVALID)
        return true;
    if (!reads && !writes && !request->keyed)
        return false;
    if (why->status == 429 && !may_pass(conn, why))
        return false;
    if (is_unknown(why))
        return reads || request->keyed || !request->conditional;
    if (why->status == 503 || why->status == 429)
        return why->retryable && !takes_long(why->code);
    return false;
}

static bool rewound(struct gbc_request *request) {
    if (request->up && (!request->up->rewind || request->up->rewind(request->up->arg) < 0))
        return false;
    return !request->again || request->again(request) == 0;
}

int gbc_pause(struct gbc_conn *conn, uint64_t ms, struct gpubuf_error *err) {
    uint64_t end = gbc_now_ms() + ms;

    for (;;) {
        uint64_t now = gbc_now_ms();

        if (interrupted(conn, err) < 0)
            return -1;
        if (now >= end)
            return 0;
        curl_multi_poll(conn->multi, NULL, 0, end - now < LOOK_MS ? (int)(end - now) : LOOK_MS, NULL);
    }
}

static void trace(struct gbc_conn *conn, const struct gbc_request *request, uint64_t began_ms,
                  const struct gpubuf_error *why) {
    struct gbc_text line = {.data = NULL};

    if (!conn->set->trace || request->mute)
        return;
    /* A URL of another node has a ticket in it: it is left out. */
    gbc_text_addf(&line, "%s %s%s -> ", request->method, conn->hops > 0 ? conn->origin.data : "", request->target.data);
    if (conn->reply.status > 0)
        gbc_text_addf(&line, "%d", conn->reply.status);
    if (why->code != GPUBUF_OK)
        gbc_text_addf(&line, "%s%s", conn->reply.status > 0 ? " " : "", why->slug);
    gbc_text_addf(&line, " (%llu ms)", (unsigned long long)(gbc_now_ms() - began_ms));
    if (!line.failed)
        conn->set->trace(conn->set->trace_arg, line.data);
    gbc_text_done(&line);
}

/* A connection that ended without a word: perhaps TLS is spoken there. */
static void reconsider(struct gbc_conn *conn, struct gpubuf_error *why) {
    struct gpubuf_error found;

    gbc_error_init(&found);
    if (why->code == GPUBUF_CONNECTION_LOST && !conn->set->tls && !gbc_redirect_away(conn) &&
        gbc_peer_explain(conn, conn->code, true, "", &found) < 0)
        *why = found;
}

/* One attempt at the client's own daemon, and where that is a node of a fleet, at those that it names. */
static int attempt_all(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    int r;

    gbc_redirect_home(conn);
    do {
        uint64_t began_ms = gbc_now_ms();

        r = interrupted(conn, err) < 0 ? -1 : attempt(conn, request, err);
        trace(conn, request, began_ms, err);
        if (r == REDIRECTED && gbc_redirect_take(conn, err) < 0)
            return -1;
    } while (r == REDIRECTED);
    return r;
}

int gbc_perform(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    uint64_t pause_ms = PAUSE_FIRST_MS;
    bool lost = false;
    unsigned tries;

    if (request->target.failed || request->headers.failed || request->json.failed)
        gbc_error_memory(&request->wrong);
    if (request->wrong.code != GPUBUF_OK) {
        if (err && err->code == GPUBUF_OK)
            *err = request->wrong;
        return -1;
    }
    for (tries = 0;; tries++) {
        struct gpubuf_error why;
        uint64_t ms = pause_ms;
        int r;

        gbc_error_init(&why);
        conn->request = request;
        r = attempt_all(conn, request, &why);
        /* What was deleted before the connection was lost is not found the second time. */
        if (r < 0 && lost && why.status == 404 && strcmp(request->method, "DELETE") == 0) {
            conn->reply.status = 204;
            r = 0;
        }
        if (r == 0)
            return 0;
        if (why.retry_after_s > 0)
            ms = (uint64_t)(why.retry_after_s < RETRY_AFTER_MAX_S ? why.retry_after_s : RETRY_AFTER_MAX_S) * 1000;
        if (tries >= conn->set->retries || !may_repeat(conn, &why) || !rewound(request) ||
            gbc_pause(conn, ms, &why) < 0) {
            reconsider(conn, &why);
            if (err && err->code == GPUBUF_OK)
                *err = why;
            return -1;
        }
        lost = lost || is_unknown(&why);
        pause_ms = pause_ms * 4 < PAUSE_MAX_MS ? pause_ms * 4 : PAUSE_MAX_MS;
    }
}
