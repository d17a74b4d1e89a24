/* Requests with a key, and tokens: what core.h shows of access. */
#ifndef GB_CORE_PUBLIC_ACCESS_H
#define GB_CORE_PUBLIC_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/caller.h"
#include "base/error.h"
#include "core/public/call.h"
#include "model/model.h"

#define GB_KEYS_MAX 10000
#define GB_KEY_TTL_S 86400
#define GB_KEYS_BYTES_MAX (64u << 20) /* of all answers */

#define GB_KEY_HEAD 40

struct gb_caller;
struct gb_core;
struct gb_tokens;

/* --- requests with a key (Idempotency-Key) ------------------------------------------------------------------------ */

/* A key is claimed before the request's work begins. The work's own commit marks it as carried out (gb_call.mark,
 * gb_upload_mark), or an intent stands in the database before work that commits elsewhere (gb_key_intend), and its
 * answer is committed before it is given. After a crash a key is thus known with its answer; or as carried out without
 * one, when the process ended between the two; or not at all, and then nothing was done. Kept in memory, with a copy in
 * the database, for a bounded time and in bounded number: the oldest go first. Those of requests in a session go with
 * it to another node, and end with it. */

#define GB_KEY_BODY 24

#define GB_KEY_SESSION 16 /* a letter, and the session's number */
#define GB_KEY_REST 48

/* The letter. Keys of both kinds go with their session, if they have one, to another node. */
#define GB_KEY_WITHIN GB_STORE_MARK_SESSION /* of a request within the session: it ends with it */
#define GB_KEY_OF 'S' /* of no session, or of a change of a session itself: it is known whatever the number */

/* 64 characters each. id: in GB_KEY_SESSION characters the session, in GB_KEY_REST a hash of client and key, which is
 * the same at another node. fingerprint: what the request asks for, in GB_KEY_HEAD characters of its head and
 * GB_KEY_BODY of its body; these begin with '-' while the body has not been read. former_id, former: as they were
 * before they had two parts, for keys that the database has from then; "": none. */
struct gb_key {
    char id[65];
    char fingerprint[65];
    char former_id[65];
    char former[65];
};
/* Writes the id. rest: GB_KEY_REST characters of it, or more. session 0: of none, or of one that is not here. */
void gb_key_id_write(char letter, int64_t session, const char *rest, char ret[65]);

/* Reference counted; does not change. */
struct gb_idempotency_reply {
    atomic_uint refs;
    int status;
    char *headers; /* "Name: value\n" each */
    char *body;
    size_t body_len;
};
/* Copies; headers and body may be NULL. NULL when memory is exhausted. */
struct gb_idempotency_reply *gb_idempotency_reply_new(int status, const char *headers, const char *body,
                                                      size_t body_len);
void gb_idempotency_reply_unref(struct gb_idempotency_reply *answer); /* NULL is accepted */

enum gb_key_state {
    GB_KEY_CLAIMED,    /* by this call: gb_key_keep or gb_key_give_up must follow */
    GB_KEY_UNDER_WAY,  /* the first request with it is */
    GB_KEY_ANSWERED,   /* the claim has a reference to the answer */
    GB_KEY_UNANSWERED, /* carried out, or perhaps so, and the answer is not known */
    GB_KEY_OTHER       /* it was used with another fingerprint */
};

#define GB_KEY_NOTE_SIZE 40

struct gb_key_claim {
    enum gb_key_state state;
    struct gb_idempotency_reply *answer; /* NULL: none */
    char note[GB_KEY_NOTE_SIZE];         /* UNDER_WAY: of gb_key_note */
    /* ANSWERED and UNANSWERED: the body that the caller must find this request to have, for the key to be the same; "":
     * nothing is left to compare. */
    char body[GB_KEY_BODY + 1];
};

/* Claims the key. -1 with SATURATED if as many keys are under way as may be kept, or memory is exhausted. [now] */
int gb_key_claim(struct gb_core *core, const struct gb_key *key, struct gb_key_claim *ret, struct gb_error *err);
/* The body of a claimed key's request is known by now: key has it. */
void gb_key_describe(struct gb_core *core, const struct gb_key *key);
void gb_key_note(struct gb_core *core, const struct gb_key *key, const char *note);
/* For gb_call.mark. */
struct gb_store_mark gb_key_mark(struct gb_core *core, const struct gb_key *key);
/* Keeps the answer and takes its reference. done runs when it is in the database. If that fails the key is
 * UNANSWERED. */
