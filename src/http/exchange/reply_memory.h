/* The memory of replies that wait for their clients, all together. */
#ifndef GB_HTTP_EXCHANGE_REPLY_MEMORY_H
#define GB_HTTP_EXCHANGE_REPLY_MEMORY_H

#include "http/exchange/exchange.h"

/* A body in memory longer than this leaves libmicrohttpd, where that is safe. The least that a fresh socket takes at
 * once, over Ethernet's segments of 1448 bytes, is 46 KB (the loopback 2.8 MB, a UNIX socket the size set in
 * mhd/accept.c). */
#define GB_LONG_REPLY (64u << 10)

/* Settles the response, before the reply's first byte. A body that has to wait for its client is counted until the
 * exchange ends. If it does not fit into --max-reply-memory, SATURATED takes its place. */
void gb_reply_admit(struct gb_exchange *ex);
/* Counts other memory that is allocated for the reply. False: the response is the refusal. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes);
void gb_reply_release(struct gb_exchange *ex);
/* Returns the bytes of the body in memory that is to be sent; of a canned one that is not long, at most. */
size_t gb_reply_bytes(const struct gb_exchange *ex);

#endif
