#include "core/access/tokens.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/caller.h"
#include "base/digest.h"
#include "core/runtime/call.h"
#include "core/runtime/runtime.h"

struct gb_tokens {
    pthread_rwlock_t lock;
    struct gb_token_rec *recs;
    _Atomic size_t count;
};

struct gb_tokens *gb_tokens_new(void) {
    struct gb_tokens *tokens = calloc(1, sizeof(*tokens));

    if (tokens)
        pthread_rwlock_init(&tokens->lock, NULL);
    return tokens;
}

void gb_tokens_free(struct gb_tokens *tokens) {
    if (!tokens)
        return;
    free(tokens->recs);
    pthread_rwlock_destroy(&tokens->lock);
    free(tokens);
}

static int by_hash(const void *a, const void *b) {
    const struct gb_token_rec *x = a;
    const struct gb_token_rec *y = b;

    return strcmp(x->sha256_hex, y->sha256_hex);
}

int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *tokens, size_t count, struct gb_error *err) {
    struct gb_token_rec *recs = NULL;
    struct gb_token_rec *old;

    if (count > 0) {
        recs = calloc(count, sizeof(*recs));
        if (!recs)
            return gb_no_memory(err);
        memcpy(recs, tokens, count * sizeof(*recs));
        qsort(recs, count, sizeof(*recs), by_hash);
    }
    pthread_rwlock_wrlock(&core->tokens->lock);
    old = core->tokens->recs;
    core->tokens->recs = recs;
    core->tokens->count = count;
    pthread_rwlock_unlock(&core->tokens->lock);
    free(old);
    return 0;
}

bool gb_tokens_required(struct gb_core *core) {
    return atomic_load_explicit(&core->tokens->count, memory_order_acquire) > 0; /* asked by every request: no lock */
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

/* As it is in force. -1 with UNAUTHENTICATED when there is none. The lock is held. */
static int find_locked(struct gb_core *core, const struct gb_token_rec *key, const struct gb_token_rec **ret,
                       struct gb_error *err) {
    *ret = NULL;
    if (core->tokens->count > 0)
        *ret = bsearch(key, core->tokens->recs, core->tokens->count, sizeof(*key), by_hash);
    return *ret ? 0 : gb_error_set(err, GB_ERR_UNAUTHENTICATED, "the token is not known");
}

static void tell_caller(const struct gb_token_rec *rec, struct gb_caller *ret) {
    if (!ret)
        return;
    ret->token = rec->id;
    memcpy(ret->name.s, rec->name.s, strlen(rec->name.s) + 1);
}

static int check(struct gb_core *core, const char *secret, enum gb_scope scope, const char *session,
                 struct gb_name *ret_session, struct gb_caller *ret_caller, struct gb_error *err) {
    struct gb_token_rec key;
    const struct gb_token_rec *rec;
    int r;

    /* The search compares hashes: its duration says nothing about a secret. */
    if (gb_sha256_hex(secret, strlen(secret), key.sha256_hex, err) < 0)
        return -1;
    pthread_rwlock_rdlock(&core->tokens->lock);
    r = find_locked(core, &key, &rec, err);
    if (r == 0) {
        tell_caller(rec, ret_caller);
        r = judge(rec, scope, session, err);
    }
    if (r == 0 && ret_session)
        snprintf(ret_session->s, sizeof(ret_session->s), "%s", rec->session);
    pthread_rwlock_unlock(&core->tokens->lock);
    return r;
}

int gb_tokens_identify(struct gb_core *core, const char *secret, int64_t *ret_id, struct gb_error *err) {
    struct gb_token_rec key;
    const struct gb_token_rec *rec;
    int r;

    if (gb_sha256_hex(secret, strlen(secret), key.sha256_hex, err) < 0)
        return -1;
    pthread_rwlock_rdlock(&core->tokens->lock);
    r = find_locked(core, &key, &rec, err);
    if (r == 0)
        *ret_id = rec->id;
    pthread_rwlock_unlock(&core->tokens->lock);
    return r;
}

int gb_tokens_check(struct gb_core *core, const char *secret, enum gb_scope scope, const char *session,
                    struct gb_caller *ret_caller, struct gb_error *err) {
    return check(core, secret, scope, session, NULL, ret_caller, err);
}

int gb_tokens_session(struct gb_core *core, const char *secret, enum gb_scope scope, struct gb_name *ret_session,
                      struct gb_caller *ret_caller, struct gb_error *err) {
    return check(core, secret, scope, NULL, ret_session, ret_caller, err);
}
