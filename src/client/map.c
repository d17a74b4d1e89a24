/* Memory that is shared: mappings of buffers, and memory of this process that buffers adopt. Requested over the
 * UNIX socket, mapped into this process, and released. A mapping lives as long as the connection it was made over:
 * when the daemon is gone, gpubuf_mapping_alive() says so and the memory stays until gpubuf_unmap(). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client.h"
#include "client/driver.h"
#include "client/unix_conn.h"
#include "format/table.h"

static const struct {
    const char *name;
    enum gpubuf_way way;
} ways[GPUBUF_WAYS] = {
    {"vmm", GPUBUF_WAY_VMM}, {"pool", GPUBUF_WAY_POOL}, {"legacy", GPUBUF_WAY_LEGACY}, {"memfd", GPUBUF_WAY_MEMFD}};

struct gpubuf_mapping {
    struct gbc_link *link;
    struct gpubuf_mapping_info info;
    void *host; /* what mmap gave; NULL for a device's memory */
    size_t host_bytes;
    struct gbc_device_map device;
    uint64_t device_offset; /* where the buffer begins in it */
    pthread_mutex_t lock;   /* guards the three below, which are set once */
    struct gb_table *table; /* NULL: not asked for yet */
    struct gpubuf_tensor *tensors;
    char *names; /* of the tensors and aliases */
};

const struct gpubuf_mapping_info *gpubuf_mapping_info_of(const gpubuf_mapping *mapping) {
    return &mapping->info;
}

bool gpubuf_mapping_alive(const gpubuf_mapping *mapping) {
    return gbc_link_alive(mapping->link);
}

int gpubuf_mapping_poll_fd(const gpubuf_mapping *mapping) {
    return gbc_link_fd(mapping->link);
}

int gpubuf_mapping_wait(gpubuf_mapping *mapping, void *stream, struct gpubuf_error *err) {
    const struct gbc_driver *driver;

    gbc_error_init(err);
    if (mapping->host)
        return 0;
    driver = gbc_link_driver(mapping->link, err);
    return driver ? gbc_driver_wait(driver, &mapping->device, stream, err) : -1;
}

int gpubuf_mapping_finish(gpubuf_mapping *mapping, void *stream, struct gpubuf_error *err) {
    const struct gbc_driver *driver;

    gbc_error_init(err);
    if (mapping->host)
        return 0;
    driver = gbc_link_driver(mapping->link, err);
    return driver ? gbc_driver_finish(driver, &mapping->device, stream, err) : -1;
}

/* --- what the daemon gave ----------------------------------------------------------------------------------------- */

static void read_passed_over(const json_t *object, struct gpubuf_mapping_info *info) {
    const json_t *list = json_object_get(object, "passed_over");
    size_t i;

    for (i = 0; i < json_array_size(list) && i < GPUBUF_WAYS; i++) {
        const json_t *item = json_array_get(list, i);

        gbc_read_text(item, "way", info->passed_over[i].way, sizeof(info->passed_over[i].way));
        gbc_read_text(item, "reason", info->passed_over[i].reason, sizeof(info->passed_over[i].reason));
        info->passed_over_count = i + 1;
    }
}

/* What one answer says. */
struct given {
    struct gpubuf_mapping_info *info;
    struct gbc_grant grant;
    uint64_t offset;
    uint64_t fds;
    bool has_handle;
};

