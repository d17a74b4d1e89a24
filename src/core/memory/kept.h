/* Memory that outlives the daemon: which memory the keeper (keeper/keeper.h) has, and which bytes are in it.
 *
 * The ledger is a memfd that the keeper has as well. It says of each kept memory what it is, and which generations of
 * which buffers it holds. Each change of it is a store into memory, which a killed process cannot take back:
 *
 *   1. memory is made, its descriptor is handed over, and it stands in the ledger;
 *   2. its bytes come;
 *   3. before the record of a generation goes to the database, the ledger names the generation;
 *   4. the record is committed, and the client is answered;
 *   5. memory that is freed leaves the ledger, and the keeper closes its descriptor.
 *
 * So a record finds its bytes after a kill anywhere. Memory that no record names is given back. Memory that is
 * overwritten in place, or that another process may write, is marked first: after a kill meanwhile its buffer is
 * PARTIAL. */
#ifndef GB_CORE_MEMORY_KEPT_H
#define GB_CORE_MEMORY_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

struct gb_content;
struct gb_core;
struct gb_core_device;
struct gb_kept;
struct gb_session;

/* Takes what the keeper of the configuration has. Without a keeper *ret is NULL, and all functions below do nothing. A
 * ledger of another version or backend is given up, with all memory of it. The devices are open. Returns 0 or -1. */
int gb_kept_open(struct gb_core *core, struct gb_kept **ret, struct gb_error *err);

/* Memory that is freed from now on stays with the keeper: for the end of the process. */
void gb_kept_leave(struct gb_kept *kept);
void gb_kept_free(struct gb_kept *kept); /* NULL is accepted */

/* Hands over the memory of a content that was just made, if its kind can be kept; what the keeper does not take is not
 * kept. On the slow lane. */
void gb_kept_add(struct gb_content *content);
/* Its memory was freed. */
void gb_kept_remove(struct gb_content *content);

/* Its bytes are about to be overwritten where they are; they were not, after all. [any thread, never blocks] */
void gb_kept_mark(const struct gb_content *content);
void gb_kept_unmark(const struct gb_content *content);

/* The content will have the bytes of that generation, if its record is committed; it is, and the content has no other
 * bytes of the buffer any more. in_place: a write of its bytes is still under way. A mirrored buffer is not named. The
 * session's lock is held. content may be NULL. */
void gb_kept_name(const struct gb_content *content, const struct gb_buffer_rec *rec);
void gb_kept_named(const struct gb_content *content, const struct gb_buffer_rec *rec, bool in_place);

/* At the start: the content with the bytes of that generation, with a reference, or NULL if none is kept or the device
 * does not take it again. rec gets the run that wrote them. *ret_partial: it was being overwritten. The session's lock
 * is held. */
struct gb_content *gb_kept_find(struct gb_session *session, struct gb_buffer_rec *rec, bool *ret_partial);
/* All records were read: memory that none has is given back. */
void gb_kept_settle(struct gb_kept *kept);

#endif
