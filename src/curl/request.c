/* HTTP to others by libcurl. begin() sets all that a request is, and a lack of memory there ends it before a byte
 * leaves; conclude() takes what is known at its end, once. A client is a multi handle of one thread; what runs by
 * itself is an easy handle. The fleet, pulls, libgpubuf and gpubuf call it. */
#include "curl/request.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORY_TIME "gpubuf-directory-time:"
#define DIRECTORY_DOUBT "gpubuf-directory-doubt:"
#define WATCHED_MAX 64
#define IDLE_MAX 32                     /* connections that are kept */
#define LARGE_BUFFER_BYTES (512l << 10) /* libcurl's own, each way */

struct gb_http_client {
    CURLM *multi;
    bool resumes;
    CURL *spare; /* of the last request, with its TLS sessions */
    int ends;    /* an epoll that is readable when the other side has ended a connection of `watched`; -1: none yet */
    int also[2]; /* -1: none */
    int watched[WATCHED_MAX];
    size_t watched_count;
    uint64_t breaks;
    struct gb_http_tls tls;
    char *ca;
    char *cert;
    char *key;
};

int gb_http_begin(void) {
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -1;
}

void gb_http_end(void) {
    curl_global_cleanup();
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static bool copy(const char *text, char **ret) {
    *ret = NULL;
    if (!text || text[0] == '\0')
        return true;
    *ret = strdup(text);
    return *ret != NULL;
}

struct gb_http_client *gb_http_client_new(const struct gb_http_tls *tls, bool resumes) {
    static const struct gb_http_tls none;
    struct gb_http_client *client = calloc(1, sizeof(*client));

    if (!client)
        return NULL;
    tls = tls ? tls : &none;
    client->ends = -1;
    client->also[0] = client->also[1] = -1;
    client->resumes = resumes;
    client->multi = curl_multi_init();
    if (!client->multi || !copy(tls->ca, &client->ca) || !copy(tls->cert, &client->cert) ||
        !copy(tls->key, &client->key)) {
        gb_http_client_free(client);
        return NULL;
    }
    client->tls = *tls;
    client->tls.ca = client->ca;
    client->tls.cert = client->cert;
    client->tls.key = client->key;
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_MAX);
    return client;
}

void gb_http_client_free(struct gb_http_client *client) {
    if (!client)
        return;
    if (client->spare)
        curl_easy_cleanup(client->spare);
    if (client->multi)
        curl_multi_cleanup(client->multi);
    if (client->ends >= 0)
        close(client->ends);
    free(client->ca);
    free(client->cert);
    free(client->key);
    free(client);
}

/* --- connections that end ----------------------------------------------------------------------------------------- */

