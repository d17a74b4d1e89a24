/* Clients: what they talk to, the calls that are one request on their own connection, and how a request is made up.
 * A client is used by one thread at a time, but for gpubuf_interrupt(). Its settings (struct gbc_settings) do not
 * change after gpubuf_open(); the other files get them with each connection. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/client.h"
#include "client/epochs.h"
#include "client/http.h"
#include "client/io.h"
#include "client/trust.h"
#include "client/unix_conn.h"
#include "curl/request.h"

#define CONNECT_S 10
#define ANSWER_S 120
#define STALL_S 60
#define RETRIES 2
#define DEFAULT_PORT "7070"
#define DEFAULT_URL "http://127.0.0.1:" DEFAULT_PORT
#define UNIX "unix://"

const char *gpubuf_version(void) {
    return GBC_VERSION;
}

static const char *environment(const char *name) {
    const char *value = getenv(name);

    return value && value[0] != '\0' ? value : NULL;
}

/* --- the socket of a daemon on this machine ----------------------------------------------------------------------- */

static char *if_socket(char *path) {
    struct stat st;

    if (path && stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        return path;
    free(path);
    return NULL;
}

static char *below(const char *folder, const char *rest) {
    char *path;

    return folder && asprintf(&path, "%s%s", folder, rest) >= 0 ? path : NULL;
}

/* Where gpubufd puts it by default, this user's own first; NULL if neither is there. */
static char *find_socket(void) {
    char *path = if_socket(below(environment("XDG_STATE_HOME"), "/gpubufd/gpubufd.sock"));

    if (!path)
        path = if_socket(below(environment("HOME"), "/.local/state/gpubufd/gpubufd.sock"));
    if (!path)
        path = if_socket(strdup("/run/gpubufd.sock"));
    if (!path)
        path = if_socket(strdup("/var/lib/gpubufd/gpubufd.sock"));
    return path;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static int take_unix(struct gbc_settings *set, struct gpubuf_error *err) {
    const char *path = set->url + strlen(UNIX);

    if (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "%s: a UNIX socket is unix:///PATH with at most 107 bytes of path", set->url);
    set->base = strdup("http://localhost");
    set->socket = strdup(path);
    set->local = true;
    return set->base && set->socket ? 0 : gbc_error_memory(err);
}

static int take_http(struct gbc_settings *set, struct gpubuf_error *err) {
    const char *host = strstr(set->url, "://");
    size_t n;

    if (strchr(set->url, '@')) /* and what stands before it is not repeated */
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "an address has no user and no password before an \"@\": give HOST:PORT, and a token by "
                             "--token-file or GPUBUF_TOKEN");
    if ((strncmp(set->url, "http://", 7) != 0 && strncmp(set->url, "https://", 8) != 0) || !host || host[3] == '\0' ||
        strpbrk(set->url, "?#@ \r\n"))
        return gbc_error_set(
            err, GPUBUF_BAD_ARGUMENT,
            "\"%s\" is no address of a daemon: give [http://]HOST:PORT, https://HOST:PORT or unix:///PATH", set->url);
    n = strlen(set->url);
    while (set->url[n - 1] == '/')
        n--;
    set->base = strndup(set->url, n);
    if (!set->base)
        return gbc_error_memory(err);
    set->local = gbc_is_loopback(set->base);
    set->tls = strncmp(set->base, "https://", 8) == 0;
    return 0;
}

/* HOST or HOST:PORT, by which people mean http, and without a port the daemon's own. Nothing that could be a path or
 * half a URL. */
static bool lacks_scheme(const char *url, size_t *ret_host) {
    size_t n = url[0] == '[' ? strspn(url + 1, "0123456789abcdefABCDEF:.") + 1
                             : strspn(url, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_");

    if (n == 0 || strchr(".-_", url[0]) || (url[0] == '[' && url[n++] != ']'))
        return false;
    *ret_host = n;
    if (url[n] == ':') {
        size_t digits = strspn(url + n + 1, "0123456789");

        if (digits == 0)
            return false;
        n += 1 + digits;
    }
    n += url[n] == '/';
    return url[n] == '\0';
}

static char *with_scheme(const char *url, size_t host) {
    char *whole;
    int n = asprintf(&whole, "http://%.*s%s", (int)host, url, url[host] == ':' ? url + host : ":" DEFAULT_PORT);

    return n >= 0 ? whole : NULL;
}

/* The address, or the socket that was named, or one that is found, or the usual address. */
static int take_url(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    const char *url = options->url ? options->url : environment("GPUBUF_URL");
    const char *named = options->socket ? options->socket : environment("GPUBUF_SOCKET");
    char *path = url ? NULL : named ? strdup(named) : find_socket();
    size_t host;

    if (url)
        set->url = lacks_scheme(url, &host) ? with_scheme(url, host) : strdup(url);
    else if (path && strncmp(path, UNIX, strlen(UNIX)) == 0)
        set->url = strdup(path);
    else
        set->url = path ? below(UNIX, path) : strdup(DEFAULT_URL);
    free(path);
    if (!set->url)
        return gbc_error_memory(err);
    return strncmp(set->url, UNIX, strlen(UNIX)) == 0 ? take_unix(set, err) : take_http(set, err);
}

static int take_socket(struct gbc_settings *set, const char *given, struct gpubuf_error *err) {
    const char *path = given ? given : environment("GPUBUF_SOCKET");

    if (!given && set->socket)
        path = set->socket;
    if (path && strncmp(path, UNIX, strlen(UNIX)) == 0)
        path += strlen(UNIX);
    if (path && (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "\"%s\" is no UNIX socket: give its whole path of at most 107 bytes", path);
    if (path && !(set->map_socket = strdup(path)))
        return gbc_error_memory(err);
    if (!path && set->local)
        set->map_socket = find_socket();
    return 0;
}

/* A machine on the way of plain http reads the token along, so that http is good for it within this machine alone. */
static int check_token_road(const struct gbc_settings *set, bool permitted, struct gpubuf_error *err) {
    const char *word = environment("GPUBUF_PLAIN_TOKEN");

    if (set->tls || set->local || permitted || (word && strcmp(word, "1") == 0))
        return 0;
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                         "the token is not sent over plain http to %s, which may be another machine: use https://, or "
                         "permit it with --plain-token or GPUBUF_PLAIN_TOKEN=1",
                         set->url);
}

static int take_token(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    const char *token = options->token ? options->token : environment("GPUBUF_TOKEN");

    if (!token || token[0] == '\0')
        return 0;
    if (strpbrk(token, " \t\r\n"))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a token has no blanks or ends of line");
    set->token = strdup(token);
    return set->token ? check_token_road(set, options->plain_token, err) : gbc_error_memory(err);
}

static uint64_t ms_of(uint32_t seconds, uint32_t otherwise) {
    return (uint64_t)(seconds > 0 ? seconds : otherwise) * 1000;
}

static int take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    set->connect_ms = ms_of(options->connect_timeout_s, CONNECT_S);
    set->answer_ms = ms_of(options->answer_timeout_s, ANSWER_S);
    set->stall_ms = ms_of(options->stall_timeout_s, STALL_S);
    set->retries = options->retries > 0 ? options->retries : RETRIES;
    if (options->retries == UINT32_MAX)
        set->retries = 0;
    set->trace = options->trace;
    set->trace_arg = options->trace_arg;
    set->agent = strdup(options->user_agent ? options->user_agent : "libgpubuf/" GBC_VERSION);
    if (!set->agent)
        return gbc_error_memory(err);
    if (strpbrk(set->agent, "\r\n"))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "user_agent has one line");
    if (take_url(set, options, err) < 0 || take_socket(set, options->socket, err) < 0 ||
        (set->tls && gbc_trust_take(set, options, err) < 0))
        return -1;
    if (!set->tls) /* a node of a fleet may redirect to https; files that cannot be used matter only then */
        gbc_trust_take(set, options, NULL);
    return take_token(set, options, err);
}

