/* Groups: uploads and downloads of several buffers in one request. Uploads commit together, all or none. Downloads hold
 * the contents of one moment. Handlers of tensors call this, each group from one thread at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/public/buffer.h"
#include "core/public/upload.h"
#include "core/session/quota.h"
#include "core/transfer/download.h"
#include "core/transfer/upload.h"

/* --- a group of uploads ------------------------------------------------------------------------------------------- */

struct member {
    struct gb_upload_group *group;
    struct gb_upload *upload; /* the caller's reference */
    struct gb_turn *turn;     /* taken with the last byte of all */
    bool joined;              /* it waits for the others and holds a reference; the group's lock */
};

struct gb_upload_group {
    atomic_uint refs; /* the caller's, the commit's, and one of each upload */
    struct gb_session *session;
    size_t count;
    struct member *members;
    struct gb_transaction **transactions;
    struct gb_transaction_group tx_group;

    size_t at; /* the member that is filled; the caller's thread */

    pthread_mutex_t wake_lock; /* held while wake runs */
    struct gb_waker waker;     /* without fn: the caller has freed the group */

    pthread_mutex_t lock;
    size_t ready;
    size_t unfinished;
    bool ended;
    bool committing;
    bool abandoned;
    bool done;
    struct gb_error error;
};

static void wake_caller(struct gb_upload_group *j) {
    pthread_mutex_lock(&j->wake_lock);
    gb_waker_run(&j->waker);
    pthread_mutex_unlock(&j->wake_lock);
}

static void fail(struct gb_upload_group *j, const struct gb_error *error) {
    pthread_mutex_lock(&j->lock);
    if (j->error.code == GB_OK)
        j->error = *error;
    pthread_mutex_unlock(&j->lock);
}