static int read_given(const json_t *o, void *ret) {
    struct given *g = ret;
    struct gpubuf_mapping_info *info = g->info;
    const char *mode = json_string_value(json_object_get(o, "mode"));
    const json_t *event = json_object_get(o, "event");
    const json_t *finished = json_object_get(o, "finished_event");
    size_t i;

    gbc_read_text(o, "lease", info->lease, sizeof(info->lease));
    gbc_read_text(o, "session", info->session, sizeof(info->session));
    gbc_read_text(o, "buffer", info->buffer, sizeof(info->buffer));
    gbc_read_text(o, "way", info->way_name, sizeof(info->way_name));
    gbc_read_text(o, "kind", info->kind, sizeof(info->kind));
    gbc_read_text(o, "dtype", info->dtype, sizeof(info->dtype));
    gbc_read_text(o, "etag", info->etag, sizeof(info->etag));
    gbc_read_device(json_object_get(o, "device"), &info->device);
    info->ndim = gbc_read_shape(o, info->shape);
    info->bytes = gbc_read_u64(o, "bytes");
    info->generation = gbc_read_u64(o, "generation");
    info->write = mode && strcmp(mode, "write") == 0;
    info->cuda_device = -1;
    read_passed_over(o, info);
    for (i = 0; i < GPUBUF_WAYS; i++) {
        if (strcmp(ways[i].name, info->way_name) == 0)
            info->way = ways[i].way;
    }
    g->grant.way = info->way;
    g->grant.write = info->write;
    g->grant.map_bytes = gbc_read_u64(o, "map_bytes");
    g->offset = gbc_read_u64(o, "offset");
    g->fds = gbc_read_u64(o, "fds");
    g->has_handle = gbc_read_handle(json_object_get(o, "handle"), g->grant.handle);
    g->grant.has_event = json_is_string(event);
    g->grant.has_finished = json_is_string(finished);
    gbc_read_text(json_object_get(o, "pool"), "id", g->grant.pool, sizeof(g->grant.pool));
    if ((g->grant.has_event && !gbc_read_handle(event, g->grant.event)) ||
        (g->grant.has_finished && !gbc_read_handle(finished, g->grant.finished)))
        return -1;
    return info->lease[0] != '\0' ? 0 : -1;
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

static int map_host(gpubuf_mapping *m, struct given *g, struct gpubuf_error *err) {
    int protection = m->info.write ? PROT_READ | PROT_WRITE : PROT_READ;
    bool empty = g->grant.map_bytes == 0;
    struct stat st;
    void *memory;

    if (fstat(g->grant.fd, &st) < 0)
        return gbc_error_errno(err, GPUBUF_CANNOT_MAP, "fstat", errno);
    if (!empty && (uint64_t)st.st_size < g->grant.map_bytes) /* its end would be a signal */
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the descriptor has fewer bytes than are to be mapped");
    m->host_bytes = empty ? 1 : (size_t)g->grant.map_bytes;
    memory = empty ? mmap(NULL, 1, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   : mmap(NULL, m->host_bytes, protection, MAP_SHARED, g->grant.fd, 0);
    if (memory == MAP_FAILED)
        return gbc_error_errno(err, GPUBUF_CANNOT_MAP, "mmap", errno);
    m->host = memory;
    m->info.memory = (char *)memory + g->offset;
    return 0;
}

static int map_device(gpubuf_mapping *m, struct given *g, const struct gpubuf_map_params *params,
                      struct gpubuf_error *err) {
    struct gbc_driver *driver = gbc_link_driver(m->link, err);
    int wanted = params->cuda_device;

    if (!driver)
        return -1;
    g->grant.device = wanted - 1;
    g->grant.access_devices = params->access_devices;
    g->grant.access_count = params->access_count;
    if (wanted <= 0 && gbc_driver_find(driver, m->info.device.uuid, &g->grant.device, err) < 0)
        return -1;
    if (gbc_driver_map(driver, &g->grant, &m->device, err) < 0)
        return -1;
    m->info.cuda_device = g->grant.device;
    m->device_offset = g->offset;
    m->info.device_memory = m->device.base + g->offset;
    return 0;
}

static int map_given(gpubuf_mapping *m, struct given *g, const struct gbc_link_answer *answer,
                     const struct gpubuf_map_params *params, struct gpubuf_error *err) {
    bool needs_fd = m->info.way != GPUBUF_WAY_LEGACY;
    bool needs_handle = m->info.way == GPUBUF_WAY_LEGACY || m->info.way == GPUBUF_WAY_POOL;

    if (m->info.way == 0)
        return gbc_error_set(err, GPUBUF_CANNOT_MAP, "this library does not know the way \"%s\"", m->info.way_name);
    if (answer->fds != g->fds || (needs_fd && answer->fds != 1))
        return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                             "%zu descriptors came where there should be %d, and %llu were announced", answer->fds,
                             needs_fd, (unsigned long long)g->fds);
    if (needs_handle && !g->has_handle)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the way %s needs a handle of 64 bytes", m->info.way_name);
    if (g->offset > g->grant.map_bytes || m->info.bytes > g->grant.map_bytes - g->offset)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the buffer is longer than what is mapped");
    g->grant.fd = needs_fd ? answer->fd[0] : -1;
    return m->info.way == GPUBUF_WAY_MEMFD ? map_host(m, g, err) : map_device(m, g, params, err);
}

/* *ret_no_driver: why all ways but memfd are left out; its code is GPUBUF_OK where they are not. */
static char *request_json(gpubuf_client *client, const struct gpubuf_map_params *params,
                          struct gpubuf_error *ret_no_driver) {
    unsigned wanted = params->ways;
    struct gpubuf_error wrong;
    json_t *body = json_object();
    json_t *list = json_array();
    char *text;
    size_t i;

    gbc_error_init(&wrong);
    gbc_error_init(ret_no_driver);
    if (wanted == 0 && !gbc_link_driver(client->link, ret_no_driver))
        wanted = GPUBUF_WAY_MEMFD;
    gbc_put_text(&wrong, body, "mode", params->write ? "write" : "read");
    for (i = 0; i < GPUBUF_WAYS; i++) {
        if (wanted & ways[i].way)
            gbc_add_text(&wrong, list, ways[i].name);
    }
    if (wanted != 0)
        gbc_put(&wrong, body, "ways", list);
    else
        json_decref(list);
    if (params->finished_event)
        gbc_put_true(&wrong, body, "finished_event", true);
    text = wrong.code == GPUBUF_OK ? gbc_json_text(body, &wrong) : NULL;
    json_decref(body);
    return text;
}

/* A lease that could not be used, or is not needed any more. */
static int let_go(struct gbc_link *link, const char *lease, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    struct gbc_request request;
    int r;

    gbc_request_init(&request, "DELETE", "/v1/leases/%", lease);
    if (request.target.failed)
        r = gbc_error_memory(err);
    else {
        r = gbc_link_ask(link, "DELETE", request.target.data, NULL, 0, NULL, &answer, err);
        gbc_link_answer_done(&answer);
    }
    gbc_request_done(&request);
    return r;
}

/* The ways that the daemon was not asked for, before those that it passed over. */
static void pass_over(struct gpubuf_mapping_info *info, const char *why) {
    size_t left = 0;
    size_t i;

    for (i = 0; i < GPUBUF_WAYS; i++)
        left += ways[i].way != GPUBUF_WAY_MEMFD;
    memmove(info->passed_over + left, info->passed_over, (GPUBUF_WAYS - left) * sizeof(info->passed_over[0]));
    info->passed_over_count =
        info->passed_over_count + left < GPUBUF_WAYS ? info->passed_over_count + left : GPUBUF_WAYS;
    for (i = 0; i < left; i++) {
        gbc_copy(info->passed_over[i].way, sizeof(info->passed_over[i].way), ways[i].name);
        gbc_copy(info->passed_over[i].reason, sizeof(info->passed_over[i].reason), why);
    }
}

/* The daemon's refusal names memfd alone. */
static void explain(struct gpubuf_error *err, const char *why) {
    size_t n = err ? strlen(err->detail) : 0;

    if (err && err->code == GPUBUF_UNSUPPORTED)
        snprintf(err->detail + n, sizeof(err->detail) - n, "; vmm, pool and legacy are left out: %s", why);
}

static int ask(gpubuf_client *client, gpubuf_mapping *m, const struct gbc_request *request,
               const struct gpubuf_map_params *params, struct gpubuf_error *err) {
    struct given g = {.info = &m->info};
    struct gbc_link_answer answer;
    struct gpubuf_error no_driver;
    char *json = request_json(client, params, &no_driver);
    int r;

    if (!json)
        return gbc_error_memory(err);
    r = gbc_link_ask(m->link, "POST", request->target.data, json, params->wait_s, &client->set.interrupted, &answer,
                     err);
    free(json);
    if (r < 0 && no_driver.code != GPUBUF_OK)
        explain(err, no_driver.detail);
    if (r == 0)
        r = gbc_parse(&answer.reply.body, read_given, &g, err);
    if (r == 0 && no_driver.code != GPUBUF_OK)
        pass_over(&m->info, no_driver.detail);
    if (r == 0) {
        r = map_given(m, &g, &answer, params, err);
        if (r < 0)
            let_go(m->link, m->info.lease, NULL);
    }
    gbc_link_answer_done(&answer);
    return r;
}

int gpubuf_map(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_map_params *params,
               gpubuf_mapping **ret, struct gpubuf_error *err) {
    static const struct gpubuf_map_params none;
    struct gbc_request request;
    gpubuf_mapping *m;
    int r = -1;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/map", session, buffer);
    m = calloc(1, sizeof(*m));
    if (!m || request.target.failed)
        gbc_error_memory(err);
    else if (request.wrong.code != GPUBUF_OK)
        gbc_error_set(err, request.wrong.code, "%s", request.wrong.detail);
    else if (gbc_link_up(client, err) == 0) {
        m->link = gbc_link_ref(client->link);
        r = ask(client, m, &request, params ? params : &none, err);
    }
    gbc_request_done(&request);
    if (r < 0) {
        gbc_link_leave(m ? m->link : NULL);
        free(m);
        return -1;
    }
    pthread_mutex_init(&m->lock, NULL);
    *ret = m;
    return 0;
}

static int read_present(const json_t *o, void *ret) {
    const char *state = json_string_value(json_object_get(o, "state"));

    *(bool *)ret = state && strcmp(state, "present") == 0;
    return state ? 0 : -1;
}

int gpubuf_mapping_current(gpubuf_mapping *mapping, bool *ret, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    struct gbc_request request;
    struct gpubuf_error why;
    int r;

    gbc_error_init(err);
    gbc_error_init(&why);
    gbc_request_init(&request, "GET", "/v1/leases/%", mapping->info.lease);
    if (request.target.failed) {
        gbc_request_done(&request);
        return gbc_error_memory(err);
    }
    r = gbc_link_ask(mapping->link, "GET", request.target.data, NULL, 0, NULL, &answer, &why);
    if (r == 0)
        r = gbc_parse(&answer.reply.body, read_present, ret, &why);
    gbc_link_answer_done(&answer);
    gbc_request_done(&request);
    if (r < 0 && (why.code == GPUBUF_LEASE_NOT_FOUND || !gbc_link_alive(mapping->link))) {
        *ret = false;
        return 0;
    }
    if (r < 0 && err)
        *err = why;
    return r;
}

static char *load_json(const char *from, uint64_t from_offset, uint64_t offset, uint64_t bytes) {
    struct gpubuf_error wrong;
    json_t *body = json_object();
    char *text;

    gbc_error_init(&wrong);
    gbc_put_text(&wrong, body, "from", from);
    gbc_put_u64(&wrong, body, "from_offset", from_offset);
    gbc_put_u64(&wrong, body, "offset", offset);
    if (bytes > 0)
        gbc_put_u64(&wrong, body, "bytes", bytes);
    gbc_put_true(&wrong, body, "in_place", true);
    text = wrong.code == GPUBUF_OK ? gbc_json_text(body, &wrong) : NULL;
    json_decref(body);
    return text;
}

int gpubuf_mapping_load(gpubuf_mapping *mapping, const char *from, uint64_t from_offset, uint64_t offset,
                        uint64_t bytes, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    struct gbc_request request;
    char *json = load_json(from, from_offset, offset, bytes);
    int r = -1;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/copy", mapping->info.session, mapping->info.buffer);
    if (!json || request.target.failed) {
        gbc_error_memory(err);
    } else {
        r = gbc_link_ask(mapping->link, "POST", request.target.data, json, 0, NULL, &answer, err);
        gbc_link_answer_done(&answer);
    }
    gbc_request_done(&request);
    free(json);
    return r;
}

int gpubuf_unmap(gpubuf_mapping *mapping, struct gpubuf_error *err) {
    const struct gbc_driver *driver;
    int r = 0;

    gbc_error_init(err);
    if (!mapping)
        return 0;
    if (mapping->host)
        munmap(mapping->host, mapping->host_bytes);
    else if ((driver = gbc_link_driver(mapping->link, NULL)))
        gbc_driver_unmap(driver, &mapping->device);
    gb_table_unref(mapping->table);
    free(mapping->tensors);
    free(mapping->names);
    pthread_mutex_destroy(&mapping->lock);
    if (gbc_link_alive(mapping->link)) /* else it ended with the connection */
        r = let_go(mapping->link, mapping->info.lease, err);
    gbc_link_leave(mapping->link);
    free(mapping);
    return r;
}

/* --- the tensors of a mapping ------------------------------------------------------------------------------------- */

#define LENGTH_BYTES 8 /* of the header, in front of it */

/* Reads bytes of the mapping; they lie within it. */
static int read_memory(const gpubuf_mapping *m, uint64_t at, void *room, size_t bytes, struct gpubuf_error *err) {
    const struct gbc_driver *driver;

    if (m->host) {
        memcpy(room, (const char *)m->info.memory + at, bytes);
        return 0;
    }
    driver = gbc_link_driver(m->link, err);
    return driver ? gbc_driver_read(driver, &m->device, m->device_offset + at, room, bytes, err) : -1;
}

/* The error of the parser, whose codes are the library's. */
static int not_a_table(struct gpubuf_error *err, const struct gb_error *why) {
    if (why->code == GB_ERR_SATURATED)
        return gbc_error_memory(err);
    return gbc_error_set(err, (int)why->code, "%s", why->detail);
}

static struct gb_table *read_table(const gpubuf_mapping *m, struct gpubuf_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_table *table = NULL;
    unsigned char length[LENGTH_BYTES];
    uint64_t bytes = 0;
    char *head;
    int i;

    if (strcmp(m->info.dtype, "tensors") != 0 || m->info.bytes < LENGTH_BYTES) {
        gbc_error_set(err, GPUBUF_UNSUPPORTED_ARRAY, "the buffer \"%s\" is one tensor, of dtype %s", m->info.buffer,
                      m->info.dtype);
        return NULL;
    }
    if (read_memory(m, 0, length, sizeof(length), err) < 0)
        return NULL;
    for (i = LENGTH_BYTES - 1; i >= 0; i--)
        bytes = bytes << 8 | length[i];
    if (bytes > m->info.bytes - LENGTH_BYTES) {
        gbc_error_set(err, GPUBUF_UNSUPPORTED_ARRAY, "the buffer \"%s\" is shorter than its header says",
                      m->info.buffer);
        return NULL;
    }
    head = malloc(LENGTH_BYTES + (size_t)bytes);
    if (!head)
        gbc_error_memory(err);
    else if (read_memory(m, 0, head, LENGTH_BYTES + (size_t)bytes, err) == 0) {
        table = gb_table_new(head, LENGTH_BYTES + (size_t)bytes, &why);
        if (table && gb_table_bytes(table) != m->info.bytes) {
            gb_error_set(&why, GB_ERR_UNSUPPORTED_ARRAY, "the buffer \"%s\" has not the bytes of its header",
                         m->info.buffer);
            gb_table_unref(table);
            table = NULL;
        }
        if (!table)
            not_a_table(err, &why);
    }
    free(head);
    return table;
}

/* Copies the name behind those that are there. */
static const char *keep_name(char **at, const char *name, size_t len) {
    char *kept = *at;

    memcpy(kept, name, len);
    kept[len] = '\0';
    *at += len + 1;
    return kept;
}

static size_t names_bytes(const struct gb_table *table) {
    size_t bytes = 0;
    uint64_t at;
    size_t len;
    size_t of;
    size_t i;

    for (i = 0; i < gb_table_count(table); i++)
        bytes += gb_table_tensor(table, i, &at)->name_len + 1;
    for (i = 0; i < gb_table_aliases(table); i++) {
        gb_table_alias(table, i, &len, &of);
        bytes += len + 1;
    }
    return bytes;
}

static void fill_tensors(const struct gb_table *table, struct gpubuf_tensor *tensors, char *names) {
    size_t count = gb_table_count(table);
    const char *name;
    size_t len;
    size_t of;
    size_t i;

    for (i = 0; i < count; i++) {
        const struct gb_safetensor *from = gb_table_tensor(table, i, &tensors[i].offset);

        tensors[i].name = keep_name(&names, from->name, from->name_len);
        gbc_copy(tensors[i].dtype, sizeof(tensors[i].dtype), gb_dtype_name(from->dtype));
        tensors[i].ndim = from->shape.dims;
        memcpy(tensors[i].shape, from->shape.dim, from->shape.dims * sizeof(from->shape.dim[0]));
        tensors[i].bytes = from->end - from->begin;
    }
    for (i = 0; i < gb_table_aliases(table); i++) {
        name = gb_table_alias(table, i, &len, &of);
        tensors[count + i] = tensors[of];
        tensors[count + i].name = keep_name(&names, name, len);
        tensors[count + i].alias_of = tensors[of].name;
    }
}

static int open_table_locked(gpubuf_mapping *m, struct gpubuf_error *err) {
    struct gb_table *table;

    if (m->table)
        return 0;
    table = read_table(m, err);
    if (!table)
        return -1;
    m->tensors = calloc(gb_table_count(table) + gb_table_aliases(table) + 1, sizeof(*m->tensors));
    m->names = malloc(names_bytes(table) + 1);
    if (!m->tensors || !m->names) {
        free(m->tensors);
        free(m->names);
        m->tensors = NULL;
        m->names = NULL;
        gb_table_unref(table);
        return gbc_error_memory(err);
    }
    fill_tensors(table, m->tensors, m->names);
    m->table = table;
    return 0;
}

static int open_table(gpubuf_mapping *m, struct gpubuf_error *err) {
    int r;

    gbc_error_init(err);
    pthread_mutex_lock(&m->lock);
    r = open_table_locked(m, err);
    pthread_mutex_unlock(&m->lock);
    return r;
}

int gpubuf_mapping_tensors(gpubuf_mapping *mapping, const struct gpubuf_tensor **ret, size_t *ret_count,
                           struct gpubuf_error *err) {
    if (open_table(mapping, err) < 0)
        return -1;
    *ret = mapping->tensors;
    if (ret_count)
        *ret_count = gb_table_count(mapping->table) + gb_table_aliases(mapping->table);
    return 0;
}

int gpubuf_mapping_tensor(gpubuf_mapping *mapping, const char *name, const struct gpubuf_tensor **ret,
                          struct gpubuf_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int64_t i;

    if (open_table(mapping, err) < 0)
        return -1;
    i = gb_table_find(mapping->table, name, strlen(name), &why);
    if (i < 0)
        return not_a_table(err, &why);
    *ret = &mapping->tensors[i];
    return 0;
}

/* --- adoptions ---------------------------------------------------------------------------------------------------- */

struct gpubuf_adoption {
    struct gbc_link *link;
    char session[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    char created_at[GPUBUF_TIME_SIZE]; /* tells it from another of that name */
    char side[GPUBUF_WORD_SIZE];       /* "": it is all of the buffer */
};

bool gpubuf_adoption_alive(const gpubuf_adoption *adoption) {
    return gbc_link_alive(adoption->link);
}

/* One side of a mirrored buffer. */
struct side {
    bool current; /* it has the newest bytes */
    bool owned;   /* by the daemon; false: another process owns the memory */
};

/* A buffer, as far as it says whether it still is an adoption. */
struct adopted {
    struct gpubuf_buffer buffer;
    char created_at[GPUBUF_TIME_SIZE];
    bool adopted;
    struct side host;
    struct side device;
};

static struct side side_of(const json_t *sides, const char *key) {
    const json_t *o = json_object_get(sides, key);
    struct side side = {gbc_read_bool(o, "current"), gbc_read_bool(o, "owned")};

    return side;
}

static int take_adopted(const json_t *o, void *ret) {
    const json_t *sides = json_object_get(o, "sides");
    struct adopted *r = ret;

    gbc_read_text(o, "created_at", r->created_at, sizeof(r->created_at));
    r->adopted = gbc_read_bool(o, "adopted");
    r->host = side_of(sides, "host");
    r->device = side_of(sides, "device");
    return gbc_record_buffer(o, &r->buffer);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void put_handle(struct gbc_request *request, json_t *body, const unsigned char *handle) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[(GBC_HANDLE_BYTES + 2) / 3 * 4 + 1];
    size_t at = 0;
    size_t i;

    if (!handle) {
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "the ways legacy and pool need a handle");
        return;
    }
    for (i = 0; i < GBC_HANDLE_BYTES; i += 3) {
        uint32_t bits = (uint32_t)handle[i] << 16;

        bits |= i + 1 < GBC_HANDLE_BYTES ? (uint32_t)handle[i + 1] << 8 : 0;
        bits |= i + 2 < GBC_HANDLE_BYTES ? handle[i + 2] : 0;
        text[at++] = digits[bits >> 18];
        text[at++] = digits[bits >> 12 & 63];
        text[at++] = i + 1 < GBC_HANDLE_BYTES ? digits[bits >> 6 & 63] : '=';
        text[at++] = i + 2 < GBC_HANDLE_BYTES ? digits[bits & 63] : '=';
    }
    text[at] = '\0';
    gbc_put_text(&request->wrong, body, "handle", text);
}

static const char *way_name(enum gpubuf_way way) {
    switch (way) {
    case GPUBUF_WAY_VMM:
        return "vmm";
    case GPUBUF_WAY_POOL:
        return "pool";
    case GPUBUF_WAY_LEGACY:
        return "legacy";
    default:
        return "memfd";
    }
}

static char *adopt_json(struct gbc_request *request, const struct gpubuf_adopt_params *params) {
    json_t *body = json_object();
    char *text;

    gbc_put_text(&request->wrong, body, "way", way_name(params->way));
    gbc_put_text(&request->wrong, body, "side", params->side);
    gbc_put_text(&request->wrong, body, "dtype", params->dtype);
    gbc_put_shape(&request->wrong, body, "shape", params->shape);
    if (params->bytes > 0)
        gbc_put_u64(&request->wrong, body, "bytes", params->bytes);
    if (params->offset > 0)
        gbc_put_u64(&request->wrong, body, "offset", params->offset);
    if (params->map_bytes > 0)
        gbc_put_u64(&request->wrong, body, "map_bytes", params->map_bytes);
    if (params->way == GPUBUF_WAY_LEGACY || params->way == GPUBUF_WAY_POOL)
        put_handle(request, body, params->handle);
    gbc_put_device(&request->wrong, body, "device", params->device);
    text = gbc_json_text(body, &request->wrong);
    json_decref(body);
    return text;
}

static int ask_to_adopt(gpubuf_client *client, gpubuf_adoption *a, struct gbc_request *request,
                        const struct gpubuf_adopt_params *params, struct adopted *ret, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    char *json = adopt_json(request, params);
    int r = -1;

    if (request->wrong.code != GPUBUF_OK) {
        gbc_error_set(err, request->wrong.code, "%s", request->wrong.detail);
    } else {
        r = gbc_link_give(a->link, "POST", request->target.data, json,
                          params->way == GPUBUF_WAY_LEGACY ? -1 : params->fd, params->wait_s, &client->set.interrupted,
                          &answer, err);
        if (r == 0)
            r = gbc_parse(&answer.reply.body, take_adopted, ret, err);
        ret->buffer.created = answer.reply.status == 201;
        gbc_link_answer_done(&answer);
    }
    free(json);
    return r;
}

static int check(const struct gpubuf_adopt_params *params, const struct gbc_request *request,
                 struct gpubuf_error *err) {
    if (request->target.failed)
        return gbc_error_memory(err);
    if (request->wrong.code != GPUBUF_OK)
        return gbc_error_set(err, request->wrong.code, "%s", request->wrong.detail);
    if (!params || (params->way != 0 && params->way != GPUBUF_WAY_MEMFD && params->way != GPUBUF_WAY_VMM &&
                    params->way != GPUBUF_WAY_POOL && params->way != GPUBUF_WAY_LEGACY))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "memory is adopted by one of the ways memfd, vmm, pool and legacy");
    if (params->way != GPUBUF_WAY_LEGACY && params->fd < 0)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the way %s needs a descriptor", way_name(params->way));
    return 0;
}