static void settings_done(struct gbc_settings *set) {
    free(set->url);
    free(set->base);
    free(set->socket);
    free(set->map_socket);
    gbc_trust_done(set);
    free(set->token);
    free(set->agent);
    gbc_epochs_unref(set->epochs);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static void answer_clear(gpubuf_client *client) {
    client->answer = (struct gpubuf_answer){.body = "",
                                            .content_type = "",
                                            .location = "",
                                            .recv_ms = -1,
                                            .queue_ms = -1,
                                            .copy_ms = -1,
                                            .total_ms = -1,
                                            .took_ms = -1};
}

int gpubuf_open(const struct gpubuf_options *options, gpubuf_client **ret, struct gpubuf_error *err) {
    static const struct gpubuf_options none;
    struct gpubuf_client *client;

    gbc_error_init(err);
    client = calloc(1, sizeof(*client));
    if (!client)
        return gbc_error_memory(err);
    if (gb_http_begin() < 0) {
        free(client);
        return gbc_error_memory(err);
    }
    client->set.epochs = gbc_epochs_new();
    if (!client->set.epochs) {
        gpubuf_close(client);
        return gbc_error_memory(err);
    }
    if (take(&client->set, options ? options : &none, err) < 0 || !(client->conn = gbc_conn_new(&client->set, err))) {
        gpubuf_close(client);
        return -1;
    }
    answer_clear(client);
    *ret = client;
    return 0;
}

void gpubuf_close(gpubuf_client *client) {
    if (!client)
        return;
    gbc_link_leave(client->link);
    gbc_conn_free(client->conn);
    settings_done(&client->set);
    free(client);
    gb_http_end();
}

const char *gpubuf_url(const gpubuf_client *client) {
    return client->set.url;
}

const char *gpubuf_socket(const gpubuf_client *client) {
    return client->set.map_socket;
}

void gpubuf_interrupt(gpubuf_client *client) {
    atomic_store(&client->set.interrupted, 1);
}

void gpubuf_resume(gpubuf_client *client) {
    atomic_store(&client->set.interrupted, 0);
}

const struct gpubuf_answer *gpubuf_answer_of(const gpubuf_client *client) {
    return &client->answer;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void gbc_request_init(struct gbc_request *request, const char *method, const char *path, ...) {
    va_list names;

    memset(request, 0, sizeof(*request));
    gbc_error_init(&request->wrong);
    request->method = method;
    va_start(names, path);
    for (; *path != '\0'; path++) {
        const char *name;

        if (*path != '%') {
            gbc_text_add(&request->target, path, 1);
            continue;
        }
        name = va_arg(names, const char *);
        if (!name || name[0] == '\0')
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "a name is missing: none may be NULL or empty");
        else if (strspn(name, ".") == strlen(name)) /* "." and ".." mean another path */
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no name", name);
        else
            gbc_text_escape(&request->target, name);
    }
    va_end(names);
}

void gbc_request_done(struct gbc_request *request) {
    gbc_text_done(&request->target);
    gbc_text_done(&request->headers);
    gbc_text_done(&request->json);
}

void gbc_query(struct gbc_request *request, const char *key, const char *value) {
    bool first = !request->target.data || !strchr(request->target.data, '?');

    if (!value)
        return;
    gbc_text_addf(&request->target, "%c%s=", first ? '?' : '&', key);
    gbc_text_escape(&request->target, value);
}

void gbc_query_u64(struct gbc_request *request, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    gbc_query(request, key, text);
}

void gbc_query_true(struct gbc_request *request, const char *key, bool value) {
    gbc_query(request, key, value ? "true" : NULL);
}

void gbc_header(struct gbc_request *request, const char *name, const char *value) {
    if (!value)
        return;
    if (strpbrk(value, "\r\n")) {
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "%s: a header has one line", name);
        return;
    }
    gbc_text_addf(&request->headers, "%s: %s", name, value);
    gbc_text_add(&request->headers, "", 1);
}

