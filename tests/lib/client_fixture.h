/* A daemon for the tests of libgpubuf, and clients of it and of the fake server. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <sys/types.h>

#include <gpubuf/gpubuf.h>

#include "fake_server.h"
#include "gb_test.h"

struct client_fixture {
    char dir[64];      /* its state directory */
    char url[128];     /* over TCP */
    char unix_url[96]; /* over its UNIX socket */
    pid_t pid;
    gpubuf_client *client; /* over the UNIX socket */
    struct gpubuf_error err;
};

/* Starts gpubufd on the host backend. GPUBUFD names the program; without it the one of the build folder runs. extra:
 * more arguments, ended by NULL; may be NULL. A failure ends the test. The daemon ends with this process at the
 * latest. */
void client_fixture_start(struct client_fixture *f, const char *const *extra);
void client_fixture_stop(struct client_fixture *f);
void client_fixture_kill(struct client_fixture *f); /* kills only the daemon, by SIGKILL */
/* Starts it again in the same state directory, after client_fixture_kill(). */
void client_fixture_again(struct client_fixture *f, const char *const *extra);

/* Makes n bytes of a pattern; the caller frees them. */
unsigned char *client_bytes(size_t n);

/* Asserts that the buffer holds data, by a download with a checksum. */
void client_expect(struct client_fixture *f, const char *name, const unsigned char *data, size_t n);

/* Makes a request, with that JSON unless it is NULL, and returns what gpubuf_request() does. */
int client_ask(gpubuf_client *client, const char *method, const char *target, const char *json,
               struct gpubuf_error *err);
/* Whether the last answer has that text, such as "\"sealed\":true". */
bool client_says(const gpubuf_client *client, const char *text);
/* The number of that key in the last answer, the first one if it is there several times. A failure ends the test. */
uint64_t client_number(const gpubuf_client *client, const char *key);

/* Asserts that a call returned 0, or that it failed with that code. */
#define client_ok(f, expr) ck_assert_msg((expr) == 0, "%s: %s: %s", #expr, (f)->err.slug, (f)->err.detail)
#define client_fails(f, expr, expected)                                                                                \
    do {                                                                                                               \
        ck_assert_int_eq((expr), -1);                                                                                  \
        ck_assert_str_eq((f)->err.slug, gpubuf_code_slug(expected));                                                   \
        ck_assert_int_eq((f)->err.code, (expected));                                                                   \
        ck_assert_msg((f)->err.detail[0] != '\0', "%s says nothing", (f)->err.slug);                                   \
    } while (0)

/* A client of the fake server: no retries, a stall timeout of 1 s. */
gpubuf_client *fake_client(const struct fake_server *fake);

#endif
