/* Whether the kernel could encrypt records itself. */
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"

/* The upper protocols that sockets may be given at present: words between spaces. Modules that are not loaded are not
 * among them; to ask a socket for the protocol instead would load one, if the process may. */
#define AVAILABLE "/proc/sys/net/ipv4/tcp_available_ulp"

bool gb_daemon_kernel_tls(const char *root) {
    char path[256];
    char word[32];
    bool found = false;
    FILE *file;

    snprintf(path, sizeof(path), "%s" AVAILABLE, root);
    file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fscanf(file, "%31s", word) == 1)
        found = strcmp(word, "tls") == 0;
    fclose(file);
    return found;
}
