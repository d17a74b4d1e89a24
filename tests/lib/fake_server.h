/* A server on loopback that sends faulty replies. */
#ifndef FAKE_SERVER_H
#define FAKE_SERVER_H

#include <pthread.h>
#include <stdbool.h>

/* Starts the fake server; set keep, local, send_fd and fds before. It serves one connection after another. On each it
 * reads a request's header and the body that Content-Length announces, sends the next reply verbatim, and closes. The
 * last reply repeats. */
struct fake_server {
    const char *const *answers; /* ended by NULL */
    int fd;
    char url[128];
    pthread_t thread;
    unsigned served; /* to be read after fake_stop */
    char last[4096]; /* the header of the last request */
    bool keep;       /* leave connections open until the end */
    unsigned each;   /* requests on each connection; 0: one */
    bool local;      /* on a UNIX socket */
    int send_fd;     /* sent along with each reply, this many times */
    unsigned fds;
};

void fake_start(struct fake_server *fake, const char *const *answers);
void fake_stop(struct fake_server *fake);

#endif
