/* Transactions that share a commit: batches of clients, and buffers whose bytes came together and are stored
 * together. */
#include "core/buffer/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/public/upload.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"

/* --- transaction batch -------------------------------------------------------------------------------------------- */

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

static struct gb_transaction_batch *transaction_batch_ref(struct gb_transaction_batch *g) {
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
        pthread_mutex_lock(&c->session->lock);
        if (c->turn)
            c->turn->batch = NULL; /* each waits for those that it builds on */
        pthread_mutex_unlock(&c->session->lock);
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

/* Those of one buffer are committed in the order of their turns. */
static int by_turn(const void *a, const void *b) {
    const struct gb_transaction *const *x = a;
    const struct gb_transaction *const *y = b;
    uint64_t m = (*x)->turn ? (*x)->turn->number : 0;
    uint64_t n = (*y)->turn ? (*y)->turn->number : 0;

    return m < n ? -1 : m > n;
}

/* All are there, or never will be. */
static void go(struct gb_transaction_batch *g) {
    struct gb_error error = GB_ERROR_INIT;

    if (g->count == 0)
        return;
    transaction_batch_ref(g);
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
    qsort(g->transactions, g->count, sizeof(*g->transactions), by_turn);
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

static void keep_source_locked(struct gb_after *after, struct gb_session *s, const struct gb_name *name) {
    struct gb_copy_source *kept = after->ended_arg;

    kept->resolved = true;
    (void)gb_buffer_hold_locked(s, name, &kept->rec, &kept->content, &kept->error);
}

/* A stream that does not exist is reported by the call. */
static void take_turn_locked(struct gb_session *s, uint64_t batch_number, struct gb_turn_ask *ask,
                             struct gb_core_stream **ret_stream) {
    const struct gb_name *source = ask->source.s[0] ? &ask->source : NULL;
    struct gb_turn *turn = gb_turn_new();

    if (turn) {
        turn->batch_number = turn->after.batch_number = turn->source.batch_number = batch_number;
        turn->links = source && !ask->kept;
    }
    if (!turn || gb_core_stream_use_locked(s, &ask->stream, ret_stream, NULL) < 0 ||
        gb_turn_take_locked(s, turn, &ask->buffer, source, *ret_stream, NULL) < 0) {
        free(turn); /* it was not taken */
        return;
    }
    ask->turn = turn;
    if (!ask->kept)
        return;
    turn->source.ended_locked = keep_source_locked;
    turn->source.ended_arg = ask->kept;
    if (!turn->source.on)
        keep_source_locked(&turn->source, s, source);
}

void gb_turns_take(struct gb_core *core, const struct gb_name *session, struct gb_turn_ask *asks, size_t count) {
    struct gb_core_stream **streams = calloc(count + 1, sizeof(*streams));
    struct gb_session *s = streams ? gb_session_use(core, session, NULL) : NULL;
    uint64_t number;
    size_t i;

    if (s) {
        pthread_mutex_lock(&s->lock);
        number = s->last_turn + 1;
        for (i = 0; i < count; i++)
            take_turn_locked(s, number, &asks[i], &streams[i]);
        pthread_mutex_unlock(&s->lock);
        for (i = 0; i < count; i++)
            gb_core_stream_unuse(streams[i]);
        gb_session_unref(s);
    }
    free(streams);
}

void gb_turn_join(struct gb_turn *turn, const void *batch) {
    if (!turn)
        return;
    pthread_mutex_lock(&turn->session->lock);
    turn->batch = batch;
    if (turn->reader)
        turn->reader->batch = batch;
    pthread_mutex_unlock(&turn->session->lock);
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
    call->batch = transaction_batch_ref(g);
    call->on_finish = leave;
}

/* --- transaction together ----------------------------------------------------------------------------------------- */

struct wider;

/* Stores the bytes that one more buffer has. */
struct other {
    struct gb_transaction transaction;
    struct wider *wider;
};

struct wider {
    struct gb_transaction_group group;
    struct gb_transaction_group *narrow; /* that was asked for; NULL: one */
    struct gb_transaction *one;
    bool stale; /* one of the others cannot be stored any more */
    size_t count;
    struct other others[];
};

/* --- one of the others -------------------------------------------------------------------------------------------- */

static int busy(const struct gb_buffer *b, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_BUFFER_BUSY,
                        "\"%s\", which is stored together with this buffer, is being overwritten in place; try again",
                        b->name);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct other *other = gb_container_of(transaction, struct other, transaction);

    if (!b || !gb_together_can_be_stored(b)) {
        other->wider->stale = true;
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "\"%s\" went meanwhile; try again", transaction->name.s);
    }
    if (b->in_place)
        return busy(b, err);
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->stores = b->behind;
    transaction->unrecorded = !b->behind;
    return 0;
}

void gb_transaction_publish_kept_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    if (transaction->unrecorded)
        return;
    notice = gb_notice_of_buffer(transaction->session, &transaction->rec, GB_NOTICE_BUFFER_STORED);
    gb_notice_post(transaction->session->core, &notice);
}

/* --- the group ---------------------------------------------------------------------------------------------------- */

static void wider_free(struct wider *w) {
    size_t i;

    for (i = 0; i < w->count; i++)
        gb_transaction_done(&w->others[i].transaction);
    free(w->group.transactions);
    free(w->group.edits);
    free(w);
}