/* A connection by which an ask was answered: its end is noticed from now on. Without room for it, it is not. */
static void watch(struct gb_http_client *client, CURL *easy) {
    struct epoll_event event = {.events = EPOLLRDHUP};
    curl_socket_t fd = CURL_SOCKET_BAD;
    size_t i;

    if (curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK || fd == CURL_SOCKET_BAD)
        return;
    for (i = 0; i < client->watched_count; i++)
        if (client->watched[i] == fd)
            return;
    if (client->ends < 0)
        client->ends = epoll_create1(EPOLL_CLOEXEC);
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

    while (client->ends >= 0 && epoll_wait(client->ends, &event, 1, 0) == 1)
        unwatch(client, event.data.fd);
    return client->breaks;
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

static size_t on_write(char *data, size_t one, size_t n, void *arg) {
    struct gb_http_ask *ask = arg;

    (void)one;
    if (ask->write) {
        bool ok = ask->write(ask->arg, data, n);

        return ask->pauses ? CURL_WRITEFUNC_PAUSE : ok ? n : 0;
    }
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

/* The value of a header, if the line has that name, with its colon, and is of a sensible length. */
static bool is_header(const char *line, size_t n, const char *name, char ret[64]) {
    size_t begin = strlen(name);

    if (n <= begin || n >= 64 || strncasecmp(line, name, begin) != 0)
        return false;
    snprintf(ret, 64, "%.*s", (int)(n - begin), line + begin);
    return true;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg) {
    struct gb_http_ask *ask = arg;
    char text[64];

    (void)one;
    if (ask->header)
        return ask->header(ask->arg, line, n) ? n : 0;
    /* A hub passes on the directory's time as it knows it; its own says nothing. */
    if (is_header(line, n, DIRECTORY_TIME, text)) {
        ask->date_s = strtoll(text, NULL, 10);
        ask->date_told = true;
    } else if (is_header(line, n, DIRECTORY_DOUBT, text)) {
        ask->suspect_s = (unsigned)strtoul(text, NULL, 10);
    } else if (!ask->date_told && is_header(line, n, "date:", text)) {
        time_t date = curl_getdate(text, NULL);

        ask->date_s = date > 0 ? date : 0;
    }
    return n;
}

static size_t on_read(char *data, size_t one, size_t room, void *arg) {
    struct gb_http_ask *ask = arg;
    ssize_t n = ask->read(ask->arg, data, room);

    (void)one;
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

/* libcurl sends again what it sent over a connection that turned out to be closed. */
static int on_seek(void *arg, curl_off_t offset, int origin) {
    struct gb_http_ask *ask = arg;

    if (origin != SEEK_SET || offset != 0 || !ask->rewind || !ask->rewind(ask->arg))
        return CURL_SEEKFUNC_CANTSEEK;
    return CURL_SEEKFUNC_OK;
}

static int on_progress(void *arg, curl_off_t down, curl_off_t came, curl_off_t up, curl_off_t went) {
    struct gb_http_ask *ask = arg;

    (void)down;
    (void)came;
    (void)up;
    (void)went;
    return ask->stop(ask->arg);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

/* libcurl copies texts. A request without one of them would go elsewhere, or be another. */
static bool set_text(CURL *easy, CURLoption option, const char *text) {
    return !text || curl_easy_setopt(easy, option, text) == CURLE_OK;
}

/* Whether the environment names a proxy that plain http may go to. */
static bool may_be_proxied(const struct gb_http_ask *ask) {
    return ask->proxied && strncasecmp(ask->url, "http:", 5) == 0 &&
           (getenv("http_proxy") || getenv("all_proxy") || getenv("ALL_PROXY"));
}

/* The path and the query of a request as one text: libcurl 7.88 leaves the query out when it has no memory for it.
 * A proxy gets the whole URL, which libcurl makes itself. */
static bool set_target(const struct gb_http_ask *ask) {
    const char *host = strstr(ask->url, "://");
    const char *from;
    char *target;
    bool ok;

    if (!host || ask->connect_only || may_be_proxied(ask))
        return true;
    from = host + 3 + strcspn(host + 3, "/?#");
    if (from[0] == '/' && !strchr(from, '#'))
        return set_text(ask->easy, CURLOPT_REQUEST_TARGET, from);
    if (asprintf(&target, "%s%.*s", from[0] == '/' ? "" : "/", (int)strcspn(from, "#"), from) < 0)
        return false;
    ok = set_text(ask->easy, CURLOPT_REQUEST_TARGET, target);
    free(target);
    return ok;
}

static bool set_where(const struct gb_http_ask *ask) {
    bool plain = strncasecmp(ask->url, "http://", 7) == 0 || strncasecmp(ask->url, "https://", 8) == 0;
    CURL *easy = ask->easy;
    bool ok;

#if LIBCURL_VERSION_NUM >= 0x075500
    ok = plain || set_text(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    ok = plain || curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
    /* The proxies of a user's environment are not for the machines of one fleet. */
    ok = ok && (ask->proxied || set_text(easy, CURLOPT_PROXY, ""));
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1l);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1l);
    if (ask->http1)
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (ask->connect_only)
        curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0l); /* HTTP/1.1 is spoken */
    return ok && set_text(easy, CURLOPT_URL, ask->url) && set_text(easy, CURLOPT_UNIX_SOCKET_PATH, ask->socket) &&
           set_text(easy, CURLOPT_USERAGENT, ask->agent) && set_target(ask);
}

/* Where libcurl cannot take certificates from memory (its GnuTLS flavour), it reads such a folder itself. */
static bool set_tls(const struct gb_http_ask *ask) {
    const struct gb_http_tls *tls = ask->tls ? ask->tls : ask->client ? &ask->client->tls : NULL;
    CURL *easy = ask->easy;
    struct curl_blob folder;

    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!tls || strncasecmp(ask->url, "https:", 6) != 0)
        return true;
    if (tls->ca && tls->ca_alone)
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (tls->ca_text) {
        folder = (struct curl_blob){.data = (void *)tls->ca_text, .len = tls->ca_bytes, .flags = CURL_BLOB_NOCOPY};
        curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
        if (curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &folder) != CURLE_OK &&
            !set_text(easy, CURLOPT_CAPATH, tls->ca))
            return false;
    } else if (!set_text(easy, CURLOPT_CAINFO, tls->ca)) {
        return false;
    }
    return set_text(easy, CURLOPT_SSLCERT, tls->cert) && set_text(easy, CURLOPT_SSLKEY, tls->key);
}

