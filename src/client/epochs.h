/* Epochs of registered sessions, as answers had them. Requests carry them, so that an owner that was superseded, and
 * does not know it, refuses what it would have done. Counted: the client and the connection of its mappings hold it.
 * Any thread. */
#ifndef GBC_EPOCHS_H
#define GBC_EPOCHS_H

#include "client/internal.h"

#define GBC_EPOCHS 64 /* sessions that are remembered; a further one takes the place of the one not used for longest */

struct gbc_epochs *gbc_epochs_new(void); /* NULL: no memory */
struct gbc_epochs *gbc_epochs_ref(struct gbc_epochs *epochs);
void gbc_epochs_unref(struct gbc_epochs *epochs); /* NULL is permitted */

/* What a request for that target carries; 0: nothing is known, or it is of no session. */
uint64_t gbc_epochs_of(struct gbc_epochs *epochs, const char *target);

/* Takes what the answer to a request says. code: its error, GPUBUF_OK without one. */
void gbc_epochs_answer(struct gbc_epochs *epochs, const char *method, const char *target, const struct gbc_reply *reply,
                       int code);

#endif
