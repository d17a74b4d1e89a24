#include "etcd_fake.h"

#include <arpa/inet.h>
#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/map.h"
#include "etcd_values.h"
#include "fleet/directory.h"
#include "fleet/messages.h"

#define KEYS_MAX 2048
#define LEASES_MAX 64
#define CONNS_MAX 64
#define PATHS_MAX 8

struct key {
    char *key;
    char *value;
    int64_t create;
    int64_t mod;
    int64_t version;
    int64_t lease;
};

struct lease {
    int64_t id; /* 0: none */
    int64_t ttl_s;
    uint64_t end_ms;
};

struct conn {
    int fd;
    char *in;
    size_t used;
};

struct etcd_fake {
    int listener;
    int wake[2];
    char url[64];
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below but the connections, which are the thread's */
    pthread_cond_t counted;
    struct key keys[KEYS_MAX]; /* in their order */
    size_t count;
    struct lease leases[LEASES_MAX];
    int64_t revision;
    uint64_t cluster;
    uint64_t term;
    int64_t date;
    bool silent;
    bool stopping;
    int status;
    char *answer;
    char lose[128];
    unsigned losses;
    struct {
        char path[64];
        unsigned n;
    } paths[PATHS_MAX];
    char copied[8192];
    struct conn conns[CONNS_MAX];
    size_t conn_count;
};

/* --- keys and leases ---------------------------------------------------------------------------------------------- */

static struct key *find(struct etcd_fake *f, const char *key) {
    size_t i;

    for (i = 0; i < f->count; i++)
        if (strcmp(f->keys[i].key, key) == 0)
            return &f->keys[i];
    return NULL;
}

static void drop(struct etcd_fake *f, struct key *k) {
    free(k->key);
    free(k->value);
    memmove(k, k + 1, (size_t)(f->keys + f->count - (k + 1)) * sizeof(*k));
    f->count--;
}

static void put(struct etcd_fake *f, const char *key, const char *value, int64_t lease) {
    struct key *k = find(f, key);

    if (!k) {
        size_t at = 0;

        ck_assert_uint_lt(f->count, KEYS_MAX);
        while (at < f->count && strcmp(f->keys[at].key, key) < 0)
            at++;
        k = &f->keys[at];
        memmove(k + 1, k, (f->count - at) * sizeof(*k));
        *k = (struct key){.key = strdup(key), .create = f->revision};
        f->count++;
    }
    free(k->value);
    k->value = strdup(value);
    k->mod = f->revision;
    k->version++;
    k->lease = lease;
}

static struct lease *find_lease(struct etcd_fake *f, int64_t id) {
    size_t i;

    for (i = 0; i < LEASES_MAX && id != 0; i++)
        if (f->leases[i].id == id)
            return &f->leases[i];
    return NULL;
}

static void end_lease(struct etcd_fake *f, struct lease *lease) {
    size_t i;

    for (i = f->count; i > 0; i--)
        if (f->keys[i - 1].lease == lease->id)
            drop(f, &f->keys[i - 1]);
    lease->id = 0;
    f->revision++;
}

static void expire_old(struct etcd_fake *f) {
    uint64_t now = gb_boot_ms();
    size_t i;

    for (i = 0; i < LEASES_MAX; i++)
        if (f->leases[i].id != 0 && f->leases[i].end_ms <= now)
            end_lease(f, &f->leases[i]);
}