static bool set_body(struct gb_http_ask *ask) {
    CURL *easy = ask->easy;

    if (strcmp(ask->method, "HEAD") == 0)
        return curl_easy_setopt(easy, CURLOPT_NOBODY, 1l) == CURLE_OK;
    if (!set_text(easy, CURLOPT_CUSTOMREQUEST, ask->method))
        return false;
    if (ask->body) {
        gb_http_ask_header(ask, "Expect:"); /* libcurl would wait a second for an answer that no etcd gives */
        gb_http_ask_header(ask, "Content-Type: application/json");
        return curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->body_bytes) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_POSTFIELDS, ask->body) == CURLE_OK;
    }
    if (ask->read) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1l);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
                         ask->read_bytes == GB_HTTP_UNKNOWN ? -1 : (curl_off_t)ask->read_bytes);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(easy, CURLOPT_READDATA, ask);
        curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(easy, CURLOPT_SEEKDATA, ask);
    }
    return true;
}

static void set_limits(struct gb_http_ask *ask) {
    CURL *easy = ask->easy;

    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ask->connect_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ask->total_ms);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1l);
    if (ask->large) {
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, LARGE_BUFFER_BYTES);
        curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, LARGE_BUFFER_BYTES);
    }
#if LIBCURL_VERSION_NUM >= 0x075700
    if (ask->quick)
        curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l);
#endif
    if (ask->once)
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1l);
    if (ask->connect_only)
        curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1l);
}

static void set_callbacks(struct gb_http_ask *ask) {
    CURL *easy = ask->easy;

    curl_easy_setopt(easy, CURLOPT_PRIVATE, ask);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, ask->said);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, ask);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, ask);
    if (ask->client) {
        curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
        curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, ask->client);
    } else if (ask->stop) {
        curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0l);
        curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
        curl_easy_setopt(easy, CURLOPT_XFERINFODATA, ask);
    }
}

/* --- one request -------------------------------------------------------------------------------------------------- */

void gb_http_ask_header(struct gb_http_ask *ask, const char *line) {
    struct curl_slist *list = line ? curl_slist_append(ask->header_list, line) : NULL;

    if (list)
        ask->header_list = list;
    ask->lacks_memory = ask->lacks_memory || !list;
}

static void release(struct gb_http_ask *ask) {
    curl_off_t took_us = 0;

    if (ask->easy && curl_easy_getinfo(ask->easy, CURLINFO_TOTAL_TIME_T, &took_us) == CURLE_OK)
        ask->took_ms = (double)took_us / 1e3;
    if (ask->easy && ask->client && ask->client->resumes && !ask->client->spare) {
        curl_easy_reset(ask->easy);
        ask->client->spare = ask->easy;
    } else {
        curl_easy_cleanup(ask->easy);
    }
    curl_slist_free_all(ask->header_list);
    ask->easy = NULL;
    ask->header_list = NULL;
}

static bool begin(struct gb_http_ask *ask) {
    ask->outcome = GB_HTTP_NO_MEMORY;
    ask->status = 0;
    ask->sent = false;
    ask->why[0] = '\0';
    ask->said[0] = '\0';
    ask->os_errno = 0;
    ask->connects = 0;
    ask->took_ms = -1;
    ask->too_long = false;
    ask->answer = NULL;
    ask->bytes = 0;
    ask->room = 0;
    ask->pauses = false;
    ask->date_s = 0;
    ask->date_told = false;
    ask->suspect_s = 0;
    ask->fd = -1;
    ask->easy = ask->client ? ask->client->spare : NULL;
    if (ask->easy)
        ask->client->spare = NULL;
    else
        ask->easy = curl_easy_init();
    if (!ask->easy)
        return false;
    set_limits(ask);
    set_callbacks(ask);
    return set_where(ask) && set_tls(ask) && set_body(ask) && !ask->lacks_memory &&
           curl_easy_setopt(ask->easy, CURLOPT_HTTPHEADER, ask->header_list) == CURLE_OK;
}

