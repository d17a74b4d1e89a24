/* The tokens in force, in a table that is replaced as a whole: found by a secret or by a subject, with their grants and
 * the times of their uses. A grant that the next table lacks is in force no more. Requests ask on any thread. */
#include "core/public/access.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/runtime/call.h"
#include "core/runtime/runtime.h"
#include "model/token.h"

#define US_PER_S 1000000
#define WAYS 3 /* to one token, at most */

/* A grant. The key begins with '#' for the hash of a secret and with '=' for a subject, so that neither is taken for
 * the other. */
struct way {
    char key[GB_SUBJECT_SIZE + 1];
    size_t token;     /* its index */
    int64_t until_us; /* 0: no end */
    uint64_t grant;
};

struct use {
    _Atomic int64_t second; /* the last that was noted */
    bool unsaved;           /* the lock of uses, as the next */
    struct gb_token_use last;
};

/* All tokens of one gb_tokens_set. Only the uses change. */
struct table {
    struct gb_token_rec *recs; /* by id */
    struct use *uses;          /* of the same indices */
    size_t count;
    struct way *ways; /* by key */
    struct way **by_grant;
    size_t way_count;
};

struct gb_tokens {
    pthread_rwlock_t lock; /* for the table as a whole */
    pthread_mutex_t use_lock;
    int64_t began_us; /* by the wall clock, and by the other one */
    uint64_t began_ns;
    struct table table;
    uint64_t last_grant;
    _Atomic size_t count;
};

static void table_done(struct table *t) {
    free(t->recs);
    free(t->uses);
    free(t->ways);
    free(t->by_grant);
}

struct gb_tokens *gb_tokens_new(void) {
    struct gb_tokens *tokens = calloc(1, sizeof(*tokens));

    if (!tokens)
        return NULL;
    pthread_rwlock_init(&tokens->lock, NULL);
    pthread_mutex_init(&tokens->use_lock, NULL);
    tokens->began_us = gb_wall_us();
    tokens->began_ns = gb_clock_ns();
    return tokens;
}

void gb_tokens_free(struct gb_tokens *tokens) {
    if (!tokens)
        return;
    table_done(&tokens->table);
    pthread_mutex_destroy(&tokens->use_lock);
    pthread_rwlock_destroy(&tokens->lock);
    free(tokens);
}

/* --- a table ------------------------------------------------------------------------------------------------------ */

