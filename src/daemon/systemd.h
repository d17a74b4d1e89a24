/* What systemd is told and hands in. Without libsystemd at build time each of these does nothing. */
#ifndef GB_DAEMON_SYSTEMD_H
#define GB_DAEMON_SYSTEMD_H

#include <stdint.h>

/* Sockets handed in: their number, the first is descriptor *ret_first. 0: none. */
int gb_systemd_sockets(int *ret_first);

/* A state text such as "READY=1". */
void gb_systemd_notify(const char *state);

/* Milliseconds within which "WATCHDOG=1" is expected; 0: never. */
uint64_t gb_systemd_watchdog_ms(void);

#endif