static void end_one(struct gb_transaction *one, const struct gb_error *error, bool again) {
    one->group = NULL;
    one->error = again ? GB_ERROR_INIT : one->error.code == GB_OK ? *error : one->error;
    if (again)
        gb_transaction_start(one);
    else
        one->end(one);
}

static void end_group(struct gb_transaction_group *narrow, const struct gb_error *error, bool again) {
    narrow->error = again ? GB_ERROR_INIT : *error;
    if (again)
        gb_transaction_group_start(narrow);
    else
        narrow->end(narrow);
}

/* Without one that went, what was asked for is tried again. */
static void ended(struct gb_transaction_group *group) {
    struct wider *w = gb_container_of(group, struct wider, group);
    struct gb_transaction_group *narrow = w->narrow;
    struct gb_transaction *one = w->one;
    struct gb_error error = group->error;
    bool again = w->stale;

    wider_free(w);
    if (narrow)
        end_group(narrow, &error, again);
    else
        end_one(one, &error, again);
}

static struct wider *wider_new(const struct gb_transaction_asked *asked, size_t others) {
    struct wider *w = calloc(1, sizeof(*w) + others * sizeof(w->others[0]));
    size_t i;

    if (!w)
        return NULL;
    w->narrow = asked->group;
    w->one = asked->one;
    w->group.session = asked->transactions[0]->session;
    w->group.transactions = calloc(asked->count + others, sizeof(struct gb_transaction *));
    w->group.edits = calloc(asked->count + others, sizeof(*w->group.edits));
    w->group.mark = asked->mark;
    w->group.end = ended;
    if (!w->group.transactions || !w->group.edits) {
        wider_free(w);
        return NULL;
    }
    for (i = 0; i < asked->count; i++)
        w->group.transactions[i] = asked->transactions[i];
    w->group.count = asked->count;
    return w;
}

static void add_other(struct wider *w, const struct gb_buffer *b) {
    struct other *other = &w->others[w->count++];

    other->wider = w;
    other->transaction.session = w->group.session;
    strcpy(other->transaction.name.s, b->name);
    other->transaction.upkeep = true;
    other->transaction.validate_locked = validate_locked;
    other->transaction.publish_locked = gb_transaction_publish_kept_locked;
    w->group.transactions[w->group.count++] = &other->transaction;
}

/* --- which ones --------------------------------------------------------------------------------------------------- */

/* The bytes that it writes are those that others go with, or have some of them. */
static struct gb_together *together_of(const struct gb_transaction *c) {
    return gb_transaction_writes(c) && !c->whole ? c->buffer->together : NULL;
}

static void mark_asked(const struct gb_transaction_asked *asked, const void *mark) {
    size_t i;

    for (i = 0; i < asked->count; i++)
        asked->transactions[i]->buffer->grouped = mark;
}

/* Marks those that are not asked for. Those that cannot be stored leave. Returns how many are marked. */
static size_t mark_others(const struct gb_together *together, const void *mark) {
    struct gb_buffer *b;
    struct gb_buffer *next;
    size_t n = 0;

    for (b = together->first; b; b = next) {
        bool last = together->count == 2;

        next = b->together_next;
        if (b->grouped)
            continue;
        if (gb_together_can_be_stored(b)) {
            b->grouped = mark;
            n++;
            continue;
        }
        gb_together_leave(b);
        if (last)
            return 0;
    }
    return n;
}

static size_t count_others(const struct gb_transaction_asked *asked, const void *mark) {
    size_t n = 0;
    size_t i;

    for (i = 0; i < asked->count; i++) {
        const struct gb_together *together = together_of(asked->transactions[i]);

        n += together ? mark_others(together, mark) : 0;
    }
    return n;
}

/* Takes the marks off. w NULL: nothing else. Returns -1 if one is just being written, which is the error of whichever
 * it goes with. */
static int add_others(const struct gb_transaction_asked *asked, struct wider *w, const void *mark,
                      struct gb_error *err) {
    int r = 0;
    size_t i;

    for (i = 0; i < asked->count; i++) {
        struct gb_transaction *c = asked->transactions[i];
        const struct gb_together *together = together_of(c);
        struct gb_buffer *b;

        for (b = together ? together->first : NULL; b; b = b->together_next) {
            if (b->grouped != mark)
                continue;
            b->grouped = NULL;
            if (b->in_place && busy(b, &c->error) < 0)
                r = gb_error_move(err, &c->error);
            if (w)
                add_other(w, b);
        }
    }
    return r;
}

int gb_transaction_widen_locked(const struct gb_transaction_asked *asked, struct gb_transaction_group **ret,
                                struct gb_error *err) {
    const char others = 0;
    struct wider *w = NULL;
    size_t n;
    int r;

    *ret = NULL;
    mark_asked(asked, asked);
    n = count_others(asked, &others);
    if (n > 0)
        w = wider_new(asked, n);
    r = add_others(asked, w, &others, err);
    mark_asked(asked, NULL);
    if (n > 0 && !w)
        return gb_no_memory(err);
    if (r < 0)
        wider_free(w);
    else if (w)
        *ret = &w->group;
    return r;
}