void gbc_how(struct gbc_request *request, const struct gpubuf_how *how) {
    char prefer[64];

    if (!how)
        return;
    gbc_header(request, "If-Match", how->if_match);
    gbc_header(request, "If-None-Match", how->if_none_match);
    gbc_header(request, "Idempotency-Key", how->idempotency_key);
    request->conditional = how->if_match || how->if_none_match;
    request->keyed = how->idempotency_key != NULL;
    request->wait_s = how->wait_s;
    if (how->async && !how->ret_operation)
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "how.async needs how.ret_operation");
    if (how->wait_s > 0) {
        snprintf(prefer, sizeof(prefer), "wait=%u%s", (unsigned)how->wait_s, how->async ? ", respond-async" : "");
        gbc_header(request, "Prefer", prefer);
    } else if (how->async) {
        gbc_header(request, "Prefer", "respond-async");
    }
}

/* json_dumps() of jansson 2.14 leaves out a key if its buffer cannot grow. Texts in body are not known to be UTF-8:
 * what has no length a second time has such a text, and does not lack memory. */
char *gbc_json_text(const json_t *body, struct gpubuf_error *err) {
    size_t n = json_dumpb(body, NULL, 0, JSON_COMPACT);
    char *text = n > 0 ? malloc(n + 1) : NULL;

    if (text && json_dumpb(body, text, n, JSON_COMPACT) == n) {
        text[n] = '\0';
        return text;
    }
    free(text);
    if (body && n == 0 && json_dumpb(body, NULL, 0, JSON_COMPACT) == 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a text of the request is not UTF-8");
    else
        gbc_error_memory(err);
    return NULL;
}

void gbc_json(struct gbc_request *request, json_t *body) {
    char *text = gbc_json_text(body, &request->wrong);

    if (text)
        gbc_text_add(&request->json, text, strlen(text));
    free(text);
    json_decref(body);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void gbc_put(struct gpubuf_error *wrong, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) < 0)
        gbc_error_memory(wrong);
}