static int check(struct gb_upload_group *j, struct gb_error *err) {
    int r = 0;

    pthread_mutex_lock(&j->lock);
    if (j->error.code != GB_OK) {
        gb_error_move(err, &j->error);
        r = -1;
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

static void group_unref(struct gb_upload_group *j) {
    if (!j || atomic_fetch_sub(&j->refs, 1) != 1)
        return;
    gb_session_unref(j->session);
    pthread_mutex_destroy(&j->wake_lock);
    pthread_mutex_destroy(&j->lock);
    free(j->members);
    free(j->transactions);
    free(j->tx_group.edits);
    free(j);
}

/* --- the commit --------------------------------------------------------------------------------------------------- */

/* Counts the end of a member, or of committed() itself. The last one wakes the caller. */
static void one_finished(struct gb_upload_group *j) {
    bool last;

    pthread_mutex_lock(&j->lock);
    last = --j->unfinished == 0;
    j->done = j->done || last;
    pthread_mutex_unlock(&j->lock);
    if (!last)
        return;
    wake_caller(j);
    group_unref(j); /* the commit's */
}

static void committed(struct gb_transaction_group *tx_group) {
    struct gb_upload_group *j = gb_container_of(tx_group, struct gb_upload_group, tx_group);
    size_t i;

    if (tx_group->error.code != GB_OK) {
        fail(j, &tx_group->error);
        for (i = 0; i < j->count; i++) {
            (void)gb_upload_step(j->members[i].upload, GB_UPLOAD_FAILED);
            gb_core_transfer_unref(&j->members[i].upload->t);
        }
        wake_caller(j);
        group_unref(j);
        return;
    }
    for (i = 0; i < j->count; i++)
        gb_upload_committed(j->members[i].upload);
    one_finished(j);
}

/* Commits all members, which have ended. */
static void commit(struct gb_upload_group *j) {
    size_t i;

    atomic_fetch_add(&j->refs, 1);
    j->unfinished = j->count + 1;
    for (i = 0; i < j->count; i++) {
        j->transactions[i] = &j->members[i].upload->transaction;
        j->transactions[i]->turn = j->members[i].turn;
    }
    j->tx_group.session = j->session;
    j->tx_group.transactions = j->transactions;
    j->tx_group.count = j->count;
    j->tx_group.end = committed;
    gb_transaction_group_start(&j->tx_group);
}

/* Returns true if the caller must call commit after unlocking. The lock is held. */
static bool complete_locked(struct gb_upload_group *j) {
    if (!j->ended || j->ready < j->count || j->committing || j->abandoned || j->error.code != GB_OK)
        return false;
    j->committing = true;
    return true;
}

/* The member's copies are done, and its commit waits for the others. Takes over a reference to it. */
static void join(struct gb_upload *u, const struct gb_error *error) {
    struct member *member = u->owner;
    struct gb_upload_group *j = member->group;
    bool complete;
    bool late;

    if (!gb_upload_ready(u, error, NULL))
        return;
    pthread_mutex_lock(&j->lock);
    late = j->abandoned;
    if (!late)
        member->joined = true;
    j->ready++;
    complete = complete_locked(j);
    pthread_mutex_unlock(&j->lock);
    if (complete)
        commit(j);
    else if (late)
        gb_core_transfer_unref(&u->t);
}

/* --- a member ----------------------------------------------------------------------------------------------------- */

static void member_complete(struct gb_upload *u) {
    gb_upload_hand_back(u, join);
}

static void member_committed(struct gb_upload *u) {
    struct member *member = u->owner;

    gb_upload_count(u);
    gb_upload_stop_running(u); /* before the caller is woken */
    one_finished(member->group);
}

static void member_gone(struct gb_upload *u) {
    struct member *member = u->owner;
    struct gb_upload_group *j = member->group;

    gb_turn_free(member->turn);
    member->turn = NULL;
    gb_upload_count_failure(u);
    gb_upload_dispose(u);
    group_unref(j);
}

static const struct gb_upload_role member_role = {
    .complete = member_complete, .committed = member_committed, .gone = member_gone, .from_client = true};

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* The wake of a member, which failed or has room. */
static void upload_woke(void *arg) {
    struct gb_upload *u = arg;
    struct gb_upload_group *j = ((struct member *)u->owner)->group;
    struct gb_error error;

    pthread_mutex_lock(&u->t.lock);
    error = u->t.error;
    pthread_mutex_unlock(&u->t.lock);
    if (error.code != GB_OK)
        fail(j, &error);
    wake_caller(j);
}

static struct gb_upload_group *make(struct gb_session *s, const struct gb_upload_group_params *params) {
    struct gb_upload_group *j = calloc(1, sizeof(*j));
    pthread_mutexattr_t attr;

    if (!j)
        return NULL;
    atomic_init(&j->refs, 1);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&j->wake_lock, &attr);
    pthread_mutexattr_destroy(&attr);
    gb_mutex_init(&j->lock);
    j->session = gb_session_ref(s);
    j->waker = params->waker;
    j->members = calloc(params->count + 1, sizeof(*j->members));
    j->transactions = calloc(params->count + 1, sizeof(*j->transactions));
    j->tx_group.edits = calloc(params->count + 1, sizeof(*j->tx_group.edits));
    if (j->members && j->transactions && j->tx_group.edits)
        return j;
    group_unref(j);
    return NULL;
}

static int begin_one(struct gb_core *core, struct gb_upload_group *j, const struct gb_upload_group_params *params,
                     size_t i, struct gb_error *err) {
    struct gb_upload_params p = {.fresh = true};
    struct member *member = &j->members[i];
    struct gb_upload *u;

    if (params->describe(params->describe_arg, i, &p, err) < 0)
        return -1;
    p.session = j->session;
    p.buffer.session = params->session;
    p.check = (struct gb_buffer_check){.check = NULL};
    p.waker.fn = upload_woke;
    member->group = j;
    u = gb_upload_make(core, &p, &member_role, member, err);
    gb_text_unref(p.buffer.labels);
    if (!u)
        return -1;
    u->t.waker.arg = u;
    u->t.wake_on_error = true;
    atomic_fetch_add(&j->refs, 1);
    member->upload = u;
    j->count = i + 1;
    return 0;
}

int gb_upload_group_check(struct gb_core *core, const struct gb_name *session, uint64_t bytes, struct gb_error *err) {
    struct gb_session *s;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, session, err);
    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_quota_check_locked(s, bytes, 0, true, err);
    if (r < 0 && err)
        gb_quota_denied(s, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* Ends the members whose bytes have all come, up to the one that fills. Returns 0 or -1. */
static int advance(struct gb_upload_group *j, struct gb_error *err) {
    for (; j->at < j->count; j->at++) {
        struct gb_upload *u = j->members[j->at].upload;

        if (u->filled < u->plan.payload)
            break;
        if (gb_upload_end(u, err) < 0)
            return -1;
    }
    return 0;
}

int gb_upload_group_begin(struct gb_core *core, const struct gb_upload_group_params *params,
                          struct gb_upload_group **ret, struct gb_error *err) {
    struct gb_upload_group *j;
    struct gb_session *s;
    size_t i;
    int r;

    /* A refusal of all bytes says more than one of the first member that does not fit. */
    if (gb_upload_group_check(core, &params->session, params->bytes, err) < 0)
        return -1;
    s = gb_session_use(core, &params->session, err);
    if (!s)
        return -1;
    j = make(s, params);
    r = j ? 0 : gb_no_memory(err);
    gb_session_unref(s);
    for (i = 0; i < params->count && r == 0; i++)
        r = begin_one(core, j, params, i, err);
    if (r < 0) {
        gb_upload_group_free(j);
        return -1;
    }
    for (i = 0; i < j->count; i++)
        gb_upload_start(j->members[i].upload, &core->uploads_running);
    *ret = j;
    return 0;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

int gb_upload_group_room(struct gb_upload_group *j, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    if (check(j, err) < 0 || advance(j, err) < 0)
        return -1;
    if (j->at == j->count)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "more bytes than all tensors have");
    return gb_upload_room(j->members[j->at].upload, ret_ptr, ret_n, err);
}

int gb_upload_group_fill(struct gb_upload_group *j, size_t n, struct gb_error *err) {
    if (gb_upload_fill(j->members[j->at].upload, n, err) < 0)
        return -1;
    return advance(j, err);
}

void gb_upload_group_pause(struct gb_upload_group *j, bool stalled) {
    if (j->at < j->count)
        gb_upload_pause(j->members[j->at].upload, stalled);
}

/* All under one hold of the lock, so that two groups never wait for each other. */
static int take_turns(struct gb_upload_group *j, struct gb_error *err) {
    size_t i;
    int r = 0;

    if (j->ended) /* the caller's thread sets it */
        return 0;
    for (i = 0; i < j->count && r == 0; i++) {
        j->members[i].turn = gb_turn_new();
        r = j->members[i].turn ? 0 : gb_no_memory(err);
        if (r == 0)
            j->members[i].turn->writes = true;
    }
    pthread_mutex_lock(&j->session->lock);
    for (i = 0; i < j->count && r == 0; i++) {
        const struct gb_upload *u = j->members[i].upload;

        r = gb_turn_take_locked(j->session, j->members[i].turn, &u->plan.buffer.name, NULL, u->t.stream, err);
    }
    pthread_mutex_unlock(&j->session->lock);
    return r;
}

int gb_upload_group_end(struct gb_upload_group *j, struct gb_error *err) {
    bool complete;

    if (check(j, err) < 0 || advance(j, err) < 0)
        return -1;
    if (j->at < j->count)
        return gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "the bytes end within tensor %zu of %zu", j->at + 1, j->count);
    if (take_turns(j, err) < 0)
        return -1;
    pthread_mutex_lock(&j->lock);
    j->ended = true;
    complete = complete_locked(j);
    pthread_mutex_unlock(&j->lock);
    if (complete)
        commit(j);
    return 0;
}

int gb_upload_group_result(struct gb_upload_group *j, struct gb_transfer_times *ret_times, struct gb_error *err) {
    struct gb_transfer_times sum = {.queue_ms = 0};
    struct gb_transfer_times one;
    bool done;
    size_t i;

    pthread_mutex_lock(&j->lock);
    done = j->done;
    pthread_mutex_unlock(&j->lock);
    if (!done) {
        int r = check(j, err);

        for (i = 0; i < j->count && r < 0; i++)
            gb_turn_end(j->members[i].turn, err); /* what the client asks for next does not follow it any more */
        return r;
    }
    for (i = 0; i < j->count; i++) {
        gb_transfer_times(&j->members[i].upload->t, &one);
        sum.copy_ms += one.copy_ms;
        if (one.queue_ms > sum.queue_ms)
            sum.queue_ms = one.queue_ms;
    }
    *ret_times = sum;
    return 1;
}

const struct gb_buffer_rec *gb_upload_group_record(const struct gb_upload_group *j, size_t i, bool *ret_created) {
    *ret_created = j->members[i].upload->created;
    return &j->members[i].upload->transaction.rec;
}

void gb_upload_group_set_reason(struct gb_upload_group *j, enum gb_code why) {
    size_t i;

    for (i = 0; j && i < j->count; i++)
        gb_upload_set_reason(j->members[i].upload, why);
}

void gb_upload_group_free(struct gb_upload_group *j) {
    bool abandoned;
    size_t i;

    if (!j)
        return;
    pthread_mutex_lock(&j->wake_lock);
    j->waker.fn = NULL;
    pthread_mutex_unlock(&j->wake_lock);
    pthread_mutex_lock(&j->lock);
    abandoned = !j->committing;
    j->abandoned = abandoned;
    pthread_mutex_unlock(&j->lock);
    for (i = 0; i < j->count; i++) {
        struct member *member = &j->members[i];
        struct gb_upload *u = member->upload;

        if (abandoned && member->joined) /* no commit follows that takes over the reference */
            gb_core_transfer_unref(&u->t);
        gb_upload_free(u);
    }
    group_unref(j);
}

/* --- a group of downloads ----------------------------------------------------------------------------------------- */

/* Downloads that are open at the same time: enough that small buffers, too, are copied while others are sent. */
#define AHEAD 4

struct item {
    struct gb_content *content; /* a reference; NULL: not yet written */
    enum gb_kind kind;
    uint64_t bytes;
};

/* The names of a group that waits for earlier writes of them. */
struct awaited {
    atomic_uint refs; /* the group's, and one for each write */
    struct gb_session *session;
    pthread_mutex_t lock;  /* held while wake runs */
    struct gb_waker waker; /* without fn: the group is gone */
    size_t waiting;        /* the lock */
    bool lenient;
    size_t count;
    struct gb_name *names;
    struct gb_after *afters;
};

struct gb_download_group {
    struct gb_session *session;
    struct gb_core_stream *stream; /* used */
    struct gb_waker waker;
    struct awaited *awaited;    /* NULL: it waits for no write */
    struct gb_buffer_rec *recs; /* NULL after the start */
    struct item *items;
    size_t count;
    bool started;
    size_t next; /* the first item whose download was not opened */
    struct {
        struct gb_download *download;
        uint64_t left; /* to be sent */
    } open[AHEAD];     /* a ring that begins at `first` */
    unsigned first;
    unsigned opened;
    struct gb_transfer_times done; /* of downloads that have ended */
};

size_t gb_download_group_count(const struct gb_download_group *group) {
    return group->count;
}

const struct gb_buffer_rec *gb_download_group_record(const struct gb_download_group *group, size_t i) {
    return &group->recs[i];
}

static void drop_records(struct gb_download_group *b) {
    size_t i;

    for (i = 0; b->recs && i < b->count; i++)
        gb_buffer_rec_done(&b->recs[i]);
    free(b->recs);
    b->recs = NULL;
}

/* --- opening downloads -------------------------------------------------------------------------------------------- */

static int hold_locked(struct gb_download_group *b, const struct gb_name *name, bool lenient, struct gb_error *err) {
    struct item *item = &b->items[b->count];
    struct gb_buffer_rec *rec = &b->recs[b->count];
    struct gb_error why = GB_ERROR_INIT;

    rec->labels = NULL;
    if (gb_buffer_hold_locked(b->session, name, rec, &item->content, &why) < 0) {
        if (lenient && why.code == GB_ERR_BUFFER_NOT_FOUND)
            return 0;
        if (!strstr(why.detail, name->s))
            return gb_error_set(err, why.code, "\"%s\": %.200s", name->s, why.detail);
        *err = why;
        return -1;
    }
    item->kind = rec->kind;
    item->bytes = rec->bytes;
    b->count++;
    return 0;
}

static int hold_all(struct gb_download_group *b, const struct gb_name *names, size_t count, bool lenient,
                    struct gb_error *err) {
    size_t i;
    int r = 0;

    pthread_mutex_lock(&b->session->lock);
    for (i = 0; i < count && r == 0; i++)
        r = hold_locked(b, &names[i], lenient, err);
    pthread_mutex_unlock(&b->session->lock);
    return r;
}

/* --- the earlier writes ------------------------------------------------------------------------------------------- */

static void awaited_unref(struct awaited *w) {
    size_t i;

    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    for (i = 0; i < w->count; i++)
        gb_after_done(&w->afters[i]);
    gb_session_unref(w->session);
    pthread_mutex_destroy(&w->lock);
    free(w->names);
    free(w->afters);
    free(w);
}

static void one_turned(struct gb_after *after) {
    struct awaited *w = after->owner;

    pthread_mutex_lock(&w->lock);
    if (--w->waiting == 0)
        gb_waker_run(&w->waker);
    pthread_mutex_unlock(&w->lock);
    awaited_unref(w);
}

static struct awaited *awaited_new(struct gb_download_group *b, const struct gb_name *names, size_t count,
                                   bool lenient) {
    struct awaited *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    atomic_init(&w->refs, 1);
    gb_mutex_init(&w->lock);
    w->session = gb_session_ref(b->session);
    w->waker = b->waker;
    w->lenient = lenient;
    w->names = calloc(count + 1, sizeof(*w->names));
    w->afters = calloc(count + 1, sizeof(*w->afters));
    if (!w->names || !w->afters) {
        awaited_unref(w);
        return NULL;
    }
    w->count = count;
    memcpy(w->names, names, count * sizeof(*names));
    return w;
}

/* Returns how many writes it waits for. The lock of the group is taken by one_turned alone, after this. */
static size_t await_all(struct gb_download_group *b, struct awaited *w) {
    size_t n = 0;
    size_t i;

    pthread_mutex_lock(&w->lock);
    pthread_mutex_lock(&b->session->lock);
    for (i = 0; i < w->count; i++) {
        struct gb_after *after = &w->afters[i];

        gb_after_find_write_locked(b->session, &w->names[i], b->stream, after);
        after->until = GB_TURN_ENDED;
        after->go = one_turned;
        after->owner = w;
        n += gb_after_wait_locked(after);
    }
    pthread_mutex_unlock(&b->session->lock);
    w->waiting = n;
    atomic_fetch_add(&w->refs, (unsigned)n);
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Those that it still waits for do not wake it. */
static void awaited_leave(struct awaited *w) {
    unsigned n = 0;
    size_t i;

    pthread_mutex_lock(&w->lock);
    w->waker.fn = NULL;
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_lock(&w->session->lock);
    for (i = 0; i < w->count; i++)
        n += gb_after_leave_locked(&w->afters[i]);
    pthread_mutex_unlock(&w->session->lock);
    for (; n > 0; n--)
        awaited_unref(w);
    awaited_unref(w);
}

int gb_download_group_turn(struct gb_download_group *b, struct gb_error *err) {
    struct awaited *w = b->awaited;
    size_t waiting;
    int r;

    if (!w)
        return 1;
    pthread_mutex_lock(&w->lock);
    waiting = w->waiting;
    pthread_mutex_unlock(&w->lock);
    if (waiting > 0)
        return 0;
    r = hold_all(b, w->names, w->count, w->lenient, err);
    b->awaited = NULL;
    awaited_leave(w);
    return r < 0 ? -1 : 1;
}

static int use_stream(struct gb_download_group *b, const struct gb_name *stream, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&b->session->lock);
    r = gb_core_stream_use_locked(b->session, stream, &b->stream, err);
    pthread_mutex_unlock(&b->session->lock);
    return r;
}

/* Holds the buffers, unless writes of them are under way. */
static int begin(struct gb_download_group *b, const struct gb_name *names, size_t count, bool lenient,
                 const struct gb_name *stream, struct gb_error *err) {
    if (use_stream(b, stream, err) < 0)
        return -1;
    if (atomic_load(&b->session->oldest_turn) == UINT64_MAX)
        return hold_all(b, names, count, lenient, err);
    b->awaited = awaited_new(b, names, count, lenient);
    if (!b->awaited)
        return gb_no_memory(err);
    if (await_all(b, b->awaited) > 0)
        return 0;
    return gb_download_group_turn(b, err) < 0 ? -1 : 0;
}

int gb_download_group_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *names,
                           size_t count, bool lenient, const struct gb_name *stream, struct gb_waker waker,
                           struct gb_download_group **ret, struct gb_error *err) {
    struct gb_session *s;
    struct gb_download_group *b;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, session, err);
    if (!s)
        return -1;
    b = calloc(1, sizeof(*b));
    if (!b) {
        gb_session_unref(s);
        return gb_no_memory(err);
    }
    b->session = s;
    b->waker = waker;
    atomic_fetch_add(&s->transfers, 1);
    b->recs = malloc((count + 1) * sizeof(*b->recs));
    b->items = malloc((count + 1) * sizeof(*b->items));
    if (!b->recs || !b->items) {
        gb_download_group_free(b);
        return gb_no_memory(err);
    }
    if (begin(b, names, count, lenient, stream, err) < 0) {
        gb_download_group_free(b);
        return -1;
    }
    *ret = b;
    return 0;
}

