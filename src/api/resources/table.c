/* GET .../tensors, and the tables that this and others ask for. A table is the beginning of the buffer's bytes. It is
 * read by a download like any other, and stays as it is until all bytes are replaced (layout of the record). */
#include "api/resources/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/thread.h"

/* --- those that are kept ------------------------------------------------------------------------------------------ */

#define TABLES 64
#define TABLES_BYTES (64u << 20)

struct kept {
    struct gb_table *table; /* a reference; NULL: the place is free */
    int64_t id;
    int64_t layout;
    uint64_t used;
};

TAILQ_HEAD(heads, gb_heading);

struct gb_tables {
    pthread_mutex_t lock;
    struct kept kept[TABLES];
    uint64_t uses;
    size_t bytes;
    pthread_mutex_t heads_lock; /* guards all below but the worker */
    struct heads waiting;       /* for memory */
    struct heads queued;        /* for the thread */
    size_t heads_bytes;
    struct gb_worker worker;
};

static uint64_t parse_queued(void *arg);

struct gb_tables *gb_tables_new(void) {
    struct gb_tables *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    gb_mutex_init(&t->heads_lock);
    TAILQ_INIT(&t->waiting);
    TAILQ_INIT(&t->queued);
    gb_worker_init(&t->worker);
    if (gb_worker_start(&t->worker, "gb-heads", 0, parse_queued, t, NULL) == 0)
        return t;
    gb_tables_free(t);
    return NULL;
}

static void forget(struct gb_tables *t, struct kept *k) {
    t->bytes -= gb_table_size(k->table);
    gb_table_unref(k->table);
    k->table = NULL;
}

