/* The table behind public/access.h. */
#ifndef GB_CORE_ACCESS_KEYS_H
#define GB_CORE_ACCESS_KEYS_H

#include <pthread.h>

#include "base/map.h"
#include "core/public/access.h"

struct gb_key_entry {
    struct gb_key_entry *prev; /* by the time of the claim */
    struct gb_key_entry *next;
    struct gb_key key;
    enum gb_key_state state; /* UNDER_WAY, ANSWERED, UNANSWERED */
    int64_t expires_at_us;
    struct gb_idempotency_reply *answer;
    char note[GB_KEY_NOTE_SIZE];
    char *intent;     /* of an earlier process; NULL: none */
    bool carried_out; /* it is under way, and its mark is committed */
    bool intended;    /* or its intent may be: it is not known whether it is carried out */
    uint64_t change;  /* when it came to its present state, in the order of all; 0: it is under way */
};

struct gb_keys {
    struct gb_store *store; /* borrowed */
    pthread_mutex_t lock;   /* a leaf, but for the store's clock */
    struct gb_map map;
    struct gb_map of; /* of the kind GB_KEY_OF, by the rest of the id: the number of a session is not known for ever */
    struct gb_key_entry *first;
    struct gb_key_entry *last;
    uint64_t under_way;
    uint64_t bytes;
    uint64_t replays;
    uint64_t changes;
    uint64_t max;
    int64_t ttl_us;
};

/* NULL when memory is exhausted. gb_keys_free accepts NULL. */
struct gb_keys *gb_keys_new(const struct gb_core_config *config, struct gb_store *store);
void gb_keys_free(struct gb_keys *keys);
/* From the database, at start. */
int gb_keys_load(struct gb_core *core, struct gb_error *err);
/* The session is gone for good: no request asks for its keys again. */
void gb_keys_drop(struct gb_core *core, int64_t session);

#endif
