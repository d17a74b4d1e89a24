/* The ledger and its use. Contents call add and remove, uploads mark and unmark, transactions name; restore.c finds. */
#include "core/memory/kept.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/content.h"
#include "core/public/lifecycle.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "keeper/keeper.h"

/* --- the ledger --------------------------------------------------------------------------------------------------- */

#define LEDGER_MAGIC 0x4c425047u /* "GPBL" */
#define LEDGER_VERSION 1u
#define MEMORIES 65536
#define NAMES 131072
#define LEDGER_ID 1 /* of the ledger itself, at the keeper; memories have higher ones */

enum memory_state { FREE, HELD, MARKED };

/* state is written last when memory comes, and first when it goes. */
struct memory {
    _Atomic uint32_t state;
    uint32_t kind;
    uint64_t id;
    uint64_t bytes;
    _Atomic uint32_t blank; /* reads as zeros, which are not there yet */
    uint32_t reserved;
    char uuid[GB_UUID_TEXT_SIZE]; /* of its device */
};

/* id is written last when a name comes, and first when it goes. */
struct name {
    _Atomic uint64_t id; /* of the memory; 0: free */
    int64_t buffer;
    int64_t generation;
    uint32_t run;
    uint32_t reserved;
};

struct ledger {
    uint32_t magic;
    uint32_t version;
    uint64_t bytes; /* of this struct: another layout is another version */
    char backend[16];
    _Atomic uint64_t last_id;
    _Atomic uint32_t memories_end; /* the rest was never used */
    _Atomic uint32_t names_end;
    struct memory memories[MEMORIES];
    struct name names[NAMES];
};

/* What was found at the start. */
struct found {
    uint64_t id;
    int fd;
    uint32_t memory;            /* index; MEMORIES: the ledger does not know it */
    struct gb_content *content; /* of the buffer that had it first; borrowed from that */
};

struct gb_kept {
    struct gb_core *core;
    struct gb_keeper *keeper;
    struct ledger *ledger;
    int fd;

    pthread_mutex_t lock; /* a leaf but for the keeper's */
    bool leaving;
    uint32_t free_memories[MEMORIES];
    uint32_t free_names[NAMES];
    uint32_t first[MEMORIES]; /* names of each memory, from 1 on */
    uint32_t next[NAMES];
    uint32_t memory_count; /* free */
    uint32_t name_count;   /* free */
    uint64_t contents;
    uint64_t bytes;
    uint64_t left_out;
    uint64_t found_contents;
    uint64_t found_bytes;
    struct gb_error why; /* the first memory that was not taken over */

    /* The start's alone: */
    struct found *found; /* by rising id */
    size_t found_count;
    size_t found_room;
    struct name **by_buffer; /* names, by buffer and generation */
    size_t by_count;
    bool *claimed; /* of each name: a record has it */
};

/* --- names -------------------------------------------------------------------------------------------------------- */

static void name_free_locked(struct gb_kept *k, uint32_t i) {
    atomic_store(&k->ledger->names[i].id, 0);
    k->free_names[k->name_count++] = i;
}

static bool is_name(const struct name *n, const struct gb_buffer_rec *rec) {
    return n->buffer == rec->id && n->generation == rec->generation && n->run == rec->run;
}

static bool has_name_locked(const struct gb_kept *k, uint32_t m, const struct gb_buffer_rec *rec) {
    uint32_t i;

    for (i = k->first[m]; i > 0; i = k->next[i - 1]) {
        if (is_name(&k->ledger->names[i - 1], rec))
            return true;
    }
    return false;
}

static void link_name_locked(struct gb_kept *k, uint32_t m, uint32_t i) {
    k->next[i] = k->first[m];
    k->first[m] = i + 1;
}

/* Names of the buffer that are of another generation; rec NULL: names that no record has at the start. */
static void names_drop_locked(struct gb_kept *k, uint32_t m, const struct gb_buffer_rec *rec) {
    uint32_t *at = &k->first[m];

    while (*at > 0) {
        uint32_t i = *at - 1;
        const struct name *n = &k->ledger->names[i];

        if (rec ? n->buffer == rec->id && !is_name(n, rec) : !k->claimed[i]) {
            *at = k->next[i];
            name_free_locked(k, i);
        } else {
            at = &k->next[i];
        }
    }
}

