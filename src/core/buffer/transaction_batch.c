#include <stdlib.h>

#include "core/buffer/transaction.h"

struct gb_gather {
    atomic_uint refs;
    bool atomic;
    bool marked;
    struct gb_store_mark mark;
    struct gb_change **changes;
    struct gb_change_group group;

    pthread_mutex_t lock; /* for the three below; a leaf */
    size_t missing;
    size_t count;
    bool failed;
};

struct gb_gather *gb_gather_new(size_t calls, bool atomic, const struct gb_store_mark *mark) {
    struct gb_gather *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->lock, NULL);
    g->atomic = atomic;
    g->missing = calls;
    g->marked = mark != NULL;
    if (mark)
        g->mark = *mark;
    g->changes = calloc(calls + 1, sizeof(*g->changes));
    g->group.edits = calloc(calls + 1, sizeof(*g->group.edits));
    if (!g->changes || !g->group.edits) {
        gb_gather_unref(g);
        return NULL;
    }
    return g;
}

bool gb_gather_atomic(const struct gb_gather *g) {
    return g && g->atomic;
}

struct gb_gather *gb_gather_ref(struct gb_gather *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void gb_gather_unref(struct gb_gather *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g->changes);
    free(g->group.edits);
    free(g);
}

static void no_other(struct gb_error *err) {
    gb_error_set(err, GB_ERR_CANCELLED, "another operation of the batch failed; nothing was changed");
}

/* error GB_OK: success. Where one of them is to blame the others say so. */
static void end_all(struct gb_gather *g, const struct gb_error *error) {
    struct gb_error others = *error;
    size_t i;

    for (i = 0; i < g->count; i++) {
        if (g->changes[i]->error.code != GB_OK) {
            others = GB_ERROR_INIT;
            no_other(&others);
        }
    }
    for (i = 0; i < g->count; i++) {
        struct gb_change *c = g->changes[i];

        if (c->error.code == GB_OK)
            c->error = others;
        c->end(c);
    }
    gb_gather_unref(g);
}

/* One by one: those that can. Whichever is the first to be committed, the key is marked with it. */
static void start_each(struct gb_gather *g) {
    size_t i;

    for (i = 0; i < g->count; i++) {
        struct gb_change *c = g->changes[i];

        c->group = NULL;
        c->error = GB_ERROR_INIT;
        c->call = NULL;
        if (g->marked)
            c->mark = g->mark;
        gb_change_start(c);
    }
    gb_gather_unref(g);
}

static void group_end(struct gb_change_group *group) {
    struct gb_gather *g = (struct gb_gather *)((char *)group - offsetof(struct gb_gather, group));

    if (group->error.code != GB_OK && !g->atomic)
        start_each(g);
    else
        end_all(g, &group->error);
}

/* All are there, or never will be. */
static void go(struct gb_gather *g) {
    struct gb_error error = GB_ERROR_INIT;

    if (g->count == 0)
        return;
    gb_gather_ref(g);
    if (g->atomic && g->failed) {
        no_other(&error);
        end_all(g, &error);
        return;
    }
    g->group.session = g->changes[0]->session;
    g->group.changes = g->changes;
    g->group.count = g->count;
    g->group.mark = g->marked ? &g->mark : NULL;
    g->group.end = group_end;
    gb_change_group_start(&g->group);
}

bool gb_gather_put(struct gb_change *change) {
    struct gb_call *call = (struct gb_call *)change->call;
    struct gb_gather *g = call ? call->gather : NULL;
    bool last;

    if (!g || call->gathered)
        return false;
    gb_gather_ref(g); /* the call, and its reference, may end meanwhile */
    call->gathered = true;
    pthread_mutex_lock(&g->lock);
    g->changes[g->count++] = change;
    last = --g->missing == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        go(g);
    gb_gather_unref(g);
    return true;
}

static void miss(struct gb_gather *g, size_t calls, bool failed) {
    bool last;

    pthread_mutex_lock(&g->lock);
    g->failed = g->failed || failed;
    g->missing -= calls;
    last = g->missing == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        go(g);
}

void gb_gather_skip(struct gb_gather *g, size_t calls) {
    if (calls > 0)
        miss(g, calls, true);
}

void gb_gather_leave(struct gb_call *call) {
    if (!call->gather || call->gathered)
        return;
    call->gathered = true;
    miss(call->gather, 1, call->error.code != GB_OK);
}