void gb_tables_free(struct gb_tables *t) {
    size_t i;

    if (!t)
        return;
    for (i = 0; i < TABLES; i++) {
        if (t->kept[i].table)
            forget(t, &t->kept[i]);
    }
    gb_worker_stop(&t->worker);
    gb_worker_done(&t->worker);
    pthread_mutex_destroy(&t->heads_lock);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static bool is_of(const struct kept *k, const struct gb_buffer_rec *rec) {
    return k->table && k->id == rec->id && k->layout == rec->layout;
}

static struct kept *find_locked(struct gb_tables *t, const struct gb_buffer_rec *rec) {
    size_t i;

    for (i = 0; i < TABLES; i++) {
        if (is_of(&t->kept[i], rec))
            return &t->kept[i];
    }
    return NULL;
}

static struct kept *oldest_locked(struct gb_tables *t) {
    struct kept *oldest = NULL;
    size_t i;

    for (i = 0; i < TABLES; i++) {
        if (t->kept[i].table && (!oldest || t->kept[i].used < oldest->used))
            oldest = &t->kept[i];
    }
    return oldest;
}

/* A place for one more of that size. Earlier tables of the buffer leave, and then those that were not used for
 * longest. */
static struct kept *place_locked(struct gb_tables *t, int64_t id, size_t size) {
    struct kept *free_one = NULL;
    size_t i;

    for (i = 0; i < TABLES; i++) {
        if (t->kept[i].table && t->kept[i].id == id)
            forget(t, &t->kept[i]);
    }
    while (t->bytes > 0 && t->bytes + size > TABLES_BYTES)
        forget(t, oldest_locked(t));
    for (i = 0; i < TABLES && !free_one; i++) {
        if (!t->kept[i].table)
            free_one = &t->kept[i];
    }
    if (!free_one) {
        free_one = oldest_locked(t);
        forget(t, free_one);
    }
    return free_one;
}

void gb_tables_put(struct gb_tables *t, const struct gb_buffer_rec *rec, struct gb_table *table) {
    struct kept *k;

    pthread_mutex_lock(&t->lock);
    if (!find_locked(t, rec)) {
        k = place_locked(t, rec->id, gb_table_size(table));
        *k = (struct kept){gb_table_ref(table), rec->id, rec->layout, ++t->uses};
        t->bytes += gb_table_size(table);
    }
    pthread_mutex_unlock(&t->lock);
}

struct gb_table *gb_tables_find(struct gb_tables *t, const struct gb_buffer_rec *rec) {
    struct gb_table *table = NULL;
    struct kept *k;

    pthread_mutex_lock(&t->lock);
    k = find_locked(t, rec);
    if (k) {
        table = gb_table_ref(k->table);
        k->used = ++t->uses;
    }
    pthread_mutex_unlock(&t->lock);
    return table;
}

/* --- long headers ------------------------------------------------------------------------------------------------- */

#define HEADS_BYTES ((size_t)256 << 20) /* of all that are gathered or parsed, or whose tables uploads use */

enum head_state {
    HEAD_WAITS, /* for memory */
    HEAD_HELD,
    HEAD_QUEUED,
    HEAD_PARSING,
    HEAD_PARSED
};

struct gb_heading {
    TAILQ_ENTRY(gb_heading) link; /* while it waits or is queued */
    struct gb_tables *tables;
    struct gb_waker waker;
    size_t n;
    char *text;
    size_t least;
    enum head_state state; /* this and the next one: the lock of the heads */
    bool gone;             /* its owner has let it go while it was parsed */
    struct gb_safetensors file;
    struct gb_table *table;
    struct gb_error error;
};

/* Lets those in that there is memory for, in the order in which they came. */
static void admit_locked(struct gb_tables *t) {
    struct gb_heading *h;

    while ((h = TAILQ_FIRST(&t->waiting)) && (t->heads_bytes == 0 || t->heads_bytes + h->n <= HEADS_BYTES)) {
        TAILQ_REMOVE(&t->waiting, h, link);
        h->state = HEAD_HELD;
        t->heads_bytes += h->n;
        gb_waker_run(&h->waker);
    }
}

struct gb_heading *gb_heading_new(struct gb_tables *tables, size_t n, struct gb_waker waker) {
    struct gb_heading *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    h->tables = tables;
    h->waker = waker;
    h->n = n;
    pthread_mutex_lock(&tables->heads_lock);
    TAILQ_INSERT_TAIL(&tables->waiting, h, link);
    admit_locked(tables);
    pthread_mutex_unlock(&tables->heads_lock);
    return h;
}

static enum head_state state_of(struct gb_heading *h) {
    enum head_state state;

    pthread_mutex_lock(&h->tables->heads_lock);
    state = h->state;
    pthread_mutex_unlock(&h->tables->heads_lock);
    return state;
}

int gb_heading_room(struct gb_heading *head, char **ret, struct gb_error *err) {
    if (state_of(head) == HEAD_WAITS)
        return 0;
    if (!head->text && !(head->text = malloc(head->n)))
        return gb_error_memory(err, "header");
    *ret = head->text;
    return 1;
}

void gb_heading_parse(struct gb_heading *head, size_t least) {
    struct gb_tables *t = head->tables;

    head->least = least;
    pthread_mutex_lock(&t->heads_lock);
    head->state = HEAD_QUEUED;
    TAILQ_INSERT_TAIL(&t->queued, head, link);
    pthread_mutex_unlock(&t->heads_lock);
    gb_worker_kick(&t->worker);
}

/* [the heads' thread] */
static void parse(struct gb_heading *h) {
    if (gb_safetensors_parse(h->text + GB_SAFETENSORS_LENGTH, h->n - GB_SAFETENSORS_LENGTH, &h->file, &h->error) < 0)
        return;
    if (h->file.count < h->least)
        return;
    h->table = gb_table_take(&h->file, h->text, h->n, &h->error);
    h->file = (struct gb_safetensors){0};
}

/* Without the lock. */
static void destroy(struct gb_heading *h) {
    free(h->text);
    gb_safetensors_done(&h->file);
    gb_table_unref(h->table);
    free(h);
}

static uint64_t parse_queued(void *arg) {
    struct gb_tables *t = arg;
    struct gb_heading *h;
    bool gone;

    pthread_mutex_lock(&t->heads_lock);
    while ((h = TAILQ_FIRST(&t->queued))) {
        TAILQ_REMOVE(&t->queued, h, link);
        h->state = HEAD_PARSING;
        pthread_mutex_unlock(&t->heads_lock);
        parse(h);
        pthread_mutex_lock(&t->heads_lock);
        h->state = HEAD_PARSED;
        gone = h->gone;
        if (gone) {
            t->heads_bytes -= h->n;
            admit_locked(t);
            pthread_mutex_unlock(&t->heads_lock);
            destroy(h);
            pthread_mutex_lock(&t->heads_lock);
        } else {
            gb_waker_run(&h->waker); /* within the lock: the owner does not leave meanwhile */
        }
    }
    pthread_mutex_unlock(&t->heads_lock);
    return 0;
}

int gb_heading_result(struct gb_heading *head, struct gb_table **ret_table, struct gb_safetensors *ret_file,
                      struct gb_error *err) {
    if (state_of(head) != HEAD_PARSED)
        return 0;
    free(head->text);
    head->text = NULL;
    if (head->error.code != GB_OK)
        return gb_error_move(err, &head->error);
    *ret_table = head->table;
    *ret_file = head->file;
    head->table = NULL;
    head->file = (struct gb_safetensors){0};
    return 1;
}

void gb_heading_free(struct gb_heading *head) {
    struct gb_tables *t;

    if (!head)
        return;
    t = head->tables;
    pthread_mutex_lock(&t->heads_lock);
    head->gone = head->state == HEAD_PARSING;
    if (head->gone) {
        pthread_mutex_unlock(&t->heads_lock);
        return;
    }
    if (head->state == HEAD_WAITS)
        TAILQ_REMOVE(&t->waiting, head, link);
    else
        t->heads_bytes -= head->n;
    if (head->state == HEAD_QUEUED)
        TAILQ_REMOVE(&t->queued, head, link);
    admit_locked(t);
    pthread_mutex_unlock(&t->heads_lock);
    destroy(head);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

#define FIRST_BYTES 65536 /* most headers are shorter */

struct gb_table_reading {
    struct gb_session *session; /* a reference */
    struct gb_download *core;
    struct gb_name name;
    struct gb_name stream;
    struct gb_buffer_rec rec;     /* of the bytes that are read */
    gb_http_handler *handler;     /* gb_tables_read */
    struct gb_heading *long_head; /* of a header that is longer than most, of long_n bytes; NULL: of none */
    size_t long_n;
    bool parses;
    char *head; /* the long head's, if there is one */
    size_t have;
    size_t need;
    size_t wanted; /* how long the header is that is to be read; 0: that is not known, or it is being read */
    bool turned;   /* its turn on the stream has come */
};

static void drop_head(struct gb_table_reading *r) {
    if (!r->long_head)
        free(r->head);
    gb_heading_free(r->long_head);
    r->long_head = NULL;
    r->head = NULL;
}

void gb_table_reading_free(struct gb_table_reading *r) {
    if (!r)
        return;
    gb_download_free(r->core, false);
    gb_session_unref(r->session);
    gb_buffer_rec_done(&r->rec);
    drop_head(r);
    free(r);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* The record is final: starts to read the first r->need bytes. */
static int begin(struct gb_table_reading *r, struct gb_error *err) {
    const struct gb_buffer_rec *rec = gb_download_record(r->core);

    r->turned = true;
    gb_buffer_rec_set(&r->rec, rec);
    if (r->need > rec->bytes)
        r->need = (size_t)rec->bytes;
    if (!r->long_head) {
        free(r->head);
        r->head = malloc(r->need + 1);
    }
    if (!r->head)
        return gb_error_memory(err, "table");
    r->have = 0;
    return r->need > 0 ? gb_download_start(r->core, 0, r->need, err) : 0;
}

/* Opens the buffer behind the earlier writes of its stream. */
static int start(struct gb_http_request *request, struct gb_table_reading *r, size_t need, struct gb_error *err) {
    const struct gb_waker waker = {wake, request};

    gb_download_free(r->core, true);
    r->core = NULL;
    r->turned = false;
    r->need = need;
    if (gb_download_awaits(r->session, &r->name, &r->stream))
        return gb_download_open_after(r->session, &r->name, &r->stream, waker, &r->core, err);
    if (gb_download_open_in(r->session, &r->name, &r->stream, waker, &r->core, err) < 0)
        return -1;
    return begin(r, err);
}

static int damaged(const struct gb_table_reading *r, const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                        "the table at the beginning of \"%s\" was overwritten: %s; upload the file again, or take the "
                        "bytes as they are with ?format=raw",
                        r->name.s, why);
}

/* Returns 1 when a long header has its memory, 0: wait for wake, or -1. */
static int have_room(struct gb_http_request *request, struct gb_table_reading *r, size_t need, struct gb_error *err) {
    if (need <= GB_HEADING_LONG)
        return 1;
    if (!r->long_head) {
        drop_head(r);
        r->long_head = gb_heading_new(gb_api_of(request)->tables, need, (struct gb_waker){wake, request});
        r->long_n = need;
    }
    return r->long_head ? gb_heading_room(r->long_head, &r->head, err) : gb_error_memory(err, "table");
}

/* Takes the bytes that are there. Returns 1 when all are, 0: wait for wake, or -1. */
static int collect(struct gb_table_reading *r, struct gb_error *err) {
    const void *block;
    size_t n;
    int got = r->turned ? 1 : gb_download_turn(r->core, err);

    if (got <= 0 || (!r->turned && begin(r, err) < 0))
        return got > 0 ? -1 : got;
    while (r->have < r->need) {
        got = gb_download_next(r->core, &block, &n, err);
        if (got <= 0)
            return got;
        memcpy(r->head + r->have, block, n);
        r->have += n;
        gb_download_sent(r->core, n);
    }
    return 1;
}

/* The header is there: returns 1 with the table, or NULL with *why; 0: wait for wake. */
static int parse_head(struct gb_table_reading *r, struct gb_table **ret, struct gb_error *why) {
    struct gb_safetensors none;

    if (!r->long_head) {
        *ret = gb_table_new(r->head, r->have, why);
        return 1;
    }
    if (!r->parses)
        gb_heading_parse(r->long_head, 0);
    r->parses = true;
    return gb_heading_result(r->long_head, ret, &none, why) == 0 ? 0 : 1;
}

/* Returns as collect, when the table is kept. */
static int keep(struct gb_http_request *request, struct gb_table_reading *r, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_table *table = NULL;
    int got = parse_head(r, &table, &why);

    if (got == 0)
        return 0;
    drop_head(r);
    r->parses = false;
    if (!table)
        return why.code == GB_ERR_SATURATED ? gb_error_move(err, &why) : damaged(r, why.detail, err);
    got = gb_table_bytes(table) == r->rec.bytes ? 1 : damaged(r, "it is of another length", err);
    if (got > 0)
        gb_tables_put(gb_api_of(request)->tables, &r->rec, table);
    gb_table_unref(table);
    return got;
}

/* Returns as collect, when the table is kept. */
int gb_table_reading_go_on(struct gb_http_request *request, struct gb_table_reading *r, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    size_t head;
    int got;

    if (r->parses)
        return keep(request, r, err);
    if (r->wanted > 0) {
        got = have_room(request, r, r->wanted, err);
        if (got <= 0)
            return got;
        head = r->wanted;
        r->wanted = 0;
        if (start(request, r, head, err) < 0)
            return -1;
    }
    got = collect(r, err);
    if (got <= 0)
        return got;
    if (r->rec.dtype != GB_DTYPE_TENSORS)
        return 1; /* it has become another buffer, which the handler will see */
    if (r->have < GB_SAFETENSORS_PREFIX)
        return damaged(r, "it is too short", err);
    if (gb_safetensors_data_at(r->head, &head, &why) < 0)
        return damaged(r, why.detail, err);
    if (head > r->rec.bytes)
        return damaged(r, "its header would be longer than the buffer", err);
    if (r->long_head ? head == r->have && head == r->long_n : head <= r->have) {
        r->have = head;
        return keep(request, r, err);
    }
    drop_head(r); /* it is longer, or other bytes have taken the place of a long one */
    r->wanted = head;
    return gb_table_reading_go_on(request, r, err);
}

struct gb_table_reading *gb_table_reading_new(struct gb_http_request *request, const struct gb_name *stream,
                                              struct gb_error *err) {
    struct gb_table_reading *r = calloc(1, sizeof(*r));
    struct gb_name session;

    if (!r) {
        gb_error_memory(err, "table");
        return NULL;
    }
    r->stream = *stream;
    if (gb_param_name(request, 0, "session name", &session, err) == 0 &&
        gb_param_name(request, 1, "buffer name", &r->name, err) == 0 &&
        (r->session = gb_session_use(gb_api_of(request)->core, &session, err)) &&
        start(request, r, FIRST_BYTES, err) == 0)
        return r;
    gb_table_reading_free(r);
    return NULL;
}

static void free_state(void *state) {
    gb_table_reading_free(state);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_table_reading *r = request->state;
    gb_http_handler *handler = r->handler;
    int got = gb_table_reading_go_on(request, r, err);

    if (got == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (got == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the table in the permitted time");
    if (got <= 0)
        return GB_STEP_ERROR;
    gb_table_reading_free(r);
    request->state = NULL;
    request->state_free = NULL;
    return gb_loading_run(handler, request, response, err);
}

enum gb_step gb_tables_read(struct gb_http_request *request, const struct gb_name *stream, gb_http_handler *handler,
                            struct gb_http_response *response, struct gb_error *err) {
    struct gb_table_reading *r;

    if (request->state)
        request->state_free(request->state);
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_done(response);
    r = gb_table_reading_new(request, stream, err);
    if (!r)
        return GB_STEP_ERROR;
    r->handler = handler;
    request->state = r;
    request->state_free = free_state;
    request->resume = resume;
    return resume(request, response, err);
}

/* --- in several requests ------------------------------------------------------------------------------------------ */

static uint64_t gap_place(const void *arg, uint64_t at) {
    return gb_table_place(arg, at);
}

static uint64_t gap_before(const void *arg, uint64_t at) {
    return gb_table_before(arg, at);
}

static uint64_t gap_run(const void *arg, uint64_t at, bool *ret_gap) {
    return gb_table_run(arg, at, ret_gap);
}

/* The layout is that of the header which came first: another one would not be that of the bytes. */
static int gap_check(const void *arg, uint64_t at, const void *bytes, size_t n, struct gb_error *err) {
    const char *came = bytes;
    const char *text;
    size_t head = gb_table_head(arg, &text);

    if (at >= head || memcmp(text + at, bytes, n < head - at ? n : head - (size_t)at) == 0)
        return 0;
    for (; text[at] == *came; at++)
        came++;
    return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                        "the header from byte %llu on is another one than the upload began with",
                        (unsigned long long)at);
}

static void gap_free(void *arg) {
    gb_table_unref(arg);
}

struct gb_gaps gb_tables_gaps(struct gb_table *table) {
    return (struct gb_gaps){gap_place, gap_before, gap_run, gap_check, gb_table_ref(table), gap_free};
}

/* --- by a layout -------------------------------------------------------------------------------------------------- */

struct layout {
    struct gb_json_writer out;
    uint64_t at;
    size_t count;
};

static int add_tensor(struct layout *l, const json_t *item, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_dtype dtype = GB_DTYPE_COUNT;
    struct gb_shape shape = {.dims = 0};
    const char *name = NULL;
    uint64_t bytes = 0;

    if (!json_is_object(item))
        gb_error_set(&why, GB_ERR_WRONG_TYPE, "it must be an object with name, dtype and shape");
    else if (gb_json_known(item, "a tensor", "name dtype shape", &why) == 0 &&
             gb_json_string(item, "name", &name, &why) >= 0 && gb_json_dtype(item, "dtype", &dtype, &why) >= 0 &&
             gb_json_shape(item, "shape", &shape, &why) >= 0 && (!name || !name[0] || dtype == GB_DTYPE_COUNT))
        gb_error_set(&why, GB_ERR_INVALID_ARGUMENT, "it needs a name and a dtype");
    else if (why.code == GB_OK && !gb_dtype_safetensors(dtype))
        gb_error_set(&why, GB_ERR_INVALID_ARGUMENT, "safetensors, whose header a table is, has no %s",
                     gb_dtype_name(dtype));
    else if (why.code == GB_OK && strcmp(name, GB_SAFETENSORS_METADATA) == 0)
        gb_error_set(&why, GB_ERR_INVALID_ARGUMENT, "%s is no name of a tensor; give 'metadata'", name);
    else if (why.code == GB_OK && gb_shape_bytes(&shape, dtype, &bytes, &why) == 0 && bytes > INT64_MAX / 2 - l->at)
        gb_error_set(&why, GB_ERR_INVALID_ARGUMENT, "all of them have more bytes than a buffer can have");
    if (why.code != GB_OK)
        return gb_error_set(err, why.code, "tensors[%zu]: %s", l->count, why.detail);
    gb_safetensors_add(&l->out, name, dtype, &shape, l->at, l->at + bytes);
    l->at += bytes;
    l->count++;
    return 0;
}

static int add_metadata(struct layout *l, const json_t *metadata, struct gb_error *err) {
    const char *key;
    const json_t *value;
    char *text;

    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "metadata: the value of \"%.100s\" must be a string", key);
    }
    text = json_dumps(metadata, JSON_COMPACT);
    if (!text)
        return gb_error_memory(err, "table");
    gb_json_put_raw(&l->out, GB_SAFETENSORS_METADATA, text);
    free(text);
    return 0;
}

static int write_layout(struct layout *l, const json_t *tensors, const json_t *metadata, struct gb_error *err) {
    size_t i;

    gb_safetensors_open(&l->out);
    if (metadata && add_metadata(l, metadata, err) < 0)
        return -1;
    for (i = 0; i < json_array_size(tensors); i++) {
        if (add_tensor(l, json_array_get(tensors, i), err) < 0)
            return -1;
    }
    return gb_safetensors_close(&l->out, err);
}

struct gb_table *gb_tables_make(const json_t *tensors, const json_t *metadata, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_table *table = NULL;
    struct layout l = {.at = 0};

    if (!json_is_array(tensors) || (metadata && !json_is_object(metadata))) {
        gb_error_set(err, GB_ERR_WRONG_TYPE,
                     "the field 'tensors' must be an array of objects with name, dtype and shape, and 'metadata' an "
                     "object of strings");
        return NULL;
    }
    if (write_layout(&l, tensors, metadata, err) < 0) {
        gb_json_done(&l.out);
        return NULL;
    }
    if (l.out.used > GB_SAFETENSORS_LENGTH + GB_SAFETENSORS_HEADER_EACH_MAX) {
        gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the header of these tensors has %zu bytes, and at most %u are read",
                     l.out.used, GB_SAFETENSORS_HEADER_EACH_MAX);
    } else {
        table = gb_table_new(l.out.s, l.out.used, &why);
        if (!table && why.code == GB_ERR_UNSUPPORTED_ARRAY)
            gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the tensors make no safetensors header: %s", why.detail);
        else if (!table)
            gb_error_move(err, &why);
    }
    gb_json_done(&l.out);
    return table;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static bool fits(const char *name, size_t len, const struct gb_http_text *prefix) {
    return !prefix || (len >= prefix->len && memcmp(name, prefix->s, prefix->len) == 0);
}

/* alias_of: NULL for a tensor's own name. */
static void render(struct gb_json_writer *out, const char *name, enum gb_dtype dtype, const struct gb_shape *shape,
                   uint64_t bytes, uint64_t at, const char *alias_of) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", name);
    gb_json_put_string(out, "dtype", gb_dtype_name(dtype));
    gb_render_shape(out, "shape", shape);
    gb_json_put_u64(out, "bytes", bytes);
    gb_json_put_u64(out, "offset", at);
    if (alias_of)
        gb_json_put_string(out, "alias_of", alias_of);
    gb_json_close(out, '}');
}