int gb_download_group_start(struct gb_download_group *b, const size_t *order, struct gb_error *err) {
    struct item *ordered = malloc((b->count + 1) * sizeof(*ordered));
    size_t i;

    if (!ordered)
        return gb_no_memory(err);
    for (i = 0; i < b->count; i++)
        ordered[i] = b->items[order[i]];
    free(b->items);
    b->items = ordered;
    drop_records(b);
    b->started = true;
    return 0;
}

/* --- the bytes of downloads --------------------------------------------------------------------------------------- */

/* Opens the next download that has bytes, behind the others. Returns 1; 0 if none is left; -1. */
static int open_next(struct gb_download_group *b, struct gb_error *err) {
    unsigned at = (b->first + b->opened) % AHEAD;
    struct gb_download *d;
    struct item *item;

    while (b->next < b->count && b->items[b->next].bytes == 0)
        gb_content_drop(b->items[b->next++].content, NULL, NULL);
    if (b->next == b->count)
        return 0;
    item = &b->items[b->next];
    d = gb_download_of(b->session, b->stream, item->content, item->kind, item->bytes, b->waker);
    if (!d)
        return gb_no_memory(err);
    b->next++;
    b->open[at].download = d;
    b->open[at].left = item->bytes;
    b->opened++;
    return gb_download_start(d, 0, item->bytes, err) < 0 ? -1 : 1;
}

