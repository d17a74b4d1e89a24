#include "fleet/http_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define DIRECTORY_TIME "gpubuf-directory-time:"
#define DIRECTORY_DOUBT "gpubuf-directory-doubt:"
#define WATCHED_MAX 64

struct gb_http_client {
    CURLM *multi;
    bool begun;
    int ends; /* an epoll that is readable when the other side has ended a connection of `watched` */
    int watched[WATCHED_MAX];
    size_t watched_count;
    uint64_t breaks;
    char *ca;
    char *cert;
    char *key;
};

uint64_t gb_boot_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * GB_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t gb_boot_ms(void) {
    return gb_boot_ns() / GB_NS_PER_MS;
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static bool copy(const char *text, char **ret) {
    *ret = NULL;
    if (!text || text[0] == '\0')
        return true;
    *ret = strdup(text);
    return *ret != NULL;
}

struct gb_http_client *gb_http_client_new(const struct gb_http_client_files *files, struct gb_error *err) {
    struct gb_http_client *client = calloc(1, sizeof(*client));

    if (client)
        client->ends = epoll_create1(EPOLL_CLOEXEC);
    /* Counted by libcurl, so that it is not for others to know who was first. */
    if (client && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        client->begun = true;
        client->multi = curl_multi_init();
    }
    if (!client || !client->multi || client->ends < 0 || !copy(files->ca, &client->ca) ||
        !copy(files->cert, &client->cert) || !copy(files->key, &client->key)) {
        gb_error_set(err, GB_ERR_INTERNAL, "libcurl does not start");
        gb_http_client_free(client);
        return NULL;
    }
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, 32l);
    return client;
}

void gb_http_client_free(struct gb_http_client *client) {
    if (!client)
        return;
    if (client->multi)
        curl_multi_cleanup(client->multi);
    if (client->begun)
        curl_global_cleanup();
    if (client->ends >= 0)
        close(client->ends);
    free(client->ca);
    free(client->cert);
    free(client->key);
    free(client);
}

/* --- connections that end ----------------------------------------------------------------------------------------- */

/* A connection by which an ask was answered: from now on its end is noticed. Without room it is as one that is none. */
static void watch(struct gb_http_client *client, CURL *easy) {
    struct epoll_event event = {.events = EPOLLRDHUP};
    curl_socket_t fd = CURL_SOCKET_BAD;
    size_t i;

    if (curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK || fd == CURL_SOCKET_BAD)
        return;
    for (i = 0; i < client->watched_count; i++)
        if (client->watched[i] == fd)
            return;
    event.data.fd = fd;
    if (client->watched_count < WATCHED_MAX && epoll_ctl(client->ends, EPOLL_CTL_ADD, fd, &event) == 0)
        client->watched[client->watched_count++] = fd;
}

static void unwatch(struct gb_http_client *client, int fd) {
    size_t i;

    for (i = 0; i < client->watched_count && client->watched[i] != fd; i++)
        ;
    if (i == client->watched_count)
        return;
    epoll_ctl(client->ends, EPOLL_CTL_DEL, fd, NULL);
    client->watched[i] = client->watched[--client->watched_count];
    client->breaks += client->watched_count == 0;
}

/* This side ends one, mostly since it has failed. */
static int on_close(void *arg, curl_socket_t fd) {
    unwatch(arg, fd);
    return close(fd);
}

uint64_t gb_http_client_breaks(struct gb_http_client *client) {
    struct epoll_event event;

    while (epoll_wait(client->ends, &event, 1, 0) == 1)
        unwatch(client, event.data.fd);
    return client->breaks;
}

/* --- one request -------------------------------------------------------------------------------------------------- */

static size_t on_write(char *data, size_t one, size_t n, void *arg) {
    struct gb_http_ask *ask = arg;

    (void)one;
    if (n > ask->answer_max - ask->bytes) {
        ask->too_long = true;
        snprintf(ask->why, sizeof(ask->why), "an answer of more than %zu bytes", ask->answer_max);
        return 0;
    }
    if (ask->bytes + n + 1 > ask->room) {
        size_t room = ask->bytes + n + 1 > 2 * ask->room ? ask->bytes + n + 1 : 2 * ask->room;
        char *grown = realloc(ask->answer, room);

        if (!grown)
            return 0;
        ask->answer = grown;
        ask->room = room;
    }
    memcpy(ask->answer + ask->bytes, data, n);
    ask->bytes += n;
    ask->answer[ask->bytes] = '\0';
    return n;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg) {
    struct gb_http_ask *ask = arg;
    char text[64];

    (void)one;
    /* A hub tells the directory's time as it knows it; its own says nothing. */
    if (n > strlen(DIRECTORY_TIME) && n < sizeof(text) &&
        strncasecmp(line, DIRECTORY_TIME, strlen(DIRECTORY_TIME)) == 0) {
        snprintf(text, sizeof(text), "%.*s", (int)(n - strlen(DIRECTORY_TIME)), line + strlen(DIRECTORY_TIME));
        ask->date_s = strtoll(text, NULL, 10);
        ask->date_told = true;
        return n;
    }
    if (n > strlen(DIRECTORY_DOUBT) && n < sizeof(text) &&
        strncasecmp(line, DIRECTORY_DOUBT, strlen(DIRECTORY_DOUBT)) == 0) {
        snprintf(text, sizeof(text), "%.*s", (int)(n - strlen(DIRECTORY_DOUBT)), line + strlen(DIRECTORY_DOUBT));
        ask->doubt_s = (unsigned)strtoul(text, NULL, 10);
    }
    if (ask->date_told)
        return n;
    if (n > 5 && n < sizeof(text) && strncasecmp(line, "date:", 5) == 0) {
        time_t date;

        snprintf(text, sizeof(text), "%.*s", (int)n - 5, line + 5);
        date = curl_getdate(text, NULL);
        ask->date_s = date > 0 ? date : 0;
    }
    return n;
}