int gb_http_client_start(struct gb_http_client *client, struct gb_http_ask *ask) {
    ask->client = client;
    if (begin(ask) && curl_multi_add_handle(client->multi, ask->easy) == CURLM_OK)
        return 0;
    release(ask);
    return -1;
}

void gb_http_client_cancel(struct gb_http_ask *ask) {
    if (!ask->easy)
        return;
    curl_multi_remove_handle(ask->client->multi, ask->easy);
    release(ask);
    free(ask->answer);
    ask->answer = NULL;
}

static enum gb_http_outcome outcome_of(CURLcode code) {
    switch (code) {
    case CURLE_OK:
        return GB_HTTP_OK;
    case CURLE_ABORTED_BY_CALLBACK:
        return GB_HTTP_STOPPED;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return GB_HTTP_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return GB_HTTP_TIMED_OUT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return GB_HTTP_LOST;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return GB_HTTP_NO_HTTP;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ENGINE_NOTFOUND:
        return GB_HTTP_TLS;
    case CURLE_URL_MALFORMAT:
        return GB_HTTP_BAD_URL;
    case CURLE_OUT_OF_MEMORY:
        return GB_HTTP_NO_MEMORY;
    default:
        return GB_HTTP_FAILED;
    }
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

/* Takes what is known of a request that has ended. */
static void conclude(struct gb_http_ask *ask, CURLcode result) {
    struct timespec now;
    long number = 0;

    clock_gettime(CLOCK_REALTIME, &now);
    ask->wall_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    ask->outcome = outcome_of(result);
    ask->sent = may_be_sent(ask->easy, result);
    if (result == CURLE_OK && curl_easy_getinfo(ask->easy, CURLINFO_RESPONSE_CODE, &number) == CURLE_OK)
        ask->status = (int)number;
    if (curl_easy_getinfo(ask->easy, CURLINFO_OS_ERRNO, &number) == CURLE_OK)
        ask->os_errno = (int)number;
    if (curl_easy_getinfo(ask->easy, CURLINFO_NUM_CONNECTS, &number) == CURLE_OK)
        ask->connects = (int)number;
    if (result == CURLE_OK)
        return;
    if (ask->why[0] == '\0')
        snprintf(ask->why, sizeof(ask->why), "%s", curl_easy_strerror(result));
    if (ask->said[0] == '\0')
        snprintf(ask->said, sizeof(ask->said), "%s", curl_easy_strerror(result));
    free(ask->answer);
    ask->answer = NULL;
    ask->bytes = 0;
}

/* --- many at a time ----------------------------------------------------------------------------------------------- */

static void end(struct gb_http_ask *ask, CURLcode result) {
    if (result == CURLE_OK && ask->watched) {
        gb_http_client_breaks(ask->client); /* those that ended before do not outlive this one */
        watch(ask->client, ask->easy);
    }
    conclude(ask, result);
    curl_multi_remove_handle(ask->client->multi, ask->easy);
    release(ask);
    ask->done(ask);
}

/* What ends a wait besides the connections of requests. */
static unsigned wait_fds(const struct gb_http_client *client, struct curl_waitfd ret[3]) {
    const int fds[3] = {client->ends, client->also[0], client->also[1]};
    unsigned n = 0;
    unsigned i;

    for (i = 0; i < 3; i++)
        if (fds[i] >= 0)
            ret[n++] = (struct curl_waitfd){.fd = fds[i], .events = CURL_WAIT_POLLIN};
    return n;
}

bool gb_http_client_run(struct gb_http_client *client, uint64_t timeout_ms) {
    struct curl_waitfd fds[3];
    CURLMsg *message;
    int running;
    int left;
    bool ok;

    if (timeout_ms > 0)
        curl_multi_poll(client->multi, fds, wait_fds(client, fds), timeout_ms > 60000 ? 60000 : (int)timeout_ms, NULL);
    ok = curl_multi_perform(client->multi, &running) == CURLM_OK;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct gb_http_ask *ask = NULL;
        CURLcode result = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&ask);
        end(ask, result);
    }
    return ok;
}

void gb_http_client_pause(struct gb_http_client *client, int ms) {
    curl_multi_poll(client->multi, NULL, 0, ms, NULL);
}

void gb_http_client_wake(struct gb_http_client *client) {
    curl_multi_wakeup(client->multi);
}

