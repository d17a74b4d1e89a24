#include "daemon/systemd.h"

#ifdef HAVE_SYSTEMD

#include <systemd/sd-daemon.h>

int gb_systemd_sockets(int *ret_first) {
    int n = sd_listen_fds(1);

    *ret_first = SD_LISTEN_FDS_START;
    return n > 0 ? n : 0;
}

void gb_systemd_notify(const char *state) {
    sd_notify(0, state);
}

uint64_t gb_systemd_watchdog_ms(void) {
    uint64_t us = 0;

    return sd_watchdog_enabled(0, &us) > 0 ? us / 1000 : 0;
}

#else

int gb_systemd_sockets(int *ret_first) {
    (void)ret_first;
    return 0;
}

void gb_systemd_notify(const char *state) {
    (void)state;
}

uint64_t gb_systemd_watchdog_ms(void) {
    return 0;
}

#endif
