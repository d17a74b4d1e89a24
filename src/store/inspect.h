/* The database of a daemon that does not run, as it is: nothing is written. For the commands that read it beside the
 * files of bytes. */
#ifndef GB_STORE_INSPECT_H
#define GB_STORE_INSPECT_H

#include "store/store.h"

struct gb_inspection;

/* Opens the database at path, whose lock (gb_store_lock) the caller holds, and reads it for damage. INTERNAL if it is
 * not one, is damaged, or has another schema than this program's. */
int gb_inspect_open(const char *path, struct gb_inspection **ret, struct gb_error *err);
void gb_inspect_close(struct gb_inspection *inspection); /* NULL is accepted */

/* As gb_store_load_sessions and so on. */
int gb_inspect_sessions(struct gb_inspection *inspection,
                        int (*visit)(void *, const struct gb_session_rec *, struct gb_error *), void *arg,
                        struct gb_error *err);
int gb_inspect_buffers(struct gb_inspection *inspection,
                       int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                       struct gb_error *err);
int gb_inspect_stored(struct gb_inspection *inspection,
                      int (*visit)(void *, const struct gb_stored_rec *, struct gb_error *), void *arg,
                      struct gb_error *err);
/* As gb_store_read_stored. */
int gb_inspect_read_stored(struct gb_inspection *inspection, const struct gb_stored_rec *rec, void *out,
                           struct gb_error *err);
int gb_inspect_uuid(struct gb_inspection *inspection, char ret[GB_STORE_UUID_SIZE], struct gb_error *err);

#endif