static bool grant(struct etcd_fake *f, int64_t id, int64_t ttl_s) {
    size_t i;

    if (find_lease(f, id))
        return false;
    for (i = 0; i < LEASES_MAX && f->leases[i].id != 0; i++)
        ;
    ck_assert_uint_lt(i, LEASES_MAX);
    f->leases[i] = (struct lease){.id = id, .ttl_s = ttl_s, .end_ms = gb_boot_ms() + (uint64_t)ttl_s * 1000};
    return true;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *header(struct etcd_fake *f) {
    return json_pack("{s:o,s:s,s:o,s:o}", "cluster_id", json_sprintf("%" PRIu64, f->cluster), "member_id", "1",
                     "revision", etcd_text(f->revision), "raft_term", json_sprintf("%" PRIu64, f->term));
}

static json_t *kv_of(const struct key *k, bool keys_only) {
    json_t *kv = json_pack("{s:o,s:o,s:o,s:o}", "key", etcd_base64(k->key), "create_revision", etcd_text(k->create),
                           "mod_revision", etcd_text(k->mod), "version", etcd_text(k->version));

    if (!keys_only && k->value[0])
        json_object_set_new(kv, "value", etcd_base64(k->value));
    if (k->lease != 0)
        json_object_set_new(kv, "lease", etcd_text(k->lease));
    return kv;
}

/* --- transactions ------------------------------------------------------------------------------------------------- */

static bool holds(struct etcd_fake *f, const json_t *compare) {
    char *key = etcd_plain(compare, "key", NULL);
    const struct key *k = find(f, key);
    const char *target = json_string_value(json_object_get(compare, "target"));
    bool ret;

    ck_assert_str_eq(json_string_value(json_object_get(compare, "result")), "EQUAL");
    if (strcmp(target, "CREATE") == 0)
        ret = (k ? k->create : 0) == etcd_number(compare, "create_revision");
    else
        ret = (k ? k->mod : 0) == etcd_number(compare, "mod_revision");
    free(key);
    return ret;
}

static json_t *range(struct etcd_fake *f, const json_t *op) {
    size_t bytes;
    char *key = etcd_plain(op, "key", &bytes);
    char *end = etcd_plain(op, "range_end", NULL);
    bool after = bytes > strlen(key);
    size_t limit = (size_t)etcd_number(op, "limit");
    json_t *kvs = json_array();
    json_t *ret = json_pack("{s:o}", "header", header(f));
    size_t n = 0;
    size_t i;

    for (i = 0; i < f->count; i++) {
        int order = strcmp(f->keys[i].key, key);
        bool within = end ? (after ? order > 0 : order >= 0) && strcmp(f->keys[i].key, end) < 0 : order == 0;

        if (!within)
            continue;
        if (limit == 0 || n < limit)
            json_array_append_new(kvs, kv_of(&f->keys[i], json_is_true(json_object_get(op, "keys_only"))));
        n++;
    }
    if (n > 0) {
        json_object_set(ret, "kvs", kvs);
        json_object_set_new(ret, "count", etcd_text((int64_t)n));
    }
    if (limit > 0 && n > limit)
        json_object_set_new(ret, "more", json_true());
    json_decref(kvs);
    free(key);
    free(end);
    return ret;
}

/* One operation; *changed when the revision has been raised for this transaction. */
static json_t *operate(struct etcd_fake *f, const json_t *op, bool *changed) {
    const json_t *get = json_object_get(op, "request_range");
    const json_t *write = json_object_get(op, "request_put");
    const json_t *gone = json_object_get(op, "request_delete_range");
    char *key;
    char *value;

    if (get)
        return json_pack("{s:o}", "response_range", range(f, get));
    f->revision += !*changed;
    *changed = true;
    if (write) {
        key = etcd_plain(write, "key", NULL);
        value = etcd_plain(write, "value", NULL);
        put(f, key, value ? value : "", etcd_number(write, "lease"));
        free(key);
        free(value);
        return json_pack("{s:{s:o}}", "response_put", "header", header(f));
    }
    ck_assert_ptr_nonnull(gone);
    key = etcd_plain(gone, "key", NULL);
    if (find(f, key))
        drop(f, find(f, key));
    free(key);
    return json_pack("{s:{s:o}}", "response_delete_range", "header", header(f));
}

/* Whether each lease that the puts name is there. */
static bool leases_live(struct etcd_fake *f, const json_t *ops) {
    size_t i;

    for (i = 0; i < json_array_size(ops); i++) {
        int64_t id = etcd_number(json_object_get(json_array_get(ops, i), "request_put"), "lease");

        if (id != 0 && !find_lease(f, id))
            return false;
    }
    return true;
}

static json_t *refusal(const char *text, int code) {
    return json_pack("{s:s,s:s,s:i}", "error", text, "message", text, "code", code);
}

static json_t *txn(struct etcd_fake *f, const json_t *body, int *status) {
    const json_t *compares = json_object_get(body, "compare");
    const json_t *ops;
    json_t *responses;
    json_t *ret;
    bool won = true;
    bool changed = false;
    size_t i;

    for (i = 0; i < json_array_size(compares); i++)
        won = holds(f, json_array_get(compares, i)) && won;
    ops = json_object_get(body, won ? "success" : "failure");
    if (!leases_live(f, ops)) {
        *status = 404;
        return refusal("etcdserver: requested lease not found", 5);
    }
    responses = json_array();
    for (i = 0; i < json_array_size(ops); i++)
        json_array_append_new(responses, operate(f, json_array_get(ops, i), &changed));
    ret = json_pack("{s:o}", "header", header(f));
    if (won)
        json_object_set_new(ret, "succeeded", json_true());
    if (json_array_size(responses) > 0)
        json_object_set(ret, "responses", responses);
    json_decref(responses);
    return ret;
}

/* --- leases ------------------------------------------------------------------------------------------------------- */

static json_t *time_to_live(struct etcd_fake *f, const struct lease *lease, int64_t id) {
    json_t *ret = json_pack("{s:o,s:o}", "header", header(f), "ID", etcd_text(id));
    json_t *keys = json_array();
    size_t i;

    json_object_set_new(ret, "TTL", etcd_text(lease ? (int64_t)(lease->end_ms - gb_boot_ms()) / 1000 : -1));
    if (lease) {
        json_object_set_new(ret, "grantedTTL", etcd_text(lease->ttl_s));
        for (i = 0; i < f->count; i++)
            if (f->keys[i].lease == id)
                json_array_append_new(keys, etcd_base64(f->keys[i].key));
        json_object_set(ret, "keys", keys);
    }
    json_decref(keys);
    return ret;
}

static json_t *keepalive(struct etcd_fake *f, struct lease *lease, int64_t id) {
    json_t *result = json_pack("{s:o,s:o}", "header", header(f), "ID", etcd_text(id));

    if (lease) {
        lease->end_ms = gb_boot_ms() + (uint64_t)lease->ttl_s * 1000;
        json_object_set_new(result, "TTL", etcd_text(lease->ttl_s));
    }
    return json_pack("{s:o}", "result", result);
}

static json_t *respond(struct etcd_fake *f, const char *path, const json_t *body, int *status) {
    int64_t id = etcd_number(body, "ID");
    struct lease *lease = find_lease(f, id);

    *status = 200;
    if (strcmp(path, "/v3/kv/txn") == 0)
        return txn(f, body, status);
    if (strcmp(path, "/v3/lease/timetolive") == 0)
        return time_to_live(f, lease, id);
    if (strcmp(path, "/v3/lease/keepalive") == 0)
        return keepalive(f, lease, id);
    if (strcmp(path, "/v3/lease/revoke") == 0 && lease) {
        end_lease(f, lease);
        return json_pack("{s:o}", "header", header(f));
    }
    if (strcmp(path, "/v3/lease/grant") == 0 && grant(f, id, etcd_number(body, "TTL")))
        return json_pack("{s:o,s:o,s:o}", "header", header(f), "ID", etcd_text(id), "TTL",
                         etcd_text(etcd_number(body, "TTL")));
    *status = strcmp(path, "/v3/lease/grant") == 0 ? 412 : 404;
    return refusal("no", *status == 412 ? 9 : 5);
}

/* The gateway takes renewals as a stream, of which it has read so much when it answers. The caller frees. */
#define STREAM_READS 512

static char *respond_all(struct etcd_fake *f, const char *path, const char *body, int *status) {
    bool streams = strcmp(path, "/v3/lease/keepalive") == 0;
    size_t n = strlen(body);
    const char *end = body + (streams && n > STREAM_READS ? STREAM_READS : n);
    char *ret;
    FILE *out = open_memstream(&ret, &n);
    json_error_t at;
    json_t *root;

    while ((root = json_loadb(body, (size_t)(end - body), JSON_DISABLE_EOF_CHECK, &at))) {
        json_t *answer = respond(f, path, root, status);

        json_dumpf(answer, out, JSON_COMPACT);
        json_decref(answer);
        json_decref(root);
        body = streams ? body + at.position : end;
    }
    fclose(out);
    return ret;
}

/* --- HTTP --------------------------------------------------------------------------------------------------------- */

static void count(struct etcd_fake *f, const char *path) {
    size_t i;

    for (i = 0; i < PATHS_MAX - 1 && f->paths[i].path[0] && strcmp(f->paths[i].path, path) != 0; i++)
        ;
    snprintf(f->paths[i].path, sizeof(f->paths[i].path), "%s", path);
    f->paths[i].n++;
    pthread_cond_broadcast(&f->counted);
}

/* Whether it is the transaction by which a node asks, at times of its own, whether the directory has space. */
static bool asks_for_space(const char *body) {
    static const char key[] = "/gpubuf/main/space/"; /* encoded without its last byte, which shares a group */
    char *text = gb_base64(key, sizeof(key) - 2, false);
    bool ret = strstr(body, text) != NULL;

    free(text);
    return ret;
}

static bool loses(struct etcd_fake *f, const char *body) {
    char *text;
    bool ret;

    if (f->losses == 0)
        return false;
    text = gb_base64(f->lose, strlen(f->lose), false);
    /* The beginning of a key or value has the same base64, up to its last three bytes. */
    ret = strstr(body, f->lose) || strstr(body, text);
    free(text);
    f->losses -= ret;
    return ret;
}

static bool send_answer(struct etcd_fake *f, int fd, int status, const char *text) {
    char date[64];
    char head[256];
    time_t now = time(NULL) + f->date;
    struct tm tm;
    size_t n = strlen(text);

    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    snprintf(head, sizeof(head),
             "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nDate: %s\r\nContent-Length: %zu\r\n\r\n", status, date,
             n);
    return send(fd, head, strlen(head), MSG_NOSIGNAL | MSG_MORE) == (ssize_t)strlen(head) &&
           send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Returns false when the connection is to be closed. */
static bool serve(struct etcd_fake *f, int fd, const char *path, const char *body) {
    char *text = NULL;
    int status = 0;
    bool ret = false;

    pthread_mutex_lock(&f->lock);
    expire_old(f);
    count(f, asks_for_space(body) ? "space" : path);
    if (f->silent)
        ret = true;
    else if (f->answer)
        ret = send_answer(f, fd, f->status != 0 ? f->status : 200, f->answer);
    else if (f->status != 0)
        ret = send_answer(f, fd, f->status, "{\"error\":\"no\",\"message\":\"no\",\"code\":14}");
    else
        text = respond_all(f, path, body, &status);
    if (text)
        ret = !loses(f, body) && send_answer(f, fd, status, text);
    pthread_mutex_unlock(&f->lock);
    free(text);
    return ret;
}

/* Takes one request out of what has come. Returns false when the connection is to be closed, *done when there is no
 * whole one. */
static bool take_request(struct etcd_fake *f, struct conn *c, bool *done) {
    char *end = c->used > 0 ? strstr(c->in, "\r\n\r\n") : NULL;
    char *length = end ? strcasestr(c->in, "content-length:") : NULL;
    size_t n = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
    char path[64];
    char *body;
    bool ret;

    *done = !end || c->used < (size_t)(end + 4 - c->in) + n;
    if (*done)
        return true;
    ck_assert_int_eq(sscanf(c->in, "POST %63s ", path), 1);
    body = strndup(end + 4, n);
    c->used -= (size_t)(end + 4 - c->in) + n;
    memmove(c->in, end + 4 + n, c->used + 1);
    ret = serve(f, c->fd, path, body);
    free(body);
    return ret;
}

static bool read_conn(struct etcd_fake *f, struct conn *c) {
    char data[65536];
    ssize_t n = recv(c->fd, data, sizeof(data), 0);
    bool done = false;
    bool open = n > 0;

    if (!open)
        return false;
    c->in = realloc(c->in, c->used + (size_t)n + 1);
    memcpy(c->in + c->used, data, (size_t)n);
    c->used += (size_t)n;
    c->in[c->used] = '\0';
    while (open && !done)
        open = take_request(f, c, &done);
    return open;
}

static void close_conn(struct etcd_fake *f, size_t i) {
    close(f->conns[i].fd);
    free(f->conns[i].in);
    f->conns[i] = f->conns[--f->conn_count];
}

static void *run(void *arg) {
    struct etcd_fake *f = arg;
    struct pollfd fds[CONNS_MAX + 2];
    size_t i;

    for (;;) {
        fds[0] = (struct pollfd){.fd = f->wake[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = f->conn_count < CONNS_MAX ? f->listener : -1, .events = POLLIN};
        for (i = 0; i < f->conn_count; i++)
            fds[i + 2] = (struct pollfd){.fd = f->conns[i].fd, .events = POLLIN};
        poll(fds, f->conn_count + 2, -1);
        if (fds[0].revents)
            return NULL;
        for (i = f->conn_count; i > 0; i--)
            if (fds[i + 1].revents && !read_conn(f, &f->conns[i - 1]))
                close_conn(f, i - 1);
        if (fds[1].revents)
            f->conns[f->conn_count++] = (struct conn){.fd = accept(f->listener, NULL, NULL)};
    }
}

/* --- the test's side ---------------------------------------------------------------------------------------------- */

struct etcd_fake *etcd_fake_start(void) {
    struct etcd_fake *f = calloc(1, sizeof(*f));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);

    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(f->listener, (struct sockaddr *)&address, n), 0);
    ck_assert_int_eq(listen(f->listener, 64), 0);
    ck_assert_int_eq(getsockname(f->listener, (struct sockaddr *)&address, &n), 0);
    snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    ck_assert_int_eq(pipe(f->wake), 0);
    f->revision = 1;
    f->cluster = 14841639068965178418ull;
    f->term = 2;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->counted, NULL);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, run, f), 0);
    return f;
}