int gpubuf_adopt(gpubuf_client *client, const char *session, const char *buffer,
                 const struct gpubuf_adopt_params *params, gpubuf_adoption **ret, struct gpubuf_buffer *ret_buffer,
                 struct gpubuf_error *err) {
    struct adopted record = {.adopted = false};
    struct gbc_request request;
    gpubuf_adoption *a = calloc(1, sizeof(*a));
    int r = -1;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/adopt", session, buffer);
    if (!a) {
        gbc_error_memory(err);
    } else if (check(params, &request, err) == 0 && gbc_link_up(client, err) == 0) {
        a->link = gbc_link_ref(client->link);
        r = ask_to_adopt(client, a, &request, params, &record, err);
    }
    gbc_request_done(&request);
    if (r < 0) {
        gbc_link_leave(a ? a->link : NULL);
        free(a);
        return -1;
    }
    gbc_copy(a->session, sizeof(a->session), record.buffer.session);
    gbc_copy(a->buffer, sizeof(a->buffer), record.buffer.name);
    gbc_copy(a->created_at, sizeof(a->created_at), record.created_at);
    gbc_copy(a->side, sizeof(a->side), params->side ? params->side : "");
    if (ret_buffer)
        *ret_buffer = record.buffer;
    *ret = a;
    return 0;
}

