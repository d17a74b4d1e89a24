/* The tokens in force, sorted by the hash of their secret. Included by core.h. */
#ifndef GB_CORE_ACCESS_TOKENS_H
#define GB_CORE_ACCESS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

struct gb_core;
struct gb_caller;
struct gb_tokens;

/* Replaces the tokens in force as a whole. Copies them. [now] */
int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *tokens, size_t count, struct gb_error *err);
/* True if at least one token is in force: then every request needs one. [now] */
bool gb_tokens_required(struct gb_core *core);
/* The id of the token, which is never given twice. secret: the text after "Bearer ". UNAUTHENTICATED if unknown. */
int gb_tokens_identify(struct gb_core *core, const char *secret, int64_t *ret_id, struct gb_error *err);
/* Does the token permit it? secret: the text after "Bearer ". UNAUTHENTICATED if unknown; FORBIDDEN if its scope is
 * lower, or if it is bound to another session (session: "" for what belongs to none). [now] ret_caller (may be NULL)
 * is set if the token is known, whatever it permits. */
int gb_tokens_check(struct gb_core *core, const char *secret, enum gb_scope scope, const char *session,
                    struct gb_caller *ret_caller, struct gb_error *err);
/* The same for the session that the token is bound to; "" if it is bound to none. [now] */
int gb_tokens_session(struct gb_core *core, const char *secret, enum gb_scope scope, struct gb_name *ret_session,
                      struct gb_caller *ret_caller, struct gb_error *err);

/* --- the core's --------------------------------------------------------------------------------------------------- */

/* NULL when memory is exhausted. gb_tokens_free accepts NULL. */
struct gb_tokens *gb_tokens_new(void);
void gb_tokens_free(struct gb_tokens *tokens);

#endif