void gb_http_client_also(struct gb_http_client *client, int a, int b) {
    client->also[0] = a;
    client->also[1] = b;
}

void gb_http_ask_resume(struct gb_http_ask *ask) {
    if (!ask->easy || !ask->pauses)
        return;
    ask->pauses = false;
    curl_easy_pause(ask->easy, CURLPAUSE_CONT);
}

/* --- one by itself ------------------------------------------------------------------------------------------------ */

enum gb_http_outcome gb_http_ask_perform(struct gb_http_ask *ask) {
    curl_socket_t fd = CURL_SOCKET_BAD;
    CURLcode result = CURLE_OUT_OF_MEMORY;

    ask->client = NULL;
    if (begin(ask))
        result = curl_easy_perform(ask->easy);
    if (result == CURLE_OK && ask->connect_only) {
        curl_easy_getinfo(ask->easy, CURLINFO_ACTIVESOCKET, &fd);
        result = fd == CURL_SOCKET_BAD ? CURLE_COULDNT_CONNECT : CURLE_OK;
        ask->fd = (int)fd;
    }
    if (ask->easy)
        conclude(ask, result);
    else
        snprintf(ask->said, sizeof(ask->said), "%s", curl_easy_strerror(result));
    if (ask->outcome != GB_HTTP_OK || !ask->connect_only)
        release(ask);
    return ask->outcome;
}

void gb_http_ask_close(struct gb_http_ask *ask) {
    if (ask->easy)
        release(ask);
    ask->fd = -1;
}

static ssize_t moved(struct gb_http_ask *ask, CURLcode code, size_t n) {
    if (code == CURLE_AGAIN)
        return 0;
    if (code == CURLE_OK && n > 0)
        return (ssize_t)n;
    snprintf(ask->why, sizeof(ask->why), "%s",
             code == CURLE_OK ? "the connection was closed" : curl_easy_strerror(code));
    return -1;
}

ssize_t gb_http_ask_send(struct gb_http_ask *ask, const void *data, size_t n) {
    size_t sent = 0;
    CURLcode code = curl_easy_send(ask->easy, data, n, &sent);

    return moved(ask, code, sent);
}

ssize_t gb_http_ask_recv(struct gb_http_ask *ask, void *room, size_t n) {
    size_t got = 0;
    CURLcode code = curl_easy_recv(ask->easy, room, n, &got);

    return moved(ask, code, got);
}

/* --- URLs --------------------------------------------------------------------------------------------------------- */

static bool has(CURLU *url, CURLUPart part) {
    char *value = NULL;
    bool ret = curl_url_get(url, part, &value, 0) == CURLUE_OK && value && value[0] != '\0';

    curl_free(value);
    return ret;
}

static void read_origin(CURLU *url, char *ret, size_t size) {
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    char *p;

    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0)) {
        for (p = host; *p; p++)
            *p = *p >= 'A' && *p <= 'Z' ? (char)(*p + ('a' - 'A')) : *p;
        if (snprintf(ret, size, "%s://%s:%s", scheme, host, port) >= (int)size)
            ret[0] = '\0';
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
}

int gb_http_url_read(const char *text, struct gb_http_url *ret) {
    CURLU *url = curl_url();
    char *path = NULL;
    int r = 0;

    *ret = (struct gb_http_url){.origin = ""};
    if (!url)
        return -2;
    if (curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) != CURLUE_OK) {
        curl_url_cleanup(url);
        return -1;
    }
    read_origin(url, ret->origin, sizeof(ret->origin));
    ret->user = has(url, CURLUPART_USER) || has(url, CURLUPART_PASSWORD);
    ret->more = has(url, CURLUPART_QUERY) || has(url, CURLUPART_FRAGMENT);
    if (curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK || !(ret->path = strdup(path)))
        r = -2;
    curl_free(path);
    curl_url_cleanup(url);
    return r;
}

char *gb_http_url_join(const char *from, const char *location) {
    CURLU *url = curl_url();
    char *joined = NULL;
    char *ret = NULL;

    if (url && curl_url_set(url, CURLUPART_URL, from, CURLU_PATH_AS_IS) == CURLUE_OK &&
        curl_url_set(url, CURLUPART_URL, location, CURLU_PATH_AS_IS) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_URL, &joined, 0) == CURLUE_OK)
        ret = strdup(joined);
    curl_free(joined);
    curl_url_cleanup(url);
    return ret;
}