static int by_id(const void *a, const void *b) {
    const struct gb_token_rec *x = a;
    const struct gb_token_rec *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* The oldest token first, where two have the same key. */
static int by_key(const void *a, const void *b) {
    const struct way *x = a;
    const struct way *y = b;
    int r = strcmp(x->key, y->key);

    return r != 0 ? r : (x->token > y->token) - (x->token < y->token);
}

static int by_grant(const void *a, const void *b) {
    const struct way *x = *(struct way *const *)a;
    const struct way *y = *(struct way *const *)b;

    return (x->grant > y->grant) - (x->grant < y->grant);
}

static struct way *first_of_key(const struct table *t, const char *key) {
    size_t low = 0;
    size_t high = t->way_count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (strcmp(t->ways[mid].key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->way_count && strcmp(t->ways[low].key, key) == 0 ? &t->ways[low] : NULL;
}

static struct way *of_grant(const struct table *t, uint64_t grant) {
    struct way key = {.grant = grant};
    const struct way *at = &key;
    struct way **found = NULL;

    if (t->way_count > 0)
        found = bsearch(&at, t->by_grant, t->way_count, sizeof(struct way *), by_grant);
    return found ? *found : NULL;
}

static void add_way(struct table *t, size_t token, char kind, const char *key, int64_t until_us) {
    struct way *way = &t->ways[t->way_count];

    if (key[0] == '\0')
        return;
    snprintf(way->key, sizeof(way->key), "%c%s", kind, key);
    way->token = token;
    way->until_us = until_us;
    t->way_count++;
}

static void add_ways(struct table *t, size_t token) {
    const struct gb_token_rec *rec = &t->recs[token];
    int64_t end_us = rec->expires_at_us;
    int64_t old_us = rec->old_until_us;

    add_way(t, token, '#', rec->sha256_hex, end_us);
    add_way(t, token, '=', rec->subject, end_us);
    add_way(t, token, '#', rec->old_sha256_hex, end_us > 0 && end_us < old_us ? end_us : old_us);
}

static int make(const struct gb_token_rec *tokens, size_t count, struct table *ret, struct gb_error *err) {
    size_t i;

    *ret = (struct table){.count = count};
    if (count == 0)
        return 0;
    ret->recs = calloc(count, sizeof(*ret->recs));
    ret->uses = calloc(count, sizeof(*ret->uses));
    ret->ways = calloc(count * WAYS, sizeof(*ret->ways));
    ret->by_grant = calloc(count * WAYS, sizeof(struct way *));
    if (!ret->recs || !ret->uses || !ret->ways || !ret->by_grant) {
        table_done(ret);
        return gb_no_memory(err);
    }
    memcpy(ret->recs, tokens, count * sizeof(*ret->recs));
    qsort(ret->recs, count, sizeof(*ret->recs), by_id);
    for (i = 0; i < count; i++)
        add_ways(ret, i);
    qsort(ret->ways, ret->way_count, sizeof(*ret->ways), by_key);
    return 0;
}

static bool permit_the_same(const struct gb_token_rec *a, const struct gb_token_rec *b) {
    return a->id == b->id && a->scopes == b->scopes && strcmp(a->session, b->session) == 0 &&
           strcmp(a->prefix, b->prefix) == 0;
}

/* The way to the same token, by the same key, that was in force before. */
static const struct way *same_way(const struct table *old, const struct table *t, const struct way *way) {
    const struct way *at = first_of_key(old, way->key);

    for (; at && at < old->ways + old->way_count && strcmp(at->key, way->key) == 0; at++) {
        if (permit_the_same(&old->recs[at->token], &t->recs[way->token]))
            return at;
    }
    return NULL;
}

static void give_grants(struct gb_tokens *tokens, struct table *t) {
    size_t i;

    for (i = 0; i < t->way_count; i++) {
        const struct way *same = same_way(&tokens->table, t, &t->ways[i]);

        t->ways[i].grant = same ? same->grant : ++tokens->last_grant;
        t->by_grant[i] = &t->ways[i];
    }
    if (t->way_count > 0)
        qsort(t->by_grant, t->way_count, sizeof(struct way *), by_grant);
}

/* What is known here is newer than what the database has. The lock of uses is held. */
static void keep_uses_locked(const struct table *old, struct table *t) {
    size_t i;

    for (i = 0; i < t->count; i++) {
        const struct gb_token_rec *rec = &t->recs[i];
        const struct gb_token_rec *had =
            old->count > 0 ? bsearch(rec, old->recs, old->count, sizeof(*rec), by_id) : NULL;
        const struct use *use = had ? &old->uses[had - old->recs] : NULL;

        t->uses[i].last = (struct gb_token_use){.id = rec->id, .at_us = rec->used_at_us};
        memcpy(t->uses[i].last.from, rec->used_from, sizeof(rec->used_from));
        if (!use || use->last.at_us < rec->used_at_us)
            continue;
        t->uses[i].last = use->last;
        t->uses[i].unsaved = use->unsaved;
        atomic_store(&t->uses[i].second, atomic_load(&use->second));
    }
}

int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *recs, size_t count, struct gb_error *err) {
    struct gb_tokens *tokens = core->tokens;
    struct table table;
    struct table old;

    if (make(recs, count, &table, err) < 0)
        return -1;
    pthread_rwlock_wrlock(&tokens->lock);
    pthread_mutex_lock(&tokens->use_lock);
    give_grants(tokens, &table);
    keep_uses_locked(&tokens->table, &table);
    old = tokens->table;
    tokens->table = table;
    atomic_store_explicit(&tokens->count, count, memory_order_release);
    pthread_mutex_unlock(&tokens->use_lock);
    pthread_rwlock_unlock(&tokens->lock);
    table_done(&old);
    return 0;
}

bool gb_tokens_required(struct gb_core *core) {
    return atomic_load_explicit(&core->tokens->count, memory_order_acquire) > 0; /* asked by every request: no lock */
}

/* --- identification ----------------------------------------------------------------------------------------------- */

static int unknown(const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "the %s is not known", what);
}

static int expired(const struct gb_token_rec *rec, const struct way *way, struct gb_error *err) {
    if (rec->expires_at_us > 0 && way->until_us == rec->expires_at_us)
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "token \"%s\" has expired", rec->name.s);
    return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "token \"%s\" was given another secret, and this one is over",
                        rec->name.s);
}

/* A clock that is set back while the daemon runs gives no token more time. */
static int64_t now_of(const struct gb_tokens *tokens) {
    int64_t passed_us = tokens->began_us + (int64_t)((gb_clock_ns() - tokens->began_ns) / 1000);
    int64_t now_us = gb_wall_us();

    return now_us > passed_us ? now_us : passed_us;
}