static struct gb_download *opened(const struct gb_download_group *b, unsigned i) {
    return b->open[(b->first + i) % AHEAD].download;
}

/* If all copies of a download are queued, queues copies of the next one. */
static void queue_ahead(struct gb_download_group *b) {
    unsigned i = 0;

    while (!opened(b, i)->direct && opened(b, i)->queued == opened(b, i)->length) {
        if (++i == AHEAD || (i == b->opened && open_next(b, NULL) <= 0))
            return;
        gb_download_ahead(opened(b, i));
    }
}

int gb_download_group_next(struct gb_download_group *b, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r = 1;

    if (b->started && b->opened == 0)
        r = open_next(b, err);
    if (!b->started || r == 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "no bytes of the buffers are left");
    if (r > 0)
        r = gb_download_next(opened(b, 0), ret_ptr, ret_n, err);
    if (r >= 0)
        queue_ahead(b);
    return r;
}

void gb_download_group_sent(struct gb_download_group *b, size_t n) {
    struct gb_transfer_times times;
    struct gb_download *d = opened(b, 0);

    gb_download_sent(d, n);
    b->open[b->first].left -= n;
    if (b->open[b->first].left > 0)
        return;
    gb_download_times(d, &times);
    b->done.copy_ms += times.copy_ms;
    if (times.queue_ms > b->done.queue_ms)
        b->done.queue_ms = times.queue_ms;
    gb_download_free(d, true);
    b->first = (b->first + 1) % AHEAD;
    b->opened--;
}

void gb_download_group_pause(struct gb_download_group *b) {
    unsigned i;

    /* In reverse order, because the download that is sent next must be the last to release its slots. */
    for (i = b->opened; i > 0; i--)
        gb_download_pause(opened(b, i - 1));
}

void gb_download_group_times(const struct gb_download_group *b, struct gb_transfer_times *ret) {
    struct gb_transfer_times times;

    *ret = b->done;
    if (b->opened == 0)
        return;
    gb_download_times(opened(b, 0), &times);
    ret->copy_ms += times.copy_ms;
    if (times.queue_ms > ret->queue_ms)
        ret->queue_ms = times.queue_ms;
}

void gb_download_group_free(struct gb_download_group *b) {
    unsigned i;

    if (!b)
        return;
    if (b->awaited)
        awaited_leave(b->awaited);
    for (i = 0; i < b->opened; i++)
        gb_download_free(opened(b, i), false);
    for (; b->next < b->count; b->next++)
        gb_content_drop(b->items[b->next].content, NULL, NULL);
    drop_records(b);
    free(b->items);
    gb_core_stream_unuse(b->stream);
    gb_session_touch(b->session);
    atomic_fetch_sub(&b->session->transfers, 1);
    gb_session_unref(b->session);
    free(b);
}
