/* Reads stored bytes that lie in the database, on a connection of its own. Internal to the store. */
#ifndef GB_STORE_STORED_H
#define GB_STORE_STORED_H

#include <sqlite3.h>

#include "store/store.h"

struct gb_stored_reader;

/* where: what a connection that reads is opened with; borrowed. The first read opens it. */
int gb_stored_reader_new(const char *where, struct gb_stored_reader **ret, struct gb_error *err);
/* [any thread; waits for a read under way] Another place, which has the same. Borrowed; the one before no longer is. */
void gb_stored_reader_move(struct gb_stored_reader *reader, const char *where);
/* NULL is accepted. */
void gb_stored_reader_free(struct gb_stored_reader *reader);

/* [any thread, blocks] As gb_store_read_stored. */
int gb_stored_read(struct gb_stored_reader *reader, const struct gb_stored_rec *rec, void *out, struct gb_error *err);

/* As gb_store_load_stored. */
int gb_stored_load(sqlite3 *db, int (*visit)(void *, const struct gb_stored_rec *, struct gb_error *), void *arg,
                   struct gb_error *err);

#endif