int64_t gb_tokens_now_us(struct gb_core *core) {
    return now_of(core->tokens);
}

static bool over(const struct way *way, int64_t now_us) {
    return way->until_us > 0 && now_us >= way->until_us;
}

/* The first way of that key that is in force. -1: no such way; `what` is for the error. The lock is held. */
static int find_locked(const struct gb_tokens *tokens, const char *key, const char *what, struct gb_token_found *ret,
                       struct gb_error *err) {
    const struct table *t = &tokens->table;
    const struct way *first = first_of_key(t, key);
    int64_t now_us = now_of(tokens);
    const struct way *way;

    for (way = first; way && way < t->ways + t->way_count && strcmp(way->key, key) == 0; way++) {
        if (over(way, now_us))
            continue;
        *ret = (struct gb_token_found){.grant = way->grant,
                                       .by = {t->recs[way->token].id, t->recs[way->token].name},
                                       .has_prefix = t->recs[way->token].prefix[0] != '\0'};
        ret->unnoted =
            atomic_load_explicit(&t->uses[way->token].second, memory_order_relaxed) != gb_wall_us() / US_PER_S;
        return 0;
    }
    return first ? expired(&t->recs[first->token], first, err) : unknown(what, err);
}

int gb_tokens_by_secret(struct gb_core *core, const char *secret, struct gb_token_found *ret, struct gb_error *err) {
    struct gb_tokens *tokens = core->tokens;
    char key[1 + GB_SHA256_HEX_SIZE] = "#";
    int r;

    /* The search compares hashes: its duration says nothing about a secret. */
    if (gb_sha256_hex(secret, strlen(secret), key + 1, err) < 0)
        return -1;
    pthread_rwlock_rdlock(&tokens->lock);
    r = find_locked(tokens, key, "token", ret, err);
    pthread_rwlock_unlock(&tokens->lock);
    return r;
}

int gb_tokens_by_subject(struct gb_core *core, const char *const *names, unsigned count, struct gb_token_found *ret,
                         struct gb_error *err) {
    struct gb_tokens *tokens = core->tokens;
    struct gb_error why = GB_ERROR_INIT;
    char key[GB_SUBJECT_SIZE + 1];
    unsigned i;
    int r = -1;

    pthread_rwlock_rdlock(&tokens->lock);
    for (i = 0; i < count && r < 0; i++) {
        struct gb_error missed = GB_ERROR_INIT;

        /* A longer name is no token's subject; cut, it might be one. */
        if (snprintf(key, sizeof(key), "=%s", names[i]) >= (int)sizeof(key))
            continue;
        r = find_locked(tokens, key, "client's certificate", ret, &missed);
        if (r < 0 && (why.code == GB_OK || first_of_key(&tokens->table, key)))
            why = missed;
    }
    pthread_rwlock_unlock(&tokens->lock);
    if (r < 0 && why.code == GB_OK)
        return unknown("client's certificate", err);
    return r < 0 ? gb_error_move(err, &why) : 0;
}

/* --- grants ------------------------------------------------------------------------------------------------------- */

/* The token of a grant in force, or NULL with UNAUTHENTICATED. The lock is held. */
static const struct gb_token_rec *token_locked(const struct gb_tokens *tokens, uint64_t grant, struct gb_error *err) {
    const struct table *t = &tokens->table;
    const struct way *way = of_grant(t, grant);

    if (way && !over(way, now_of(tokens)))
        return &t->recs[way->token];
    if (way)
        expired(&t->recs[way->token], way, err);
    else
        gb_error_set(err, GB_ERR_UNAUTHENTICATED, "the token was revoked");
    return NULL;
}

bool gb_tokens_in_force(struct gb_core *core, uint64_t grant) {
    bool is;

    pthread_rwlock_rdlock(&core->tokens->lock);
    is = token_locked(core->tokens, grant, NULL) != NULL;
    pthread_rwlock_unlock(&core->tokens->lock);
    return is;
}

int64_t gb_tokens_next_end(struct gb_core *core, int64_t after_us) {
    const struct table *t = &core->tokens->table;
    int64_t next = 0;
    size_t i;

    pthread_rwlock_rdlock(&core->tokens->lock);
    for (i = 0; i < t->way_count; i++) {
        int64_t until_us = t->ways[i].until_us;

        if (until_us > after_us && (next == 0 || until_us < next))
            next = until_us;
    }
    pthread_rwlock_unlock(&core->tokens->lock);
    return next;
}

