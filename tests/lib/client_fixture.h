/* A daemon for the tests of libgpubuf, and a server that answers as a broken one would. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <pthread.h>
#include <sys/types.h>

#include <gpubuf/gpubuf.h>

#include "gb_test.h"

struct client_fixture {
    char dir[64];      /* its state directory */
    char url[128];     /* over TCP */
    char unix_url[96]; /* over its UNIX socket */
    pid_t pid;
    gpubuf_client *client; /* over the UNIX socket */
    struct gpubuf_error err;
};

/* Starts gpubufd on the host backend; GPUBUFD names the program, else the one of the build folder. extra: more
 * arguments, ended by NULL; may be NULL. Failures end the test; the daemon ends with this process at the latest. */
void client_fixture_start(struct client_fixture *f, const char *const *extra);
void client_fixture_stop(struct client_fixture *f);
void client_fixture_kill(struct client_fixture *f); /* the daemon alone, by SIGKILL */

/* So many bytes that are not all alike; the caller's. */
unsigned char *client_bytes(size_t n);

/* The buffer holds data, by a download that is checked. */
void client_expect(struct client_fixture *f, const char *name, const unsigned char *data, size_t n);

/* Asserts that a call returned 0, or that it failed with that code. */
#define client_ok(f, expr) ck_assert_msg((expr) == 0, "%s: %s: %s", #expr, (f)->err.slug, (f)->err.detail)
#define client_fails(f, expr, expected)                                                                                \
    do {                                                                                                               \
        ck_assert_int_eq((expr), -1);                                                                                  \
        ck_assert_str_eq((f)->err.slug, gpubuf_code_slug(expected));                                                   \
        ck_assert_int_eq((f)->err.code, (expected));                                                                   \
        ck_assert_msg((f)->err.detail[0] != '\0', "%s says nothing", (f)->err.slug);                                   \
    } while (0)

/* Set keep, local, send_fd and fds first. One connection after another: reads a request's header (and as much of a body
 * as Content-Length says), sends the next of the answers as it stands, closes. After the last answer it begins again
 * with it. */
struct fake_server {
    const char *const *answers; /* ended by NULL */
    int fd;
    char url[128];
    pthread_t thread;
    unsigned served; /* read after fake_stop */
    char last[4096]; /* the header of the last request */
    bool keep;       /* leave connections open until the end */
    bool local;      /* on a UNIX socket */
    int send_fd;     /* goes with each answer so many times */
    unsigned fds;
};

void fake_start(struct fake_server *fake, const char *const *answers);
void fake_stop(struct fake_server *fake);
/* A client of it: no retries, a stall is 1 s. */
gpubuf_client *fake_client(const struct fake_server *fake);

#endif