static bool add_header(struct gb_http_ask *ask, const char *line) {
    struct curl_slist *list = curl_slist_append(ask->header_list, line);

    if (list)
        ask->header_list = list;
    return list != NULL;
}

static bool set_headers(struct gb_http_ask *ask) {
    size_t i;

    /* curl would wait a second for an answer that no etcd gives. */
    if (!add_header(ask, "Expect:") || (ask->body && !add_header(ask, "Content-Type: application/json")))
        return false;
    for (i = 0; ask->headers && ask->headers[i]; i++)
        if (!add_header(ask, ask->headers[i]))
            return false;
    return curl_easy_setopt(ask->easy, CURLOPT_HTTPHEADER, ask->header_list) == CURLE_OK;
}

static bool set_files(CURL *easy, const struct gb_http_client *client) {
    CURLcode r = CURLE_OK;

    if (client->ca)
        r = curl_easy_setopt(easy, CURLOPT_CAINFO, client->ca);
    if (r == CURLE_OK && client->cert)
        r = curl_easy_setopt(easy, CURLOPT_SSLCERT, client->cert);
    if (r == CURLE_OK && client->key)
        r = curl_easy_setopt(easy, CURLOPT_SSLKEY, client->key);
    return r == CURLE_OK;
}

static bool set_options(struct gb_http_ask *ask) {
    CURL *easy = ask->easy;
    bool ok = true;

    curl_easy_setopt(easy, CURLOPT_PRIVATE, ask);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ask->connect_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ask->total_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, ask);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, ask);
#if LIBCURL_VERSION_NUM >= 0x075500
    ok = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    ok = curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l); /* a name server that is silent does not hold up the end */
#endif
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, ask->client);
    if (ask->once)
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1l);
    /* The proxies of a user's environment are not for machines of one fleet. */
    ok = ok && curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK;
    ok = ok && curl_easy_setopt(easy, CURLOPT_URL, ask->url) == CURLE_OK;
    ok = ok && curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, ask->method) == CURLE_OK;
    if (ok && ask->body) {
        ok = curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->body_bytes) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_POSTFIELDS, ask->body) == CURLE_OK;
    }
    return ok && set_files(easy, ask->client) && set_headers(ask);
}

static void release(struct gb_http_ask *ask) {
    curl_easy_cleanup(ask->easy);
    curl_slist_free_all(ask->header_list);
    ask->easy = NULL;
    ask->header_list = NULL;
}

int gb_http_client_start(struct gb_http_client *client, struct gb_http_ask *ask, struct gb_error *err) {
    ask->client = client;
    ask->status = 0;
    ask->sent = false;
    ask->why[0] = '\0';
    ask->too_long = false;
    ask->answer = NULL;
    ask->bytes = 0;
    ask->room = 0;
    ask->date_s = 0;
    ask->date_told = false;
    ask->doubt_s = 0;
    ask->header_list = NULL;
    ask->easy = curl_easy_init();
    if (ask->easy && set_options(ask) && curl_multi_add_handle(client->multi, ask->easy) == CURLM_OK)
        return 0;
    release(ask);
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for a request to another machine");
}

void gb_http_client_cancel(struct gb_http_ask *ask) {
    if (!ask->easy)
        return;
    curl_multi_remove_handle(ask->client->multi, ask->easy);
    release(ask);
    free(ask->answer);
    ask->answer = NULL;
}

/* Whether something of the request may have reached the other side. */
static bool may_be_sent(CURL *easy, CURLcode result) {
    curl_off_t pretransfer_us = 0;

    if (result == CURLE_OK)
        return true;
    if (result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST)
        return false;
    return curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer_us) != CURLE_OK || pretransfer_us > 0;
}

static void end(struct gb_http_ask *ask, CURLcode result) {
    long status = 0;

    ask->wall_us = gb_wall_us();
    ask->sent = may_be_sent(ask->easy, result);
    if (result == CURLE_OK && ask->watched) {
        gb_http_client_breaks(ask->client); /* those that ended before do not outlive this one */
        watch(ask->client, ask->easy);
    }
    if (result == CURLE_OK)
        curl_easy_getinfo(ask->easy, CURLINFO_RESPONSE_CODE, &status);
    else if (ask->why[0] == '\0')
        snprintf(ask->why, sizeof(ask->why), "%s", curl_easy_strerror(result));
    ask->status = (int)status;
    if (result != CURLE_OK) {
        free(ask->answer);
        ask->answer = NULL;
        ask->bytes = 0;
    }
    curl_multi_remove_handle(ask->client->multi, ask->easy);
    release(ask);
    ask->done(ask);
}

void gb_http_client_run(struct gb_http_client *client, uint64_t timeout_ms) {
    struct curl_waitfd ends = {.fd = client->ends, .events = CURL_WAIT_POLLIN};
    CURLMsg *message;
    int running;
    int left;

    curl_multi_poll(client->multi, &ends, 1, timeout_ms > 60000 ? 60000 : (int)timeout_ms, NULL);
    curl_multi_perform(client->multi, &running);
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct gb_http_ask *ask = NULL;
        CURLcode result = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&ask);
        end(ask, result);
    }
}

void gb_http_client_wake(struct gb_http_client *client) {
    curl_multi_wakeup(client->multi);
}
