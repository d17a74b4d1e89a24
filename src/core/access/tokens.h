/* The tokens in force, and the grants that lead to them. Included by core.h.
 *
 * A grant is one way to one token: its secret, the secret before its last rotation, or the subject of a certificate.
 * Its number names what it permits and what opens it. The number is never 0, and this process gives it to nothing else.
 * A token that is put in force again unchanged keeps its grants. What a request makes (a lease, a listener, a transfer)
 * keeps the grant's number, and ends when the grant is no longer in force. */
#ifndef GB_CORE_ACCESS_TOKENS_H
#define GB_CORE_ACCESS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/caller.h"
#include "base/error.h"
#include "model/model.h"

struct gb_core;
struct gb_caller;
struct gb_tokens;

/* Replaces the tokens in force as a whole. Copies them. [now] */
int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *tokens, size_t count, struct gb_error *err);
/* True if there is at least one token: then every request needs one. One that has expired counts. [now] */
bool gb_tokens_required(struct gb_core *core);

/* What identification finds. */
struct gb_token_found {
    uint64_t grant;
    struct gb_caller by; /* the token's id, which is never given twice, and its name */
    bool has_prefix;
    bool unnoted; /* no use of the token was noted in this second: gb_tokens_used is due */
};

/* secret: the text after "Bearer ". UNAUTHENTICATED if it is unknown or its time is over. [now] */
int gb_tokens_by_secret(struct gb_core *core, const char *secret, struct gb_token_found *ret, struct gb_error *err);
/* The names of a verified certificate; the first that is a token's subject decides. As gb_tokens_by_secret. [now] */
int gb_tokens_by_subject(struct gb_core *core, const char *const *names, unsigned count, struct gb_token_found *ret,
                         struct gb_error *err);

/* Is the grant in force? [now] */
bool gb_tokens_in_force(struct gb_core *core, uint64_t grant);
/* When the first of the grants ends by itself that have not ended by after_us, in microseconds since the epoch; 0: none
 * does. [now] */
int64_t gb_tokens_next_end(struct gb_core *core, int64_t after_us);
/* The time by which tokens end: the wall clock, or what it would say if it had not been set back since the start. */
int64_t gb_tokens_now_us(struct gb_core *core);

/* Does the grant's token permit it? session: "" for what belongs to none; NULL: the token's own. UNAUTHENTICATED if the
 * grant is no longer in force; FORBIDDEN if its scope is lower, or if it is bound to another session. [now] */
int gb_tokens_permit(struct gb_core *core, uint64_t grant, enum gb_scope scope, const char *session,
                     struct gb_error *err);
/* The same for the session that the token is bound to; "" if it is bound to none. [now] */
int gb_tokens_session(struct gb_core *core, uint64_t grant, enum gb_scope scope, struct gb_name *ret_session,
                      struct gb_error *err);
/* The prefix that the token is bound to; "" if there is none. UNAUTHENTICATED. [now] */
int gb_tokens_prefix(struct gb_core *core, uint64_t grant, struct gb_name *ret_prefix, struct gb_error *err);
/* The id of the grant's token. UNAUTHENTICATED. [now] */
int gb_tokens_id(struct gb_core *core, uint64_t grant, int64_t *ret_token, struct gb_error *err);

/* Notes a use: the time is now. from: the address as text. [now] */
void gb_tokens_used(struct gb_core *core, uint64_t grant, const char *from);

/* --- the core's --------------------------------------------------------------------------------------------------- */

/* NULL when memory is exhausted. gb_tokens_free accepts NULL. */
struct gb_tokens *gb_tokens_new(void);
void gb_tokens_free(struct gb_tokens *tokens);

/* Queues the uses that were noted since the last time for the database. The housekeeper's thread, and at the end. */
void gb_tokens_save_uses(struct gb_core *core);

#endif
