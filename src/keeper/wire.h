/* One message of the keeper's socket, with a descriptor or without. Both ends use it. */
#ifndef GB_KEEPER_WIRE_H
#define GB_KEEPER_WIRE_H

#include <stdbool.h>

#include "keeper/keeper.h"

/* Descriptors that the process begins with, beside the standard ones: the bound socket, and its first daemon. */
#define GB_KEEPER_LISTENER_FD 3
#define GB_KEEPER_DAEMON_FD 4

/* Sends a message; fd -1: without a descriptor. Returns 0, or -1 with errno. [never blocks, with flags MSG_DONTWAIT] */
int gb_keeper_send(int socket, enum gb_keeper_op op, uint64_t id, int fd, int flags);

/* Receives a message. *ret_fd: the descriptor that came with it, for the caller to close, or -1. Returns 1; 0: the
 * other end has gone; -1 with errno, EBADMSG for one that is no message of this version. *ret_cut: a descriptor came,
 * and this process could take no more. */
int gb_keeper_receive(int socket, struct gb_keeper_message *ret, int *ret_fd, bool *ret_cut, int flags);

#endif
