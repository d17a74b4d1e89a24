/* Tickets: a permission by one node for a request at another, signed with a key that all nodes share. The first three
 * functions are pure. */
#ifndef GB_FLEET_TICKET_H
#define GB_FLEET_TICKET_H

#include "fleet/state.h"

#define GB_TICKET_LIFE_S 300
#define GB_TICKET_SLOT_S 86400 /* a new key each day */
/* A new key signs only after so long, so that all nodes have read it. */
#define GB_TICKET_PROPAGATION_S 60

/* Adds a key. The oldest is dropped if there are too many. */
void gb_ticket_keys_add(struct gb_ticket_keys *keys, const struct gb_ticket_key *key);

struct gb_ticket_scope {
    const char *method;
    const char *path;
    const char *query; /* without the ticket; NULL: "" */
    const char *node;
};

int gb_ticket_make(const struct gb_ticket_keys *keys, int64_t now_s, const struct gb_ticket_scope *scope,
                   const char *who, char ret[GB_FLEET_TICKET_SIZE], struct gb_error *err);
int gb_ticket_check(const struct gb_ticket_keys *keys, int64_t now_s, const struct gb_ticket_scope *scope,
                    const char *ticket, char *ret_who, size_t who_size, struct gb_error *err);

/* Reads the keys below keys/. [the thread] */
void gb_keys_learn(struct gb_fleet *fleet, const struct gb_kvs *kvs);
/* The transaction that makes today's key and deletes old ones; the caller frees it. NULL: today's key exists, or no
 * memory. [the thread] */
char *gb_keys_rotation(struct gb_fleet *fleet);

#endif
