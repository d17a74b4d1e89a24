/* The thread that answers queries of the past, on a connection of its own that only reads. Internal to the store. */
#ifndef GB_STORE_READER_H
#define GB_STORE_READER_H

#include <sqlite3.h>

#include "store/store.h"

struct gb_reader;

/* The database is there and has the newest schema. where: what a connection that reads is opened with. */
int gb_reader_new(const char *where, struct gb_reader **ret, struct gb_error *err);
/* [any thread, never blocks] Another place, which has the same. */
void gb_reader_move(struct gb_reader *reader, const char *where);
/* What waits ends with DRAINING. NULL is accepted. */
void gb_reader_free(struct gb_reader *reader);
/* [any thread, never blocks] As gb_store_history. */
void gb_reader_ask(struct gb_reader *reader, const struct gb_history_key *key, const struct gb_history_plan *plan,
                   gb_history_done_fn *done, void *arg);

/* Reads stored bytes that lie in the database, on a connection of its own. Internal to the store. */

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