void etcd_fake_stop(struct etcd_fake *f) {
    ck_assert_int_eq(write(f->wake[1], "", 1), 1);
    pthread_join(f->thread, NULL);
    while (f->conn_count > 0)
        close_conn(f, f->conn_count - 1);
    while (f->count > 0)
        drop(f, &f->keys[f->count - 1]);
    close(f->listener);
    close(f->wake[0]);
    close(f->wake[1]);
    free(f->answer);
    free(f);
}

const char *etcd_fake_url(const struct etcd_fake *f) {
    return f->url;
}

const char *etcd_fake_get(struct etcd_fake *f, const char *key) {
    const struct key *k;

    pthread_mutex_lock(&f->lock);
    expire_old(f);
    k = find(f, key);
    if (k)
        snprintf(f->copied, sizeof(f->copied), "%s", k->value);
    pthread_mutex_unlock(&f->lock);
    return k ? f->copied : NULL;
}

void etcd_fake_put(struct etcd_fake *f, const char *key, const char *value, int64_t lease) {
    pthread_mutex_lock(&f->lock);
    f->revision++;
    put(f, key, value, lease);
    pthread_mutex_unlock(&f->lock);
}

void etcd_fake_delete(struct etcd_fake *f, const char *key) {
    pthread_mutex_lock(&f->lock);
    f->revision++;
    if (find(f, key))
        drop(f, find(f, key));
    pthread_mutex_unlock(&f->lock);
}

