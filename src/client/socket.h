/* What can be said of a UNIX socket that refuses. */
#ifndef GBC_SOCKET_H
#define GBC_SOCKET_H

#include <stddef.h>

#define GBC_REFUSAL_SIZE 384

/* After EACCES or EPERM: which mode, user and group stand in the way, and who we are. Any thread. */
void gbc_socket_refusal(const char *path, char *ret, size_t size);

#endif
