/* The tokens in force, sorted by the hash of their secret. */
#ifndef GB_CORE_ACCESS_TOKENS_H
#define GB_CORE_ACCESS_TOKENS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "model/model.h"

struct gb_tokens {
    pthread_rwlock_t lock;
    bool ready;
    struct gb_token_rec *recs;
    _Atomic size_t count;
};

void gb_tokens_init(struct gb_tokens *tokens);
void gb_tokens_done(struct gb_tokens *tokens);

#endif