size_t etcd_fake_count(struct etcd_fake *f, const char *prefix) {
    size_t n = 0;
    size_t i;

    pthread_mutex_lock(&f->lock);
    expire_old(f);
    for (i = 0; i < f->count; i++)
        n += strncmp(f->keys[i].key, prefix, strlen(prefix)) == 0;
    pthread_mutex_unlock(&f->lock);
    return n;
}

uint64_t etcd_fake_sum(struct etcd_fake *f) {
    uint64_t sum = 0;
    size_t i;

    pthread_mutex_lock(&f->lock);
    for (i = 0; i < f->count; i++)
        sum = sum * 31 + gb_map_hash(f->keys[i].key) + 7 * gb_map_hash(f->keys[i].value);
    pthread_mutex_unlock(&f->lock);
    return sum;
}

void etcd_fake_grant(struct etcd_fake *f, int64_t id, int64_t ttl_s) {
    pthread_mutex_lock(&f->lock);
    ck_assert(grant(f, id, ttl_s));
    pthread_mutex_unlock(&f->lock);
}

void etcd_fake_expire(struct etcd_fake *f, int64_t id) {
    pthread_mutex_lock(&f->lock);
    if (find_lease(f, id))
        end_lease(f, find_lease(f, id));
    pthread_mutex_unlock(&f->lock);
}