/* session: NULL is the token's own. */
static int judge(const struct gb_token_rec *rec, enum gb_scope scope, const char *session, struct gb_error *err) {
    char has[GB_SCOPES_SIZE];

    if (!gb_scopes_include(rec->scopes, scope))
        return gb_error_set(err, GB_ERR_FORBIDDEN, "token \"%s\" has scope %s; this needs scope %s", rec->name.s,
                            gb_scopes_text(rec->scopes, has), gb_scope_name(scope));
    if (session && rec->session[0] != '\0' && strcmp(rec->session, session) != 0)
        return gb_error_set(err, GB_ERR_FORBIDDEN, "token \"%s\" is only good for session \"%s\"", rec->name.s,
                            rec->session);
    return 0;
}

int gb_tokens_permit(struct gb_core *core, uint64_t grant, enum gb_scope scope, const char *session,
                     struct gb_error *err) {
    const struct gb_token_rec *rec;
    int r;

    pthread_rwlock_rdlock(&core->tokens->lock);
    rec = token_locked(core->tokens, grant, err);
    r = rec ? judge(rec, scope, session, err) : -1;
    pthread_rwlock_unlock(&core->tokens->lock);
    return r;
}

int gb_tokens_session(struct gb_core *core, uint64_t grant, enum gb_scope scope, struct gb_name *ret_session,
                      struct gb_error *err) {
    const struct gb_token_rec *rec;
    int r;

    pthread_rwlock_rdlock(&core->tokens->lock);
    rec = token_locked(core->tokens, grant, err);
    r = rec ? judge(rec, scope, NULL, err) : -1;
    if (r == 0)
        memcpy(ret_session->s, rec->session, sizeof(ret_session->s));
    pthread_rwlock_unlock(&core->tokens->lock);
    return r;
}

int gb_tokens_prefix(struct gb_core *core, uint64_t grant, struct gb_name *ret_prefix, struct gb_error *err) {
    const struct gb_token_rec *rec;

    pthread_rwlock_rdlock(&core->tokens->lock);
    rec = token_locked(core->tokens, grant, err);
    if (rec)
        memcpy(ret_prefix->s, rec->prefix, sizeof(ret_prefix->s));
    pthread_rwlock_unlock(&core->tokens->lock);
    return rec ? 0 : -1;
}

int gb_tokens_id(struct gb_core *core, uint64_t grant, int64_t *ret_token, struct gb_error *err) {
    const struct gb_token_rec *rec;

    pthread_rwlock_rdlock(&core->tokens->lock);
    rec = token_locked(core->tokens, grant, err);
    if (rec)
        *ret_token = rec->id;
    pthread_rwlock_unlock(&core->tokens->lock);
    return rec ? 0 : -1;
}

/* --- uses --------------------------------------------------------------------------------------------------------- */

void gb_tokens_used(struct gb_core *core, uint64_t grant, const char *from) {
    struct gb_tokens *tokens = core->tokens;
    int64_t now_us = gb_wall_us();
    const struct way *way;
    struct use *use;

    pthread_rwlock_rdlock(&tokens->lock);
    way = of_grant(&tokens->table, grant);
    if (way) {
        use = &tokens->table.uses[way->token];
        atomic_store_explicit(&use->second, now_us / US_PER_S, memory_order_relaxed);
        pthread_mutex_lock(&tokens->use_lock);
        use->last.at_us = now_us;
        snprintf(use->last.from, sizeof(use->last.from), "%s", from);
        use->unsaved = true;
        pthread_mutex_unlock(&tokens->use_lock);
    }
    pthread_rwlock_unlock(&tokens->lock);
}

static void saved(void *arg, const struct gb_error *error) {
    (void)error; /* the next use is saved again */
    gb_core_leave(arg);
}

/* The next use from *at on that is to be saved. */
static bool next_unsaved(struct gb_tokens *tokens, size_t *at, struct gb_token_use *ret) {
    bool found = false;

    pthread_rwlock_rdlock(&tokens->lock);
    pthread_mutex_lock(&tokens->use_lock);
    for (; *at < tokens->table.count && !found; ++*at) {
        struct use *use = &tokens->table.uses[*at];

        found = use->unsaved;
        use->unsaved = false;
        if (found)
            *ret = use->last;
    }
    pthread_mutex_unlock(&tokens->use_lock);
    pthread_rwlock_unlock(&tokens->lock);
    return found;
}

void gb_tokens_save_uses(struct gb_core *core) {
    struct gb_token_use use;
    size_t at = 0;

    while (next_unsaved(core->tokens, &at, &use)) {
        gb_core_enter(core);
        gb_store_put_token_use(core->store, &use, saved, core);
    }
}
