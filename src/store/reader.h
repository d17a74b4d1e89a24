/* The thread that answers queries of the past, on a connection of its own that only reads; and stored bytes that lie in
 * the database. Internal to the store. */
#ifndef GB_STORE_READER_H
#define GB_STORE_READER_H

#include "store/db.h"
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

/* [any thread, blocks] As gb_store_read_stored, on that connection. */
int gb_stored_read(struct gb_db_reader *reader, const struct gb_stored_rec *rec, void *out, struct gb_error *err);

#endif