bool etcd_fake_has_lease(struct etcd_fake *f, int64_t id) {
    bool ret;

    pthread_mutex_lock(&f->lock);
    expire_old(f);
    ret = find_lease(f, id) != NULL;
    pthread_mutex_unlock(&f->lock);
    return ret;
}

#define SETTER(name, type)                                                                                             \
    void etcd_fake_set_##name(struct etcd_fake *f, type value) {                                                       \
        pthread_mutex_lock(&f->lock);                                                                                  \
        f->name = value;                                                                                               \
        pthread_mutex_unlock(&f->lock);                                                                                \
    }
SETTER(silent, bool)
SETTER(status, int)
SETTER(cluster, uint64_t)
SETTER(term, uint64_t)
SETTER(date, int64_t)

void etcd_fake_lose_answers(struct etcd_fake *f, const char *has, unsigned n) {
    pthread_mutex_lock(&f->lock);
    snprintf(f->lose, sizeof(f->lose), "%s", has);
    f->losses = n;
    pthread_mutex_unlock(&f->lock);
}

void etcd_fake_set_answer(struct etcd_fake *f, const char *text) {
    pthread_mutex_lock(&f->lock);
    free(f->answer);
    f->answer = text ? strdup(text) : NULL;
    pthread_mutex_unlock(&f->lock);
}

void etcd_fake_wipe(struct etcd_fake *f) {
    pthread_mutex_lock(&f->lock);
    while (f->count > 0)
        drop(f, &f->keys[f->count - 1]);
    memset(f->leases, 0, sizeof(f->leases));
    f->revision = 1;
    pthread_mutex_unlock(&f->lock);
}

static unsigned requests(const struct etcd_fake *f, const char *path) {
    size_t i;

    for (i = 0; i < PATHS_MAX && strcmp(f->paths[i].path, path) != 0; i++)
        ;
    return i < PATHS_MAX ? f->paths[i].n : 0;
}

unsigned etcd_fake_requests(struct etcd_fake *f, const char *path) {
    unsigned n;

    pthread_mutex_lock(&f->lock);
    n = requests(f, path);
    pthread_mutex_unlock(&f->lock);
    return n;
}

void etcd_fake_wait_requests(struct etcd_fake *f, const char *path, unsigned n) {
    pthread_mutex_lock(&f->lock);
    while (requests(f, path) < n)
        pthread_cond_wait(&f->counted, &f->lock);
    pthread_mutex_unlock(&f->lock);
}