#define METADATA_BYTES (1u << 20)

static int render_metadata(struct gb_json_writer *out, const struct gb_table *table, struct gb_error *err) {
    size_t n;
    const char *text = gb_table_metadata(table, &n);
    char *copy;

    if (n > METADATA_BYTES) { /* each page has it */
        gb_json_put_null(out, "metadata");
        return 0;
    }
    copy = strndup(text, n);
    if (!copy)
        return gb_error_memory(err, "list");
    gb_json_put_raw(out, "metadata", copy);
    free(copy);
    return 0;
}

/* The i-th name of the list, of a tensor or, behind them, an alias. */
static const char *nth_name(const struct gb_table *table, size_t i, size_t *ret_len, size_t *ret_tensor) {
    const struct gb_safetensor *tensor;

    if (i >= gb_table_count(table))
        return gb_table_alias(table, i - gb_table_count(table), ret_len, ret_tensor);
    tensor = gb_table_tensor(table, i, NULL);
    *ret_len = tensor->name_len;
    *ret_tensor = i;
    return tensor->name;
}

static enum gb_step reply_list(struct gb_http_request *request, const struct gb_table *table, struct gb_page page,
                               struct gb_http_response *response, struct gb_error *err) {
    const struct gb_http_text *prefix = gb_http_query(request, "prefix");
    char cursor[GB_CURSOR_SIZE];
    struct gb_json_writer out = {0};
    const size_t all = gb_table_count(table) + gb_table_aliases(table);
    const struct gb_safetensor *tensor;
    unsigned left = page.limit;
    const char *name;
    uint64_t at;
    size_t len;
    size_t of;
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "tensors", gb_table_count(table));
    gb_json_put_u64(&out, "file_bytes", gb_table_file_bytes(table));
    if (render_metadata(&out, table, err) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    gb_json_open(&out, "items", '[');
    for (i = (size_t)page.after; i < all; i++) {
        name = nth_name(table, i, &len, &of);
        if (!fits(name, len, prefix))
            continue;
        if (left == 0 || gb_render_list_full(&out))
            break;
        tensor = gb_table_tensor(table, of, &at);
        render(&out, name, tensor->dtype, &tensor->shape, tensor->end - tensor->begin, at,
               name == tensor->name ? NULL : tensor->name);
        left--;
        page.after = (int64_t)i + 1;
    }
    return gb_list_reply(request, &out, i < all ? gb_cursor_text(page.after, cursor) : NULL, response, err);
}