void gb_key_keep(struct gb_core *core, const struct gb_key *key, struct gb_idempotency_reply *answer,
                 gb_store_done_fn *done, void *arg);
/* Before a change that is no part of the database: commits the mark with a note of the change, durably. The note is of
 * at most GB_KEY_INTENT_MAX bytes. What became of the change is asked at the next start, unless the key has an answer
 * by then. */
#define GB_KEY_INTENT_MAX 255
void gb_key_intend(struct gb_core *core, const struct gb_store_mark *mark, const char *note, gb_store_done_fn *done,
                   void *arg);
/* Asks that of each such key whose note begins with `kind`: it is free again if carried_out says no. carried_out runs
 * under the lock of the keys. */
void gb_keys_resolve_intents(struct gb_core *core, const char *kind, bool (*carried_out)(void *arg, const char *note),
                             void *arg);
/* Keeps no answer. unsure: something was or may have been carried out; else the key is free again. */
void gb_key_give_up(struct gb_core *core, const struct gb_key *key, bool unsure);

/* --- from node to node -------------------------------------------------------------------------------------------- */

/* What is known of a key, as another node may have it. */
struct gb_key_copy {
    char id[1 + GB_KEY_REST + 1]; /* without the session's number, which is another one there */
    char fingerprint[65];
    int64_t left_us; /* for how long it is kept */
    struct gb_idempotency_reply
        *answer; /* a reference; NULL: carried out, or perhaps so, and the answer is not known */
};

#define GB_KEYS_PAGE 200

struct gb_key_page {
    struct gb_key_copy items[GB_KEYS_PAGE];
    size_t count;
    uint64_t after; /* where the next page begins */
    bool more;
    bool open; /* the answer to a change that was carried out is not known yet: it comes in a moment */
};
/* The session's keys that have come to their present state after that, 0: all, in that order. last: nothing of the
 * session changes any more; those that were carried out and whose answers are not known stand at the end. A page has at
 * most bytes_max of answers, or one. Returns 0, or -1 with SATURATED. [now] */
int gb_keys_page(struct gb_core *core, int64_t session, uint64_t after, bool last, uint64_t bytes_max,
                 struct gb_key_page *ret, struct gb_error *err);
void gb_key_page_done(struct gb_key_page *page);

/* Keeps a key of a session that comes from another node, in place of what was known of it. done runs when it is in the
 * database, and only if this returns 0; else -1 with SATURATED. */
int gb_key_bring(struct gb_core *core, int64_t session, const struct gb_key_copy *copy, gb_store_done_fn *done,
                 void *arg, struct gb_error *err);

struct gb_key_stats {
    uint64_t kept;
    uint64_t under_way;
    uint64_t replays; /* since the start */
};
void gb_key_stats(struct gb_core *core, struct gb_key_stats *ret);

/* --- tokens in force, and the grants that lead to them ------------------------------------------------------------ */

/* A grant is one way to one token: its secret, the secret before its last rotation, or the subject of a certificate.
 * Its number names what it permits and what opens it. The number is never 0, and this process gives it to nothing else.
 * A token that is put in force again unchanged keeps its grants. What a request makes (a lease, a listener, a transfer)
 * keeps the grant's number, and ends when the grant is no longer in force. */

/* Replaces the tokens in force as a whole. Copies them. [now] */
int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *tokens, size_t count, struct gb_error *err);
/* True if there is at least one token: then every request needs one. One that has expired counts. [now] */
bool gb_tokens_required(struct gb_core *core);

/* The result of an identification. */
struct gb_token_found {
    uint64_t grant;
    struct gb_caller by; /* the token's id, which is never given twice, and its name */
    bool has_prefix;
    bool unnoted; /* no use of the token was noted in this second: gb_tokens_used is due */
};

/* secret: the text after "Bearer ". Errors: UNAUTHENTICATED if it is unknown or has expired. [now] */
int gb_tokens_by_secret(struct gb_core *core, const char *secret, struct gb_token_found *ret, struct gb_error *err);
/* The names of a verified certificate; the first that is a token's subject decides. As gb_tokens_by_secret. [now] */
int gb_tokens_by_subject(struct gb_core *core, const char *const *names, unsigned count, struct gb_token_found *ret,
                         struct gb_error *err);

/* Returns true if the grant is in force. [now] */
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
/* The prefix that the token is bound to; "" if it is bound to no prefix. UNAUTHENTICATED. [now] */
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