void gbc_put_text(struct gpubuf_error *wrong, json_t *object, const char *key, const char *value) {
    if (value)
        gbc_put(wrong, object, key, json_string_nocheck(value));
}

void gbc_put_u64(struct gpubuf_error *wrong, json_t *object, const char *key, uint64_t value) {
    gbc_put(wrong, object, key, json_integer((json_int_t)value));
}

void gbc_put_true(struct gpubuf_error *wrong, json_t *object, const char *key, bool value) {
    if (value)
        gbc_put(wrong, object, key, json_true());
}

void gbc_put_device(struct gpubuf_error *wrong, json_t *object, const char *key, const char *device) {
    if (device && device[0] != '\0' && strspn(device, "0123456789") == strlen(device) && strlen(device) < 10)
        gbc_put(wrong, object, key, json_integer(atoi(device)));
    else
        gbc_put_text(wrong, object, key, device);
}

void gbc_add_text(struct gpubuf_error *wrong, json_t *array, const char *value) {
    if (json_array_append_new(array, json_string_nocheck(value)) < 0)
        gbc_error_memory(wrong);
}

/* The number there, and what follows its comma. False: there is no number. */
static bool next_dim(const char **at, json_int_t *ret) {
    char *end;
    unsigned long long n = strtoull(*at, &end, 10);

    if (**at < '0' || **at > '9' || (*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0'))
        return false;
    *ret = (json_int_t)n;
    *at = *end == ',' ? end + 1 : end;
    return true;
}

void gbc_put_shape(struct gpubuf_error *wrong, json_t *object, const char *key, const char *shape) {
    const char *at = shape;
    json_t *array;
    json_int_t n;

    if (!shape)
        return;
    array = json_array();
    while (*at != '\0' && next_dim(&at, &n)) {
        if (json_array_append_new(array, json_integer(n)) < 0)
            gbc_error_memory(wrong);
    }
    if (*at != '\0')
        gbc_error_set(wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no shape: give numbers with commas, such as 2,3", shape);
    gbc_put(wrong, object, key, array);
}

/* --- the answer, as it is shown ----------------------------------------------------------------------------------- */

/* "recv;dur=0.269, queue;dur=0.000" */
static double timing(const char *all, const char *name) {
    size_t n = strlen(name);
    const char *at = all;

    while ((at = strstr(at, name))) {
        bool whole = at == all || at[-1] == ' ' || at[-1] == ',';

        if (whole && strncmp(at + n, ";dur=", 5) == 0)
            return strtod(at + n + 5, NULL);
        at += n;
    }
    return -1;
}

/* What gpubuf_answer_of() shows. */
static void answer_fill(gpubuf_client *client) {
    const struct gbc_reply *reply = gbc_reply_of(client->conn);
    struct gpubuf_answer *answer = &client->answer;

    answer_clear(client);
    answer->status = reply->status;
    if (reply->body.data && !reply->body.failed) {
        answer->body = reply->body.data;
        answer->bytes = reply->body.bytes;
    }
    if (reply->type.data)
        answer->content_type = reply->type.data;
    if (reply->location.data)
        answer->location = reply->location.data;
    gbc_copy(answer->etag, sizeof(answer->etag), reply->etag);
    answer->recv_ms = timing(reply->timing, "recv");
    answer->queue_ms = timing(reply->timing, "queue");
    answer->copy_ms = timing(reply->timing, "copy");
    answer->total_ms = timing(reply->timing, "total");
    answer->took_ms = gbc_took_ms(client->conn);
    answer->upload_offset = reply->upload_offset;
    answer->upload_complete = reply->upload_complete;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

int gbc_ask(gpubuf_client *client, struct gbc_request *request, struct gpubuf_error *err) {
    int r = gbc_perform(client->conn, request, err);

    answer_fill(client);
    return r;
}

int gbc_parse(const struct gbc_text *text, gbc_record_fn *record, void *ret, struct gpubuf_error *err) {
    json_error_t why = {.text = "no body"};
    json_t *object = text->bytes > 0 ? json_loadb(text->data, text->bytes, 0, &why) : NULL;
    int r = 0;

    if (!object && json_error_code(&why) == json_error_numeric_overflow)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER,
                          "the answer has a number beyond 2^63 - 1 (%s); a newer gpubufd sends none", why.text);
    else if (!object)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer is not JSON: %s", why.text);
    else if (record(object, ret) < 0)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer is not what a gpubufd says to this request");
    json_decref(object);
    return r;
}

static int take_operation(const json_t *object, void *ret) {
    const char *id = json_string_value(json_object_get(object, "id"));

    gbc_copy(ret, GPUBUF_ID_SIZE, id);
    return id ? 0 : -1;
}

/* Room for any record, so that a reply is checked even if the caller passes no ret. */
union any_record {
    struct gpubuf_buffer buffer;
    struct gpubuf_tensors tensors;
};

/* What follows from an answer. */
static int take_answer(gpubuf_client *client, const struct gpubuf_how *how, gbc_record_fn *record, void *ret,
                       struct gpubuf_error *err) {
    const struct gbc_reply *reply = gbc_reply_of(client->conn);
    union any_record unwanted;

    if (how && how->ret_operation)
        how->ret_operation[0] = '\0';
    if (reply->status == 304 && how && how->if_none_match)
        return GPUBUF_UNCHANGED;
    if (reply->status == 202 && how && how->async)
        return gbc_parse(&reply->body, take_operation, how->ret_operation, err);
    if (reply->status >= 300)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer has the status %d, for which nobody asked",
                             reply->status);
    if (!record)
        return 0;
    return gbc_parse(&reply->body, record, ret ? ret : &unwanted, err);
}

int gbc_call(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how, gbc_record_fn *record,
             void *ret, struct gpubuf_error *err) {
    int r = gbc_ask(client, request, err);

    gbc_request_done(request);
    return r < 0 ? -1 : take_answer(client, how, record, ret, err);
}

/* N of "Prefer: wait=N", which the daemon takes before it answers; 0: no such header. */
static uint32_t wait_of(const char *header) {
    const char *wait = strncasecmp(header, "Prefer:", 7) == 0 ? strcasestr(header, "wait=") : NULL;
    unsigned long s = wait && wait[5] >= '0' && wait[5] <= '9' ? strtoul(wait + 5, NULL, 10) : 0;

    return s < UINT32_MAX / 1000 ? (uint32_t)s : UINT32_MAX / 1000;
}

/* Fills a request of the caller's own making; gbc_perform() reports what is wrong with it. */
static void request_of(struct gbc_request *request, const char *method, const char *target,
                       const char *const *headers) {
    gbc_request_init(request, method, "");
    gbc_text_add(&request->target, target, strlen(target));
    if (target[0] != '/' || strpbrk(target, " \r\n"))
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no target: it begins with / and has no blanks",
                      target);
    if (method[0] == '\0' || strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != strlen(method))
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no method", method);
    for (; headers && *headers; headers++) {
        if (strpbrk(*headers, "\r\n") || !strchr(*headers, ':'))
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "a header is one line \"Name: value\"");
        if (strncasecmp(*headers, "Idempotency-Key:", 16) == 0)
            request->keyed = true;
        if (strncasecmp(*headers, "If-", 3) == 0)
            request->conditional = true;
        request->wait_s += wait_of(*headers);
        gbc_text_add(&request->headers, *headers, strlen(*headers) + 1);
    }
}

int gpubuf_request(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                   const void *body, size_t bytes, struct gpubuf_error *err) {
    struct gbc_request request;
    int r;

    gbc_error_init(err);
    request_of(&request, method, target, headers);
    request.body = body;
    request.body_bytes = bytes;
    r = gbc_ask(client, &request, err);
    gbc_request_done(&request);
    return r;
}

int gpubuf_request_from(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                        struct gpubuf_source source, struct gpubuf_error *err) {
    struct gbc_progress progress;
    struct gbc_request request;
    struct gbc_reader reader;
    int r;

    gbc_error_init(err);
    gbc_progress_init(&progress, NULL, NULL, source.bytes);
    if (gbc_reader_init(&reader, source, &progress, false, err) < 0)
        return -1;
    request_of(&request, method, target, headers);
    request.up = &reader.up;
    r = gbc_ask(client, &request, err);
    gbc_request_done(&request);
    return r;
}