/* A buffer of one tensor has a list of one. */
static enum gb_step reply_one(struct gb_http_request *request, const struct gb_buffer_rec *rec,
                              const struct gb_page *page, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_http_text *prefix = gb_http_query(request, "prefix");
    struct gb_json_writer out = {0};
    char name[GB_LABELS_MAX];

    gb_tensor_name(rec, name);
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "tensors", 1);
    gb_json_put_null(&out, "file_bytes");
    gb_json_put_raw(&out, "metadata", "{}");
    gb_json_open(&out, "items", '[');
    if (page->after == 0 && fits(name, strlen(name), prefix))
        render(&out, name, rec->dtype, &rec->shape, rec->bytes, 0, NULL);
    return gb_list_reply(request, &out, NULL, response, err);
}

enum gb_step gb_api_buffer_tensors(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_name stream = {"default"};
    struct gb_table *table = NULL;
    struct gb_page page = {0};
    struct gb_buffer_rec rec;
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];
    enum gb_step step;
    int r;

    if (gb_param_name(request, 0, "session name", &at.session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &at.name, err) < 0 || gb_page_read(request, &page, err) < 0 ||
        gb_buffer_get(gb_api_of(request)->core, &at, &rec, err) < 0)
        return GB_STEP_ERROR;
    /* The table of bytes that are lost, or were not written to the end, says nothing: the reading is refused. */
    if (rec.dtype == GB_DTYPE_TENSORS && rec.state != GB_BUFFER_PARTIAL && rec.state != GB_BUFFER_LOST)
        table = gb_tables_find(gb_api_of(request)->tables, &rec);
    if (rec.dtype == GB_DTYPE_TENSORS && !table) {
        gb_buffer_rec_done(&rec);
        return gb_tables_read(request, &stream, gb_api_buffer_tensors, response, err);
    }
    r = gb_conditions_get(request, gb_etag_buffer(&rec, etag), response, err);
    if (r < 0)
        step = GB_STEP_ERROR;
    else if (r == 0)
        step = GB_STEP_REPLY;
    else
        step = table ? reply_list(request, table, page, response, err) : reply_one(request, &rec, &page, response, err);
    gb_table_unref(table);
    gb_buffer_rec_done(&rec);
    return step;
}
