/* What an exchange knows of the HTTP loop on which it began. The loop embeds it. */
#ifndef GB_HTTP_EXCHANGE_EXCHANGE_LOOP_H
#define GB_HTTP_EXCHANGE_EXCHANGE_LOOP_H

#include <stdatomic.h>

#include "http/exchange/exchange.h"
#include "http/exchange/wake_queue.h"

struct gb_exchange_loop {
    struct gb_wake_queue wake_queue;
    struct gb_exchange *detached; /* requests without a client; the loop's thread alone touches them */
    /* A count for each loop: with one for all, the loops would contend for its cache line. */
    atomic_uint_fast64_t active; /* requests in progress that began here */
    atomic_uint_fast64_t requests;
    uint64_t next_id; /* the loop's thread alone touches it */
};

/* [the loop's thread] Returns the id of the next request. Unique as long as a loop sees fewer than 2^48. */
static inline uint64_t gb_exchange_loop_id(struct gb_exchange_loop *loop) {
    return loop->next_id++;
}

#endif