/* --- memories ----------------------------------------------------------------------------------------------------- */

static void memory_free_locked(struct gb_kept *k, uint32_t m) {
    struct memory *memory = &k->ledger->memories[m];
    uint32_t i = k->first[m];

    atomic_store(&memory->state, FREE);
    while (i > 0) {
        uint32_t next = k->next[i - 1];

        name_free_locked(k, i - 1);
        i = next;
    }
    k->first[m] = 0;
    k->free_memories[k->memory_count++] = m;
}

static bool take_place(uint32_t *stack, uint32_t *count, _Atomic uint32_t *end, uint32_t most, uint32_t *ret) {
    if (*count > 0)
        *ret = stack[--*count];
    else if (atomic_load(end) < most)
        *ret = atomic_fetch_add(end, 1);
    else
        return false;
    return true;
}

static void memory_begin_locked(struct gb_kept *k, const struct gb_content *c, uint32_t m, uint64_t id) {
    struct memory *memory = &k->ledger->memories[m];

    memory->kind = (uint32_t)c->kind;
    memory->id = id;
    memory->bytes = c->bytes;
    atomic_store(&memory->blank, 0);
    snprintf(memory->uuid, sizeof(memory->uuid), "%s", c->device->rec.uuid);
    atomic_store(&memory->state, HELD);
    k->contents++;
    k->bytes += c->bytes;
}

static struct gb_kept *kept_of(const struct gb_content *c) {
    return c->device->core->kept;
}

/* The descriptor by which the memory is taken again. */
static int export(const struct gb_content *c, struct gb_export *ret) {
    struct gb_backend *be = c->device->core->backend;
    struct gb_location place = gb_content_location(c, 0);

    if (c->kind == GB_KIND_SHARED && gb_mem_export(be, &place, c->bytes, NULL, GB_EXPORT_VMM, true, ret, NULL) == 0)
        return 0;
    return gb_mem_export(be, &place, c->bytes, NULL, GB_EXPORT_MEMFD, true, ret, NULL);
}

static bool begin(struct gb_kept *k, uint32_t *ret_memory, uint64_t *ret_id) {
    bool has;

    pthread_mutex_lock(&k->lock);
    has = take_place(k->free_memories, &k->memory_count, &k->ledger->memories_end, MEMORIES, ret_memory);
    *ret_id = has ? atomic_fetch_add(&k->ledger->last_id, 1) + 1 : 0;
    k->left_out += !has;
    pthread_mutex_unlock(&k->lock);
    return has;
}

static void hand_over(struct gb_kept *k, struct gb_content *c) {
    struct gb_export out;
    uint64_t id;
    uint32_t m;
    int r;

    if (export(c, &out) < 0)
        return;
    if (begin(k, &m, &id)) {
        r = gb_keeper_put(k->keeper, id, out.fd, NULL);
        pthread_mutex_lock(&k->lock);
        if (r == 0) {
            memory_begin_locked(k, c, m, id);
            c->kept = m + 1;
        } else {
            k->free_memories[k->memory_count++] = m;
            k->left_out++;
        }
        pthread_mutex_unlock(&k->lock);
    }
    gb_export_done(&out);
}

void gb_kept_add(struct gb_content *c) {
    struct gb_kept *k = kept_of(c);

    if (k && c->ptr && gb_mem_kind_keeps(c->device->core->backend, c->kind))
        hand_over(k, c);
}

