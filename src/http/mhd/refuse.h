/* Connections that get 503 and are closed. On a loop's thread. */
#ifndef GB_HTTP_MHD_REFUSE_H
#define GB_HTTP_MHD_REFUSE_H

#include "http/mhd/loop.h"

enum gb_refusal { GB_REFUSAL_DRAINING, GB_REFUSAL_FULL, GB_REFUSAL_SOURCE, GB_REFUSAL_MEMORY, GB_REFUSAL_PLAIN };

/* Tells the client why, unless it awaits a handshake, and closes the socket. */
void gb_refuse(struct gb_loop *loop, const struct gb_handoff *handoff, enum gb_refusal why);

/* For a newcomer that was squeezed in, a quiet connection ends. False: none gave way, and the newcomer was refused and
 * its place given back. */
bool gb_refuse_or_squeeze(struct gb_loop *loop, const struct gb_handoff *handoff);

#endif
