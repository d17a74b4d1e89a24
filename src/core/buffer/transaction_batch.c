#include <stdlib.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/buffer/transaction.h"

struct gb_transaction_batch {
    atomic_uint refs;
    bool atomic;
    bool marked;
    struct gb_store_mark mark;
    struct gb_transaction **transactions;
    struct gb_transaction_group group;

    pthread_mutex_t lock; /* for the three below; a leaf */
    size_t missing;
    size_t count;
    bool failed;
};

struct gb_transaction_batch *gb_transaction_batch_new(size_t calls, bool atomic, const struct gb_store_mark *mark) {
    struct gb_transaction_batch *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    atomic_init(&g->refs, 1);
    gb_mutex_init(&g->lock);
    g->atomic = atomic;
    g->missing = calls;
    g->marked = mark != NULL;
    if (mark)
        g->mark = *mark;
    g->transactions = calloc(calls + 1, sizeof(*g->transactions));
    g->group.edits = calloc(calls + 1, sizeof(*g->group.edits));
    if (!g->transactions || !g->group.edits) {
        gb_transaction_batch_unref(g);
        return NULL;
    }
    return g;
}

bool gb_transaction_batch_atomic(const struct gb_transaction_batch *g) {
    return g && g->atomic;
}

struct gb_transaction_batch *gb_transaction_batch_ref(struct gb_transaction_batch *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void gb_transaction_batch_unref(struct gb_transaction_batch *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g->transactions);
    free(g->group.edits);
    free(g);
}

static void no_other(struct gb_error *err) {
    gb_error_set(err, GB_ERR_CANCELLED, "another operation of the batch failed; nothing was changed");
}

/* error GB_OK: success. Where one of them is to blame the others say so. */
static void end_all(struct gb_transaction_batch *g, const struct gb_error *error) {
    struct gb_error others = *error;
    size_t i;

    for (i = 0; i < g->count; i++) {
        if (g->transactions[i]->error.code != GB_OK) {
            others = GB_ERROR_INIT;
            no_other(&others);
        }
    }
    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        if (c->error.code == GB_OK)
            c->error = others;
        c->end(c);
    }
    gb_transaction_batch_unref(g);
}

/* One by one: those that can. Whichever is the first to be committed, the key is marked with it. */
static void start_each(struct gb_transaction_batch *g) {
    size_t i;

    for (i = 0; i < g->count; i++) {
        struct gb_transaction *c = g->transactions[i];

        c->group = NULL;
        c->call = NULL;
        if (g->marked)
            c->mark = g->mark;
        gb_transaction_start(c);
    }
    gb_transaction_batch_unref(g);
}

/* Those that were refused end. The others are one group again, with the key: a crash leaves all of them or none. If
 * none was refused, they cannot be committed together. */
static void start_rest(struct gb_transaction_batch *g) {
    size_t asked = g->count;
    size_t i;

    g->count = 0;
    for (i = 0; i < asked; i++) {
        struct gb_transaction *c = g->transactions[i];

        if (c->error.code == GB_OK)
            g->transactions[g->count++] = c;
        else
            c->end(c);
    }
    if (g->count == 0) {
        gb_transaction_batch_unref(g);
    } else if (g->count == asked) {
        start_each(g);
    } else {
        g->group.count = g->count;
        g->group.error = GB_ERROR_INIT;
        gb_transaction_group_start(&g->group);
    }
}

static void group_end(struct gb_transaction_group *group) {
    struct gb_transaction_batch *g = gb_container_of(group, struct gb_transaction_batch, group);

    if (group->error.code != GB_OK && !g->atomic)
        start_rest(g);
    else
        end_all(g, &group->error);
}

/* They were asked for by one name, which another session may have got meanwhile. */
static bool in_one_session(const struct gb_transaction_batch *g) {
    size_t i;

    for (i = 1; i < g->count; i++) {
        if (g->transactions[i]->session != g->transactions[0]->session)
            return false;
    }
    return true;
}

/* All are there, or never will be. */
static void go(struct gb_transaction_batch *g) {
    struct gb_error error = GB_ERROR_INIT;

    if (g->count == 0)
        return;
    gb_transaction_batch_ref(g);
    if (g->atomic && g->failed) {
        no_other(&error);
        end_all(g, &error);
        return;
    }
    if (!in_one_session(g)) {
        gb_error_set(&error, GB_ERR_SESSION_NOT_FOUND, "the session went while the batch ran");
        g->group.error = error;
        group_end(&g->group);
        return;
    }
    g->group.session = g->transactions[0]->session;
    g->group.transactions = g->transactions;
    g->group.count = g->count;
    g->group.mark = g->marked ? &g->mark : NULL;
    g->group.end = group_end;
    gb_transaction_group_start(&g->group);
}

/* The call's part in the batch ends, and the reference to the batch becomes the caller's. NULL: it has none. */
static struct gb_transaction_batch *take(struct gb_call *call) {
    struct gb_transaction_batch *g = call->batch;

    call->batch = NULL;
    call->on_finish = NULL;
    return g;
}

bool gb_transaction_batch_put(struct gb_transaction *transaction) {
    struct gb_transaction_batch *g = transaction->call ? take((struct gb_call *)transaction->call) : NULL;
    bool last;

    if (!g)
        return false;
    pthread_mutex_lock(&g->lock);
    g->transactions[g->count++] = transaction;
    last = --g->missing == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        go(g);
    gb_transaction_batch_unref(g);
    return true;
}

static void miss(struct gb_transaction_batch *g, size_t calls, bool failed) {
    bool last;

    pthread_mutex_lock(&g->lock);
    g->failed = g->failed || failed;
    g->missing -= calls;
    last = g->missing == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        go(g);
}

void gb_transaction_batch_skip(struct gb_transaction_batch *g, size_t calls) {
    if (calls > 0)
        miss(g, calls, true);
}

/* The call has ended without a transaction: the others wait for it no longer. */
static void leave(struct gb_call *call) {
    struct gb_transaction_batch *g = take(call);

    miss(g, 1, call->error.code != GB_OK);
    gb_transaction_batch_unref(g);
}

void gb_transaction_batch_add(struct gb_transaction_batch *g, struct gb_call *call) {
    call->batch = gb_transaction_batch_ref(g);
    call->on_finish = leave;
}