void gb_kept_remove(struct gb_content *c) {
    struct gb_kept *k = kept_of(c);
    uint64_t id = 0;

    if (!k || c->kept == 0)
        return;
    pthread_mutex_lock(&k->lock);
    if (!k->leaving) {
        id = k->ledger->memories[c->kept - 1].id;
        memory_free_locked(k, c->kept - 1);
        k->contents--;
        k->bytes -= c->bytes;
    }
    c->kept = 0;
    pthread_mutex_unlock(&k->lock);
    if (id > 0)
        (void)gb_keeper_drop(k->keeper, id, NULL); /* one that has gone has dropped it */
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static void set_state(const struct gb_content *c, enum memory_state state) {
    struct gb_kept *k = kept_of(c);

    if (k && c->kept > 0)
        atomic_store(&k->ledger->memories[c->kept - 1].state, (uint32_t)state);
}

void gb_kept_mark(const struct gb_content *c) {
    set_state(c, MARKED);
}

void gb_kept_unmark(const struct gb_content *c) {
    if (c->pin_writers == 0 && !c->tainted)
        set_state(c, HELD);
}

void gb_kept_name(const struct gb_content *c, const struct gb_buffer_rec *rec) {
    struct gb_kept *k = c ? kept_of(c) : NULL;
    struct name *n;
    uint32_t i;

    if (!k || c->kept == 0 || rec->mirrored)
        return;
    pthread_mutex_lock(&k->lock);
    atomic_store(&k->ledger->memories[c->kept - 1].blank, atomic_load(&c->blank));
    if (!has_name_locked(k, c->kept - 1, rec) &&
        take_place(k->free_names, &k->name_count, &k->ledger->names_end, NAMES, &i)) {
        n = &k->ledger->names[i];
        n->buffer = rec->id;
        n->generation = rec->generation;
        n->run = rec->run;
        atomic_store(&n->id, k->ledger->memories[c->kept - 1].id);
        link_name_locked(k, c->kept - 1, i);
    }
    pthread_mutex_unlock(&k->lock);
}

void gb_kept_named(const struct gb_content *c, const struct gb_buffer_rec *rec, bool in_place) {
    struct gb_kept *k = c ? kept_of(c) : NULL;

    if (!k || c->kept == 0 || rec->mirrored)
        return;
    pthread_mutex_lock(&k->lock);
    names_drop_locked(k, c->kept - 1, rec);
    pthread_mutex_unlock(&k->lock);
    if (rec->state == GB_BUFFER_READY && !in_place)
        gb_kept_unmark(c);
}

/* --- the start: what the keeper has ------------------------------------------------------------------------------- */

static int keep_item(void *arg, uint64_t id, int fd) {
    struct gb_kept *k = arg;
    struct found *more;

    if (id == LEDGER_ID) {
        k->fd = fd;
        return 0;
    }
    if (k->found_count == k->found_room) {
        k->found_room = k->found_room > 0 ? 2 * k->found_room : 64;
        more = realloc(k->found, k->found_room * sizeof(*more));
        if (!more) {
            close(fd);
            return -1;
        }
        k->found = more;
    }
    k->found[k->found_count++] = (struct found){.id = id, .fd = fd, .memory = MEMORIES};
    return 0;
}

static struct ledger *map_ledger(int fd) {
    void *at = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* A ledger that cannot be read, or is not of this version and backend, says nothing. */
static bool old_ledger(struct gb_kept *k) {
    struct stat is;

    if (k->fd < 0 || fstat(k->fd, &is) < 0 || (uint64_t)is.st_size < sizeof(struct ledger))
        return false;
    k->ledger = map_ledger(k->fd);
    if (!k->ledger)
        return false;
    if (k->ledger->magic == LEDGER_MAGIC && k->ledger->version == LEDGER_VERSION &&
        k->ledger->bytes == sizeof(struct ledger) && atomic_load(&k->ledger->memories_end) <= MEMORIES &&
        atomic_load(&k->ledger->names_end) <= NAMES &&
        strncmp(k->ledger->backend, gb_backend_name(k->core->backend), sizeof(k->ledger->backend)) == 0)
        return true;
    munmap(k->ledger, sizeof(struct ledger));
    k->ledger = NULL;
    return false;
}

static int new_ledger(struct gb_kept *k, struct gb_error *err) {
    if (k->fd >= 0)
        close(k->fd);
    k->fd = memfd_create("gpubufd-ledger", MFD_CLOEXEC);
    if (k->fd < 0 || ftruncate(k->fd, sizeof(struct ledger)) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "the system gives no memory for the ledger of kept memory");
    k->ledger = map_ledger(k->fd);
    if (!k->ledger)
        return gb_no_memory(err);
    k->ledger->magic = LEDGER_MAGIC;
    k->ledger->version = LEDGER_VERSION;
    k->ledger->bytes = sizeof(struct ledger);
    snprintf(k->ledger->backend, sizeof(k->ledger->backend), "%s", gb_backend_name(k->core->backend));
    atomic_store(&k->ledger->last_id, LEDGER_ID);
    (void)gb_keeper_put(k->keeper, LEDGER_ID, k->fd, &k->why); /* one that has gone is missed, and keeps nothing */
    return 0;
}

static int by_id(const void *a, const void *b) {
    uint64_t x = ((const struct found *)a)->id;
    uint64_t y = ((const struct found *)b)->id;

    return (x > y) - (x < y);
}

static struct found *found_of(const struct gb_kept *k, uint64_t id) {
    const struct found key = {.id = id};

    return k->found ? bsearch(&key, k->found, k->found_count, sizeof(key), by_id) : NULL;
}

/* Sorts what the ledger has into what is there and what is free. */
static int read_ledger(struct gb_kept *k, struct gb_error *err) {
    uint32_t names = atomic_load(&k->ledger->names_end);
    struct found *f;
    uint32_t i;

    for (i = atomic_load(&k->ledger->memories_end); i > 0; i--) {
        struct memory *memory = &k->ledger->memories[i - 1];

        f = atomic_load(&memory->state) != FREE ? found_of(k, memory->id) : NULL;
        if (f && f->memory == MEMORIES) {
            f->memory = i - 1;
        } else {
            atomic_store(&memory->state, FREE);
            k->free_memories[k->memory_count++] = i - 1;
        }
    }
    k->by_buffer = calloc(names + 1, sizeof(*k->by_buffer));
    k->claimed = calloc(names + 1, sizeof(*k->claimed));
    if (!k->by_buffer || !k->claimed)
        return gb_no_memory(err);
    for (i = names; i > 0; i--) {
        uint64_t id = atomic_load(&k->ledger->names[i - 1].id);

        f = id != 0 ? found_of(k, id) : NULL;
        if (f && f->memory < MEMORIES) {
            link_name_locked(k, f->memory, i - 1);
            k->by_buffer[k->by_count++] = &k->ledger->names[i - 1];
        } else {
            name_free_locked(k, i - 1);
        }
    }
    return 0;
}

static int by_buffer(const void *a, const void *b) {
    const struct name *x = *(const struct name *const *)a;
    const struct name *y = *(const struct name *const *)b;
    int buffers = (x->buffer > y->buffer) - (x->buffer < y->buffer);

    return buffers != 0 ? buffers : (x->generation > y->generation) - (x->generation < y->generation);
}

int gb_kept_open(struct gb_core *core, struct gb_kept **ret, struct gb_error *err) {
    struct gb_kept *k;
    int r;

    if (!core->config.keeper)
        return 0;
    k = calloc(1, sizeof(*k));
    if (!k)
        return gb_no_memory(err);
    k->core = core;
    k->keeper = core->config.keeper;
    k->fd = -1;
    pthread_mutex_init(&k->lock, NULL);
    (void)gb_keeper_list(k->keeper, keep_item, k, &k->why); /* without it this start has what came, and says why */
    r = old_ledger(k) ? 0 : new_ledger(k, err);
    if (r == 0)
        r = read_ledger(k, err);
    if (r < 0) {
        gb_kept_free(k);
        return -1;
    }
    qsort(k->by_buffer, k->by_count, sizeof(struct name *), by_buffer);
    *ret = k;
    return 0;
}

void gb_kept_leave(struct gb_kept *k) {
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->leaving = true;
    if (k->contents == 0) /* then the keeper has nothing to wait for */
        (void)gb_keeper_drop(k->keeper, LEDGER_ID, NULL);
    pthread_mutex_unlock(&k->lock);
}

static void found_done(struct gb_kept *k) {
    size_t i;

    for (i = 0; i < k->found_count; i++) {
        if (k->found[i].fd >= 0)
            close(k->found[i].fd);
    }
    free(k->found);
    free(k->by_buffer);
    free(k->claimed);
    k->found = NULL;
    k->by_buffer = NULL;
    k->claimed = NULL;
    k->found_count = k->by_count = 0;
}

void gb_kept_free(struct gb_kept *k) {
    if (!k)
        return;
    found_done(k);
    if (k->ledger)
        munmap(k->ledger, sizeof(struct ledger));
    if (k->fd >= 0)
        close(k->fd);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* --- the start: records find their memory ------------------------------------------------------------------------- */

static struct gb_core_device *device_of(const struct gb_kept *k, const struct memory *memory) {
    int i;

    for (i = 0; i < k->core->device_count; i++) {
        if (strncmp(k->core->devices[i].rec.uuid, memory->uuid, sizeof(memory->uuid)) == 0)
            return &k->core->devices[i];
    }
    return NULL;
}

/* The name of the buffer's generation; NULL: none. The database does not know the run, but each start leaves one name
 * for a generation at most. */
static const struct name *find_name(const struct gb_kept *k, const struct gb_buffer_rec *rec) {
    const struct name wanted = {.buffer = rec->id, .generation = rec->generation};
    const struct name *key = &wanted;
    struct name **found = bsearch(&key, k->by_buffer, k->by_count, sizeof(struct name *), by_buffer);

    return found ? *found : NULL;
}

/* The session had the bytes before: a quota that was lowered meanwhile refuses new ones, not these. */
static int count_locked(struct gb_session *s, struct gb_core_device *device, const struct gb_buffer_rec *rec,
                        struct gb_content **ret, struct gb_error *err) {
    struct gb_quota quota = s->rec.quota;
    int r;

    s->rec.quota.bytes = s->rec.quota.pinned_bytes = GB_UNLIMITED;
    r = gb_content_new_locked(s, device->pool, rec->kind, s->standard, &rec->name, rec->bytes, ret, err);
    s->rec.quota = quota;
    return r;
}

static struct gb_content *take(struct gb_session *s, struct found *f, const struct gb_buffer_rec *rec,
                               struct gb_error *err) {
    struct gb_kept *k = s->core->kept;
    struct memory *memory = &k->ledger->memories[f->memory];
    struct gb_core_device *device = device_of(k, memory);
    struct gb_content *c;

    if (!device || memory->bytes != rec->bytes || memory->kind != (uint32_t)rec->kind) {
        gb_error_set(err, GB_ERR_INTERNAL, "it is of another device, kind or size");
        return NULL;
    }
    if (count_locked(s, device, rec, &c, err) < 0)
        return NULL;
    if (gb_mem_kind_take(k->core->backend, device->index, c->kind, c->bytes, f->fd, &c->ptr, err) < 0) {
        gb_content_drop_later(c);
        return NULL;
    }
    gb_content_count_alloc(c);
    atomic_store(&c->blank, atomic_load(&memory->blank) != 0);
    c->kept = f->memory + 1;
    k->contents++;
    k->bytes += c->bytes;
    k->found_contents++;
    k->found_bytes += c->bytes;
    f->content = c;
    return c;
}

struct gb_content *gb_kept_find(struct gb_session *s, struct gb_buffer_rec *rec, bool *ret_partial) {
    struct gb_kept *k = s->core->kept;
    const struct name *n = k && !rec->mirrored && !rec->adopted ? find_name(k, rec) : NULL;
    struct found *f = n ? found_of(k, atomic_load(&n->id)) : NULL;
    struct gb_content *c;

    if (!f || f->memory >= MEMORIES)
        return NULL;
    c = f->content ? gb_content_ref(f->content) : take(s, f, rec, &k->why);
    if (!c)
        return NULL;
    k->claimed[n - k->ledger->names] = true;
    rec->run = n->run;
    *ret_partial = atomic_load(&k->ledger->memories[f->memory].state) == MARKED;
    return c;
}

void gb_kept_settle(struct gb_kept *k) {
    size_t i;

    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    for (i = 0; i < k->found_count; i++) {
        const struct found *f = &k->found[i];

        if (f->content) {
            names_drop_locked(k, f->memory, NULL);
            continue;
        }
        if (f->memory < MEMORIES)
            memory_free_locked(k, f->memory);
        (void)gb_keeper_drop(k->keeper, f->id, NULL);
    }
    found_done(k);
    pthread_mutex_unlock(&k->lock);
}

void gb_kept_stat(struct gb_core *core, struct gb_kept_stat *ret) {
    struct gb_kept *k = core->kept;
    struct gb_keeper_stat keeper;

    *ret = (struct gb_kept_stat){.on = k != NULL};
    if (!k)
        return;
    gb_keeper_stat(k->keeper, &keeper);
    pthread_mutex_lock(&k->lock);
    ret->alive = keeper.alive;
    ret->contents = k->contents;
    ret->bytes = k->bytes;
    ret->found = k->found_contents;
    ret->found_bytes = k->found_bytes;
    ret->left_out = k->left_out + keeper.refused;
    ret->why = k->why;
    pthread_mutex_unlock(&k->lock);
}