/* --- releasing ---------------------------------------------------------------------------------------------------- */

#define BUFFER "/v1/sessions/%/buffers/%"

/* json: the body or NULL. record may be NULL: the answer is not read. */
static int ask_of(const gpubuf_adoption *a, const char *method, const char *path, const char *json,
                  struct adopted *record, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    struct gbc_request request;
    int r = -1;

    gbc_request_init(&request, method, path, a->session, a->buffer);
    if (request.target.failed) {
        gbc_error_memory(err);
    } else {
        r = gbc_link_ask(a->link, method, request.target.data, json, 0, NULL, &answer, err);
        if (r == 0 && record)
            r = gbc_parse(&answer.reply.body, take_adopted, record, err);
        gbc_link_answer_done(&answer);
    }
    gbc_request_done(&request);
    return r;
}

/* The other side gets the bytes if it lacks them. */
static int release_side(const gpubuf_adoption *a, const struct adopted *record, struct gpubuf_error *err) {
    bool host = strcmp(a->side, "host") == 0;
    const struct side *mine = host ? &record->host : &record->device;
    const struct side *other = host ? &record->device : &record->host;
    const char *sync = host ? "{\"to\":\"device\"}" : "{\"to\":\"host\"}";
    const char *release = host ? "{\"side\":\"host\"}" : "{\"side\":\"device\"}";

    if (mine->owned) /* it went already */
        return 0;
    if (mine->current && !other->current && ask_of(a, "POST", BUFFER "/sync", sync, NULL, err) < 0)
        return -1;
    return ask_of(a, "POST", BUFFER "/release", release, NULL, err);
}

static int release(const gpubuf_adoption *a, const struct adopted *record, struct gpubuf_error *err) {
    if (!record->adopted || strcmp(record->created_at, a->created_at) != 0)
        return 0;
    return a->side[0] ? release_side(a, record, err) : ask_of(a, "DELETE", BUFFER, NULL, NULL, err);
}

int gpubuf_adoption_release(gpubuf_adoption *adoption, struct gpubuf_error *err) {
    struct adopted record = {.adopted = false};
    struct gpubuf_error why;
    int r = 0;

    gbc_error_init(err);
    gbc_error_init(&why);
    if (!adoption)
        return 0;
    if (gbc_link_alive(adoption->link)) { /* else it ended with the connection */
        r = ask_of(adoption, "GET", BUFFER, NULL, &record, &why);
        if (r == 0)
            r = release(adoption, &record, &why);
        if (why.code == GPUBUF_BUFFER_NOT_FOUND || why.code == GPUBUF_SESSION_NOT_FOUND)
            r = 0;
    }
    if (r < 0 && err)
        *err = why;
    gbc_link_leave(adoption->link);
    free(adoption);
    return r;
}
